"""The laws of softmax polarization, numbered 1 to 20; theorems 3.2 and 3.3 of arXiv 2603.06248 are laws 8 and 9.

The other laws are derived here (docs/explanation/polarization.md). Each is a function of a path (a run that saved its
models, or stacked models) that returns its residual.
"""

from gradflow.laws.paths import alignments as alignments
from gradflow.laws.paths import one_sample_direction as one_sample_direction
from gradflow.laws.polarization.asymptotics import excess_violation as excess_violation
from gradflow.laws.polarization.asymptotics import frozen_values_decay as frozen_values_decay
from gradflow.laws.polarization.asymptotics import frozen_weights_decay as frozen_weights_decay
from gradflow.laws.polarization.asymptotics import loss_decay as loss_decay
from gradflow.laws.polarization.asymptotics import others as others
from gradflow.laws.polarization.asymptotics import polarization_constant as polarization_constant
from gradflow.laws.polarization.clock import Clocked as Clocked
from gradflow.laws.polarization.clock import ClockRates as ClockRates
from gradflow.laws.polarization.clock import alignment_loss as alignment_loss
from gradflow.laws.polarization.clock import clock as clock
from gradflow.laws.polarization.clock import clock_drift as clock_drift
from gradflow.laws.polarization.clock import clock_rates as clock_rates
from gradflow.laws.polarization.clock import clocked as clocked
from gradflow.laws.polarization.clock import orbit as orbit
from gradflow.laws.polarization.clock import orbit_gap as orbit_gap
from gradflow.laws.polarization.clock import path_distance as path_distance
from gradflow.laws.polarization.conservation import column_sums as column_sums
from gradflow.laws.polarization.conservation import perpendicular_values as perpendicular_values
from gradflow.laws.polarization.conservation import primitive as primitive
from gradflow.laws.polarization.conservation import score_sum as score_sum
from gradflow.laws.polarization.dissipation import loss_dissipation as loss_dissipation
from gradflow.laws.polarization.dissipation import score_velocity as score_velocity
from gradflow.laws.polarization.onset import early_scores as early_scores
from gradflow.laws.polarization.onset import late_scores as late_scores
from gradflow.laws.polarization.onset import onset_constant as onset_constant
from gradflow.laws.polarization.onset import onset_spread as onset_spread
from gradflow.laws.polarization.ordering import LoserGap as LoserGap
from gradflow.laws.polarization.ordering import alignment_gap_shrinkage as alignment_gap_shrinkage
from gradflow.laws.polarization.ordering import leader_gap_shrinkage as leader_gap_shrinkage
from gradflow.laws.polarization.ordering import loser_gap_peak as loser_gap_peak
from gradflow.laws.polarization.ordering import order_violations as order_violations
from gradflow.laws.polarization.ordering import score_gap_shrinkage as score_gap_shrinkage
from gradflow.laws.polarization.replicator import replicator as replicator
from gradflow.laws.polarization.replicator import softmax_replicator as softmax_replicator
from gradflow.laws.polarization.replicator import square_replicator as square_replicator
from gradflow.laws.polarization.two_values import PlaneGap as PlaneGap
from gradflow.laws.polarization.two_values import closed_form as closed_form
from gradflow.laws.polarization.two_values import closed_form_gap as closed_form_gap
from gradflow.laws.polarization.two_values import hyperbolic as hyperbolic
from gradflow.laws.polarization.two_values import plane as plane
from gradflow.laws.polarization.winners import Winner as Winner
from gradflow.laws.polarization.winners import predicted_winner as predicted_winner
from gradflow.laws.polarization.winners import uniform_decay as uniform_decay
from gradflow.laws.polarization.winners import uniform_weights as uniform_weights
from gradflow.laws.polarization.winners import winner as winner
from gradflow.laws.polarization.winners import winner_mismatch as winner_mismatch
