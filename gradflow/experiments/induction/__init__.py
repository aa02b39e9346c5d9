"""Induction heads and attention sinks: who forms them, when, and at which heads and positions."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.induction.claims import claims
from gradflow.experiments.induction.config import Config
from gradflow.experiments.induction.figures import figures
from gradflow.experiments.induction.stages import plan, stages

EXPERIMENT = Experiment(
    name="induction",
    title="Attention sinks on the way to induction heads: softmax, normalised and elementwise maps",
    source="arXiv 2603.06248, induction heads and sinks",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "task-learnt": "holds",
        "softmax-sinks": "holds",
        "normalisation-carries-it": "holds",
        "elementwise-stay-without": "does not hold",
        "sinks-are-learnt": "holds",
        "sinks-before-the-task": "holds",
        "any-heads-and-positions": "holds in part",
        "signed-score-means-nothing": "holds",
    },
    plan=plan,
)
