"""Optax optimisers beside the flow."""

from gradflow.descent.ensemble import gradient_descent_ensemble as gradient_descent_ensemble
from gradflow.descent.solve import gradient_descent as gradient_descent
from gradflow.descent.solve import log_steps as log_steps
