"""Data with known answers: samples for linear predictors, real data, text, and sequences with exact posteriors."""

from gradflow.tasks.bigram import Bigram as Bigram
from gradflow.tasks.corpus import Characters as Characters
from gradflow.tasks.corpus import corpus as corpus
from gradflow.tasks.groups import Groups as Groups
from gradflow.tasks.induction import Induction as Induction
from gradflow.tasks.linear import linear_classification as linear_classification
from gradflow.tasks.linear import linear_regression as linear_regression
from gradflow.tasks.linear import single_sample as single_sample
from gradflow.tasks.linear import target_distribution as target_distribution
from gradflow.tasks.markov import BetaMarkov as BetaMarkov
from gradflow.tasks.markov import DirichletMarkov as DirichletMarkov
from gradflow.tasks.markov import Filtered as Filtered
from gradflow.tasks.markov import StickyMarkov as StickyMarkov
from gradflow.tasks.markov import forward_filter as forward_filter
from gradflow.tasks.markov import one_hot as one_hot
from gradflow.tasks.markov import sticky_transition as sticky_transition
from gradflow.tasks.markov import surprise as surprise
from gradflow.tasks.real import datasets as datasets
from gradflow.tasks.real import real as real
from gradflow.tasks.text import Text as Text
from gradflow.tasks.text import text as text
from gradflow.types import Batch as Batch
from gradflow.types import Bayes as Bayes
from gradflow.types import Data as Data
