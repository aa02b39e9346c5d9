"""The ledger: every claim of every experiment, its verdict here, and the verdict that the repository records."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gradflow import files
from gradflow.errors import FlowError
from gradflow.experiments.base import Claim, Experiment
from gradflow.experiments.runner import Page, run, untested
from gradflow.experiments.writer import Writer


@dataclasses.dataclass(frozen=True)
class Row:
    """A claim in the ledger.

    Attributes:
        experiment: its name.
        claim: what was found, or an empty one that is "not tested".
        recorded: the verdict in the repository, None for a claim that is not recorded.
        made: whether the run made the claim; a recorded one that it did not make agrees with nothing.
    """

    experiment: str
    claim: Claim
    recorded: str | None
    made: bool = True

    @property
    def agrees(self) -> bool:
        """Whether the verdict is the recorded one."""
        return self.made and self.claim.verdict == self.recorded


def rows(experiment: Experiment, claims: list[Claim], reason: str = "this run did not make it") -> list[Row]:
    """Return the ledger's rows of one experiment.

    Args:
        experiment: which.
        claims: what it found.
        reason: why recorded claims are missing, if any are.

    Returns:
        A row for each claim, then one for each recorded claim that is missing.
    """
    made = [Row(experiment.name, claim, experiment.recorded.get(claim.id)) for claim in claims]
    known = {claim.id for claim in claims}
    missing = [untested(name, reason) for name in experiment.recorded if name not in known]
    return made + [Row(experiment.name, claim, experiment.recorded[claim.id], made=False) for claim in missing]


def reproduce(
    experiments: list[Experiment],
    path: str | Path,
    *,
    overwrite: bool = False,
    page: Page | None = None,
    index: Page | None = None,
    watch: Callable[[Experiment], Any] | None = None,
) -> list[Row]:
    """Run experiments with the preset `quick`, each into its own folder, and compare verdicts with the recorded ones.

    Stages that an earlier call with equal settings stored are not computed again. An experiment that fails leaves its
    claims as "not tested", and the others run.

    Args:
        experiments: what to run.
        path: the folder of the folders; also gets `ledger.json`.
        overwrite: replace earlier runs.
        page: makes the text of each `report.html`.
        index: makes the text of the `report.html` that leads to them.
        watch: `watch(experiment)` is a context manager that gives what `runner.run` calls `watch`.

    Returns:
        The ledger.

    Raises:
        FlowError: if the folder cannot be written.
    """
    path = Path(path)
    files.make(path, "--out")
    ledger = [row for experiment in experiments for row in _rows(experiment, path, overwrite, page, watch)]
    writer = Writer(path)
    writer.write_json("ledger.json", _described(experiments, ledger))
    if index is not None:
        writer.write_page(index)
    return ledger


def _rows(experiment: Experiment, path: Path, overwrite: bool, page: Page | None, watch) -> list[Row]:
    try:
        return rows(experiment, _claims(experiment, path / experiment.name, overwrite, page, watch))
    except FlowError as error:
        return rows(experiment, [], str(error))


def _claims(experiment: Experiment, path: Path, overwrite: bool, page: Page | None, watch) -> list[Claim]:
    with contextlib.nullcontext() if watch is None else watch(experiment) as show:
        config = experiment.config()
        return run(experiment, config, path, overwrite=overwrite, resume=not overwrite, page=page, watch=show)


def _described(experiments: list[Experiment], ledger: list[Row]) -> dict[str, Any]:
    return {
        "agrees": all(row.agrees for row in ledger),
        "experiments": [
            {name: getattr(experiment, name) for name in ("name", "title", "source")} for experiment in experiments
        ],
        "rows": list(_flat(ledger)),
    }


def _flat(ledger: list[Row]) -> Iterator[dict[str, Any]]:
    for row in ledger:
        claim = dataclasses.asdict(row.claim)
        yield {"experiment": row.experiment, **claim, "recorded": row.recorded, "agrees": row.agrees}
