"""A sweep on disk: Zarr arrays whose chunks appear whole or not at all, and the spec that they belong to.

Every chunk of the sweep is one chunk file of each array. Files are written aside, then renamed, that of `result` last:
a chunk is finished when that file is there. Nothing else marks it, and nothing is ever unpickled.
"""

import contextlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradflow import files
from gradflow.errors import FlowError
from gradflow.sweep.grid import Chunk, Grid
from gradflow.sweep.variables import Variable, fixed_width

if TYPE_CHECKING:
    import xarray

ROOT = "zarr.json"
LAST = "result"
BEGUN = {"zarr_format": 3, "node_type": "group", "attributes": {"title": "gradflow sweep"}}


class Store:
    """The folder of one sweep; a worker process makes its own from the path."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and hold its lock, which goes with the process.

        Yields:
            Nothing.

        Raises:
            FlowError: if it cannot be written, or another process holds it.
        """
        files.make(self.path, "store")
        with files.locked(self.path, "store"):
            yield

    def attributes(self) -> dict[str, Any] | None:
        """Return what the store says of its sweep, None if there is none yet.

        Raises:
            FlowError: if the folder holds something else.
        """
        root = files.read_json(self.path / ROOT)
        attributes = root.get("attributes", {}) if isinstance(root, dict) else {}
        if attributes.get("title") == BEGUN["attributes"]["title"]:
            return attributes if "spec" in attributes else None
        if files.occupied(self.path):
            raise FlowError(f"store is {str(self.path)!r}, which holds something else than a sweep: choose another one")
        return None

    def create(self, grid: Grid, block: tuple[int, ...], variables: list[Variable], labels: dict, attributes: dict):
        """Lay out all arrays; the folder is a sweep's from the first write on, and complete at the last.

        Args:
            grid: the dimensions.
            block: sizes of a chunk.
            variables: what each member gives.
            labels: coordinates.
            attributes: of the Dataset.

        Raises:
            FlowError: if the disk refuses.
        """
        import zarr

        with self._writing():
            for entry in self.path.iterdir():
                files.remove(entry)
            files.write_text(self.path / ROOT, json.dumps(BEGUN))
            group = zarr.open_group(self.path, mode="r+", zarr_format=3)
            for name, (dims, values, notes) in labels.items():
                _coordinate(group, name, dims, values, notes)
            others = " ".join(name for name, (dims, _, _) in labels.items() if dims != (name,))
            for variable in variables:
                notes: dict[str, Any] = {**variable.attributes, **({"coordinates": others} if others else {})}
                group.create_array(
                    variable.name,
                    shape=(*grid.shape, *variable.shape),
                    chunks=(*block, *(max(size, 1) for size in variable.shape)),
                    dtype=_stored(variable.name, variable.dtype),
                    fill_value=variable.fill,
                    dimension_names=(*grid.names, *variable.dims),
                    attributes=notes,
                )
            with warnings.catch_warnings():
                # Consolidated metadata lets readers skip the listing of folders, which chunks come and go in.
                warnings.filterwarnings("ignore", "Consolidated metadata")
                zarr.consolidate_metadata(group.store)
            self.note(attributes)

    def is_empty(self) -> bool:
        """Return whether no chunk is finished yet."""
        return not any(file.is_file() for file in (self.path / LAST).rglob("*") if file.name != ROOT)

    def note(self, attributes: dict[str, Any]) -> None:
        """Add to what the store says of its sweep."""
        root = files.read_json(self.path / ROOT)
        root["attributes"] = {**root["attributes"], **attributes}
        with self._writing():
            files.write_text(self.path / ROOT, json.dumps(root))

    def has(self, chunk: Chunk) -> bool:
        """Return whether a chunk is finished."""
        return self.path.joinpath(_place(LAST, chunk)).is_file()

    def write(self, chunk: Chunk, values: dict[str, np.ndarray]) -> None:
        """Write a finished chunk.

        Args:
            chunk: which.
            values: its variables, in the shape of the block.

        Raises:
            FlowError: if the disk refuses; the chunk is not there then.
        """
        import zarr

        aside = self.path / f".{uuid.uuid4().hex}.part"
        names = [*(name for name in values if name != LAST), LAST]
        with self._writing(), files.turn(self.path / LAST, alone=False):
            try:
                for name in names:
                    (aside / name).mkdir(parents=True)
                    shutil.copyfile(self.path / name / ROOT, aside / name / ROOT)
                    array: Any = zarr.open_array(aside / name, mode="r+", zarr_format=3)
                    array[chunk.region] = values[name].astype(array.dtype)
                for name in names:
                    file = _place(name, chunk, values[name].ndim - len(chunk.place))
                    _move(aside / file, self.path / file)
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def tidy(self, unfinished: Iterable[Chunk], labels: Iterable[str]) -> None:
        """Remove what a killed process left of chunks that it did not finish.

        Args:
            unfinished: those chunks.
            labels: names of the coordinates, which are whole.
        """
        # Workers outlive a process that is killed, and go on for a few chunks without its lock.
        with self._writing(), files.turn(self.path / LAST, alone=True):
            for entry in self.path.glob(".*.part"):
                files.remove(entry)
            begun = {entry.name for entry in self.path.iterdir() if (entry / "c").exists()} - set(labels)
            for chunk in unfinished:
                for name in begun:
                    left = self.path / _place(name, chunk)
                    shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)

    def open(self) -> "xarray.Dataset":
        """Return the Dataset, read from the disk when it is looked at; labels and results are read now."""
        import xarray

        ds = xarray.open_zarr(self.path, chunks=None, consolidated=True)
        text = [name for name, array in ds.variables.items() if array.dtype.kind in "TO"]
        read = {name: (ds[name].dims, fixed_width(ds[name].values), ds[name].attrs) for name in text}
        labels = {name: value for name, value in read.items() if name in ds.coords}
        return ds.assign({name: value for name, value in read.items() if name not in labels}).assign_coords(labels)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0]
            raise FlowError(
                f"store is {str(self.path)!r}, which cannot be written ({reason}): make room or choose another place; "
                "what is finished is kept, and the same call goes on with it"
            ) from error


def _stored(name: str, dtype: np.dtype) -> Any:
    """Return the type on disk: text of a fixed width has no settled form in Zarr 3, NumPy's variable one has."""
    if dtype.kind not in "biufcU":
        raise FlowError(f"observe returns {name!r} as {dtype}, which Zarr does not know: give it .astype('float32')")
    return np.dtypes.StringDType() if dtype.kind == "U" else dtype


def _coordinate(group: Any, name: str, dims: tuple[str, ...], values: np.ndarray, notes: dict[str, Any]) -> None:
    values = values.astype(_stored(name, values.dtype))
    array = group.create_array(
        name, shape=values.shape, chunks=values.shape, dtype=values.dtype, dimension_names=dims, attributes=notes
    )
    array[...] = values


def _place(name: str, chunk: Chunk, trailing: int = 0) -> Path:
    """Return the file of a chunk of an array, relative to the store."""
    return Path(name, "c", *map(str, chunk.place), *("0",) * trailing)


def _move(source: Path, target: Path) -> None:
    """Put a file where readers look, once it is on the disk; a chunk that holds nothing but fill has none."""
    if not source.exists():
        target.unlink(missing_ok=True)
        return
    with source.open("rb") as file:
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
