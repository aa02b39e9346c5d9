"""Whether a store belongs to this sweep."""

import json
from pathlib import Path
from typing import Any

import jax

from gradflow.errors import FlowError
from gradflow.sweep.machine import BITS, versions
from gradflow.sweep.spec import differences, digest, plain
from gradflow.sweep.work import Work

MOST = 5  # differences that a message lists


def spec_of(work: Work) -> dict[str, Any]:
    """Return everything that decides the numbers of a sweep, as JSON."""
    axes = {
        axis.name: {"kind": axis.kind, "values": plain(axis.values), "names": plain(axis.labels.tolist())}
        for axis in work.grid.axes.values()
    }
    return {
        "dimensions": list(work.grid.names),
        "axes": axes,
        "key": work.key.tolist(),
        "method": plain(work.method),
        "build": plain(work.build),
        "observe": plain(work.observe),
        "build_on": "host" if work.on_host else "device",
        "independent": work.independent,
        "parameters": work.parameters,
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "chunk": list(work.block),
    }


def check_same(
    path: Path, attributes: dict[str, Any], work: Work, chunk: int | None, resume: bool, allow_versions: bool
) -> tuple[int, ...]:
    """Refuse to go on with another sweep.

    Args:
        path: the store.
        attributes: what it says of its sweep.
        work: this one.
        chunk: members of a chunk, None for those of the store.
        resume: whether to go on at all.
        allow_versions: whether other versions may.

    Returns:
        Sizes of a chunk.

    Raises:
        FlowError: saying what differs.
    """
    place = f"store is {str(path)!r}, which holds"
    if not resume:
        raise FlowError(f"{place} a sweep already, and resume is False: choose another store")
    earlier = json.loads(attributes["spec"])
    block = earlier["chunk"] if chunk is None else list(work.grid.block(chunk))
    here = {**spec_of(work), "chunk": block}
    if digest(here) != attributes["spec_hash"]:
        found = list(differences(earlier, here))
        more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
        grown = " (a stored grid is not extended)" if earlier["axes"] != here["axes"] else ""
        raise FlowError(f"{place} another sweep: {', '.join(found[:MOST])}{more}; choose another store{grown}")
    _check_versions(place, json.loads(attributes["versions"]), allow_versions)
    return tuple(block)


def also_run_with(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return what a store has to add about the versions that go on with it: nothing where they are those it names."""
    here, known = json.dumps(versions()), json.loads(attributes.get("also_versions", "[]"))
    if here == attributes["versions"] or here in known:
        return {}
    return {"also_versions": json.dumps([*known, here])}


def _check_versions(place: str, earlier: dict[str, str], allow_versions: bool) -> None:
    here = versions()
    changed = [f"{name} {earlier.get(name)} (here {here[name]})" for name in BITS if earlier.get(name) != here[name]]
    if changed and not allow_versions:
        raise FlowError(
            f"{place} a sweep run with {', '.join(changed)}, whose numbers differ in the last bits: use those "
            "versions, another store, or allow_versions=True"
        )
