"""One head on real text: what it learns of the next character, and whether the laws of attention hold there."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.text_head.claims import claims
from gradflow.experiments.text_head.config import Config
from gradflow.experiments.text_head.figures import figures
from gradflow.experiments.text_head.stages import stages

EXPERIMENT = Experiment(
    name="text-head",
    title="One head on real text: the laws hold, attention helps, and most of what it adds is learnt by heart",
    source="arXiv 2512.22473, gradients of attention, on the Declaration of Independence",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "laws-hold": "holds",
        "audit": "holds",
        "beats-unigram": "holds",
        "beats-bigram": "holds in part",
        "attention-adds": "holds",
        "unseen-text": "holds in part",
        "routing-first": "holds in part",
        "values-on-a-line": "holds in part",
    },
)
