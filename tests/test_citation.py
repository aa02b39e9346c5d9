"""gradflow.citation()."""

import re
from importlib.metadata import version

from gradflow.citation import citation


def test_every_source_is_named():
    keys = re.findall(r"^@\w+\{(\w+),$", citation(), flags=re.MULTILINE)
    assert keys == [
        "gradflow",
        "varre2026gradient",
        "agarwal2025gradient",
        "kidger2021on",
        "kidger2021equinox",
        "deepmind2020jax",
        "jax2018github",
    ]
    assert "2603.06248" in citation() and "2512.22473" in citation()


def test_braces_balance_and_versions_are_filled_in():
    text = citation()
    assert text.count("{") == text.count("}")
    assert "<" not in text and f"{{{version('jax')}}}" in text


def test_the_interpreter_shows_it_ready_to_paste(capsys):
    assert repr(citation()) == str(citation())
    assert capsys.readouterr().out == ""
