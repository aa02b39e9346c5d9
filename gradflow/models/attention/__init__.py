"""Heads of attention, several of them, and the block around them. Rows are positions; one sequence at a time."""

from gradflow.models.attention.base import AbstractAttention as AbstractAttention
from gradflow.models.attention.base import HeadCapture as HeadCapture
from gradflow.models.attention.block import AttentionBlock as AttentionBlock
from gradflow.models.attention.heads import AttentionHead as AttentionHead
from gradflow.models.attention.heads import FreeHead as FreeHead
from gradflow.models.attention.heads import FreeValueHead as FreeValueHead
from gradflow.models.attention.kernels import AbstractKernel as AbstractKernel
from gradflow.models.attention.kernels import ClippedKernel as ClippedKernel
from gradflow.models.attention.kernels import EluKernel as EluKernel
from gradflow.models.attention.kernels import LengthSigmoid as LengthSigmoid
from gradflow.models.attention.kernels import MLPKernel as MLPKernel
from gradflow.models.attention.kernels import NormalisedKernel as NormalisedKernel
from gradflow.models.attention.kernels import ScoreKernel as ScoreKernel
from gradflow.models.attention.kernels import SinkLogit as SinkLogit
from gradflow.models.attention.maps import PAPER_MAPS as PAPER_MAPS
from gradflow.models.attention.maps import attention_maps as attention_maps
from gradflow.models.attention.multi import MultiHeadAttention as MultiHeadAttention
