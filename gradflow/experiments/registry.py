"""The experiments by name; each module is imported when it is first asked for."""

import importlib

from gradflow.errors import unknown
from gradflow.experiments.base import Experiment

MODULES = {
    "polarization": "gradflow.experiments.polarization",
    "activations": "gradflow.experiments.activations",
    "condition-number": "gradflow.experiments.condition_number",
    "tied-values": "gradflow.experiments.tied_values",
    "target-distribution": "gradflow.experiments.target_distribution",
    "real-data": "gradflow.experiments.real_data",
    "sweep-activations": "gradflow.experiments.sweep_activations",
    "routing": "gradflow.experiments.routing",
    "sticky-markov": "gradflow.experiments.sticky_markov",
    "frame-precision": "gradflow.experiments.frame_precision",
    "feedback": "gradflow.experiments.feedback",
    "em-manifold": "gradflow.experiments.em_manifold",
    "text-head": "gradflow.experiments.text_head",
    "induction": "gradflow.experiments.induction",
    "token-influence": "gradflow.experiments.token_influence",
    "habit-or-meaning": "gradflow.experiments.habit_or_meaning",
    "massive-activations": "gradflow.experiments.massive_activations",
    "activation-blow-up": "gradflow.experiments.activation_blow_up",
    "bigram": "gradflow.experiments.bigram",
}


def names() -> list[str]:
    """Return the names of the experiments, in the order of the paper."""
    return list(MODULES)


def get(name: str) -> Experiment:
    """Return the experiment of that name.

    Args:
        name: as typed on the command line, for instance "condition-number".

    Returns:
        The experiment.

    Raises:
        FlowError: if there is none; the message has the nearest name.
    """
    if name not in MODULES:
        raise unknown("experiment", name, MODULES)
    return importlib.import_module(MODULES[name]).EXPERIMENT
