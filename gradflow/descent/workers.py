"""Host threads that keep one pool of lanes each, on a device of their own or on one they share."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.descent import lanes as lane_kernels
from gradflow.descent import pool as pools
from gradflow.descent.kernel import Inputs
from gradflow.descent.lanes import LaneKernel
from gradflow.descent.results import Results, code
from gradflow.devices import WAKE_SECONDS, settings_here
from gradflow.problem import on_host
from gradflow.types import RESULTS

FIRST_CALL = 500  # iterations of a thread's first call, which measures the speed
CALL_SECONDS = 0.5  # length of later ones: how long Ctrl-C and the progress bar wait
FEED = 4  # members handed over at once, a lane: enough to be rare, few enough to share well among threads


@dataclasses.dataclass(frozen=True)
class Work:
    """An ensemble on the host, ready to be handed to lanes."""

    kernel: LaneKernel
    params: list[Any]
    own: Inputs
    shared: Inputs
    steps: int
    lanes: int

    @property
    def count(self) -> int:
        """Number of members."""
        return len(self.params[0])

    @property
    def feed_size(self) -> int:
        """Members handed to a pool at once; without `stop` all of its lanes end together."""
        return self.lanes * (1 if self.kernel.stop is None else FEED)

    def saved_shapes(self) -> PyTree[jax.ShapeDtypeStruct]:
        """Return the shapes of one member's saved rows; this traces the loss and what is observed, and checks them."""
        params, own = self.take(np.arange(1), 1)
        shapes = jax.eval_shape(functools.partial(lane_kernels.start, self.kernel), params, own, self.shared).saved
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes)

    def take(self, members: np.ndarray, size: int) -> tuple[list[Any], Inputs]:
        """Return parameters and own inputs of some members, repeated up to `size`."""
        # No kernel depends on how many members there are: a last, smaller group never compiles again.
        index = np.resize(members, size)
        return jax.tree.map(lambda x: x[index], (self.params, self.own))

    def here(self) -> "Work":
        """Return the same with what members share, and their keys, on the default device."""
        own = self.own._replace(key=jax.tree.map(_here, self.own.key))
        return dataclasses.replace(self, own=own, shared=jax.tree.map(_here, self.shared))


def _here(x: Any) -> Any:
    """Return an array on the default device, free to follow others: one that is bound to a device would lead them."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_here(jax.random.key_data(x)), impl=jax.random.key_impl(x))
    return jnp.asarray(on_host(x))


class Queue:
    """Members that no thread has taken, in order; and whether the threads shall end early."""

    def __init__(self, count: int):
        """Queue `count` members."""
        self.count, self.next, self.cancelled = count, 0, False
        self._lock = threading.Lock()

    def take(self, size: int) -> tuple[np.ndarray, bool]:
        """Return the next members, at most `size`, and whether they are the last."""
        with self._lock:
            first, self.next = self.next, min(self.next + size, self.count)
            return np.arange(first, self.next), self.next == self.count


def run(work: Work, results: Results, where: Sequence[Any], show: Callable[[float, str], None]) -> tuple[float, bool]:
    """Run every member, and those that broke once more up to their last healthy state.

    Args:
        work: the ensemble.
        results: where its ends are written.
        where: a device for each host thread, see `gradflow.devices.places`.
        show: progress, called with the number of members done.

    Returns:
        The efficiency of the pools, and whether Ctrl-C ended the run.
    """
    iterations: list[int] = []
    broken: list[tuple[int, int]] = []
    done: list[int] = []

    def report(count: int) -> None:
        done.append(count)
        show(sum(done), f"{sum(done):,} of {work.count:,} members")

    queue = Queue(work.count)
    where = where[: -(-work.count // work.lanes)]
    works = {device: _compiled(work, device) for device in dict.fromkeys(where)}
    interrupted = _in_threads(
        where, queue, lambda device: iterations.append(_pool(works[device], queue, results, broken, report))
    )
    if broken and not interrupted:
        failed = np.array(sorted(broken))
        again = Queue(len(failed))
        interrupted = _in_threads(where, again, lambda device: _again(works[device], failed, again, results, report))
    unknown = [member for member, _ in broken if results.code[member] == code(RESULTS.interrupted)]
    results.valid[unknown] = False
    return float(results.step.sum() / max(1, work.lanes * sum(iterations))), interrupted


class Pace:
    """How many steps a call of a kernel takes, so that it returns after about `CALL_SECONDS`."""

    def __init__(self):
        """Start with few steps."""
        self.steps = FIRST_CALL

    def timed(self, call: Callable[[int], Any]) -> Any:
        """Return `call(steps)` when it is ready, and set the steps of the next call."""
        begin = time.perf_counter()
        result = jax.block_until_ready(call(self.steps))
        self.steps = max(1, int(self.steps * min(10.0, CALL_SECONDS / max(time.perf_counter() - begin, 1e-6))))
        return result


def _in_threads(where: Sequence[Any], queue: Queue, job: Callable[[Any], Any]) -> bool:
    """Run a job in a thread for each place, under the caller's settings of JAX; return whether Ctrl-C came."""
    settings = settings_here()

    def configured(device: Any) -> None:
        with settings(), jax.default_device(device):
            job(device)

    interrupted = False
    with ThreadPoolExecutor(len(where), "gradflow") as executor:
        futures = [executor.submit(configured, device) for device in where]
        try:
            while not all(future.done() for future in futures):
                # A signal that another thread receives does not wake this one: it looks up now and then.
                for future in wait(futures, WAKE_SECONDS, FIRST_EXCEPTION).done:
                    future.result()
        except BaseException as error:
            queue.cancelled = True
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                raise
    return interrupted


def _compiled(work: Work, device: Any) -> Work:
    """Return the work of a device, compiled before its threads start, which otherwise would all do so."""
    with jax.default_device(device):
        work = work.here()
        params, own = work.take(np.arange(1), work.lanes)
        pool = pools.idle(work.kernel, params, own, work.shared)
        jax.block_until_ready(_call(work, pool, _feed(work, np.arange(0)), last=True, limit=0))
    return work


def _feed(work: Work, members: np.ndarray) -> pools.Feed:
    some = members if len(members) else np.arange(1)
    params, own = work.take(some, work.feed_size)
    numbers: Any = (np.resize(some, work.feed_size), np.asarray(len(members)), np.asarray(0))
    return pools.Feed(numbers[0], params, own, *numbers[1:])


def _call(work: Work, pool: pools.Pool, feed: pools.Feed, last: bool, limit: int) -> pools.Carry:
    numbers = (np.asarray(work.steps), np.asarray(last), np.asarray(limit))
    return pools.run(work.kernel, pool, feed, work.shared, *numbers)


def _pool(work: Work, queue: Queue, results: Results, broken: list, report: Callable[[int], None]) -> int:
    """Run one pool until the queue is empty and every lane idle; return its iterations."""
    params, own = work.take(np.arange(1), work.lanes)
    pool, pace, iterations, last = pools.idle(work.kernel, params, own, work.shared), Pace(), 0, False
    while not last:
        members, last = queue.take(work.feed_size)
        feed, is_wanting = _feed(work, members), False
        while not is_wanting:
            carry = pace.timed(functools.partial(_call, work, pool, feed, last))
            pool, feed = carry.pool, feed._replace(taken=carry.taken)
            iterations += int(carry.iteration)
            report(_write_ended(carry, results, broken))
            active = np.asarray(pool.member) != pools.IDLE
            if queue.cancelled:
                _write_running(pool, active, results)
                return iterations
            is_wanting = int(carry.taken) == len(members) and not (active.any() if last else active.all())
    return iterations


def _write_ended(carry: pools.Carry, results: Results, broken: list[tuple[int, int]]) -> int:
    """Write the members that ended, note those that broke with the step where it was seen; return their number."""
    count = int(carry.ended)
    rows = jax.tree.map(lambda x: np.asarray(x)[:count], carry.out)
    results.write_rows(rows.member, rows.saved, rows.index)
    good = rows.finite
    codes = np.where(rows.stopped, code(RESULTS.event_occurred), code(RESULTS.successful))
    results.write(*jax.tree.map(lambda x: x[good], (rows.member, rows.params, rows.step, codes, rows.stalled)))
    broken.extend(zip(rows.member[~good].tolist(), rows.step[~good].tolist(), strict=True))
    return int(good.sum())


def _write_running(pool: pools.Pool, active: np.ndarray, results: Results) -> None:
    """Write how far the members in the lanes came."""
    good = active & np.all([np.isfinite(x).reshape(len(active), -1).all(1) for x in pool.state.params], axis=0)
    member, state = jax.tree.map(lambda x: np.asarray(x)[good], (pool.member, pool.state))
    results.write_rows(member, state.saved, state.index)
    results.write(member, state.params, state.step, code(RESULTS.interrupted), 0.0)


def _again(work: Work, broken: np.ndarray, queue: Queue, results: Results, report: Callable[[int], None]) -> None:
    """Run members that broke up to their last healthy state; `broken` holds member and last step in each row."""
    last = False
    while not (last or queue.cancelled):
        chosen, last = queue.take(work.lanes)
        if len(chosen):
            members, upper = broken[chosen].T
            _to_last_healthy(work, members, np.resize(upper, work.lanes), queue, results)
            report(len(members))


def _to_last_healthy(work: Work, members: np.ndarray, upper: np.ndarray, queue: Queue, results: Results) -> None:
    params, own = work.take(members, work.lanes)
    state = lane_kernels.start(work.kernel, params, own, work.shared)._replace(saved=())
    started, pace, limit = np.asarray(state.finite), Pace(), 0
    while np.any(state.finite) and limit < upper.max():
        if queue.cancelled:
            return
        limit += pace.steps
        to = np.minimum(upper, limit)
        state = pace.timed(lambda _: lane_kernels.advance_checked(work.kernel, state, own, work.shared, to))  # noqa: B023
    stalled = lane_kernels.stalled_fraction(work.kernel, state, own, work.shared)
    codes = np.where(started, code(RESULTS.nonfinite_loss), code(RESULTS.nonfinite_start))
    ends = jax.tree.map(lambda x: np.asarray(x)[: len(members)], (state.params, state.step, codes, stalled))
    results.write(members, *ends)
