"""The papers' experiments: each a config, stages that compute, claims that judge, and figures that show."""

from gradflow.experiments.base import Claim as Claim
from gradflow.experiments.base import Experiment as Experiment
from gradflow.experiments.base import Figure as Figure
from gradflow.experiments.base import Stage as Stage
from gradflow.experiments.base import judge as judge
from gradflow.experiments.grid import run_grid as run_grid
from gradflow.experiments.ledger import Row as Row
from gradflow.experiments.ledger import reproduce as reproduce
from gradflow.experiments.registry import get as get
from gradflow.experiments.registry import names as names
from gradflow.experiments.runner import run as run
