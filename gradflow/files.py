"""Files that are there whole or not at all, and folders that one run at a time writes."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradflow.errors import FlowError


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


def remove(path: Path) -> None:
    """Delete a file or a folder so that a kill on the way leaves no half of it under its name."""
    if path.is_dir() and not path.is_symlink():
        doomed = path.with_name(f".{path.name}.part")
        shutil.rmtree(doomed, ignore_errors=True)
        os.replace(path, doomed)
        shutil.rmtree(doomed)
    else:
        path.unlink(missing_ok=True)


def occupied(path: Path) -> bool:
    """Return whether a folder holds more than what an interrupted write left behind."""
    return not all(entry.name.endswith(".part") for entry in path.iterdir())


def make(path: Path, argument: str) -> None:
    """Make a folder and those above it.

    Args:
        path: the folder.
        argument: what the user calls it, for messages.

    Raises:
        FlowError: if it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(path, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise FlowError(f"{argument} is {str(path)!r}, which cannot be written ({reason}): choose another folder")


@contextlib.contextmanager
def locked(path: Path, argument: str) -> Iterator[None]:
    """Hold the folder's lock, which goes with the process; where there are no locks, hold nothing.

    Args:
        path: the folder.
        argument: what the user calls it, for messages.

    Yields:
        Nothing.

    Raises:
        FlowError: if another run holds it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_lock(path, alone=True, wait=False))
        except BlockingIOError:
            raise FlowError(
                f"{argument} is {str(path)!r}, which another run is writing to: wait for it or choose another folder"
            ) from None
        yield


@contextlib.contextmanager
def turn(path: Path, *, alone: bool) -> Iterator[None]:
    """Wait for a folder: many may write into it at a time, but nobody while one cleans it alone.

    Args:
        path: the folder.
        alone: whether to be the only one.

    Yields:
        Nothing.
    """
    with _lock(path, alone=alone, wait=True):
        yield


@contextlib.contextmanager
def _lock(path: Path, *, alone: bool, wait: bool) -> Iterator[None]:
    """Hold a lock on a folder, or nothing where the system or the disk has none; BlockingIOError if it is taken."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # a network disk
            pass
        yield
    finally:
        os.close(descriptor)
