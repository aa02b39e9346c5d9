"""What is measured of saved heads: losses, where attention goes, laws, what freezes when, the cloud of the values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from gradflow.diagnostics import freezing_time, participation_ratio, relative_distance, routing_distance, value_pca
from gradflow.experiments.text_head.config import D_V, SCALE
from gradflow.experiments.text_head.pages import Page, mix, page_loss
from gradflow.laws.routing import gradient_law, head_state
from gradflow.models import AttentionHead
from gradflow.observables import HeadObservables

OBSERVE = HeadObservables(matrices=False, values=False)
DRAWS = 200  # of W_V, for what the shape of the values is by chance


@jax.jit
def losses_of(heads: AttentionHead, page: Page, unseen: Page) -> dict[str, Float[Array, "members saves"]]:
    """Return the losses of saved heads, in nats, on the page of each and on one that it has not seen."""

    def one(member: tuple) -> dict[str, Array]:
        saves, own, other = member
        return {
            "loss": jax.vmap(page_loss, (0, None))(saves, own),
            "unseen": jax.vmap(page_loss, (0, None))(saves, other),
        }

    return jax.lax.map(one, (heads, page, unseen))


@jax.jit
def clouds(heads: AttentionHead, page: Page) -> dict[str, Float[Array, "members saves ..."]]:
    """Return the shape of the values of saved heads: `participation` ratio, and `shares` of PC1 and PC2."""
    return jax.lax.map(lambda member: jax.vmap(lambda head: _cloud(head.w_v, member[1]))(member[0]), (heads, page))


@jax.jit
def chance_clouds(key: Key[Array, ""], page: Page) -> dict[str, Float[Array, "members draws ..."]]:
    """Return the same of random W_V."""
    drawn = SCALE * jax.random.normal(key, (DRAWS, page.own.shape[-1], D_V))
    found = jax.lax.map(lambda own: jax.vmap(lambda w_v: _cloud(w_v, own))(drawn), page)
    return {f"chance_{name}": value for name, value in found.items()}


def _cloud(w_v: Float[Array, "C d_v"], page: Page) -> dict[str, Array]:
    values = page.own @ w_v
    return {"participation": participation_ratio(values), "shares": value_pca(values, standardise=True).shares}


@jax.jit
def inside(heads: AttentionHead, page: Page) -> dict[str, Float[Array, "members saves"]]:
    """Measure saved heads with the whole (T, T) attention, one after another.

    Args:
        heads: leaves (members, saves, ...).
        page: of each member.

    Returns:
        What `gf.HeadObservables` measures; `own_weight`, the mean weight on the present character and `own_uniform`,
        what it is without routing; residuals of the `routing` and `responsibility` laws against automatic
        differentiation, relative to the size of their terms; and relative to the largest entry two wrong laws:
        `no_baseline` leaves E_A[b] out, `no_weights` has uniform weights in A^T U.
    """

    def one(member: tuple) -> dict[str, Array]:
        saves, own = member
        return jax.lax.map(lambda head: _inside(head, own), saves)

    return jax.lax.map(one, (heads, page))


def _inside(head: AttentionHead, page: Page) -> dict[str, Array]:
    x, targets = page.own, page.targets
    found = OBSERVE(jnp.zeros(()), head, page.batch)
    state, law = head_state(head, x, targets), gradient_law(head, x, targets)
    flat = state.mask / jnp.sum(state.mask, axis=-1, keepdims=True)
    responsibility = state.weights.T @ state.upstream
    found |= {"routing": _largest(law.scores), "responsibility": _largest(law.values)}
    found["no_baseline"] = _misses(state.weights * state.compatibility, state.score_gradient)
    found["no_weights"] = _misses(flat.T @ state.upstream, responsibility)
    found["own_weight"] = jnp.mean(jnp.sum(mix(head, page) * x, axis=-1))
    return found | {"own_uniform": jnp.mean(jnp.sum(_shares(page) * x, axis=-1))}


def _largest(values: Array) -> Array:
    return jnp.max(jnp.abs(values))


def _misses(wrong: Array, right: Array) -> Array:
    return _largest(wrong - right) / _largest(right)


def _shares(page: Page) -> Float[Array, "T C"]:
    """Return the share of each character among those up to each position: F of uniform attention."""
    return jax.nn.softmax(page.log_seen)


@jax.jit
def freezing(
    ts: Float[Array, " S"], heads: AttentionHead, page: Page, within: Bool[Array, "H S"], epsilon: float
) -> dict[str, Array]:
    """Measure when each part of every head freezes; all of a character is one, which no distance notices.

    Args:
        ts: save times.
        heads: leaves (members, saves, ...).
        page: of each member.
        within: which saves each horizon has, the last horizon having all.
        epsilon: level.

    Returns:
        `tau` (members, quantity, horizon), the quantities being those of `config.QUANTITIES`; `way` (members, horizon),
        how far attention goes in TV; `distance` (members, quantity, S) to the end at the last horizon.
    """

    def one(member: tuple) -> dict[str, Array]:
        saves, own = member
        count, seen = jnp.sum(own.own, axis=0), own.log_seen > -jnp.inf
        mixed = jax.vmap(lambda head: mix(head, own))(saves)
        values = saves.w_v * jnp.sqrt(count)[:, None]
        scores = saves.w_q @ jnp.swapaxes(saves.w_k, -1, -2) * jnp.sqrt(own.own.T @ seen)

        def until(valid: Array) -> Array:
            away = [relative_distance(part, valid=valid) for part in (values, scores)]
            return jnp.stack([routing_distance(mixed, where=seen, valid=valid), *away])

        distances = jax.vmap(until)(within)
        tau = jax.vmap(lambda rows, valid: freezing_time(ts, rows, epsilon, valid))(distances, within)
        return {"tau": tau.T, "way": distances[:, 0, 0], "distance": distances[-1]}

    return jax.lax.map(one, (heads, page))


@jax.jit
def characters(head: AttentionHead, page: Page) -> dict[str, Array]:
    """Describe a head character by character.

    Args:
        head: one.
        page: its page.

    Returns:
        `places` (C, 2) of the values of all characters on the first two components of the cloud, `place_shares` of
        these; `attention` (C, C) from a present character to another, mean over its positions, and `frequency`, the
        same of uniform attention; `count` of each character.
    """
    cloud = value_pca(page.own @ head.w_v)
    count = jnp.sum(page.own, axis=0)
    mean = page.own.T / jnp.maximum(count, 1)[:, None]
    return {
        "places": value_pca(head.w_v, cloud.basis).coordinates,
        "place_shares": cloud.shares,
        "attention": mean @ mix(head, page),
        "frequency": mean @ _shares(page),
        "count": count,
    }
