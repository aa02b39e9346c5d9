"""Does a massive activation hurt? Rounding in bfloat16 and 8 bits, gradients and loss spikes, with and without one."""

from gradflow.experiments.activation_blow_up.claims import claims
from gradflow.experiments.activation_blow_up.config import Config
from gradflow.experiments.activation_blow_up.figures import figures
from gradflow.experiments.activation_blow_up.stages import plan, stages
from gradflow.experiments.base import Experiment

EXPERIMENT = Experiment(
    name="activation-blow-up",
    title="What a massive activation costs: rounding, gradients and loss spikes by its size",
    source="arXiv 2603.06248, massive activations; arXiv 2402.17762",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "task-learnt": "holds",
        "breaks-8-bits-a-layer": "holds",
        "spares-8-bits-a-token": "holds",
        "bfloat16-does-not-mind": "holds",
        "gradients-blow-up": "does not hold",
        "massive-state-is-frozen": "holds",
        "loss-spikes": "does not hold",
        "brings-the-sink": "does not hold",
    },
    plan=plan,
)
