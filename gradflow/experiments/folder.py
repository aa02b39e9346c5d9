"""Who may write into a run's folder: nobody beside another run, nobody over an earlier one unless told to."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradflow.errors import FlowError
from gradflow.files import locked, make, occupied, read_json, remove

CONFIG = "config.json"
RESULTS = "results.zarr"
SWEEP = "sweep.zarr"
CHECKPOINTS = "checkpoints"
FIGURES = "figures"
AUDITS = "audits.json"
# All that a run writes, its record last: a replacement that is killed half-way is still seen to be a run's folder.
CONTENTS = (RESULTS, SWEEP, CHECKPOINTS, FIGURES, AUDITS, "claims.json", "report.html", CONFIG)
IDENTITY = ("experiment", "settings", "precision", "device", "versions")


@contextlib.contextmanager
def claimed(path: Path, record: Mapping[str, Any], *, overwrite: bool, resume: bool) -> Iterator[None]:
    """Hold the folder for one run while the block lasts.

    Args:
        path: the folder; made if it does not exist.
        record: what `config.json` will say.
        overwrite: replace an earlier run.
        resume: go on with an earlier run of the same record.

    Yields:
        Nothing; the folder is empty, or holds an earlier run of the same record.

    Raises:
        FlowError: if the folder cannot be written, is used by another run, or holds something that must stay.
    """
    if overwrite and resume:
        raise FlowError(
            "--overwrite and --resume exclude each other: one replaces the earlier run, one goes on with it"
        )
    make(path, "--out")
    with locked(path, "--out"):
        if occupied(path):
            _check_earlier(path, record, overwrite=overwrite, resume=resume)
        if overwrite:
            for name in CONTENTS:
                remove(path / name)
        yield


def _check_earlier(path: Path, record: Mapping[str, Any], *, overwrite: bool, resume: bool) -> None:
    earlier, out = read_json(path / CONFIG), f"--out is {str(path)!r}, which holds"
    if not isinstance(earlier, dict) or "experiment" not in earlier:
        raise FlowError(f"{out} something else than a run of gradflow: choose another folder")
    if resume:
        changes = ", ".join(_differences(earlier, record))
        if changes:
            raise FlowError(
                f"{out} a run with {changes}: --resume needs equal settings; use --overwrite or another --out"
            )
    elif not overwrite:
        raise FlowError(
            f"{out} a run of {earlier['experiment']}: --resume goes on with it, --overwrite replaces it; or choose "
            "another folder"
        )


def _differences(earlier: Any, record: Any, name: str = "") -> Iterator[str]:
    """Yield what differs as `name = earlier value (here new value)`."""
    if isinstance(earlier, dict) and isinstance(record, Mapping):
        keys = IDENTITY if not name else dict.fromkeys([*earlier, *record])
        for key in keys:
            yield from _differences(earlier.get(key), record.get(key), key)
    elif earlier != record:
        yield f"{name} = {earlier!r} (here {record!r})"
