"""The sweep over maps, losses, lengths, starts and condition numbers, and the two laws read off it."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.sweep_activations.claims import claims
from gradflow.experiments.sweep_activations.config import Config
from gradflow.experiments.sweep_activations.figures import figures
from gradflow.experiments.sweep_activations.stages import stages

EXPERIMENT = Experiment(
    name="sweep-activations",
    title="When does attention go one-hot: map, loss, length, start and condition number in eleven thousand flows",
    source="arXiv 2603.06248, section 3, swept",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "normalised-maps-go-one-hot": "holds in part",
        "elementwise-maps-do-not": "holds in part",
        "square-polarizes-partly": "holds",
        "length-law": "holds in part",
        "length-law-of-other-maps": "holds",
        "kappa-sparsifies": "holds",
        "clock-decides": "holds in part",
        "winner": "holds",
        "winner-of-many-samples": "holds in part",
        "failures-are-kinks": "holds",
    },
)
