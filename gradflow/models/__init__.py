"""Equinox modules whose training gradflow studies."""

from gradflow.models import paper as paper
from gradflow.models.attention import PAPER_MAPS as PAPER_MAPS
from gradflow.models.attention import AbstractAttention as AbstractAttention
from gradflow.models.attention import AttentionBlock as AttentionBlock
from gradflow.models.attention import AttentionHead as AttentionHead
from gradflow.models.attention import FreeHead as FreeHead
from gradflow.models.attention import FreeValueHead as FreeValueHead
from gradflow.models.attention import HeadCapture as HeadCapture
from gradflow.models.attention import MultiHeadAttention as MultiHeadAttention
from gradflow.models.attention import attention_maps as attention_maps
from gradflow.models.linear import DeepLinear as DeepLinear
from gradflow.models.transformer import Capture as Capture
from gradflow.models.transformer import Transformer as Transformer
from gradflow.models.value_softmax import TiedSoftmax as TiedSoftmax
from gradflow.models.value_softmax import ValueSoftmax as ValueSoftmax
