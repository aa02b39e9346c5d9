"""The laws of one attention layer: its gradients in closed form, and what follows from them (arXiv 2512.22473).

`head_state(head, x, targets)` evaluates a layer once; the laws are functions of that state and return residuals, zero
where they hold, over the size of their terms. Laws of the softmax, or of normalised maps, refuse other maps.
"""

from gradflow.laws.routing.freezing import freezing_bound as freezing_bound
from gradflow.laws.routing.freezing import freezing_excess as freezing_excess
from gradflow.laws.routing.freezing import routing_share as routing_share
from gradflow.laws.routing.fused import head_cross_entropy as head_cross_entropy
from gradflow.laws.routing.gauge import gauge as gauge
from gradflow.laws.routing.gauge import gauge_step as gauge_step
from gradflow.laws.routing.gradients import HeadGradients as HeadGradients
from gradflow.laws.routing.gradients import autodiff_gradients as autodiff_gradients
from gradflow.laws.routing.gradients import gradient_law as gradient_law
from gradflow.laws.routing.gradients import gradients_of as gradients_of
from gradflow.laws.routing.gradients import head_gradients as head_gradients
from gradflow.laws.routing.identities import advantage as advantage
from gradflow.laws.routing.identities import has_row_law as has_row_law
from gradflow.laws.routing.identities import inverse_log_slope as inverse_log_slope
from gradflow.laws.routing.identities import jacobian_form as jacobian_form
from gradflow.laws.routing.identities import mean_compatibility as mean_compatibility
from gradflow.laws.routing.identities import responsibilities as responsibilities
from gradflow.laws.routing.identities import row_law as row_law
from gradflow.laws.routing.identities import softmax_law as softmax_law
from gradflow.laws.routing.identities import variance_identity as variance_identity
from gradflow.laws.routing.score_laws import Scored as Scored
from gradflow.laws.routing.score_laws import score_gradient as score_gradient
from gradflow.laws.routing.state import HeadState as HeadState
from gradflow.laws.routing.state import head_state as head_state
from gradflow.laws.routing.steps import Feedback as Feedback
from gradflow.laws.routing.steps import LossDrop as LossDrop
from gradflow.laws.routing.steps import compatibility_step as compatibility_step
from gradflow.laws.routing.steps import feedback as feedback
from gradflow.laws.routing.steps import feedback_law as feedback_law
from gradflow.laws.routing.steps import loss_drop as loss_drop
from gradflow.laws.routing.steps import loss_drop_law as loss_drop_law
from gradflow.laws.routing.steps import own_feedback_grows as own_feedback_grows
from gradflow.laws.routing.steps import value_step as value_step
