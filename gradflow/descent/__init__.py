"""Optax optimisers beside the flow."""

from gradflow.descent.solve import gradient_descent as gradient_descent
from gradflow.descent.solve import log_steps as log_steps
