"""The toy simulation of the second paper: what one small head learns to attend to, and what its gradients foresee."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.routing.claims import claims
from gradflow.experiments.routing.config import Config
from gradflow.experiments.routing.figures import figures
from gradflow.experiments.routing.stages import stages

EXPERIMENT = Experiment(
    name="routing",
    title="One head learns to route: heat maps, the path of the values, and the advantage",
    source="arXiv 2512.22473, toy simulation (settings ours)",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "heat-maps-sharpen": "holds",
        "sharpening-is-routing": "holds",
        "value-path-low-dimensional": "holds",
        "low-dimension-is-structure": "does not hold",
        "loss-falls-smoothly": "holds",
        "advantage-law": "holds",
        "advantage-alone": "holds in part",
        "positions-specialise": "holds",
        "laws-hold": "holds",
    },
)
