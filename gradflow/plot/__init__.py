"""Figures: data and an axis in, the axis out.

Every function draws in one style, without changing Matplotlib's settings, and makes an axis when none is given.
"""

from gradflow.plot.curves import bands as bands
from gradflow.plot.curves import gaps as gaps
from gradflow.plot.curves import lines as lines
from gradflow.plot.curves import scalar as scalar
from gradflow.plot.fields import heat_map as heat_map
from gradflow.plot.fields import residuals as residuals
from gradflow.plot.heads import attention as attention
from gradflow.plot.heads import heads as heads
from gradflow.plot.heads import norms as norms
from gradflow.plot.looks import activation_look as activation_look
from gradflow.plot.looks import member_looks as member_looks
from gradflow.plot.looks import verdict_look as verdict_look
from gradflow.plot.marks import label_ends as label_ends
from gradflow.plot.marks import legend as legend
from gradflow.plot.marks import paper_value as paper_value
from gradflow.plot.marks import reference as reference
from gradflow.plot.marks import title as title
from gradflow.plot.style import ONE_COLUMN as ONE_COLUMN
from gradflow.plot.style import TWO_COLUMNS as TWO_COLUMNS
from gradflow.plot.style import new_figure as new_figure
from gradflow.plot.style import save as save
from gradflow.plot.style import style as style
from gradflow.plot.weights import weights as weights
