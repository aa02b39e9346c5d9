"""Runs an experiment into a folder: stages that are not stored yet, then claims, figures and the page."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gradflow.experiments import audits, folder
from gradflow.experiments.base import Claim, Experiment, Stage
from gradflow.experiments.record import now, record
from gradflow.experiments.settings import check_settings
from gradflow.experiments.writer import Writer, open_run

Watch = Callable[[str, int, int], None]  # (what runs, how many parts are done, of how many)
Page = Callable[[Path], str]


def run(
    experiment: Experiment,
    config: Any,
    path: str | Path,
    *,
    preset: str = "quick",
    overwrite: bool = False,
    resume: bool = False,
    page: Page | None = None,
    watch: Watch | None = None,
) -> list[Claim]:
    """Run an experiment, keep every finished stage, and write what it shows.

    Claims are judged on what was stored, so a resumed run says the same as one that never stopped.

    Args:
        experiment: what to run.
        config: its settings.
        path: the folder.
        preset: where the settings started from, "quick" or "paper"; recorded.
        overwrite: replace an earlier run in the folder.
        resume: go on with an earlier run of equal settings, if there is one.
        page: makes the text of `report.html` from the folder.
        watch: told before each part what runs next.

    Returns:
        The claims. A run that ends early raises, and leaves every recorded claim as "not tested".

    Raises:
        FlowError: if a setting or the folder cannot be used, or a stage fails.
        KeyboardInterrupt: on Ctrl-C, after what was finished is safe.
    """
    check_settings(config)
    description = record(experiment, config, preset)
    with open_run(Path(path), description, overwrite=overwrite, resume=resume) as writer:
        try:
            claims = _run(experiment, config, writer, watch or _unwatched)
        except BaseException as error:
            # The reason of the end is what the caller must see, also where a full disk ends this as well.
            with contextlib.suppress(OSError):
                reason = "the run was interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
                writer.write_claims([untested(name, reason) for name in experiment.recorded])
                _write_page(writer, page)
            raise
        writer.write_json(folder.CONFIG, {**description, "finished": now()})
        _write_page(writer, page)
    return claims


def untested(name: str, reason: str) -> Claim:
    """Stand in for the claim of that id, which no run has judged for that reason."""
    return Claim(name, f"not judged: {' '.join(reason.split())}", "", "", "not tested", "")


def _run(experiment: Experiment, config: Any, writer: Writer, watch: Watch) -> list[Claim]:
    stages = experiment.stages(config)
    parts = len(stages) + 1
    for done, stage in enumerate(stages):
        watch(stage.name, done, parts)
        if not writer.stored(stage.name):
            _compute(stage, writer)
    watch("figures", len(stages), parts)
    results = {stage.name: writer.load(stage.name) for stage in stages}
    claims = experiment.claims(config, results)
    writer.write_claims(claims)
    checked = list(audits.all_audits(results))
    if checked:
        writer.write_audits(checked)
    writer.write_figures(experiment.figures(config, results))
    return claims


def _compute(stage: Stage, writer: Writer) -> None:
    with writer.workspace(stage.name) as workspace:
        with _remembered_interrupt() as interrupted:
            arrays = stage.compute(workspace)
        if interrupted.is_set():
            raise KeyboardInterrupt
        writer.store(stage.name, arrays)


@contextlib.contextmanager
def _remembered_interrupt() -> Iterator[threading.Event]:
    """Remember Ctrl-C where the code under it catches it, as runs with `throw=False` do to hand back what they have.

    Yields:
        An event that is set once Ctrl-C was pressed.
    """
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def remember(number, frame):
        interrupted.set()
        signal.default_int_handler(number, frame)

    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, remember)
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def _write_page(writer: Writer, page: Page | None) -> None:
    if page is not None:
        writer.write_page(page)


def _unwatched(part: str, done: int, parts: int) -> None:
    """Watch nothing."""
