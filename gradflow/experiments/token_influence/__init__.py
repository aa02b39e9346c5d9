"""What one token can do to an answer: sparse attention, exchanged tokens, and attacks on one token."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.token_influence.claims import claims
from gradflow.experiments.token_influence.config import Config
from gradflow.experiments.token_influence.figures import figures
from gradflow.experiments.token_influence.stages import plan, stages

EXPERIMENT = Experiment(
    name="token-influence",
    title="One token decides: sparse attention and its price in robustness, by map, heads and layers",
    source="arXiv 2603.06248, one-token influence",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "task-learnt": "holds",
        "softmax-is-sparse": "holds",
        "one-token-decides": "holds",
        "one-token-attack": "holds",
        "normalisation-in-between": "holds",
        "fades-with-heads-and-layers": "holds",
        "sparsity-foretells-flips": "holds",
    },
    plan=plan,
)
