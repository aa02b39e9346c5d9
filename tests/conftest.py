"""Settings of the whole suite: float64, no windows, the same random examples on every run."""

import importlib.util
import itertools
import os

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

from gradflow.devices import release_kernels

jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile("gradflow", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("gradflow")


TESTS_BETWEEN = 8  # looks at the memory maps, each of which takes a tenth of a second where there are many
_ended = itertools.count(1)


@pytest.fixture(autouse=True)
def kernels_are_released():
    """The kernels of a whole suite are more than the memory maps of one process."""
    yield
    if next(_ended) % TESTS_BETWEEN == 0:
        release_kernels()


FIRST = ("test_docs", "test_examples", "experiments")  # the longest files: begun last, one worker would wait for them


def pytest_collection_modifyitems(items):
    """Order the files so that both workers end at about the same time."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in FIRST))


# PyTorch comes with the extra `parity` only; `.ci/run` installs it and fails if these tests did not run.
collect_ignore = [] if importlib.util.find_spec("torch") else ["parity"]
