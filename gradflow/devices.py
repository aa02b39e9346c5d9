"""Where kernels run: host threads with one kernel each, or one independent kernel on each device."""

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from gradflow.errors import FlowError, shown, whole_number

WAKE_SECONDS = 0.2  # how often the calling thread looks for Ctrl-C
MAPS_USED = 0.5  # part of a process's memory maps above which compiled kernels are dropped


def places(threads: int | None, devices: Sequence[Any] | None) -> list[Any]:
    """Return one device for each kernel that may run at the same time.

    Two Python threads that run a kernel each use two cores of a CPU as well as two XLA host devices do, and need no
    setting; several devices, such as GPUs, get one kernel each.

    Args:
        threads: kernels at a time on a single CPU device; None: as many as there are cores.
        devices: JAX devices; None: all local devices of the default backend, or the one that is set as default.

    Returns:
        Devices, one repeated where several threads share it.

    Raises:
        FlowError: if threads is no whole number, or devices holds something else.
    """
    threads = None if threads is None else whole_number("threads", threads)
    if devices is None:
        default = getattr(jax.config, "jax_default_device")  # noqa: B009 (set when JAX is imported)
        found = [default] if isinstance(default, jax.Device) else jax.local_devices()
    else:
        found = list(devices)
        if not found or not all(isinstance(device, jax.Device) for device in found):
            raise FlowError(f"devices is {shown(devices)}: give JAX devices, such as jax.devices()")
    if len(found) > 1 or found[0].platform != "cpu":
        return found
    return found * (cores() if threads is None else threads)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spread(
    count: int,
    where: Sequence[Any],
    work: Callable[[int, Any, Callable[[], bool]], Any],
    collect: Callable[[int, Any], None],
) -> None:
    """Run jobs 0 ... count - 1, each on the next free place, and collect results in the calling thread.

    Ctrl-C, or an error of a job or of `collect`, lets the jobs under way come to an early end, collects them, and is
    raised again.

    Args:
        count: number of jobs.
        where: places, see `places`.
        work: `work(job, device, cancelled) -> result`; it waits for its arrays, and comes to an early end once
            `cancelled()` is true.
        collect: `collect(job, result)`, called as the jobs end.
    """
    jobs, ended = queue.SimpleQueue(), queue.SimpleQueue()
    for job in range(count):
        jobs.put(job)
    stopped = threading.Event()
    settings = settings_here()

    def serve(device: Any) -> None:
        with settings():
            while not stopped.is_set():
                try:
                    job = jobs.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((job, work(job, device, stopped.is_set), None))
                except BaseException as error:  # raised again by the calling thread
                    ended.put((job, None, error))

    workers = [threading.Thread(target=serve, args=(device,), daemon=True) for device in where[:count]]
    for worker in workers:
        worker.start()
    try:
        for _ in range(count):
            _collect(_next(ended), collect)
    finally:
        stopped.set()
        for worker in workers:
            worker.join()
        while not ended.empty():
            _collect(ended.get(), collect)


def _next(ended: queue.SimpleQueue) -> tuple[int, Any, BaseException | None]:
    """Wait for a result; a signal that another thread receives does not wake this one, so it looks up now and then."""
    while True:
        try:
            return ended.get(timeout=WAKE_SECONDS)
        except queue.Empty:
            continue


def _collect(result: tuple[int, Any, BaseException | None], collect: Callable[[int, Any], None]) -> None:
    job, value, error = result
    if error is not None:
        raise error
    collect(job, value)


def settings_here() -> Callable[[], contextlib.AbstractContextManager]:
    """Return a context that gives another thread this one's settings of JAX."""
    config: Any = jax.config
    x64, device = config.jax_enable_x64, config.jax_default_device

    @contextlib.contextmanager
    def settings() -> Iterator[None]:
        with jax.enable_x64(x64), jax.default_device(device) if device else contextlib.nullcontext():
            yield

    return settings


def release_kernels() -> bool:
    """Drop compiled kernels before the process runs out of memory maps, of which each takes hundreds on a CPU.

    Linux allows a process 65,530 of them by default, and XLA crashes at the next kernel, after a hundred or two.

    Returns:
        Whether they were dropped.
    """
    try:
        with open("/proc/self/maps") as maps, open("/proc/sys/vm/max_map_count") as limit:
            crowded = sum(1 for _ in maps) > MAPS_USED * int(limit.read())
    except (OSError, ValueError):  # another system
        return False
    if crowded:
        jax.clear_caches()
    return crowded
