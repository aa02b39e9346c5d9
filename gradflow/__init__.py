"""gradflow: gradient flows of Equinox models, optimisers beside them, and the laws that attention obeys along both.

Importing changes no global setting; laws, schedules, plotting, experiments and reports load when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from gradflow import activations as activations
from gradflow import diagnostics as diagnostics
from gradflow import losses as losses
from gradflow import models as models
from gradflow import tasks as tasks
from gradflow.citation import citation as citation
from gradflow.compare import flow_descent_gap as flow_descent_gap
from gradflow.compare import gap_order as gap_order
from gradflow.descent import gradient_descent as gradient_descent
from gradflow.descent import gradient_descent_ensemble as gradient_descent_ensemble
from gradflow.descent import log_steps as log_steps
from gradflow.errors import FlowError as FlowError
from gradflow.errors import FlowWarning as FlowWarning
from gradflow.errors import Interrupted as Interrupted
from gradflow.flow import Chebyshev as Chebyshev
from gradflow.flow import Crossing as Crossing
from gradflow.flow import gradient_flow as gradient_flow
from gradflow.flow import gradient_flow_ensemble as gradient_flow_ensemble
from gradflow.flow import log_times as log_times
from gradflow.sweep import Batched as Batched
from gradflow.sweep import Descent as Descent
from gradflow.sweep import Failure as Failure
from gradflow.sweep import Flow as Flow
from gradflow.sweep import Static as Static
from gradflow.sweep import failures as failures
from gradflow.sweep import log_range as log_range
from gradflow.sweep import sweep as sweep
from gradflow.trajectory import Trajectory as Trajectory
from gradflow.types import RESULTS as RESULTS

if TYPE_CHECKING:
    from gradflow import experiments as experiments
    from gradflow import laws as laws
    from gradflow import plot as plot
    from gradflow import report as report
    from gradflow import schedules as schedules
    from gradflow.observables import HeadObservables as HeadObservables

__version__ = "0.1.0"

_LAZY = ("laws", "schedules", "plot", "experiments", "report", "HeadObservables")


def __getattr__(name: str) -> Any:
    if name == "HeadObservables":
        return importlib.import_module("gradflow.observables").HeadObservables
    if name in _LAZY:
        return importlib.import_module(f"gradflow.{name}")
    raise AttributeError(f"module 'gradflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
