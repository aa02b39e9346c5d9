"""Equinox modules whose training gradflow studies."""

from gradflow.models import paper as paper
from gradflow.models.linear import DeepLinear as DeepLinear
from gradflow.models.value_softmax import TiedSoftmax as TiedSoftmax
from gradflow.models.value_softmax import ValueSoftmax as ValueSoftmax
