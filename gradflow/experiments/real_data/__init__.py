"""Value-softmax flows on real data sets: what is left of the one-sample theory."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.real_data.claims import claims
from gradflow.experiments.real_data.config import Config
from gradflow.experiments.real_data.figures import figures
from gradflow.experiments.real_data.stages import stages

EXPERIMENT = Experiment(
    name="real-data",
    title="Polarization on real data: many samples, non-separable labels, regression",
    source="arXiv 2603.06248, beyond its settings",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "separable-data-polarize": "holds",
        "overlapping-data-polarize": "holds in part",
        "regression-stops-early": "holds",
        "clock-decides": "holds",
        "normalisation-decides": "holds",
        "one-hot-predicts-better": "does not hold",
        "initial-force-picks-the-winner": "holds in part",
        "laws-on-any-data": "holds",
        "descent-follows-flow": "holds",
    },
)
