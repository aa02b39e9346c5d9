"""From words to options: dataclasses whose fields are what may be typed, and one line for every mistake."""

import contextlib
import dataclasses
import io
import re
import shlex
from collections.abc import Iterator
from typing import Any

from gradflow.errors import FlowError, nearest


def expect_no_words(name: str, words: list[str]) -> None:
    """Refuse words after a command that takes none."""
    if words:
        raise FlowError(f"gradflow {name} takes no options, got {shlex.join(words)}")


def parse(name: str, words: list[str], **defaults: Any) -> list[Any]:
    """Return the options as instances of the defaults' dataclasses, whose fields share one level."""
    import tyro

    _check_options(name, words, {option for part in defaults.values() for option in _options(part)})
    groups = dataclasses.make_dataclass("Groups", [(group, type(default)) for group, default in defaults.items()])
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            parsed = tyro.cli(
                groups,
                prog=f"gradflow {name}",
                description="",
                args=words,
                default=groups(**defaults),
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise FlowError(f"{_sentence(messages.getvalue())} See gradflow {name} --help") from None
    return [getattr(parsed, group) for group in defaults]


def _check_options(name: str, words: list[str], known: set[str]) -> None:
    for word in words:
        option = word.split("=")[0].replace("_", "-")
        if word.startswith("--") and option not in known | {"--help"}:
            raise FlowError(f"unknown option {option!r} of gradflow {name}{nearest(option, known)}")


def _options(part: Any) -> Iterator[str]:
    for field in dataclasses.fields(part):
        option = field.name.replace("_", "-")
        yield f"--{option}"
        if isinstance(getattr(part, field.name), bool):
            yield f"--no-{option}"


def _sentence(message: str) -> str:
    """Return what a parser's boxed message says, up to its first rule, as one line."""
    lines = [re.sub("[│╭╮╰╯─]", "", line).strip() for line in re.split("─{5,} │", message)[0].splitlines()[1:]]
    return " ".join(filter(None, lines)).rstrip(".") + "."
