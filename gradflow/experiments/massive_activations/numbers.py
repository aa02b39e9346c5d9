"""Numbers of runs that claims and figures share: each (seeds, saves), of one arm and number of layers."""

import numpy as np

from gradflow.experiments.base import Results
from gradflow.experiments.massive_activations.config import Config
from gradflow.experiments.massive_activations.stages import stage_name

CURVES = ("accuracy", "on_bos", "state_ratio", "peak_ratio", "massive", "value_ratio", "key_ratio")


def curves(config: Config, results: Results, depth: int, arm: str) -> dict[str, np.ndarray]:
    """Return what an arm is judged by along its runs.

    Args:
        config: settings of the run.
        results: of all stages.
        depth: number of layers.
        arm: kind of model.

    Returns:
        Of `CURVES`: the accuracy; attention on BOS in the layer with most of it; the norm of the hidden state of BOS
        over the median of the other tokens', largest over layers; the largest activation of BOS over the median of
        its layer, largest over layers; the share of sequences with a massive activation in any layer; and the norms of
        the value and the key of BOS over the median of the other tokens', in the layer with most attention on BOS.
    """
    runs = {
        name: values[config.arms.index(arm)] for name, values in results[stage_name(depth)].items() if name != "step"
    }
    on_bos = runs["on_bos"].mean(axis=-1)  # seed, save, layer
    layer = int(on_bos[:, -1].mean(axis=0).argmax())
    return {
        "accuracy": runs["accuracy"],
        "on_bos": on_bos[..., layer],
        "state_ratio": first_over_others(runs["state_norm"][:, :, 1:]).max(axis=-1),
        "peak_ratio": runs["peak_ratio"][:, :, 1:, 0].max(axis=-1),
        "massive": runs["massive"].max(axis=-1),
        "value_ratio": first_over_others(runs["value_norm"][:, :, layer]).mean(axis=-1),
        "key_ratio": first_over_others(runs["key_norm"][:, :, layer]).mean(axis=-1),
    }


def first_over_others(norms: np.ndarray) -> np.ndarray:
    """Return the norm of the first token over the median of the others, (..., tokens) -> (...)."""
    return norms[..., 0] / np.maximum(np.median(norms[..., 1:], axis=-1), 1e-12)
