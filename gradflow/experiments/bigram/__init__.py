"""Bigrams of a real text with triggers: what is learnt first, and heads that work at some rows and rest at others."""

from gradflow.experiments.base import Experiment
from gradflow.experiments.bigram.claims import claims
from gradflow.experiments.bigram.config import Config
from gradflow.experiments.bigram.figures import figures
from gradflow.experiments.bigram.stages import plan, stages

EXPERIMENT = Experiment(
    name="bigram",
    title="Bigrams of a real text, then look-up: induction heads that work at triggers and rest elsewhere",
    source="arXiv 2306.00802, bigrams and look-up; arXiv 2410.13835, active-dormant heads",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "looks-up": "holds",
        "bigrams-first": "holds",
        "induction-head": "holds",
        "dormant-where-not-needed": "does not hold",
        "rests-on-first-character": "does not hold",
        "rests-on-bos": "holds",
        "elementwise-rests-without": "holds",
        "bos-value-drained": "does not hold",
    },
    plan=plan,
)
