"""When routing and values stop moving, and what decides which of them is first."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.frame_precision.claims import claims
from gradflow.experiments.frame_precision.config import Config
from gradflow.experiments.frame_precision.figures import figures
from gradflow.experiments.frame_precision.stages import stages

EXPERIMENT = Experiment(
    name="frame-precision",
    title="Routing freezes before values by the paper's yardsticks, and how much of that is the yardstick",
    source="arXiv 2512.22473, frame-precision dissociation",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "routing-first": "holds",
        "not-the-horizon": "does not hold",
        "same-yardstick": "holds in part",
        "frozen-routing-frees-values": "does not hold",
        "not-the-rates": "holds",
        "every-map": "holds",
        "freezing-bound": "holds",
        "needs-sharp-rows": "holds in part",
        "forces-part-ways": "holds in part",
    },
)
