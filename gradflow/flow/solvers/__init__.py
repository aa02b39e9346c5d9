"""Solvers made for gradient flows: explicit steps written out, a stabilised method for stiff flows, and the choice."""

from gradflow.flow.solvers.auto import EXPLICIT_GRADIENTS as EXPLICIT_GRADIENTS
from gradflow.flow.solvers.auto import Auto as Auto
from gradflow.flow.solvers.auto import choice_stats as choice_stats
from gradflow.flow.solvers.auto import held_by_stability as held_by_stability
from gradflow.flow.solvers.chebyshev import Chebyshev as Chebyshev
from gradflow.flow.solvers.chebyshev import Loop as Loop
from gradflow.flow.solvers.explicit import AbstractUnrolled as AbstractUnrolled
from gradflow.flow.solvers.explicit import Bosh3 as Bosh3
from gradflow.flow.solvers.explicit import Dopri8 as Dopri8
from gradflow.flow.solvers.explicit import Tsit5 as Tsit5
from gradflow.flow.solvers.names import IMPLICIT_LIMIT as IMPLICIT_LIMIT
from gradflow.flow.solvers.names import count_gradients as count_gradients
from gradflow.flow.solvers.names import resolve as resolve
