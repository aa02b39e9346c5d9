"""What the sweep knows of the machine: its devices, its memory, and the program versions that decide last bits."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

from gradflow.errors import FlowError, shown

# A chunk takes a few seconds at most on a CPU; an accelerator needs many more members to be busy at all.
MEMBERS = {"cpu": 2048}
MEMBERS_OF_ACCELERATOR = 65_536
PACKAGES = ("gradflow-jax", "jax", "diffrax", "equinox", "optax", "numpy")
GROUP = Path("/sys/fs/cgroup")  # of this process, in a container
BITS = ("gradflow-jax", "jax", "diffrax", "equinox", "optax")  # those whose change can change results


def devices_of(mesh: Any) -> list[Any] | None:
    """Return the devices of a mesh, None without one.

    Args:
        mesh: a `jax.sharding.Mesh`, or None.

    Returns:
        Its devices; each runs an independent pool of members.

    Raises:
        FlowError: if it is something else.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, jax.sharding.Mesh):
        raise FlowError(f"mesh is {shown(mesh)}: give a jax.sharding.Mesh, such as jax.make_mesh((2,), ('members',))")
    return list(mesh.devices.flat)


def members_of_chunk(devices: list[Any] | None) -> int:
    """Return how many members make a good chunk: the same on every machine of a kind."""
    return MEMBERS.get((devices or jax.devices())[0].platform, MEMBERS_OF_ACCELERATOR)


def described(devices: list[Any] | None = None) -> str:
    """Return platform and kind of the devices, for instance "gpu (NVIDIA H200)"."""
    first = (devices or jax.devices())[0]
    return first.platform if first.device_kind == first.platform else f"{first.platform} ({first.device_kind})"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    return {"python": platform.python_version(), **{name: _installed(name) for name in PACKAGES}}


def free_memory() -> int:
    """Return the bytes that this process may still use, as far as the system says."""
    limits = [_memory_available(), _group_limit()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else 2**62


def _memory_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


def _group_limit() -> int | None:
    try:
        used, most = (int((GROUP / f"memory.{name}").read_text()) for name in ("current", "max"))
        parts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        return max(most - used + int(parts.get("inactive_file", 0)), 0)  # cached files make room when asked
    except (OSError, ValueError):  # no such group, or no limit
        return None


def _installed(name: str) -> str:
    """Return a distribution's version; gradflow itself may run from its source folder."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "uninstalled"
