"""Score -> weight maps: `act(scores (..., n), where=None) -> weights (..., n)` over the last axis."""

from gradflow.activations.base import AbstractActivation as AbstractActivation
from gradflow.activations.base import AbstractElementwise as AbstractElementwise
from gradflow.activations.base import AbstractHomogeneous as AbstractHomogeneous
from gradflow.activations.base import AbstractPositive as AbstractPositive
from gradflow.activations.base import smooth as smooth
from gradflow.activations.elu import ELU as ELU
from gradflow.activations.elu import ELU1 as ELU1
from gradflow.activations.homogeneous import Abs as Abs
from gradflow.activations.homogeneous import Linear as Linear
from gradflow.activations.homogeneous import ReLU as ReLU
from gradflow.activations.homogeneous import Square as Square
from gradflow.activations.normalised import Normalised as Normalised
from gradflow.activations.positive import Exp as Exp
from gradflow.activations.positive import Sigmoid as Sigmoid
from gradflow.activations.positive import Softplus as Softplus
from gradflow.activations.registry import by_name as by_name
from gradflow.activations.registry import names as names
from gradflow.activations.simplex import Softmax as Softmax
from gradflow.activations.simplex import Softmax1 as Softmax1
from gradflow.activations.simplex import Uniform as Uniform
from gradflow.activations.sparsemax import Sparsemax as Sparsemax
