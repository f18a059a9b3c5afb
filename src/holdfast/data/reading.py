"""The functions that create datasets of files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.data.columns import stacked
from holdfast.data.dataset import Dataset
from holdfast.data.errors import unknown_column
from holdfast.data.files.finding import (
    PATH,
    SHOWN,
    Block,
    Files,
    FileSource,
    Paths,
    found_files,
    is_pattern,
    listed_below,
    located,
    matching,
    told,
)
from holdfast.data.files.forms import Csv, Json, Lines
from holdfast.data.files.text_source import Form, open_text
from holdfast.data.formats import NUMPY, Mapped
from holdfast.data.scheduling import without_scheduling
from holdfast.dataclass import dataclass
from holdfast.lazy import PILLOW
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import InvalidConfig

_JSON: Final = tuple(
    f"{kind}{packed}"
    for kind in ("json", "jsonl")
    for packed in ("", ".gz", ".br", ".zst", ".lz4")
)
_IMAGES: Final = ("png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif", "webp")


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
    return Dataset(source=open_parquet(paths, filesystem=filesystem, columns=columns))


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

    This reads all files once, 8 MB at a time, to know the rows and the types of the columns, which
    hold the values of all files; a compressed file is read as a whole. Folders named `key=value`
    become columns. `read_options`, `parse_options` and `convert_options` are those of
    `pyarrow.csv`, for instance with dictionaries as `column_types` for categories.

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
    """The rows of JSON files: an object on each line, or one list of objects, which is read as a
    whole. Otherwise as `read_csv`, with the options of `pyarrow.json`."""
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
    return Dataset(source=open_text(files, form, include_paths=include_paths))


def _options(caller: str, given: Mapping[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    known = {f"{kind}_options" for kind in kinds}
    for name in given:
        if name not in known:
            raise TypeError(
                f"{caller}() has no parameter {name!r}. It has {', '.join(sorted(known))}"
            )
    return dict(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup(Block):
    """Rows of the row group `number` of a file."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSource(FileSource[RowGroup]):
    """Row groups of files."""

    def table(self, block: RowGroup) -> Any:
        fragment = self._fragment(block.file).subset(row_group_ids=[block.number])
        return fragment.to_table(schema=self.schema)

    def _fragment(self, file: int) -> Any:
        """That of the last file is kept, so that its footer is read once."""
        import pyarrow.dataset as ds

        files = self.files
        found = files.opened.get(file)
        if found is None:
            found = ds.ParquetFileFormat().make_fragment(
                files.paths[file],
                filesystem=files.filesystem,
                partition_expression=files.partitions[file],
            )
            files.opened.clear()
            files.opened[file] = found
        return found

    def name_of(self, group: RowGroup) -> str:
        return f"row group {group.number} of {self.files.paths[group.file]}"


def open_parquet(paths: Paths, *, filesystem: Any, columns: Sequence[str] | None) -> ParquetSource:
    """Read the number of rows of each row group, and nothing else.

    Raises DatasetGone, InvalidConfig, InvalidLocation.
    """
    import pyarrow.dataset as ds

    places = located(paths, filesystem, "read_parquet")
    with told(", ".join(place.public for place in places[:SHOWN]), ""):
        names = [name for place in places for name in _names(place, is_only=len(places) == 1)]
        found = ds.dataset(
            names[0] if len(names) == 1 else names,
            filesystem=places[0].arrow()[0],
            format="parquet",
            partitioning="hive",
        )
        fragments = list(found.get_fragments())
        groups = [
            RowGroup(file=file, number=group.id, rows=group.num_rows, start=0, stop=group.num_rows)
            for file, fragment in enumerate(fragments)
            for group in fragment.row_groups
            if group.num_rows
        ]
    files = Files(
        place=places[0],
        paths=tuple(fragment.path for fragment in fragments),
        partitions=tuple(fragment.partition_expression for fragment in fragments),
    )
    schema = _chosen(found.schema, columns)
    return ParquetSource(files=files, groups=tuple(groups), schema=schema)


def _names(place: Location, *, is_only: bool) -> list[str]:
    """The path of the place; its files if it is a pattern, or one directory of several."""
    import pyarrow.fs as arrow_fs

    filesystem, name = place.arrow()
    kind = filesystem.get_file_info(name).type
    if kind == arrow_fs.FileType.Directory and not is_only:
        return listed_below(filesystem, name)
    if kind == arrow_fs.FileType.NotFound and is_pattern(name):
        return [path for path, _ in matching(filesystem, name)] or [name]
    return [name]


def _chosen(schema: Any, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa

    if columns is None:
        return schema
    for column in columns:
        if column not in schema.names:
            raise unknown_column(column, schema.names, f"read_parquet(columns={list(columns)!r})")
    return pa.schema([schema.field(column) for column in columns])


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


# -- whole files as rows --------------------------------------------------------------------------

BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySource(FileSource[Block]):
    """A file for each row; a shuffle moves each by itself."""

    @property
    def window(self) -> int:
        return 1

    def table(self, block: Block) -> Any:
        import pyarrow as pa

        path = self.files.paths[block.file]
        with self.files.filesystem.open_input_stream(path, compression=None) as stream:
            content = stream.read()
        columns = {BYTES: content, PATH: path, **self.files.partitions[block.file]}
        row = {name: columns.get(name) for name in self.schema.names}
        return pa.Table.from_pylist([row], schema=self.schema)


def open_binary(files: Files, *, include_paths: bool) -> BinarySource:
    """Reads nothing."""
    import pyarrow as pa

    blocks = [Block(file=file, rows=1, start=0, stop=1) for file in range(len(files.paths))]
    fields: dict[str, Any] = {BYTES: pa.binary()}
    if include_paths:
        fields[PATH] = pa.string()
    for values in files.partitions:
        fields |= {key: pa.scalar(value).type for key, value in values.items()}
    return BinarySource(files=files, groups=tuple(blocks), schema=pa.schema(list(fields.items())))
