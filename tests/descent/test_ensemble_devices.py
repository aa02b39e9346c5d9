"""A descent ensemble on several devices: the same bits wherever a member runs, each device with lanes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import gradflow

CODE = """
import jax, jax.numpy as jnp, numpy as np, optax
jax.config.update("jax_enable_x64", True)
import gradflow as gf
from gradflow.descent import workers

seen, run = [], workers.pools.run

def noted(*arguments):
    carry = run(*arguments)
    seen.extend(carry.pool.member.devices())
    return carry

workers.pools.run = noted

def loss(model, args):
    return 0.5 * jnp.sum((model - args.mean()) ** 2)

first, second = jax.devices()
data = jax.device_put(jnp.arange(6.0), first)  # bound to a device, as a user may have it
models = np.random.default_rng(0).normal(size=(12, 3))
models[5] = 1e200  # breaks, and runs once more up to its last healthy state
options = dict(steps=40, save_at=[0, 20, 40], lanes=2, batches=2, key=jax.random.key(1), threads=1)
runs = {}
for devices in (None, (first,), (second,)):
    seen.clear()
    runs[devices] = gf.gradient_descent_ensemble(loss, models, optax.adam(0.1), data, devices=devices, **options)
    assert set(seen) == set(devices or (first, second)), (devices, set(seen))
for other in runs.values():
    jax.tree.map(np.testing.assert_array_equal, other.observed, runs[None].observed)
    np.testing.assert_array_equal(other.status, runs[None].status)
assert set(runs[None].status) == {"successful", "nonfinite_start"}, runs[None].status
"""


def test_two_devices_share_the_members_and_give_the_same_bits():
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(gradflow.__file__).parents[1]),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
