"""The functions that create datasets: of objects in memory, and of files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from holdfast.data.dataset import Dataset
from holdfast.data.files import (
    BYTES,
    PATH,
    Csv,
    Form,
    Json,
    Lines,
    Paths,
    found_files,
    open_binary,
    open_parquet,
    open_parsed,
)
from holdfast.data.rows import NUMPY, Mapped, TableSource, frame_table, stacked, table_of
from holdfast.data.scheduling import without_scheduling
from holdfast.dataclass import dataclass
from holdfast.experiment.worker.train_loop import ExecutionOptions
from holdfast.lazy import PILLOW
from holdfast.trial.errors import InvalidConfig

_SHOWN = 5
_JSON: Final = tuple(
    f"{kind}{packed}"
    for kind in ("json", "jsonl")
    for packed in ("", ".gz", ".br", ".zst", ".lz4")
)
_IMAGES: Final = ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp")


@without_scheduling
def from_items(items: Sequence[Any], **ray_remote_args: Any) -> Dataset:
    """One row for each item: a dict of columns, or a value for the column "item".

    Arrays of one shape become tensors. Raises InvalidConfig for dicts with different keys, and for
    values that Arrow does not know.
    """
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise InvalidConfig(f"from_items() takes a list of items, not {items!r:.100}")
    items = list(items)
    if not items or not isinstance(items[0], Mapping):
        return _of(table_of({"item": items}))
    names = list(items[0])
    for at, item in enumerate(items):
        if not isinstance(item, Mapping) or set(item) != set(names):
            raise InvalidConfig(
                f"from_items(): item {at} is {item!r:.100}, but the first one has the columns "
                f"{names}: give each item the same keys, with None for missing values"
            )
    return _of(table_of({name: [item[name] for item in items] for name in names}))


@without_scheduling
def from_pandas(dfs: Any, **ray_remote_args: Any) -> Dataset:
    """The rows of a DataFrame, or of several in order. The index is left out."""
    frames = _listed(dfs)
    for frame in frames:
        if not hasattr(frame, "iloc"):
            raise InvalidConfig(f"from_pandas() takes DataFrames, not a {type(frame).__name__}")
    tables = [frame_table(frame) for frame in frames]
    return from_arrow([table.replace_schema_metadata() for table in tables])


@without_scheduling
def from_arrow(tables: Any, **ray_remote_args: Any) -> Dataset:
    """The rows of a pyarrow.Table, or of several in order.

    Raises InvalidConfig if their columns differ.
    """
    import pyarrow as pa

    given = _listed(tables)
    for table in given:
        if not isinstance(table, pa.Table):
            raise InvalidConfig(f"from_arrow() takes pyarrow.Tables, not a {type(table).__name__}")
    if not given:
        raise InvalidConfig("from_arrow() needs at least one table")
    try:
        return _of(pa.concat_tables(given))
    except pa.ArrowException as error:
        raise InvalidConfig(f"these tables have different columns: {error}") from error


def from_numpy(ndarrays: Any) -> Dataset:
    """One row for each item along the first axis, in the column "data". A list of arrays is
    concatenated; a dict gives a column for each.

    Raises InvalidConfig for columns of different lengths.
    """
    import numpy as np

    if isinstance(ndarrays, Mapping):
        return _of(table_of({name: np.asarray(array) for name, array in ndarrays.items()}))
    given = ndarrays if isinstance(ndarrays, list) else [ndarrays]
    arrays = [np.asarray(array) for array in given]
    try:
        return _of(table_of({"data": np.concatenate(arrays)}))
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in arrays[:_SHOWN]) or "none"
        raise InvalidConfig(
            f"from_numpy() cannot concatenate arrays of the shapes {shapes}: {error}"
        ) from error


@without_scheduling
def range(n: int, **ray_remote_args: Any) -> Dataset:  # noqa: A001 - as users know it
    """The numbers 0 to `n` - 1 in the column "id". Raises InvalidConfig."""
    import numpy as np

    if type(n) is not int or n < 0:
        raise InvalidConfig(f"range({n!r}) must be a number of rows")
    return _of(table_of({"id": np.arange(n)}))


@without_scheduling
def from_huggingface(dataset: Any, **ray_remote_args: Any) -> Dataset:
    """The rows of a dataset of Hugging Face `datasets`, in memory or mapped from its file.

    Raises InvalidConfig for several splits, and for other objects.
    """
    import pyarrow as pa

    if isinstance(dataset, Mapping):
        raise InvalidConfig(
            f"from_huggingface() takes one split: dataset[name], with one of "
            f"{', '.join(map(repr, dataset))}"
        )
    if not hasattr(dataset, "with_format"):
        raise InvalidConfig(
            f"from_huggingface() takes a dataset of Hugging Face, not a {type(dataset).__name__}"
        )
    rows = dataset.with_format("arrow")
    tables = [rows[:]] if hasattr(rows, "__len__") else list(rows.iter(batch_size=1000))
    return from_arrow(pa.concat_tables(tables).replace_schema_metadata())


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """A row for each item of a torch Dataset, in the column "item".

    A dataset with a length is read item by item when rows are needed; the items of others are in
    memory. Items that are tensors of one shape become tensors; pairs stay pairs, for `map` or
    `map_batches`.

    Raises InvalidConfig for an object that has no items.
    """
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        if not isinstance(dataset, Iterable):
            raise InvalidConfig(f"from_torch() takes a Dataset, not a {type(dataset).__name__}")
        dataset = list(dataset)
    items = Mapped(function=Items(dataset=dataset), batch_size=None, batch_format=NUMPY)
    return replace(range(len(dataset)), maps=(items,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A function of batches that replaces the numbers of items by the items."""

    dataset: Any

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        import numpy as np

        items = [self.dataset[int(number)] for number in batch["id"]]
        if all(hasattr(item, "__array__") for item in items):
            return {"item": stacked([np.asarray(item) for item in items])}
        if all(isinstance(item, (bool, int, float, str)) for item in items):
            return {"item": np.array(items)}
        found = np.empty(len(items), dtype=object)
        for at, item in enumerate(items):
            found[at] = item
        return {"item": found}


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _of(table: Any) -> Dataset:
    """The dataset of a table, with one piece of memory for each column: batches are views."""
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"a dataset cannot have two columns named {name!r}")
    return Dataset(source=TableSource(table.combine_chunks()))


# -- files ----------------------------------------------------------------------------------------


@without_scheduling
def read_parquet(
    paths: Paths,
    *,
    filesystem: Any = None,
    columns: Sequence[str] | None = None,
    **ray_remote_args: Any,
) -> Dataset:
    """The rows of files, or of all files below directories, on this machine or at any URI.

    This reads only their footers. Folders named `key=value` become columns, too. Credentials in a
    URI stay in this process; a worker takes them from its environment.

    Raises DatasetGone for a missing path, InvalidConfig for an unknown column, InvalidLocation for
    an unknown URI.
    """
    files = found_files(paths, caller="read_parquet", filesystem=filesystem)
    return Dataset(source=open_parquet(files, columns))


@without_scheduling
def read_csv(
    paths: Paths,
    *,
    filesystem: Any = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    **arrow_csv_args: Any,
) -> Dataset:
    """The rows of CSV files, of directories, or of patterns such as "logs/*.csv".

    This reads all files once, to know the rows and the types of the columns, which hold the values
    of all files. Afterwards a file is read as a whole when its rows are needed: keep large tables
    as Parquet. Folders named `key=value` become columns. `read_options`, `parse_options` and
    `convert_options` are those of `pyarrow.csv`, for instance with dictionaries as `column_types`
    for categories.

    Raises DatasetGone for a missing path, InvalidConfig for a file that cannot be parsed.
    """
    form = Csv(**_options("read_csv", arrow_csv_args, ("read", "parse", "convert")))
    return _of_text(
        paths, form, filesystem, include_paths, ignore_missing_paths, file_extensions, None
    )


@without_scheduling
def read_json(
    paths: Paths,
    *,
    lines: bool = False,
    filesystem: Any = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    **arrow_json_args: Any,
) -> Dataset:
    """The rows of JSON files: an object on each line, or one list of objects. Otherwise as
    `read_csv`, with the options of `pyarrow.json`."""
    form = Json(**_options("read_json", arrow_json_args, ("read", "parse")))
    return _of_text(
        paths, form, filesystem, include_paths, ignore_missing_paths, file_extensions, _JSON
    )


@without_scheduling
def read_text(
    paths: Paths,
    *,
    encoding: str = "utf-8",
    drop_empty_lines: bool = True,
    filesystem: Any = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    **ray_remote_args: Any,
) -> Dataset:
    """A row for each line of text files, in the column "text". Otherwise as `read_csv`."""
    form = Lines(encoding=encoding, drop_empty_lines=drop_empty_lines)
    return _of_text(
        paths, form, filesystem, include_paths, ignore_missing_paths, file_extensions, None
    )


@without_scheduling
def read_binary_files(
    paths: Paths,
    *,
    include_paths: bool = False,
    filesystem: Any = None,
    ignore_missing_paths: bool = False,
    file_extensions: Sequence[str] | None = None,
    **ray_remote_args: Any,
) -> Dataset:
    """A row for each file, with its content in the column "bytes". A file is read when it is
    needed.

    Raises DatasetGone for a missing path.
    """
    files = found_files(
        paths,
        caller="read_binary_files",
        filesystem=filesystem,
        extensions=file_extensions,
        ignore_missing=ignore_missing_paths,
    )
    return Dataset(source=open_binary(files, include_paths=include_paths))


@without_scheduling
def read_images(
    paths: Paths,
    *,
    filesystem: Any = None,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    include_paths: bool = False,
    ignore_missing_paths: bool = False,
    file_extensions: Sequence[str] | None = _IMAGES,
    **ray_remote_args: Any,
) -> Dataset:
    """A row for each image, in the column "image": an array (height, width, channels), or (height,
    width) for one channel. Pillow decodes an image when it is needed.

    `size`: (height, width) to resize to. `mode`: a mode of Pillow, such as "RGB" or "L". Images of
    different sizes are a column of arrays; as tensors they need a `size`, or a function that makes
    them equal.

    Raises DatasetGone for a missing path, ImportError if Pillow is not installed.
    """
    PILLOW.check()
    if size is not None and (len(size) != 2 or min(size) < 1):
        raise InvalidConfig(f"read_images(size={size!r}) must be (height, width)")
    files = found_files(
        paths,
        caller="read_images",
        filesystem=filesystem,
        extensions=file_extensions,
        ignore_missing=ignore_missing_paths,
    )
    decoding = Decoding(size=size and (size[0], size[1]), mode=mode, include_paths=include_paths)
    decoded = Mapped(function=decoding, batch_size=None, batch_format=NUMPY)
    return Dataset(source=open_binary(files, include_paths=True), maps=(decoded,))


def _of_text(
    paths: Paths,
    form: Form,
    filesystem: Any,
    include_paths: bool,
    ignore_missing: bool,
    extensions: Sequence[str] | None,
    usual: Sequence[str] | None,
) -> Dataset:
    files = found_files(
        paths,
        caller=form.caller,
        filesystem=filesystem,
        extensions=extensions if extensions is not None else usual,
        ignore_missing=ignore_missing,
    )
    return Dataset(source=open_parsed(files, form, include_paths=include_paths))


def _options(caller: str, given: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    known = {f"{kind}_options" for kind in kinds}
    for name in given:
        if name not in known:
            raise TypeError(
                f"{caller}() has no parameter {name!r}. It has {', '.join(sorted(known))}"
            )
    return dict(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A function of batches that replaces the files' bytes by arrays of pixels."""

    size: tuple[int, int] | None
    mode: str | None
    include_paths: bool

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        paths = batch[PATH]
        images = [self._pixels(data, path) for data, path in zip(batch[BYTES], paths, strict=True)]
        rest = {
            name: values
            for name, values in batch.items()
            if name != BYTES and (name != PATH or self.include_paths)
        }
        return {"image": stacked(images), **rest}

    def _pixels(self, data: bytes, path: str) -> Any:
        """Raises InvalidConfig, which names the file."""
        import numpy as np
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data)) as found:
                image: Any = found
                if self.size is not None:
                    height, width = self.size
                    image = image.resize((width, height), resample=Image.Resampling.BILINEAR)
                if self.mode is not None:
                    image = image.convert(self.mode)
                return np.array(image)
        except (OSError, ValueError) as error:
            raise InvalidConfig(f"read_images() cannot decode {path}: {error}") from error


# -- settings of Ray's engine, which scripts make: accepted, and without effect -------------------


class DataContext(ExecutionOptions):
    """Any attribute can be set. A dataset is read in the process that needs its rows."""

    _current: Self | None = None

    @classmethod
    def get_current(cls) -> Self:
        """The same object in each call."""
        cls._current = cls._current or cls()
        return cls._current


class ExecutionResources(ExecutionOptions):
    __doc__ = ExecutionOptions.__doc__


class _Strategy:
    """For `map_batches(compute=...)`: each process that needs rows makes them itself."""

    def __init__(self, size: int | None = None, **options: Any) -> None:
        self.size, self.options = size, options


class ActorPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__


class TaskPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__
