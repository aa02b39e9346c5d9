"""Setting C of the first paper: tied keys and values, and the column that grows."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.tied_values.claims import claims
from gradflow.experiments.tied_values.config import Config
from gradflow.experiments.tied_values.figures import figures
from gradflow.experiments.tied_values.stages import stages

EXPERIMENT = Experiment(
    name="tied-values",
    title="Tied values beta = U softmax(U a): one weight takes all, and one column grows",
    source="arXiv 2603.06248, massive activations",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "settings-reproduced": "holds",
        "tied-polarizes": "holds",
        "one-column-grows": "holds",
        "massive-in-the-usual-sense": "does not hold",
        "tying-is-the-cause": "does not hold",
        "energy-identity": "holds",
    },
)
