"""Which leaves move when, and how fast: groups with step sizes of their own, alternating phases, a closed-form M step.

Each is an Optax transformation for `gradient_descent`; `rates` of `gradient_flow` and `alternating_flow` are the flows
that they follow.
"""

from gradflow.schedules.closed_form import closed_form_values as closed_form_values
from gradflow.schedules.flow import alternating_flow as alternating_flow
from gradflow.schedules.groups import at_rates as at_rates
from gradflow.schedules.groups import parameter_groups as parameter_groups
from gradflow.schedules.leaves import all_but as all_but
from gradflow.schedules.leaves import only as only
from gradflow.schedules.phases import Phase as Phase
from gradflow.schedules.phases import alternating as alternating
