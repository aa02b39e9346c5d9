"""Expectation-maximisation in attention (arXiv 2512.22473, "EM-like two-time-scale"): where it is exact, and its steps.

Version 1, `mixture_*`: another model, whose head mixes predictions instead of values; there EM is exact. Version 2,
`routing_limit` and `proximal_*`: this head with U = dL/dG frozen; there the routing law is the limit of an E step. The
closed-form M step needs neither. Every law is a function that returns its residual; the forms are derived here unless
a source is named. Rows of x are positions; L is the mean cross-entropy over positions that count, in nats.
"""

from gradflow.laws.em.closed_form import closed_form_increase as closed_form_increase
from gradflow.laws.em.closed_form import closed_form_residual as closed_form_residual
from gradflow.laws.em.closed_form import closed_form_step as closed_form_step
from gradflow.laws.em.closed_form import closed_form_violation as closed_form_violation
from gradflow.laws.em.mixture import MixtureGradients as MixtureGradients
from gradflow.laws.em.mixture import elbo as elbo
from gradflow.laws.em.mixture import elbo_gap as elbo_gap
from gradflow.laws.em.mixture import em_increase as em_increase
from gradflow.laws.em.mixture import em_step as em_step
from gradflow.laws.em.mixture import mixture_gradients as mixture_gradients
from gradflow.laws.em.mixture import mixture_loss as mixture_loss
from gradflow.laws.em.mixture import mixture_residual as mixture_residual
from gradflow.laws.em.mixture import responsibilities as responsibilities
from gradflow.laws.em.surrogate import normalised_residual as normalised_residual
from gradflow.laws.em.surrogate import normalised_step as normalised_step
from gradflow.laws.em.surrogate import proximal_residual as proximal_residual
from gradflow.laws.em.surrogate import proximal_step as proximal_step
from gradflow.laws.em.surrogate import routing_limit as routing_limit
from gradflow.laws.em.surrogate import surrogate as surrogate
from gradflow.laws.em.surrogate import surrogate_gap as surrogate_gap
from gradflow.laws.em.surrogate import tempered_responsibilities as tempered_responsibilities
