"""Measurements on arrays: of attention rows, hidden states, and the curvature of a loss.

All take NumPy or JAX arrays from any source, and work under `jit`, `vmap` and inside `observe`.
"""

from gradflow.diagnostics.attention import effective_count as effective_count
from gradflow.diagnostics.attention import entropy as entropy
from gradflow.diagnostics.attention import largest_weight as largest_weight
from gradflow.diagnostics.curvature import sharpness as sharpness
from gradflow.diagnostics.geometry import participation_ratio as participation_ratio
from gradflow.diagnostics.hidden import massive_activations as massive_activations
from gradflow.diagnostics.history import rank_order_violations as rank_order_violations
from gradflow.diagnostics.history import time_to_one_hot as time_to_one_hot
from gradflow.diagnostics.sinks import sink_rate as sink_rate
from gradflow.diagnostics.sinks import sink_score as sink_score
