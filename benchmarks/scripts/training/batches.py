"""One epoch of batches of tensors: `batches.py which library folder rows batch_rows`.

Prints rows per millisecond, the best of three epochs. torch's loader is used in its fastest way:
whole batches are taken from the columns, and nothing is collated row by row.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from holdfast import data

_COLUMNS, _FILES, _GROUP = 10, 4, 16_384


def table_of(rows: int) -> pa.Table:
    random = np.random.default_rng(0)
    columns = {f"x{at}": random.random(rows, dtype=np.float32) for at in range(_COLUMNS)}
    return pa.table({**columns, "y": random.integers(0, 10, rows)})


class Columns(Dataset[Any]):  # type: ignore[misc]
    """The columns as tensors, from which batches are taken."""

    def __init__(self, table: pa.Table) -> None:
        self._rows = int(table.num_rows)
        self._columns = {
            name: torch.from_numpy(table.column(name).to_numpy().copy())
            for name in table.column_names
        }

    def __len__(self) -> int:
        return self._rows

    def __getitems__(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        wanted = torch.tensor(rows)
        return {name: column[wanted] for name, column in self._columns.items()}


class InOrder(IterableDataset[Any]):  # type: ignore[misc]
    """Arrow batches as tensors that may be written to."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self._batches():
            yield {
                name: torch.from_numpy(column.to_numpy().copy())
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }


def as_it_is(batch: Any) -> Any:
    return batch


def write(table: pa.Table, folder: Path) -> Path:
    if not (folder / "0.parquet").exists():
        each = -(-table.num_rows // _FILES)
        for file in range(_FILES):
            part = table.slice(file * each, each)
            pq.write_table(part, folder / f"{file}.parquet", row_group_size=_GROUP)
    return folder


def ours(which: str, table: pa.Table, folder: Path, size: int) -> Iterable[Any]:
    if which == "files":
        return data.read_parquet(write(table, folder)).iter_torch_batches(batch_size=size)
    ds = data.from_arrow(table)
    shuffled = ds.random_shuffle(seed=0) if which == "shuffled" else ds
    return shuffled.iterator().iter_torch_batches(batch_size=size)


def torchs(which: str, table: pa.Table, folder: Path, size: int) -> Any:
    if which == "shuffled":
        return DataLoader(Columns(table), batch_size=size, shuffle=True, collate_fn=as_it_is)
    if which == "table":
        return DataLoader(InOrder(lambda: table.to_batches(size)), batch_size=None)
    files = pds.dataset(str(write(table, folder)), format="parquet")
    return DataLoader(InOrder(lambda: files.to_batches(batch_size=size)), batch_size=None)


def main() -> None:
    which, library, folder, rows, size = sys.argv[1:]
    make = ours if library == "holdfast" else torchs
    batches = make(which, table_of(int(rows)), Path(folder), int(size))
    taken = []
    for _ in range(3):
        began_s = time.perf_counter()
        seen = sum(len(batch["y"]) for batch in batches)
        taken.append(time.perf_counter() - began_s)
        if seen != int(rows):
            raise SystemExit(f"{seen} rows instead of {rows}")
    print(int(rows) / 1000 / min(taken))


if __name__ == "__main__":
    main()
