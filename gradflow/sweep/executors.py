"""Who runs the chunks: this process, or the workers of an executor, whose lost chunks come back here."""

import concurrent.futures
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradflow.errors import FlowError, FlowWarning, shown
from gradflow.sweep.grid import Chunk
from gradflow.sweep.work import Work, run_in_worker

Values = dict[str, Any] | None
LOST = (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError)


def check_executor(executor: Any, work: Work) -> None:
    """Refuse what is no executor, and functions that cannot be sent to its processes.

    Args:
        executor: what was passed as `executor`, or None.
        work: what it would run.

    Raises:
        FlowError: naming what is wrong.
    """
    if executor is None:
        return
    if not callable(getattr(executor, "submit", None)):
        raise FlowError(f"executor is {shown(executor)}: give a concurrent.futures.Executor")
    if not isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return
    for name in ("build", "observe", "method", "grid"):
        part = getattr(work, name)
        try:
            pickle.dumps(part)
        except Exception as error:
            what = "axes hold a value" if name == "grid" else f"{name} holds a function"
            raise FlowError(
                f"executor is a process pool, but {what} that cannot be sent to another process "
                f"({str(error).splitlines()[0]}): define it at the top of a module"
            ) from error


def run_here(
    work: Work, chunks: Sequence[Chunk], devices: list[Any] | None, begin: Callable[[Chunk], None]
) -> Iterator[tuple[Chunk, Values]]:
    """Run chunks one after the other, each on all cores.

    Args:
        work: what to do.
        chunks: with which.
        devices: to spread each over.
        begin: called before each.

    Yields:
        Each chunk when it is finished, and its values unless they are in the store.
    """
    for chunk in chunks:
        begin(chunk)
        yield chunk, work.run(chunk, threads=None, devices=devices)


def run_in(
    executor: Any, work: Work, chunks: Sequence[Chunk], begin: Callable[[Chunk], None]
) -> Iterator[tuple[Chunk, Values]]:
    """Run chunks as tasks of an executor, one thread each; those of lost workers are run here at the end.

    Args:
        executor: any `concurrent.futures.Executor`.
        work: what to do.
        chunks: with which.
        begin: called before each that runs here.

    Yields:
        Each chunk when it is finished, in any order.

    Raises:
        FlowError: if the executor cannot be used.
    """
    lost: list[Chunk] = []
    futures = _submitted(executor, work, chunks, lost)
    try:
        for future in concurrent.futures.as_completed(list(futures)):
            chunk = futures.pop(future)
            try:
                values = future.result()
            except BaseException as error:
                if not _is_lost(error):
                    raise
                lost.append(chunk)
            else:
                yield chunk, values
    finally:
        for future in futures:
            future.cancel()
    if lost:
        warnings.warn(
            f"{len(lost)} chunks were lost with the workers of executor=: they are run in this process",
            FlowWarning,
            stacklevel=3,
        )
        yield from run_here(work, lost, None, begin)


def _submitted(executor: Any, work: Work, chunks: Sequence[Chunk], lost: list[Chunk]) -> dict[Any, Chunk]:
    futures: dict[Any, Chunk] = {}
    for chunk in chunks:
        try:
            futures[executor.submit(run_in_worker, work, chunk)] = chunk
        except LOST:
            lost.append(chunk)
        except Exception as error:  # of any kind: executors of other packages have errors of their own
            raise FlowError(
                f"executor is {shown(executor)}, which takes no tasks ({error}): give one that runs"
            ) from error
    return futures


def _is_lost(error: BaseException) -> bool:
    """Return whether a worker died; Dask has an error of its own for that."""
    return isinstance(error, LOST) or type(error).__name__ == "KilledWorker"
