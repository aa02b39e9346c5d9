"""Inside a transformer: a number for each head, attention maps, and norms of each layer and token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow.errors import FlowError
from gradflow.plot.fields import heat_map
from gradflow.plot.looks import MAGNITUDE_MAP, SIGNED_MAP
from gradflow.plot.style import GREY, axis_or_new, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS, LABELS_OF_PANEL = 10, 5  # numbers along an axis at most
COLUMNS = 4  # panels across


@styled
def heads(
    values: Any, *, label: str = "", limits: tuple[float, float] | None = (0.0, 1.0), ax: "Axes | None" = None
) -> "Axes":
    """Draw a number for each head: layers upwards, heads across.

    Args:
        values: (layer, head), for instance `gf.diagnostics.sink_rate(attention, per_head=True)`; NaN is hatched.
        label: of the colour bar.
        limits: of the colours. The default, that of a share, makes figures comparable; None: those of the values.
        ax: where; None makes a new one.

    Returns:
        The axis.

    Raises:
        FlowError: if the values are no table, or empty.
    """
    values = _table("values", values, "(layer, head)")
    layers, count = values.shape
    ax = heat_map(range(count), range(layers), values, xlabel="head", ylabel="layer", label=label, limits=limits, ax=ax)
    _ticks(ax, "x", range(count))
    _ticks(ax, "y", range(layers))
    return ax


@styled
def attention(
    weights: Any, tokens: Sequence[Any] | None = None, *, ax: "Axes | Sequence[Axes] | None" = None
) -> "Axes | np.ndarray":
    """Draw attention maps: queries downwards, keys across, all heads with the same colours.

    Args:
        weights: (T, T), or (head, T, T) for a panel each. Where one is negative the colours diverge from zero.
        tokens: what stands at each position; None: the positions.
        ax: where: an axis, or one for each head. None makes a new one, or a figure of four across.

    Returns:
        The axis, or an array of them.

    Raises:
        FlowError: if the shapes do not fit.
    """
    maps = np.asarray(weights, float)
    if maps.ndim not in (2, 3) or not maps.size:
        raise FlowError(f"weights has shape {maps.shape}; pass (queries, keys) or (head, queries, keys)")
    several = maps.ndim == 3
    maps = maps if several else maps[None]
    axes = _panels(ax, len(maps)) if several else np.array([axis_or_new(ax)], object)  # pyright: ignore[reportArgumentType]
    names = list(range(maps.shape[-1])) if tokens is None else [str(token) for token in tokens]
    if len(names) != maps.shape[-1]:
        raise FlowError(f"tokens has {len(names)} entries; weights {maps.shape} has {maps.shape[-1]} keys")
    signed, high = bool((maps < 0).any()), float(np.nanmax(np.abs(maps), initial=0)) or 1.0
    colours = {"cmap": SIGNED_MAP if signed else MAGNITUDE_MAP, "vmin": -high if signed else 0, "vmax": high}
    most = LABELS_OF_PANEL if several else LABELS
    for head, (panel, each) in enumerate(zip(axes, maps, strict=True)):
        image = panel.pcolormesh(each, **colours, rasterized=each.size > 4096)
        _clean(panel)
        panel.set(aspect="equal", xlabel="key", ylabel="query", title=f"head {head}" if several else "")
        panel.invert_yaxis()
        _ticks(panel, "x", names, most)
        _ticks(panel, "y", names if maps.shape[-2] == len(names) else range(maps.shape[-2]), most)
    axes[0].figure.colorbar(image, ax=list(axes), label="weight").outline.set_visible(False)
    return axes if several else axes[0]


@styled
def norms(values: Any, tokens: Sequence[Any] | None = None, *, label: str = "norm", ax: "Axes | None" = None) -> "Axes":
    """Draw norms, or largest activations, of each layer and token with logarithmic colours.

    Args:
        values: (layer, token), for instance `gf.diagnostics.activation_peaks(hidden).magnitude`. What is not above
            zero, or not finite, is hatched.
        tokens: what stands at each position; None: the positions.
        label: of the colour bar.
        ax: where; None makes a new one.

    Returns:
        The axis.

    Raises:
        FlowError: if the shapes do not fit.
    """
    from matplotlib.colors import LogNorm

    values = _table("values", values, "(layer, token)")
    names = list(range(values.shape[1])) if tokens is None else [str(token) for token in tokens]
    if len(names) != values.shape[1]:
        raise FlowError(f"tokens has {len(names)} entries; values {values.shape} has {values.shape[1]} tokens")
    ax = axis_or_new(ax)
    shown = np.ma.masked_where(~(np.isfinite(values) & (values > 0)), values)
    low, high = (float(shown.min()), float(shown.max())) if shown.count() else (1.0, 10.0)
    if high < 10 * low:  # at least a decade, so that rounding does not look like structure
        middle = np.sqrt(low * high)
        low, high = middle / np.sqrt(10), middle * np.sqrt(10)
    image = ax.pcolormesh(shown, cmap=MAGNITUDE_MAP, norm=LogNorm(low, high), edgecolors="white", linewidth=0.5)
    _clean(ax)
    ax.set(xlabel="token", ylabel="layer")
    _ticks(ax, "x", names)
    _ticks(ax, "y", range(values.shape[0]))
    ax.figure.colorbar(image, ax=ax, label=label).outline.set_visible(False)
    return ax


def _table(argument: str, values: Any, wanted: str) -> np.ndarray:
    values = np.asarray(values, float)
    if values.ndim != 2 or not values.size:
        raise FlowError(f"{argument} has shape {values.shape}; pass {wanted}, not empty")
    return values


def _panels(ax: Any, count: int) -> np.ndarray:
    if ax is None:
        columns = min(count, COLUMNS)
        rows = -(-count // columns)
        axes = np.ravel(new_figure(rows, columns, height=1.7 * rows + 0.2, squeeze=False)[1])
        for spare in axes[count:]:
            spare.set_visible(False)
        return axes[:count]
    axes = np.ravel(np.asarray(ax, object))
    if len(axes) != count:
        raise FlowError(f"ax has {len(axes)} axes for {count} heads; pass one for each")
    return axes


def _clean(ax: "Axes") -> None:
    ax.patch.set(hatch="////", edgecolor=GREY, linewidth=0)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _ticks(ax: "Axes", axis: str, names: Sequence[Any], most: int = LABELS) -> None:
    """Name the cells, evenly thinned where there are many numbers; words are all shown, upright if long."""
    words = isinstance(names[0], str)
    step = 1 if words else -(-len(names) // most)
    chosen = range(0, len(names), step)
    turned = axis == "x" and words and max(map(len, names)) > 2
    labels = [str(names[i]) for i in chosen]
    setter = ax.set_xticks if axis == "x" else ax.set_yticks
    setter([i + 0.5 for i in chosen], labels, rotation=90 if turned else 0)
