"""The sticky Markov chain: does EM train attention faster, and is it EM?"""

from gradflow.experiments.base import Experiment
from gradflow.experiments.sticky_markov.claims import claims
from gradflow.experiments.sticky_markov.config import Config
from gradflow.experiments.sticky_markov.figures import figures
from gradflow.experiments.sticky_markov.stages import stages

EXPERIMENT = Experiment(
    name="sticky-markov",
    title="Values ten times as fast train a head sooner, and so does everything that moves its routing",
    source="arXiv 2512.22473, sticky Markov chain",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "self-probability": "does not hold",
        "entropy-rate": "holds",
        "em-is-faster": "holds",
        "em-ends-lower": "holds",
        "controls-in-order": "holds",
        "values-suffice": "does not hold",
        "specific-to-values": "does not hold",
        "fast-values-slow-routing": "does not hold",
        "m-step-without-sharp-routing": "holds",
        "near-the-optimum": "does not hold",
        "same-symbol-attention": "does not hold",
        "flow-agrees": "holds",
        "laws": "holds",
    },
)
