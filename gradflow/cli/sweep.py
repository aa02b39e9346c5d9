"""The command `sweep`."""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path

from gradflow.cli.experiments import INTERRUPTED
from gradflow.cli.process import prepare
from gradflow.cli.show import complain, say, show_rows
from gradflow.cli.words import parse
from gradflow.experiments import run_grid
from gradflow.sweep import overview, spec_file
from gradflow.sweep.settings import Settings

NAME = "sweep"


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Options of `gradflow sweep`.

    Attributes:
        out: folder for store, record and figure; runs/sweep, or runs/ and the name of the file, if not given.
        show: what table and figure show: final_entropy, final_largest_weight, final_loss, num_steps, num_gradients or
            t_final.
        overwrite: replace an earlier sweep in the folder.
        resume: go on with an unfinished sweep of equal settings.
    """

    out: Path | None = None
    show: str = "final_entropy"
    overwrite: bool = False
    resume: bool = False


def run_sweep(words: list[str]) -> int:
    """Run a sweep into a folder and print its summary."""
    prepare()
    spec = Path(words[0]) if words and not words[0].startswith("-") else None
    typed = list(_expanded(words[1:] if spec else words))
    options, settings = parse(NAME, [*_written(spec, typed), *typed], run=SweepOptions(), sweep=Settings())
    out = options.out or Path("runs") / (spec.stem if spec else NAME)
    try:
        ds = run_grid(settings, out, show=options.show, overwrite=options.overwrite, resume=options.resume)
    except KeyboardInterrupt:
        kept = [word for word in words if word not in ("--overwrite", "--resume")]
        again = shlex.join(["gradflow", NAME, *kept, "--resume"])
        return complain(f"interrupted; finished chunks are kept in {out}, go on with: {again}", INTERRUPTED)
    show_rows(options.show, *overview.rows(ds, options.show))
    say(f"results: {out / 'sweep.zarr'}")
    return 0


def _expanded(words: list[str]) -> Iterator[str]:
    """Yield the words, ranges written out."""
    name = ""
    for word in words:
        option, equals, value = word.partition("=")
        if word.startswith("--"):
            name = option.removeprefix("--").replace("-", "_")
            yield option
        if equals or not word.startswith("--"):
            yield from spec_file.expand(name, [value if word.startswith("--") else word])


def _written(spec: Path | None, typed: list[str]) -> Iterator[str]:
    """Yield the settings of the file as words, without those that are typed as well."""
    given = {word.removeprefix("--").replace("-", "_") for word in typed if word.startswith("--")}
    for name, values in (spec_file.read_spec(spec) if spec else {}).items():
        if name not in given:
            yield f"--{name.replace('_', '-')}"
            yield from spec_file.expand(name, values)
