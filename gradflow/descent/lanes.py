"""Many members in one kernel, each in a lane: what they share, and the second run of members that broke."""

import dataclasses
import functools
from collections.abc import Callable

import jax
from jaxtyping import Array, Float, Int

from gradflow.descent import kernel as kernels
from gradflow.descent.kernel import Inputs, Kernel, State


@dataclasses.dataclass(frozen=True)
class LaneKernel:
    """All that picks a compiled ensemble.

    Attributes:
        one: the kernel of one member.
        stop: when a member ends early, None for never.
    """

    one: Kernel
    stop: Callable | None


def join(own: Inputs, shared: Inputs) -> Inputs:
    """Return the inputs of a member from its own and the shared ones; each has None where the other has an array."""
    frozen = [a if b is None else b for a, b in zip(own.frozen, shared.frozen, strict=True)]
    return Inputs(frozen, shared.save_at, own.key, own.hyperparameters)


@functools.partial(jax.jit, static_argnums=0)
def start(kernel: LaneKernel, params: list[Array], own: Inputs, shared: Inputs) -> State:
    """Start a member in each lane; steps and saved rows are its own, `finite` says whether its start is healthy."""

    def one(params: list[Array], own: Inputs) -> State:
        inputs = join(own, shared)
        state = kernels.start(kernel.one, params, inputs)
        return state._replace(finite=kernels.is_healthy(kernel.one, params, state.step, inputs))

    return jax.vmap(one)(params, own)


@functools.partial(jax.jit, static_argnums=0)
def advance_checked(kernel: LaneKernel, state: State, own: Inputs, shared: Inputs, limit: Int[Array, " L"]) -> State:
    """Run each lane to its step `limit` or to its last healthy state, without saving."""

    def one(state: State, own: Inputs, limit: Int[Array, ""]) -> State:
        return kernels.run_checked(kernel.one, state, join(own, shared), limit)

    with jax.default_matmul_precision("highest"):
        return jax.vmap(one)(state, own, limit)


@functools.partial(jax.jit, static_argnums=0)
def stalled_fraction(kernel: LaneKernel, state: State, own: Inputs, shared: Inputs) -> Float[Array, " L"]:
    """Return for each lane which part of its next update falls below one ulp."""
    return jax.vmap(lambda state, own: kernels.look(kernel.one, state, join(own, shared))[1])(state, own)
