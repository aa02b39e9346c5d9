"""Transformers: blocks of attention, with any map from scores to weights, and MLPs."""

from gradflow.models.transformer.attention import Projection as Projection
from gradflow.models.transformer.attention import SelfAttention as SelfAttention
from gradflow.models.transformer.block import TransformerBlock as TransformerBlock
from gradflow.models.transformer.feed_forward import Gelu as Gelu
from gradflow.models.transformer.feed_forward import SwiGLU as SwiGLU
from gradflow.models.transformer.model import Capture as Capture
from gradflow.models.transformer.model import Transformer as Transformer
from gradflow.models.transformer.positions import Rotary as Rotary
