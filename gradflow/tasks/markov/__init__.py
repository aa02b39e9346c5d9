"""Markov chains with exact posterior predictives: known, hidden, or with a law to be inferred."""

from gradflow.tasks.markov.chains import Filtered as Filtered
from gradflow.tasks.markov.chains import forward_filter as forward_filter
from gradflow.tasks.markov.chains import one_hot as one_hot
from gradflow.tasks.markov.chains import surprise as surprise
from gradflow.tasks.markov.sticky import StickyMarkov as StickyMarkov
from gradflow.tasks.markov.sticky import sticky_transition as sticky_transition
from gradflow.tasks.markov.unknown import BetaMarkov as BetaMarkov
from gradflow.tasks.markov.unknown import DirichletMarkov as DirichletMarkov
