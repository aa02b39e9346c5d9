"""Sweeps: a model trained at every point of a grid, stored and resumable, as one labelled result."""

from gradflow.sweep.axes import Batched as Batched
from gradflow.sweep.axes import Static as Static
from gradflow.sweep.axes import log_range as log_range
from gradflow.sweep.dataset import Failure as Failure
from gradflow.sweep.dataset import failures as failures
from gradflow.sweep.methods import Descent as Descent
from gradflow.sweep.methods import Flow as Flow
from gradflow.sweep.run import sweep as sweep
