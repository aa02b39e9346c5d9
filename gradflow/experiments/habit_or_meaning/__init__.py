"""Is the sink on the first token learned habit, of what, and can it be foreseen or moved?"""

from gradflow.experiments.base import Experiment
from gradflow.experiments.habit_or_meaning.claims import claims
from gradflow.experiments.habit_or_meaning.config import Config
from gradflow.experiments.habit_or_meaning.figures import figures
from gradflow.experiments.habit_or_meaning.stages import plan, stages

EXPERIMENT = Experiment(
    name="habit-or-meaning",
    title="Habit or meaning: is a sink tied to the token BOS, to position 0 or to the first place, and who decides?",
    source="arXiv 2603.06248, induction task, beyond its settings",
    config=Config,
    stages=stages,
    claims=claims,
    figures=figures,
    recorded={
        "sink-on-bos": "holds",
        "position-0-without-bos": "holds",
        "token-and-position": "holds",
        "any-token-will-do": "holds in part",
        "moving-bos-in-training": "holds in part",
        "sink-is-idle": "holds in part",
        "lead-foresees-the-sink": "does not hold",
        "lead-moves-the-sink": "does not hold",
    },
    plan=plan,
)
