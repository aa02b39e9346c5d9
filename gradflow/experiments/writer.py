"""The one writer of experiments: each file and each finished stage is there whole or not at all."""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradflow import files
from gradflow.errors import FlowError
from gradflow.experiments import folder
from gradflow.experiments.base import Claim, Figure
from gradflow.laws import Audit

DOTS_PER_INCH = 200  # of the PNG


class Writer:
    """Writes one run into its folder; made by `open_run`."""

    def __init__(self, path: Path):
        self.path = path
        self.results = path / folder.RESULTS

    def stored(self, stage: str) -> bool:
        """Return whether a stage's results are there."""
        return (self.results / stage).is_dir()

    @contextlib.contextmanager
    def workspace(self, stage: str) -> Iterator[Path]:
        """Give a stage a folder for checkpoints that stays when the block fails and goes when it ends.

        Args:
            stage: whose.

        Yields:
            The folder.
        """
        path = self.path / folder.CHECKPOINTS / stage
        path.mkdir(parents=True, exist_ok=True)
        yield path
        files.remove(path)
        if not any(path.parent.iterdir()):
            files.remove(path.parent)

    def store(self, stage: str, arrays: Mapping[str, Any]) -> None:
        """Write a stage's results as one Zarr group, first under another name.

        Args:
            stage: its name.
            arrays: name -> numbers, truth values or text, of any shape.

        Raises:
            FlowError: if the name cannot be a folder's, or a value is of another kind.
        """
        import zarr

        if not re.fullmatch(r"\w[\w.-]*", stage):
            raise FlowError(f"stage {stage!r} cannot be the name of a folder: use letters, digits, dots and dashes")
        temporary = self.path / f".{stage}.part"
        files.remove(temporary)
        checked = {name: _checked(stage, name, value) for name, value in arrays.items()}
        group = zarr.open_group(temporary, mode="w", zarr_format=3, attributes={"names": list(checked)})
        for name, value in checked.items():
            axes = [f"{name}_{axis}" for axis in range(value.ndim)]
            group.create_array(name, data=value, dimension_names=axes)
        self.results.mkdir(exist_ok=True)
        self.write_json(f"{folder.RESULTS}/zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})
        os.rename(temporary, self.results / stage)

    def load(self, stage: str) -> dict[str, np.ndarray]:
        """Read a stage's results, as they were stored."""
        import zarr

        group: Any = zarr.open_group(self.results / stage, mode="r")
        arrays = {name: np.asarray(group[name][...]) for name in group.attrs["names"]}
        return {name: _fixed_width(value) if value.dtype.kind == "T" else value for name, value in arrays.items()}

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        files.write_text(self.path / name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def write_claims(self, claims: list[Claim]) -> None:
        """Write `claims.json`."""
        self.write_json("claims.json", [dataclasses.asdict(claim) for claim in claims])

    def write_audits(self, audits: list[Audit]) -> None:
        """Write `audits.json`, the laws that the runs of the experiment were checked for."""
        self.write_json(folder.AUDITS, [dataclasses.asdict(audit) for audit in audits])

    def write_figures(self, figures: list[Figure]) -> None:
        """Draw each figure as SVG and PNG, and write what belongs to it into `figures/figures.json`."""
        (self.path / folder.FIGURES).mkdir(exist_ok=True)
        for figure in figures:
            self._draw(figure)
        texts = [{name: getattr(figure, name) for name in ("name", "title", "caption", "alt")} for figure in figures]
        self.write_json(f"{folder.FIGURES}/figures.json", texts)

    def write_page(self, page: Callable[[Path], str], name: str = "report.html") -> None:
        """Write the page that is made from the folder's other files."""
        files.write_text(self.path / name, page(self.path))

    def _draw(self, figure: Figure) -> None:
        import matplotlib.pyplot as plt

        # Outlines for letters and no dates: the file looks and is the same everywhere.
        with plt.rc_context({"svg.fonttype": "path", "svg.hashsalt": figure.name}):
            drawn = figure.draw()
            for ending, metadata in (("svg", {"Date": None}), ("png", {})):
                path = self.path / folder.FIGURES / f"{figure.name}.{ending}"
                temporary = path.with_name(f".{path.name}.part")
                drawn.savefig(temporary, format=ending, dpi=DOTS_PER_INCH, metadata=metadata)
                os.replace(temporary, path)
            plt.close(drawn)


@contextlib.contextmanager
def open_run(path: Path, record: Mapping[str, Any], *, overwrite: bool, resume: bool) -> Iterator[Writer]:
    """Hold a folder for one run, see `folder.claimed`, and write `config.json` first of all.

    Args:
        path: the folder.
        record: what `config.json` says.
        overwrite: replace an earlier run.
        resume: go on with an earlier run of the same record.

    Yields:
        The folder's writer.
    """
    with folder.claimed(path, record, overwrite=overwrite, resume=resume):
        writer = Writer(path)
        writer.write_json(folder.CONFIG, record)
        yield writer


def _checked(stage: str, name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "biufcUT":
        raise FlowError(f"stage {stage!r} returned {name!r} of type {array.dtype}: only numbers and text can be stored")
    # Text of a fixed width has no settled form in Zarr 3; NumPy's variable one has.
    return array.astype(np.dtypes.StringDType()) if array.dtype.kind == "U" else array


def _fixed_width(value: np.ndarray) -> np.ndarray:
    return np.array(value.tolist(), dtype=str).reshape(value.shape)
