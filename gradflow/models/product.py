"""x W, the map of each position, whose gradients stay flat matrix products however many axes `jax.vmap` adds.

Under `jax.vmap` over sequences the gradient of `x @ W` with respect to W sums over two axes, sequences and positions,
and XLA on a CPU copies an operand in transposed order for each such product, together with all that leads to it. This
product is a primitive of its own: mapping it over sequences only adds leading axes of x, and the sums over all of them
are taken as one.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_product = Primitive("gradflow_product")


def product(x: Float[Array, "*n d"], w: Float[Array, "d f"]) -> Float[Array, "*n f"]:
    """Return x W.

    Args:
        x: rows.
        w: matrix.

    Returns:
        The product of each row.
    """
    x, w = jnp.asarray(x), jnp.asarray(w)
    dtype = jnp.result_type(x, w)
    config: Any = jax.config
    return _product.bind(x.astype(dtype), w.astype(dtype), precision=config.jax_default_matmul_precision)


def _flat(x: Array) -> Array:
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _apply(x: Array, w: Array, *, precision: Any) -> Array:
    rows = lax.dot_general(_flat(x), w, (((1,), (0,)), ((), ())), precision=precision)
    return rows.reshape(*x.shape[:-1], w.shape[1])


def _shape(x: Any, w: Any, *, precision: Any) -> Any:
    del precision
    return x.update(shape=(*x.shape[:-1], w.shape[1]), weak_type=False)


def _to_x(slope: Array, x: Any, w: Array, *, precision: Any) -> Array:
    del x
    return _product.bind(slope, w.T, precision=precision)


def _to_w(slope: Array, x: Array, w: Any, *, precision: Any) -> Array:
    del w
    return lax.dot_general(_flat(x), _flat(slope), (((0,), (0,)), ((), ())), precision=precision)


def _batch(arguments: Any, axes: Any, *, precision: Any) -> tuple[Array, int]:
    (x, w), (x_axis, w_axis) = arguments, axes
    if w_axis is None:
        return _product.bind(jnp.moveaxis(x, x_axis, 0), w, precision=precision), 0
    w = jnp.moveaxis(w, w_axis, 0)
    members, _, width = w.shape
    if x_axis is None:
        wide = jnp.moveaxis(w, 0, 1).reshape(w.shape[1], members * width)
        rows = _product.bind(x, wide, precision=precision)
        return rows.reshape(*x.shape[:-1], members, width), x.ndim - 1
    x = jnp.moveaxis(x, x_axis, 0)
    flat = x.reshape(members, math.prod(x.shape[1:-1]), x.shape[-1])
    rows = lax.dot_general(flat, w, (((2,), (1,)), ((0,), (0,))), precision=precision)
    return rows.reshape(*x.shape[:-1], width), 0


_product.def_impl(jax.jit(_apply, static_argnames="precision"))
_product.def_abstract_eval(_shape)
ad.defbilinear(_product, _to_x, _to_w)
batching.primitive_batchers[_product] = _batch
mlir.register_lowering(_product, mlir.lower_fun(_apply, multiple_results=False))
