"""The one style of all figures: sizes, fonts, and how a figure is made and written."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from gradflow.errors import FlowError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_COLUMN, TWO_COLUMNS = 3.25, 6.75  # inches
HEIGHT = 2.4  # inches a row of panels
DPI = 200
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")  # Okabe and Ito's
GREY = "#767676"  # references and notes: the lightest grey with a contrast of 4.5 on white

_SETTINGS = {
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "mathtext.fontset": "dejavusans",
    "savefig.dpi": DPI,
    "svg.fonttype": "path",
    "svg.hashsalt": "gradflow",
    "xtick.labelsize": 8,
    "xtick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.labelsize": 8,
    "ytick.major.width": 0.6,
    "ytick.minor.width": 0.4,
}

P = ParamSpec("P")
R = TypeVar("R")


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw in gradflow's style inside the block; Matplotlib's own settings come back at its end.

    Yields:
        Nothing.
    """
    import matplotlib
    from matplotlib.rcsetup import cycler

    with matplotlib.rc_context(cast(Any, _SETTINGS | {"axes.prop_cycle": cycler(color=CYCLE)})):
        yield


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in the style."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with style():
            return draw(*args, **kwargs)

    return drawn


@styled
def new_figure(
    rows: int = 1, columns: int = 1, *, width: float | None = None, height: float | None = None, **keywords: Any
) -> "tuple[Figure, Any]":
    """Return a figure and its axes, unknown to pyplot: nothing to close, nothing shown by itself.

    Args:
        rows: of panels.
        columns: of panels.
        width: in inches; None is one text column for one panel across, two for more.
        height: in inches; None is 2.4 a row.
        **keywords: passed to `Figure.subplots`, for instance `sharex=True`.

    Returns:
        `(figure, axes)`, axes as `Figure.subplots` returns them.
    """
    from matplotlib.figure import Figure

    width = width or (ONE_COLUMN if columns == 1 else TWO_COLUMNS)
    figure = Figure(figsize=(width, height or HEIGHT * rows))
    return figure, figure.subplots(rows, columns, **keywords)


def axis_or_new(ax: "Axes | None", width: float = ONE_COLUMN) -> "Axes":
    """Return the axis given, or a new pyplot one, which a notebook or `plt.show()` shows."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, HEIGHT))[1]


@styled
def save(figure: "Figure", path_stem: str | Path) -> tuple[Path, Path]:
    """Write a figure as SVG and as PNG at 200 dpi; the same figure gives the same bytes.

    Args:
        figure: what to write.
        path_stem: path without ending; its folder is made if needed.

    Returns:
        The paths of the SVG and of the PNG.

    Raises:
        FlowError: if they cannot be written.
    """
    stem = Path(path_stem)
    paths = tuple(stem.with_name(f"{stem.name}.{kind}") for kind in ("svg", "png"))
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            _write(figure, path)
    except OSError as error:
        raise FlowError(f"path_stem is {str(stem)!r}, which cannot be written: {error.strerror or error}") from error
    return paths[0], paths[1]


def _write(figure: "Figure", path: Path) -> None:
    """Write beside the target and rename, so that a reader never meets half a file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    kind = path.suffix[1:]
    try:
        figure.savefig(temporary, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
