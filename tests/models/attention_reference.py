"""Attention written out in NumPy, row by row over the entries that take part: what the models are compared with."""

import numpy as np

ELEMENTWISE = {
    "sigmoid": lambda s: 1 / (1 + np.exp(-s)),
    "linear": lambda s: s,
    "abs": np.abs,
    "relu": lambda s: np.maximum(s, 0),
    "elu": lambda s: np.where(s > 0, s, np.exp(s) - 1),
    "elu1": lambda s: np.where(s > 0, s + 1, np.exp(s)),
    "softplus": lambda s: np.log(1 + np.exp(s)),
    "square": lambda s: s**2,
    "exp": np.exp,
}


def sparsemax(scores):
    """Martins and Astudillo, 2016, algorithm 1."""
    descending = np.sort(scores)[::-1]
    cumulative = np.cumsum(descending)
    k = max(k for k in range(1, len(scores) + 1) if 1 + k * descending[k - 1] > cumulative[k - 1])
    return np.maximum(scores - (cumulative[k - 1] - 1) / k, 0)


def over_its_sum(values):
    # A row at which a map without sign is zero everywhere is uniform.
    return values / values.sum() if np.any(values) else np.full(len(values), 1 / len(values))


def row_weights(name, scores):
    """Weights of one row, all of whose entries take part."""
    if name in ELEMENTWISE:
        return ELEMENTWISE[name](scores)
    if name.startswith("normalised-"):
        return over_its_sum(ELEMENTWISE[name.removeprefix("normalised-")](scores))
    exponentials = np.exp(scores)
    whole = {
        "softmax": lambda: exponentials / exponentials.sum(),
        "softmax1": lambda: exponentials / (1 + exponentials.sum()),
        "uniform": lambda: np.full(len(scores), 1 / len(scores)),
        "sparsemax": lambda: sparsemax(scores),
    }
    return whole[name]()


def attention(name, queries, keys, values, w_o, mask):
    """Scores, weights, outputs and logits of one head."""
    length, d_k = queries.shape
    scores, weights = np.zeros((length, length)), np.zeros((length, length))
    for i in range(length):
        for j in range(length):
            scores[i, j] = queries[i] @ keys[j] / np.sqrt(d_k)
        seen = np.flatnonzero(mask[i])
        if len(seen):
            weights[i, seen] = row_weights(name, scores[i, seen])
    outputs = weights @ values
    return scores, weights, outputs, outputs @ w_o
