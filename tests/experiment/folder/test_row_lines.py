"""The rows of a `result.json`, and one metric of them without decoding."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiment.folder import trial_folder
from holdfast.experiment.folder.trial_folder import DamagedRows, RowLines, numeric
from holdfast.experiment.records.rows import encode

NAMES = st.sampled_from(["loss", "eval/loss", "a", "b", 'x"y', "é", "\\", "loss: 1"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(['"loss": 3', '\\"loss": 4', '{"loss": 5}', "}"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=4)


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{encode(row)}\n" for row in rows).encode()


@given(rows=ROWS, metric=NAMES)
def test_numbers_are_those_of_the_decoded_rows(rows: list[dict[str, Any]], metric: str) -> None:
    lines = RowLines(lines_of(rows), "result.json")
    wanted = [numeric(row, metric) for row in lines.rows()]
    assert list(map(repr, lines.numbers(metric))) == list(map(repr, wanted))


def test_a_line_whose_value_is_plain_to_see_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decode(*_: object) -> None:
        raise AssertionError("a line was decoded")

    rows: list[dict[str, Any]] = [
        {"loss": 0.5, "config": {"loss": 7}},
        {"loss": -math.inf},
        {"loss": 3},
    ]
    lines = RowLines(lines_of(rows), "result.json")
    monkeypatch.setattr(trial_folder, "decode_row", decode)
    assert lines.numbers("loss") == [0.5, -math.inf, 3.0]


def test_another_writer_of_json_may_use_other_spaces() -> None:
    text = json.dumps({"loss": 0.5, "acc": 1}, separators=(",", ":"))
    assert RowLines(f"{text}\n".encode(), "result.json").numbers("loss") == [0.5]


def test_a_line_that_is_being_written_is_left_out() -> None:
    lines = RowLines(b'{"loss": 1}\n{"loss": 2', "result.json")
    assert lines.numbers("loss") == [1.0]
    assert lines.rows() == [{"loss": 1}]


def test_a_damaged_line_is_named() -> None:
    lines = RowLines(b'{"loss": 1}\n{"loss": 2\n\0\0\0', "/run/t/result.json")
    with pytest.raises(DamagedRows, match=r"/run/t/result\.json: line 2 is not JSON"):
        lines.numbers("loss")
    with pytest.raises(DamagedRows, match="line 3 is not JSON"):
        lines.row(-1)
