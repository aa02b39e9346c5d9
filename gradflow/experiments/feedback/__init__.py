"""How often a step raises the advantage of the position that a row attends to, predicted and seen."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.feedback.claims import claims
from gradflow.experiments.feedback.config import Config
from gradflow.experiments.feedback.figures import figures
from gradflow.experiments.feedback.stages import stages

EXPERIMENT = Experiment(
    name="feedback",
    title="Feedback between routing and values is conditional, and seldom",
    source="arXiv 2512.22473, positive feedback of routing and values",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "positive-feedback": "does not hold",
        "through-training": "does not hold",
        "frozen-law": "holds",
        "own-query-decides": "does not hold",
        "cross-terms-reverse": "holds in part",
        "frozen-u-tells": "does not hold",
        "needs-competition": "does not hold",
    },
)
