"""Massive activations: which hidden states grow while a sink forms, and what no norm, sink logits and gates change."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.massive_activations.claims import claims
from gradflow.experiments.massive_activations.config import Config
from gradflow.experiments.massive_activations.figures import figures
from gradflow.experiments.massive_activations.stages import plan, stages

EXPERIMENT = Experiment(
    name="massive-activations",
    title="Which activations grow while an attention sink forms, and what takes sink or growth away",
    source="arXiv 2603.06248, sinks and massive activations; arXiv 2402.17762",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "task-learnt": "holds",
        "sinks-form": "holds",
        "massive-activations": "does not hold",
        "state-of-bos-grows": "does not hold",
        "values-drain": "does not hold",
        "without-normalisation": "holds",
        "rests-take-the-sink-away": "does not hold",
        "rests-take-the-norm-away": "does not hold",
        "grows-with-depth": "does not hold",
    },
    plan=plan,
)
