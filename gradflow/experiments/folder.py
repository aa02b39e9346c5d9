"""Who may write into a run's folder: nobody beside another run, nobody over an earlier one unless told to."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradflow.errors import FlowError

CONFIG = "config.json"
RESULTS = "results.zarr"
CHECKPOINTS = "checkpoints"
FIGURES = "figures"
# All that a run writes, its record last: a replacement that is killed half-way is still seen to be a run's folder.
CONTENTS = (RESULTS, CHECKPOINTS, FIGURES, "claims.json", "report.html", CONFIG)
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
    make(path)
    with _locked(path):
        if _occupied(path):
            _check_earlier(path, record, overwrite=overwrite, resume=resume)
        if overwrite:
            for name in CONTENTS:
                remove(path / name)
        yield


def remove(path: Path) -> None:
    """Delete a file or a folder so that a kill on the way leaves no half of it under its name."""
    if path.is_dir() and not path.is_symlink():
        doomed = path.with_name(f".{path.name}.part")
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(path, doomed)
        shutil.rmtree(doomed)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """Read a JSON file, None if it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def make(path: Path) -> None:
    """Make a folder and those above it.

    Args:
        path: the folder.

    Raises:
        FlowError: if it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise FlowError(f"--out is {str(path)!r}, which cannot be written ({reason}): choose another folder")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the folder's lock, which goes with the process; where there are no locks, hold nothing."""
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY)
    except ImportError:
        yield
        return
    try:
        # Some network disks have no locks either.
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FlowError(
                    f"--out is {str(path)!r}, which another run is writing to: wait for it or choose another folder"
                ) from None
        yield
    finally:
        os.close(descriptor)


def _occupied(path: Path) -> bool:
    return not all(entry.name.endswith(".part") for entry in path.iterdir())


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
