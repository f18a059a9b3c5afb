"""One value in one file: reading it back, its memory, and the effect of a fault."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime import objects


@dataclass
class Sample:
    """Nested, as users keep their arrays."""

    name: str
    arrays: dict[str, Any]


def there_and_back(value: Any, folder: Path) -> Any:
    path = folder / f"object-{len(os.listdir(folder))}"
    objects.write(str(path), objects.pickled(value))
    found = objects.read(str(path))
    path.unlink()  # mapped memory stays
    return found


def is_view(array: np.ndarray[Any, Any]) -> bool:
    """Whether it is a read-only view of other memory."""
    return not array.flags.owndata and not array.flags.writeable


def test_arrays_inside_of_containers_and_dataclasses_are_views_that_cannot_be_written_to(
    tmp_path: Path,
) -> None:
    value = Sample("x", {"a": np.arange(1000.0), "deep": [np.ones((3, 5), np.int8)]})
    found = there_and_back(value, tmp_path)
    assert found.name == "x"
    for array, other in ((found.arrays["a"], value.arrays["a"]),):
        np.testing.assert_array_equal(array, other)
    for array in (found.arrays["a"], found.arrays["deep"][0]):
        assert is_view(array)
        assert array.ctypes.data % objects.ALIGNMENT == 0
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_dataframe_is_made_of_views(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(100.0), "b": np.arange(100.0)})
    found = there_and_back(frame, tmp_path)
    pd.testing.assert_frame_equal(found, frame)
    assert not found["a"].to_numpy().flags.writeable


def test_an_arrow_table_comes_back_without_a_copy(tmp_path: Path) -> None:
    table = pa.table({"n": np.arange(100_000), "s": pa.array(["x", None] * 50_000)})
    before = pa.total_allocated_bytes()
    found = there_and_back(table, tmp_path)
    assert pa.total_allocated_bytes() - before < 10_000
    assert found.equals(table)
    buffer = found.column("n").chunk(0).buffers()[1]
    assert not buffer.is_mutable
    assert buffer.address % objects.ALIGNMENT == 0


def test_a_part_of_a_large_array_takes_only_its_own_memory() -> None:
    whole = np.zeros((1000, 1000))
    assert objects.pickled(whole[:, ::100]).file_bytes < whole.nbytes / 50
    table = pa.table({"n": np.arange(100_000), "s": ["some text"] * 100_000})
    few = objects.pickled({"part": table.slice(500, 10)})
    assert few.file_bytes < 5_000


def test_a_part_of_an_arrow_table_is_what_it_was(tmp_path: Path) -> None:
    whole = pa.table(
        {
            "n": np.arange(10_000),
            "kind": pa.array(["a", "b"] * 5_000).dictionary_encode(),
            "list": pa.array([[1, 2], None] * 5_000),
        }
    )
    part = whole.slice(4_001, 17)
    found = there_and_back(part, tmp_path)
    assert found.equals(part)
    assert found.schema == part.schema


def test_a_view_with_gaps_is_a_view_without(tmp_path: Path) -> None:
    array = np.arange(100).reshape(10, 10)[::2, ::3]
    found = there_and_back(array, tmp_path)
    np.testing.assert_array_equal(found, array)
    assert is_view(found)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.integers(0, 500).map(lambda n: np.arange(n, dtype=np.int16)),
            st.integers(0, 9).map(lambda n: np.full((n, 3), 1 + 2j, order="F")),
            st.just(np.array(7.5)),
            st.just(np.array(["ab", None], dtype=object)),
            st.just(bytearray(b"abc")),
        ),
        max_size=6,
    )
)
def test_whatever_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    found = there_and_back(value, tmp_path_factory.mktemp("any"))
    assert len(found) == len(value)
    for one, other in zip(found, value, strict=True):
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other)


def test_where_the_disk_is_full_nothing_of_the_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def full(fd: int, data: Any, at: int) -> int:
        written.append(at)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data[:10])

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        objects.write(str(tmp_path / "object"), objects.pickled(np.zeros(100)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cut", [0, 10, 40, 64, 500])
def test_a_file_that_was_cut_is_not_an_object(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "object"
    objects.write(str(path), objects.pickled(np.arange(1000)))
    os.truncate(path, cut)
    with pytest.raises(objects.BadObject):
        objects.read(str(path))
