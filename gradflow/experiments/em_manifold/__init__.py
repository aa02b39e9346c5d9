"""The manifold of the values: does EM draw it earlier, and does it do more than go faster?"""

from gradflow.experiments.base import Experiment
from gradflow.experiments.em_manifold.claims import claims
from gradflow.experiments.em_manifold.config import Config
from gradflow.experiments.em_manifold.figures import figures
from gradflow.experiments.em_manifold.stages import stages

EXPERIMENT = Experiment(
    name="em-manifold",
    title="Fast values narrow the value manifold sooner, whether or not the head learns more",
    source="arXiv 2512.22473, sticky Markov chain and value manifold",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "values-narrow": "holds",
        "one-axis": "does not hold",
        "em-draws-it-sooner": "holds",
        "manifold-needs-em": "does not hold",
        "same-at-equal-loss": "does not hold",
        "em-aligns-queries-and-keys": "holds in part",
        "better-is-narrower": "does not hold",
        "entropy-axis": "holds in part",
        "laws": "holds",
    },
)
