"""`import gradflow` is light and leaves the process as it was."""

import json
import subprocess
import sys

HEAVY = ("matplotlib", "xarray", "zarr", "sklearn", "torch", "transformers", "rich", "tyro", "pandas", "scipy.optimize")
PROBE = """
import json, os, sys, warnings
import jax, diffrax, optax
config, filters, environment = dict(jax.config.values), list(warnings.filters), dict(os.environ)
before = set(sys.modules)
import gradflow
print(json.dumps({
    "loaded": sorted(set(sys.modules) - before),
    "config": [name for name, value in jax.config.values.items() if config.get(name) != value],
    "filters": warnings.filters == filters,
    "environment": dict(os.environ) == environment,
}))
"""


def probe() -> dict:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_import_loads_nothing_heavy_and_changes_no_setting():
    seen = probe()
    assert any(name.startswith("gradflow") for name in seen["loaded"])
    assert [name for name in seen["loaded"] if name.startswith(HEAVY)] == []
    assert seen["config"] == []
    assert seen["filters"] and seen["environment"]
