"""Heads of attention, several of them, and the block around them. Rows are positions; one sequence at a time."""

from gradflow.models.attention.base import AbstractAttention as AbstractAttention
from gradflow.models.attention.base import HeadCapture as HeadCapture
from gradflow.models.attention.block import AttentionBlock as AttentionBlock
from gradflow.models.attention.heads import AttentionHead as AttentionHead
from gradflow.models.attention.heads import FreeHead as FreeHead
from gradflow.models.attention.heads import FreeValueHead as FreeValueHead
from gradflow.models.attention.multi import MultiHeadAttention as MultiHeadAttention
