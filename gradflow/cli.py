"""The command line: parse, call, print."""

import contextlib
import dataclasses
import io
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

import gradflow
from gradflow import experiments
from gradflow.errors import FlowError, nearest, unknown
from gradflow.experiments import Claim, Experiment, Row
from gradflow.experiments.record import command
from gradflow.progress import stages
from gradflow.report import ledger_page, run_page

DIFFERS, USAGE, INTERRUPTED = 1, 2, 130  # exit codes
COLOURS = {"holds": "green", "holds in part": "yellow", "does not hold": "red", "not tested": "dim"}
CARD_WIDTH = 110  # columns below which a claim takes several lines instead of a row
PLAIN_WIDTH = 160  # columns where the output is no terminal

USAGE_TEXT = """\
usage: gradflow COMMAND

  gradflow list                                         name, title, source and number of claims of each experiment
  gradflow run NAME [--preset quick|paper] [--out DIR] [--key value ...] [--overwrite | --resume]
                                                        run one: results, figures, verdicts and report.html
  gradflow run NAME --help                              every setting of an experiment, with its default
  gradflow reproduce [NAME ...] [--out DIR] [--overwrite]
                                                        run all and compare each verdict with the recorded one
  gradflow citation                                     what to cite, as BibTeX
  gradflow --version
"""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `gradflow`; None takes them from the process.

    Returns:
        The exit code: 0, 1 where a verdict is not the recorded one, 2 for input that cannot be used, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except FlowError as error:
        return _complain(str(error), USAGE)
    except OSError as error:
        return _complain(f"{error.filename or 'input or output'}: {error.strerror or error}", USAGE)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except SystemExit as end:  # tyro, after it has shown the help
        return int(end.code or 0)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE_TEXT, end="")
        return 0
    if words[0] == "--version":
        print(f"gradflow {gradflow.__version__}")
        return 0
    if words[1:] == ["--help"] and words[0] != "reproduce":
        return _dispatch([])
    if words[0] not in COMMANDS:
        raise unknown("command", words[0], COMMANDS)
    return COMMANDS[words[0]](words[1:])


def _list(words: list[str]) -> int:
    from rich.table import Table
    from rich.text import Text

    _expect_no_words("list", words)
    heads = ("name", "title", "source", "claims")
    table = Table(*heads, box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for experiment in map(experiments.get, experiments.names()):
        cells = (experiment.title, experiment.source, str(len(experiment.recorded)))
        table.add_row(Text(experiment.name, style="bold"), *map(Text, cells))
    _console().print(table)
    return 0


def _run(words: list[str]) -> int:
    if not words or words[0].startswith("-"):
        known = ", ".join(experiments.names())
        raise FlowError(f"gradflow run needs the name of an experiment first: {known}")
    prepare()
    experiment = experiments.get(words[0])
    name, kind = f"run {experiment.name}", experiment.config
    options, settings = _parse(name, words[1:], run=RunOptions(), experiment=kind())
    if options.preset == "paper":
        options, settings = _parse(name, words[1:], run=RunOptions(), experiment=kind.paper())
    out = options.out or Path("runs") / experiment.name
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
        return _complain(f"interrupted; finished stages are kept in {out}, go on with: {again}", INTERRUPTED)
    _show_claims(experiment.title, [(claim, None) for claim in claims])
    _say(f"report: {out / 'report.html'}")
    return 0


def _reproduce(words: list[str]) -> int:
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    prepare()
    chosen = [experiments.get(name) for name in words[:count] or experiments.names()]
    (options,) = _parse("reproduce", words[count:], reproduce=ReproduceOptions())

    def watch(experiment: Experiment):
        return stages(experiment.name)

    try:
        rows = experiments.reproduce(
            chosen, options.out, overwrite=options.overwrite, page=run_page, index=ledger_page, watch=watch
        )
    except KeyboardInterrupt:
        return _complain(
            f"interrupted; finished stages are kept in {options.out}, the same command goes on", INTERRUPTED
        )
    for experiment in chosen:
        _show_claims(experiment.title, [(row.claim, row) for row in rows if row.experiment == experiment.name])
    return _conclude(rows, options.out)


def _citation(words: list[str]) -> int:
    _expect_no_words("citation", words)
    print(gradflow.citation(), end="")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": _list,
    "run": _run,
    "reproduce": _reproduce,
    "citation": _citation,
}


def prepare() -> None:
    """Set the process up for experiments: float64, figures without windows, compiled kernels kept between calls."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    if "JAX_ENABLE_X64" not in os.environ:
        jax.config.update("jax_enable_x64", True)
    # On jax 0.10 a kernel with a host callback, such as a run-time check of Equinox, never enters the cache. Equinox
    # reads the variable when it is imported, which `import gradflow` has done by now.
    if "EQX_ON_ERROR" not in os.environ:
        sys.modules["equinox._errors"].EQX_ON_ERROR = "off"  # pyright: ignore[reportAttributeAccessIssue]
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradflow" / "jax"
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK | os.X_OK):
            jax.config.update("jax_compilation_cache_dir", str(cache))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def _expect_no_words(name: str, words: list[str]) -> None:
    if words:
        raise FlowError(f"gradflow {name} takes no options, got {shlex.join(words)}")


def _parse(name: str, words: list[str], **defaults: Any) -> list[Any]:
    """Return the options as instances of the defaults' dataclasses, whose fields share one level."""
    import tyro

    _check_options(name, words, {option for part in defaults.values() for option in _options(part)})
    groups = dataclasses.make_dataclass("Groups", [(group, type(default)) for group, default in defaults.items()])
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            parsed = tyro.cli(
                groups,
                prog=f"gradflow {name}",
                description="",
                args=words,
                default=groups(**defaults),
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise FlowError(f"{_sentence(messages.getvalue())} See gradflow {name} --help") from None
    return [getattr(parsed, group) for group in defaults]


def _check_options(name: str, words: list[str], known: set[str]) -> None:
    for word in words:
        option = word.split("=")[0].replace("_", "-")
        if word.startswith("--") and option not in known | {"--help"}:
            raise FlowError(f"unknown option {option!r} of gradflow {name}{nearest(option, known)}")


def _options(part: Any) -> Iterator[str]:
    for field in dataclasses.fields(part):
        option = field.name.replace("_", "-")
        yield f"--{option}"
        if isinstance(getattr(part, field.name), bool):
            yield f"--no-{option}"


def _sentence(message: str) -> str:
    """Return what a parser's boxed message says, up to its first rule, as one line."""
    lines = [re.sub("[│╭╮╰╯─]", "", line).strip() for line in re.split("─{5,} │", message)[0].splitlines()[1:]]
    return " ".join(filter(None, lines)).rstrip(".") + "."


def _complain(message: str, code: int) -> int:
    print(f"gradflow: {' '.join(message.split())}", file=sys.stderr)
    return code


def _console() -> Any:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def _show_claims(title: str, claims: list[tuple[Claim, Row | None]]) -> None:
    console = _console()
    console.print()
    console.print(title, style="bold", highlight=False, markup=False)
    if console.width < CARD_WIDTH:
        for claim, row in claims:
            console.print(_card(claim, row))
    else:
        console.print(_table(claims))


def _table(claims: list[tuple[Claim, Row | None]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, pad_edge=False, header_style="dim")
    for name, ratio in (("claim", 5), ("the paper", 3), ("measured", 5), ("verdict", None), ("control", 4)):
        table.add_column(name, ratio=ratio, min_width=None if ratio else 13)
    for claim, row in claims:
        cells = map(Text, (claim.statement, claim.paper, claim.measured))
        table.add_row(*cells, _verdict(claim, row), Text(claim.control))
    return table


def _card(claim: Claim, row: Row | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row("", "")
    grid.add_row("claim", Text(claim.statement, style="bold"))
    for name in ("paper", "measured", "control"):
        if getattr(claim, name):
            grid.add_row(name, Text(getattr(claim, name)))
    grid.add_row("verdict", _verdict(claim, row))
    return grid


def _verdict(claim: Claim, row: Row | None) -> Any:
    from rich.text import Text

    text = Text(claim.verdict, style=f"bold {COLOURS[claim.verdict]}")
    if row is not None and not row.agrees:
        text.append(f"\nrecorded: {row.recorded}", style="bold red")
    elif row is not None:
        text.append("\nas recorded", style="dim")
    return text


def _conclude(rows: list[Row], out: Path) -> int:
    console = _console()
    differing = [row for row in rows if not row.agrees]
    for row in differing:
        found = row.claim.verdict if row.made else "missing"
        line = f"differs: {row.experiment} {row.claim.id}: {found}, recorded {row.recorded}"
        console.print(line, style="red", soft_wrap=True, highlight=False, markup=False)
    agreeing = f"{len(rows) - len(differing)} of {len(rows)} verdicts are the recorded ones"
    _say(f"{agreeing}\nreport: {out / 'report.html'}")
    return DIFFERS if differing else 0


def _say(message: str) -> None:
    _console().print(message, soft_wrap=True, highlight=False, markup=False)
