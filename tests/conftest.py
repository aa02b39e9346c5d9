"""Settings of the whole suite: float64, no windows, the same random examples on every run."""

import importlib.util
import os

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

from gradflow.devices import release_kernels

jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile("gradflow", deadline=None, max_examples=25, derandomize=True, database=None)
hypothesis.settings.load_profile("gradflow")


@pytest.fixture(autouse=True)
def kernels_are_released():
    """The kernels of a whole suite are more than the memory maps of one process."""
    yield
    release_kernels()


# PyTorch comes with the extra `parity` only; `.ci/run` installs it and fails if these tests did not run.
collect_ignore = [] if importlib.util.find_spec("torch") else ["parity"]
