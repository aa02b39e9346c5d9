"""The commands `list`, `run` and `reproduce`."""

import dataclasses
import shlex
from pathlib import Path
from typing import Literal

from gradflow import experiments
from gradflow.cli.process import prepare
from gradflow.cli.show import complain, console, say, show_claims
from gradflow.cli.words import expect_no_words, parse
from gradflow.errors import FlowError
from gradflow.experiments import Experiment, Row
from gradflow.experiments.record import command
from gradflow.progress import stages
from gradflow.report import ledger_page, run_page

DIFFERS, INTERRUPTED = 1, 130  # exit codes


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of `gradflow run`.

    Attributes:
        preset: where the settings start from: quick (minutes at most) or paper (the paper's own).
        out: folder for results and report; runs/NAME if not given.
        overwrite: replace an earlier run in the folder.
        resume: go on with an unfinished run of equal settings.
    """

    preset: Literal["quick", "paper"] = "quick"
    out: Path | None = None
    overwrite: bool = False
    resume: bool = False


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    """Options of `gradflow reproduce`.

    Attributes:
        out: folder for the ledger, with a folder for each experiment. Finished stages of equal settings are kept.
        overwrite: replace earlier runs.
    """

    out: Path = Path("runs/reproduce")
    overwrite: bool = False


def list_experiments(words: list[str]) -> int:
    """Print name, title, source and number of claims of each experiment."""
    from rich.table import Table
    from rich.text import Text

    expect_no_words("list", words)
    heads = ("name", "title", "source", "claims")
    table = Table(*heads, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for experiment in map(experiments.get, experiments.names()):
        cells = (experiment.title, experiment.source, str(len(experiment.recorded)))
        table.add_row(Text(experiment.name, style="bold"), *map(Text, cells))
    console().print(table)
    return 0


def run_experiment(words: list[str]) -> int:
    """Run one experiment into a folder and print its verdicts."""
    if not words or words[0].startswith("-"):
        known = ", ".join(experiments.names())
        raise FlowError(f"gradflow run needs the name of an experiment first: {known}")
    prepare()
    experiment = experiments.get(words[0])
    name, kind = f"run {experiment.name}", experiment.config
    options, settings = parse(name, words[1:], run=RunOptions(), experiment=kind())
    if options.preset == "paper":
        options, settings = parse(name, words[1:], run=RunOptions(), experiment=kind.paper())
    out = options.out or Path("runs") / experiment.name
    if experiment.plan is not None:
        say(experiment.plan(settings))
    try:
        with stages(experiment.name) as watch:
            claims = experiments.run(
                experiment,
                settings,
                out,
                preset=options.preset,
                overwrite=options.overwrite,
                resume=options.resume,
                page=run_page,
                watch=watch,
            )
    except KeyboardInterrupt:
        again = f"{command(experiment, settings, options.preset)} --out {shlex.quote(str(out))} --resume"
        return complain(f"interrupted; finished stages are kept in {out}, go on with: {again}", INTERRUPTED)
    show_claims(experiment.title, [(claim, None) for claim in claims])
    say(f"report: {out / 'report.html'}")
    return 0


def reproduce_experiments(words: list[str]) -> int:
    """Run experiments, print their verdicts and compare them with those recorded."""
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    prepare()
    chosen = [experiments.get(name) for name in words[:count] or experiments.names()]
    (options,) = parse("reproduce", words[count:], reproduce=ReproduceOptions())

    def watch(experiment: Experiment):
        return stages(experiment.name)

    try:
        rows = experiments.reproduce(
            chosen, options.out, overwrite=options.overwrite, page=run_page, index=ledger_page, watch=watch
        )
    except KeyboardInterrupt:
        return complain(
            f"interrupted; finished stages are kept in {options.out}, the same command goes on", INTERRUPTED
        )
    for experiment in chosen:
        show_claims(experiment.title, [(row.claim, row) for row in rows if row.experiment == experiment.name])
    return _conclude(rows, options.out)


def _conclude(rows: list[Row], out: Path) -> int:
    screen = console()
    differing = [row for row in rows if not row.agrees]
    for row in differing:
        found = row.claim.verdict if row.made else "missing"
        line = f"differs: {row.experiment} {row.claim.id}: {found}, recorded {row.recorded}"
        screen.print(line, style="red", soft_wrap=True, highlight=False, markup=False)
    agreeing = f"{len(rows) - len(differing)} of {len(rows)} verdicts are the recorded ones"
    say(f"{agreeing}\nreport: {out / 'report.html'}")
    return DIFFERS if differing else 0
