"""The flows that every method is given: the same initial values, data and horizons, as NumPy arrays.

A member is a value-softmax, beta = V softmax(a), and follows V' = -g s^T, a' = -s * (q - s . q) with q = V^T g and
g = dL / dbeta. The square loss is (beta - w)^T H (beta - w) / 2, the logistic one log(1 + exp(-x . beta)).
"""

import dataclasses

import numpy as np
from jaxtyping import Float

D, N = 8, 16  # of the square-loss flows
D_LOGISTIC, N_LOGISTIC = 10, 10


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Members of one kind, and when each of them ends.

    Attributes:
        kind: "square" or "logistic".
        values: V at t = 0.
        scores: a at t = 0.
        first: H of each member, or x in one row for all of them.
        second: w, or an array of no meaning.
        t1: horizon of each member.
        ts: save times, or None for the end only.
    """

    kind: str
    values: Float[np.ndarray, "M d n"]
    scores: Float[np.ndarray, "M n"]
    first: Float[np.ndarray, "M d d"]
    second: Float[np.ndarray, " d"]
    t1: Float[np.ndarray, " M"]
    ts: Float[np.ndarray, " T"] | None = None

    @property
    def members(self) -> int:
        """M."""
        return len(self.values)

    @property
    def state(self) -> Float[np.ndarray, "M size"]:
        """V and a of each member in one row."""
        return np.concatenate([self.values.reshape(self.members, -1), self.scores], axis=1)

    def take(self, index) -> "Ensemble":
        """Return these members alone, in this order."""
        parts = {name: getattr(self, name)[index] for name in ("values", "scores", "first", "t1")}
        return dataclasses.replace(self, **parts)


def square(members: int, condition_number: float, t1: float = np.inf, seed: int = 0) -> Ensemble:
    """Draw square-loss flows with condition numbers from 1 up, log-uniform and evenly spaced, in random order.

    The eigenvalues of H run from 1 down to 1 / kappa in geometric progression, in a basis common to all members. One
    member alone has the largest condition number.
    """
    draw = np.random.default_rng(seed)
    basis = np.linalg.qr(draw.normal(size=(D, D)))[0]
    exponents = draw.permutation(np.linspace(0, 1, members) if members > 1 else np.ones(1))
    spectra = condition_number ** (-exponents[:, None] * np.linspace(0, 1, D))
    hessians = (basis * spectra[:, None, :]) @ basis.T
    target = draw.normal(size=D)
    values = 0.3 * draw.normal(size=(members, D, N))
    return Ensemble("square", values, np.zeros((members, N)), hessians, target, np.full(members, float(t1)))


def logistic(members: int, t1: float = 1e5, saves: int = 100, seed: int = 0) -> Ensemble:
    """Draw logistic flows on one sample, which differ in their initial values alone and cost the same."""
    draw = np.random.default_rng(seed)
    sample = draw.normal(size=D_LOGISTIC)
    sample /= np.linalg.norm(sample)
    first = np.broadcast_to(sample, (members, 1, D_LOGISTIC))
    values = 0.1 * draw.normal(size=(members, D_LOGISTIC, N_LOGISTIC))
    scores = 0.1 * draw.normal(size=(members, N_LOGISTIC))
    times = np.geomspace(1e-1, t1, saves)
    times[-1] = t1
    return Ensemble("logistic", values, scores, first, np.zeros(0), np.full(members, t1), times)


def softmax(scores: Float[np.ndarray, "*m n"]) -> Float[np.ndarray, "*m n"]:
    """Return the softmax of each row."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def entropy(weights: Float[np.ndarray, "*m n"]) -> Float[np.ndarray, "*m"]:
    """Return the entropy of each row in nats."""
    return -np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=-1)


def read_state(
    state: Float[np.ndarray, "*m size"], d: int, n: int
) -> tuple[Float[np.ndarray, "*m d n"], Float[np.ndarray, "*m n"]]:
    """Split rows of V and a."""
    return state[..., : d * n].reshape(*state.shape[:-1], d, n), state[..., d * n :]
