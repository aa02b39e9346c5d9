"""Gradient flows: theta' = -M grad L(theta), through Diffrax."""

from gradflow.flow.ensemble import gradient_flow_ensemble as gradient_flow_ensemble
from gradflow.flow.events import Crossing as Crossing
from gradflow.flow.options import log_times as log_times
from gradflow.flow.solve import gradient_flow as gradient_flow
from gradflow.flow.solvers import Bosh3 as Bosh3
from gradflow.flow.solvers import Chebyshev as Chebyshev
from gradflow.flow.solvers import Dopri8 as Dopri8
from gradflow.flow.solvers import Tsit5 as Tsit5
