"""Settings of the experiment: the task of arXiv 2306.00802 on a text of one's own, and a smaller version."""

import dataclasses

import numpy as np

from gradflow.experiments.texts import BigramText

LAYERS = 2
LEARNT = 0.9  # accuracy at the positions that can be looked up, above which a model looks up
RESTING = 0.3  # share of a row on the first token, above which it is a sink (arXiv 2410.10781)


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings; the defaults are the preset `quick`, a smaller model on shorter sequences.

    Attributes:
        text: whose bigrams are learnt: "bible", or a file in UTF-8; taken in lower case.
        letters: of the alphabet, at most; rarer characters become one.
        triggers: how many of the most frequent characters are followed by what the sequence says.
        length: characters of a sequence.
        maps: attention maps of models of two layers; softmax is trained with one layer as well.
        bos_maps: attention maps of models of two layers that read a token BOS before the characters.
        seeds: runs of each.
        width: of the model.
        heads: of the model, in a layer.
        batch: sequences of a step.
        steps: of a run.
        learning_rate: of AdamW.
        evaluated: fresh sequences for evaluation.
        saves: times along a run, evenly in the log of the step.
    """

    text: str = "bible"
    letters: int = 32
    triggers: int = 3
    length: int = 32
    maps: tuple[str, ...] = ("softmax", "normalised-sigmoid", "sigmoid", "uniform")
    bos_maps: tuple[str, ...] = ("softmax", "sigmoid")
    seeds: int = 5
    width: int = 64
    heads: int = 2
    batch: int = 32
    steps: int = 600
    learning_rate: float = 3e-3
    evaluated: int = 128
    saves: int = 25

    @classmethod
    def paper(cls) -> "Config":
        """Return the paper's sizes: 65 characters, five triggers, 256 tokens, width 128, batches of 512."""
        return cls(letters=65, triggers=5, length=256, width=128, batch=512, steps=1000, learning_rate=1e-3, saves=50)

    @property
    def save_at(self) -> np.ndarray:
        """Steps to save: the start, and evenly in the log of the step up to the end."""
        return np.unique(np.append(0, np.geomspace(1, self.steps, self.saves)).round().astype(int))

    def task(self, bos: bool = False) -> BigramText:
        """Return the task, with BOS or without; its text is read."""
        return BigramText.of(self.text, self.letters, self.triggers, self.length, bos)
