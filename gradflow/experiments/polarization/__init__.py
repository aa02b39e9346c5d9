"""The main experiment: the paper's logistic figure as flow and descent, its theorems claim by claim, and the clock."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.polarization.claims import claims
from gradflow.experiments.polarization.config import Config
from gradflow.experiments.polarization.figures import figures
from gradflow.experiments.polarization.stages import stages

EXPERIMENT = Experiment(
    name="polarization",
    title="Softmax goes one-hot along its gradient flow: the theorems, checked claim by claim",
    source="arXiv 2603.06248, section 3: theorems 3.2 and 3.3, figure on the logistic loss",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "paper-run": "holds",
        "order-kept": "holds",
        "u-gaps-grow": "holds",
        "leader-gaps-grow": "holds",
        "all-gaps-grow": "does not hold",
        "one-hot": "holds",
        "winner": "holds",
        "softmax-alone": "holds",
        "loss-rate": "holds",
        "one-orbit": "holds",
        "square-stops": "holds",
        "descent-follows-flow": "holds",
        "laws": "holds",
    },
)
