"""A loss, a model and its data, or an ensemble of them, split once into hashable structure and arrays.

Structure (functions, treedefs, flags) is hashable and picks a kernel; arrays are arguments of that kernel, so that new
numbers never recompile.
"""

from gradflow.problem.members import Members as Members
from gradflow.problem.members import on_host as on_host
from gradflow.problem.members import split_members as split_members
from gradflow.problem.names import by_name as by_name
from gradflow.problem.split import Problem as Problem
from gradflow.problem.split import Structure as Structure
from gradflow.problem.split import check_finite as check_finite
from gradflow.problem.split import check_loss as check_loss
from gradflow.problem.split import split as split
