"""Condition numbers: the paper's runs, and what a larger condition number acts through."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.condition_number.claims import claims
from gradflow.experiments.condition_number.config import Config
from gradflow.experiments.condition_number.figures import figures
from gradflow.experiments.condition_number.stages import stages

EXPERIMENT = Experiment(
    name="condition-number",
    title="Slower decay sparsifies: condition number, loss and target norm act through one clock",
    source="arXiv 2603.06248, square loss with prescribed condition number",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "paper-run": "holds",
        "kappa-sparsifies": "holds",
        "runs-converged": "holds in part",
        "square-partial": "holds",
        "clock-decides": "holds",
        "norm-does-the-same": "holds",
        "every-loss": "holds in part",
        "equal-clock": "holds in part",
    },
)
