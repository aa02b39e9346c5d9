"""Measurements on arrays: of attention rows, values, keys and hidden states, and the curvature of a loss.

All take NumPy or JAX arrays from any source, and work under `jit`, `vmap` and inside `observe`.
"""

from gradflow.diagnostics.attention import attention_entropy as attention_entropy
from gradflow.diagnostics.attention import effective_count as effective_count
from gradflow.diagnostics.attention import entropy as entropy
from gradflow.diagnostics.attention import largest_weight as largest_weight
from gradflow.diagnostics.attention import total_variation as total_variation
from gradflow.diagnostics.components import PrincipalComponents as PrincipalComponents
from gradflow.diagnostics.components import ValuePCA as ValuePCA
from gradflow.diagnostics.components import principal_components as principal_components
from gradflow.diagnostics.components import value_pca as value_pca
from gradflow.diagnostics.curvature import sharpness as sharpness
from gradflow.diagnostics.freezing import Dissociation as Dissociation
from gradflow.diagnostics.freezing import dissociation as dissociation
from gradflow.diagnostics.freezing import freezing_time as freezing_time
from gradflow.diagnostics.freezing import relative_distance as relative_distance
from gradflow.diagnostics.freezing import routing_distance as routing_distance
from gradflow.diagnostics.geometry import key_orthogonality as key_orthogonality
from gradflow.diagnostics.geometry import key_orthogonality_chance as key_orthogonality_chance
from gradflow.diagnostics.geometry import participation_ratio as participation_ratio
from gradflow.diagnostics.geometry import query_key_alignment as query_key_alignment
from gradflow.diagnostics.hidden import ActivationPeaks as ActivationPeaks
from gradflow.diagnostics.hidden import activation_peaks as activation_peaks
from gradflow.diagnostics.hidden import massive_activations as massive_activations
from gradflow.diagnostics.hidden import relative_norm as relative_norm
from gradflow.diagnostics.history import rank_order_violations as rank_order_violations
from gradflow.diagnostics.history import time_to_one_hot as time_to_one_hot
from gradflow.diagnostics.influence import Attack as Attack
from gradflow.diagnostics.influence import Influence as Influence
from gradflow.diagnostics.influence import flip_rate as flip_rate
from gradflow.diagnostics.influence import one_token_attack as one_token_attack
from gradflow.diagnostics.influence import token_influence as token_influence
from gradflow.diagnostics.information import mutual_information as mutual_information
from gradflow.diagnostics.information import shuffled as shuffled
from gradflow.diagnostics.information import specialisation as specialisation
from gradflow.diagnostics.ranks import spearman as spearman
from gradflow.diagnostics.sinks import SinkToken as SinkToken
from gradflow.diagnostics.sinks import dormant_heads as dormant_heads
from gradflow.diagnostics.sinks import head_norms as head_norms
from gradflow.diagnostics.sinks import sink_rate as sink_rate
from gradflow.diagnostics.sinks import sink_score as sink_score
from gradflow.diagnostics.sinks import sink_token as sink_token
from gradflow.diagnostics.sinks import sparsity as sparsity
