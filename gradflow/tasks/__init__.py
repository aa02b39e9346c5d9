"""Data with known answers: samples for linear predictors, and real data sets."""

from gradflow.tasks.linear import linear_classification as linear_classification
from gradflow.tasks.linear import linear_regression as linear_regression
from gradflow.tasks.linear import single_sample as single_sample
from gradflow.tasks.linear import target_distribution as target_distribution
from gradflow.tasks.real import datasets as datasets
from gradflow.tasks.real import real as real
from gradflow.types import Batch as Batch
from gradflow.types import Bayes as Bayes
from gradflow.types import Data as Data
