"""Closed forms and conserved quantities of training, as residuals."""

from gradflow.laws import em as em
from gradflow.laws import neighbours as neighbours
from gradflow.laws import polarization as polarization
from gradflow.laws import routing as routing
from gradflow.laws import state_space as state_space
from gradflow.laws.auditing import audit as audit
from gradflow.laws.invariants import conserved as conserved
from gradflow.laws.invariants import conserved_drift as conserved_drift
from gradflow.laws.routing.gradients import HeadGradients as HeadGradients
from gradflow.laws.routing.gradients import head_gradients as head_gradients
from gradflow.laws.table import Audit as Audit
from gradflow.laws.table import Row as Row
from gradflow.laws.table import Skipped as Skipped
