"""Runs a sweep of settings into a folder: its store, a picture and a record, as experiments have them."""

import dataclasses
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gradflow import plot
from gradflow.errors import FlowWarning, unknown
from gradflow.experiments import folder
from gradflow.experiments.base import Figure
from gradflow.experiments.record import changed, now, plain
from gradflow.experiments.writer import open_run
from gradflow.sweep import machine, overview, presets, sweep
from gradflow.sweep.axes import SEED
from gradflow.sweep.settings import Settings

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as MatplotlibFigure

UNITS = {"final_entropy": "nats"}
MOST_TICKS = 12
LOG_FROM = 20  # ratio of the ends above which an axis is logarithmic


def run_grid(
    settings: Settings, path: str | Path, *, show: str, overwrite: bool = False, resume: bool = False
) -> "xarray.Dataset":
    """Run a sweep, keep every finished chunk, and draw one quantity over its two longest axes.

    Args:
        settings: what varies, and how runs go.
        path: the folder.
        show: the quantity, one of `presets.SHOWN`.
        overwrite: replace an earlier sweep in the folder.
        resume: go on with an earlier sweep of equal settings, if there is one.

    Returns:
        The result, read from the store when it is looked at.

    Raises:
        FlowError: if a setting or the folder cannot be used.
        Interrupted: on Ctrl-C; finished chunks are in the store.
    """
    if show not in presets.SHOWN:
        raise unknown("quantity", show, presets.SHOWN)
    plan, description = presets.plan(settings), _description(settings)
    with open_run(Path(path), description, overwrite=overwrite, resume=resume) as writer, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* members failed", FlowWarning)  # the caller sees them in the result
        arguments = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
        ds = sweep(**arguments, store=writer.path / folder.SWEEP)
        writer.write_figures(figures(ds, show))
        writer.write_json(folder.CONFIG, {**description, "finished": now()})
    return ds


def _description(settings: Settings) -> dict[str, Any]:
    return {
        "experiment": "sweep",
        "title": "A sweep",
        "settings": {field.name: plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)},
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "device": machine.described(),
        "versions": machine.versions(),
        "command": shlex.join(["gradflow", "sweep", *changed(settings, Settings())]),
        "started": now(),
        "finished": None,
    }


def figures(ds: "xarray.Dataset", show: str) -> list[Figure]:
    """Return the picture of a quantity: over two axes a heat map of medians, over one the median and all draws.

    Args:
        ds: the sweep.
        show: the quantity.

    Returns:
        One figure, none for a sweep over seeds alone.
    """
    axes = overview.longest(ds, 2)
    if not axes:
        return []
    over = " and ".join(axes)
    values = overview.quantity(ds, show)
    others = [str(name) for name, size in values.sizes.items() if name not in axes and size > 1]
    numbers = overview.median(values, axes).values
    ends = f"{np.nanmin(numbers):.3g} to {np.nanmax(numbers):.3g}" if np.isfinite(numbers).any() else "no number"
    return [
        Figure(
            show,
            f"{_title(show)} over {over}",
            f"{_title(show)}, median over {' and '.join(others)}." if others else f"{_title(show)}.",
            f"{_title(show)} over {over}; medians go from {ends}.",
            lambda: draw(ds, show),
        )
    ]


def draw(ds: "xarray.Dataset", show: str) -> "MatplotlibFigure":
    """Draw the picture; see `figures`."""
    axes = overview.longest(ds, 2)
    values = overview.quantity(ds, show)
    label = f"{_title(show)} ({UNITS[show]})" if show in UNITS else _title(show)
    figure, ax = plot.new_figure(width=plot.TWO_COLUMNS if len(axes) == 2 else None)
    first = ds[axes[0]].values
    if len(axes) == 1 and first.dtype.kind in "fiu":
        rows = overview.median(values, [SEED, *axes]).values
        positive = first.min() > 0 and first.max() / first.min() > LOG_FROM
        order = np.argsort(first)
        plot.bands(first[order], rows[:, order], log="x" if positive else "", xlabel=axes[0], ylabel=label, ax=ax)
    else:
        second = axes[1] if len(axes) == 2 else SEED
        rows = overview.median(values, [second, axes[0]]).values
        across, upwards = _ticks(first), _ticks(ds[second].values)
        plot.heat_map(across, upwards, rows, xlabel=axes[0], ylabel=second, label=label, form=".3g", ax=ax)
    plot.title(ax, f"{_title(show)} over {' and '.join(axes)}")
    return figure


def _title(show: str) -> str:
    return show.removeprefix("num_").replace("_", " ") if show != "t_final" else "end of the run"


def _ticks(values: np.ndarray) -> list[str]:
    """Return as many labels as can be read, blanks between them."""
    every = -(-len(values) // MOST_TICKS)
    texts = [value if isinstance(value, str) else f"{value:.3g}" for value in values.tolist()]
    return [text if i % every == 0 else "" for i, text in enumerate(texts)]
