"""Setting B of the first paper: six maps and two losses, elementwise maps beside them, and what the flow adds."""

from gradflow.experiments.activations.claims import claims
from gradflow.experiments.activations.config import Config
from gradflow.experiments.activations.figures import figures
from gradflow.experiments.activations.stages import stages
from gradflow.experiments.base import Experiment

EXPERIMENT = Experiment(
    name="activations",
    title="Which score -> weight maps polarize: six maps, two losses, and elementwise maps beside them",
    source="arXiv 2603.06248, the figure of six maps and section 3",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "settings-reproduced": "holds",
        "normalised-maps-polarize": "holds",
        "elementwise-maps-do-not": "holds",
        "square-polarizes-partly": "holds",
        "sum-leaves-the-simplex": "holds",
        "l1-is-a-flow": "holds in part",
        "every-map-in-the-end": "holds",
        "primitive-conserved": "holds",
    },
)
