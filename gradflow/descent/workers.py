"""Host threads that keep one pool of lanes each, on a device of their own or on one they share."""

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from gradflow.descent import lanes as lane_kernels
from gradflow.descent import pool as pools
from gradflow.descent.kernel import Inputs
from gradflow.descent.lane_checkpoint import LaneCheckpoint, Slot, identify
from gradflow.descent.lanes import LaneKernel
from gradflow.descent.results import Results, code
from gradflow.devices import WAKE_SECONDS, settings_here
from gradflow.problem import on_host
from gradflow.types import RESULTS

FIRST_CALL = 10  # iterations of a thread's first call, which measures the speed
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

    def __init__(self, members: np.ndarray):
        """Queue some members."""
        self.members, self.next, self.cancelled = members, 0, False
        self._lock = threading.Lock()

    def is_open(self) -> bool:
        """Return whether members wait."""
        return self.next < len(self.members)

    def take(self, size: int) -> tuple[np.ndarray, bool]:
        """Return the next members, at most `size`, and whether they are the last."""
        with self._lock:
            first, self.next = self.next, min(self.next + size, len(self.members))
            return self.members[first : self.next], self.next == len(self.members)


class Slots:
    """The slots of a run: those of a checkpoint are taken over first, then each thread may open one."""

    def __init__(self, stored: list[Slot]):
        """Start with what was stored."""
        self.all, self._waiting = list(stored), list(stored)
        self._lock = threading.Lock()

    def take(self, pool: pools.Pool | None) -> Slot | None:
        """Return a slot that was stored, else a new one with this pool, if there is any."""
        with self._lock:
            if self._waiting:
                return self._waiting.pop(0)
            if pool is None:
                return None
            self.all.append(Slot(1 + max((slot.number for slot in self.all), default=-1), pool))
            return self.all[-1]


class Desk(NamedTuple):
    """What threads share: members that wait, slots, and where ends are written, kept and counted."""

    queue: Queue
    slots: Slots
    results: Results
    store: LaneCheckpoint | None
    report: Callable[[int], None]


def run(
    work: Work,
    results: Results,
    where: Sequence[Any],
    show: Callable[[float, str], None],
    checkpoint: str | Path | None = None,
) -> tuple[float, bool]:
    """Run every member, and those that broke once more up to their last healthy state.

    Args:
        work: the ensemble.
        results: where its ends are written.
        where: a device for each host thread, see `gradflow.devices.places`.
        show: progress, called with the number of members done.
        checkpoint: folder that keeps the state of the run, None for none.

    Returns:
        The efficiency of the pools, and whether Ctrl-C ended the run.
    """
    done: list[int] = []

    def report(count: int) -> None:
        done.append(count)
        show(sum(done), f"{sum(done):,} of {work.count:,} members")

    store = None if checkpoint is None else LaneCheckpoint(checkpoint, _identity(work, where[0]), results)
    slots = Slots([] if store is None else store.load(_idle(work)))
    report(int((results.code != code(RESULTS.interrupted)).sum()))
    named = [slot.members() for slot in slots.all]
    queue = Queue(np.setdiff1d(np.arange(work.count), np.concatenate([np.arange(0), *named])))
    where, interrupted = where[: -(-work.count // work.lanes)], False
    if len(queue.members) or not all(slot.is_idle() for slot in slots.all):
        works = {device: _compiled(work, device) for device in dict.fromkeys(where)}
        desk = Desk(queue, slots, results, store, report)
        interrupted = _in_threads(where, queue, lambda device: _serve(works[device], desk))
    failed = np.array(sorted(pair for slot in slots.all for pair in slot.broken if results.is_unknown(pair[0])))
    if len(failed) and not interrupted:
        again = Queue(np.arange(len(failed)))
        interrupted = _in_threads(where, again, lambda _: _again(work.here(), failed, again, results, report))
        if store is not None:
            for slot in slots.all:
                store.save(slot, now=True)
    results.valid[[member for member, _ in failed if results.is_unknown(member)]] = False
    iterations = sum(slot.iterations for slot in slots.all)
    return float(results.step.sum() / max(1, work.lanes * iterations)), interrupted


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
                wait(futures, WAKE_SECONDS, FIRST_EXCEPTION)
                _raise_errors(futures)
            _raise_errors(futures)
        except BaseException as error:
            queue.cancelled = True
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                raise
    return interrupted


def _raise_errors(futures: Sequence[Future]) -> None:
    for future in futures:
        if future.done():
            future.result()


def _compiled(work: Work, device: Any) -> Work:
    """Return the work of a device, compiled before its threads start, which otherwise would all do so."""
    with jax.default_device(device):
        work = work.here()
        jax.block_until_ready(_call(work, _idle(work), _feed(work, np.arange(0)), last=True, limit=0))
    return work


def _idle(work: Work) -> pools.Pool:
    params, own = work.take(np.arange(1), work.lanes)
    return pools.idle(work.kernel, params, own, work.shared)


def _identity(work: Work, device: Any) -> dict[str, str]:
    with jax.default_device(device):
        work = work.here()
        arguments = _idle(work), _feed(work, np.arange(0)), work.shared, *_numbers(work, last=True, limit=0)
        program = pools.run.lower(work.kernel, *arguments).as_text()
        arrays = jax.tree.leaves((work.params, work.own, work.shared, np.asarray(work.steps)))
    return identify(program, arrays, work.lanes)


def _feed(work: Work, members: np.ndarray) -> pools.Feed:
    some = members if len(members) else np.arange(1)
    params, own = work.take(some, work.feed_size)
    numbers: Any = (np.resize(some, work.feed_size), np.asarray(len(members)), np.asarray(0))
    return pools.Feed(numbers[0], params, own, *numbers[1:])


def _numbers(work: Work, last: bool, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.asarray(work.steps), np.asarray(last), np.asarray(limit)


def _call(work: Work, pool: pools.Pool, feed: pools.Feed, last: bool, limit: int) -> pools.Carry:
    return pools.run(work.kernel, pool, feed, work.shared, *_numbers(work, last, limit))


def _serve(work: Work, desk: Desk) -> None:
    """Run slots until there is none, and no member for a new one."""
    slot = desk.slots.take(_idle(work) if desk.queue.is_open() else None)
    while slot is not None:
        _pool(work, desk, slot)
        slot = None if desk.queue.cancelled else desk.slots.take(None)


def _pool(work: Work, desk: Desk, slot: Slot) -> None:
    """Run one pool until the queue is empty and every lane idle."""
    held = np.where(slot.active, slot.pool.member, 0)
    slot.pool = slot.pool._replace(own=work.take(held, work.lanes)[1])
    feed = _feed(work, slot.feed)._replace(taken=np.asarray(slot.taken))
    pace, last, is_wanting = Pace(), False, slot.is_idle()
    while not (is_wanting and last):
        if is_wanting:
            slot.feed, last = desk.queue.take(work.feed_size)
            feed = _feed(work, slot.feed)
        # Without `stop` lanes stay in phase: those that a checkpoint left with fewer members end before others come.
        drain = last or work.kernel.stop is None
        carry = pace.timed(functools.partial(_call, work, slot.pool, feed, drain))
        slot.pool, feed, slot.taken = carry.pool, feed._replace(taken=carry.taken), int(carry.taken)
        slot.iterations += int(carry.iteration)
        desk.report(_write_ended(carry, desk.results, slot))
        is_wanting = slot.taken == len(slot.feed) and not (slot.active.any() if drain else slot.active.all())
        if desk.store is not None:
            desk.store.save(slot, now=desk.queue.cancelled or (is_wanting and last))
        if desk.queue.cancelled:
            return _write_running(slot, desk.results)
    return None


def _write_ended(carry: pools.Carry, results: Results, slot: Slot) -> int:
    """Write the members that ended, note those that broke with the step where it was seen; return their number."""
    count = int(carry.ended)
    rows = jax.tree.map(lambda x: np.asarray(x)[:count], carry.out)
    results.write_rows(rows.member, rows.saved, rows.index)
    good = rows.finite
    codes = np.where(rows.stopped, code(RESULTS.event_occurred), code(RESULTS.successful))
    results.write(*jax.tree.map(lambda x: x[good], (rows.member, rows.params, rows.step, codes, rows.stalled)))
    slot.ended.extend(rows.member.tolist())
    slot.broken.extend(zip(rows.member[~good].tolist(), rows.step[~good].tolist(), strict=True))
    return int(good.sum())


def _write_running(slot: Slot, results: Results) -> None:
    """Write how far the members in the lanes came."""
    pool, active = slot.pool, slot.active
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
