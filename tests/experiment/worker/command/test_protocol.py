"""Lines that report: every form, split anywhere, among colours, noise and damage."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.experiment.worker.command.protocol import (
    LONGEST_LINE,
    Extractor,
    Line,
    Lines,
    Malformed,
    Ranks,
    Report,
    doubts,
    may_report,
    report_of,
    reports,
)


def line(text: str | bytes) -> Line:
    return Line(text=text.encode() if isinstance(text, str) else text)


def report_in(text: str | bytes) -> Report | None:
    """As stdout is read."""
    return report_of(line(text)) if reports(line(text)) else None


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ('holdfast: {"loss": 0.3, "n": {"a": 1}}', {"loss": 0.3, "n": {"a": 1}}),
        ("holdfast: loss=0.3 acc=1", {"loss": 0.3, "acc": 1}),
        ("holdfast:loss=1e-4", {"loss": 1e-4}),
        (
            "holdfast: a=true b=null c=text d=-3 e==",
            {"a": 1, "b": None, "c": "text", "d": -3, "e": "="},
        ),
        ("  \x1b[1;32mholdfast:\x1b[0m loss=2\x1b[K\r", {"loss": 2}),
        ("\x1b]0;title\x07holdfast: loss=2", {"loss": 2}),
        ("50%|##   |\rholdfast: loss=2\r", {"loss": 2}),
        (b"holdfast: name=\xff\xfe loss=1", {"name": "\ufffd\ufffd", "loss": 1}),
        ("holdfast: " + "x" * 1000 + "=1", {"x" * 1000: 1}),
    ],
)
def test_a_line_reports(text: str | bytes, metrics: dict[str, Any]) -> None:
    assert report_in(text) == Report(metrics=metrics)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=nan", math.nan),
        ("x=inf", math.inf),
        ("x=-Infinity", -math.inf),
        ('{"x": NaN}', math.nan),
        ('{"x": -Infinity}', -math.inf),
        ("x=" + "9" * 5000, math.inf),
    ],
)
def test_numbers_that_are_not_finite_are_numbers(text: str, value: float) -> None:
    found = report_of(line(text)).metrics["x"]
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (
            "loss=1 checkpoint=007 ack=1",
            Report(metrics={"loss": 1}, checkpoint="007", wants_answer=True),
        ),
        ('{"loss": 1, "checkpoint": 7}', Report(metrics={"loss": 1}, checkpoint="7")),
        ('{"loss": 1, "checkpoint": null, "ack": false}', Report(metrics={"loss": 1})),
    ],
)
def test_a_report_names_a_checkpoint_and_may_wait_for_an_answer(text: str, report: Report) -> None:
    assert report_of(line(text)) == report


@pytest.mark.parametrize(
    "text",
    ["loss=1", "# holdfast: loss=1", "Holdfast: loss=1", "holdfast", "", "see holdfast: a=1"],
)
def test_other_output_is_no_report(text: str) -> None:
    assert report_in(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("holdfast: SIGTERM: this trial has 5 s", "'SIGTERM:' is not name=value"),
        ('holdfast: {"loss": 0.3', "not JSON"),
        ("holdfast: {'loss': 0.3}", "not JSON"),
        ("holdfast: =3", "is not name=value"),
        ("holdfast: [1]", "is not name=value"),
        ("holdfast:", "no metrics"),
        ("holdfast: {}", "no metrics"),
        ("holdfast: ack=1 checkpoint=x", "no metrics"),
        ('holdfast: {"a": 1, "checkpoint": ["x"]}', "checkpoint must be the path"),
        ("holdfast: a=1 checkpoint=", "checkpoint must be the path"),
        ('holdfast: {"a": ' + "[" * 100_000, "not JSON"),
        ('holdfast: {"a": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_a_malformed_report_says_what_is_wrong_and_shows_the_line(text: str, why: str) -> None:
    with pytest.raises(Malformed, match=why) as raised:
        report_in(text)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()


@given(text=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200)))
def test_lines_are_the_same_however_they_are_split(text: bytes, cuts: list[int]) -> None:
    lines = Lines()
    found: list[Line] = []
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for begin, end in pairwise(edges):
        found += lines.feed(text[begin:end])
    found += lines.end()
    expected = text.split(b"\n")
    assert [one.text for one in found] == expected[: len(expected) - (expected[-1] == b"")]


def test_a_huge_line_is_cut_and_takes_no_memory() -> None:
    lines = Lines()
    begun = list(lines.feed(b"holdfast: x="))
    for _ in range(40):
        begun += lines.feed(b"9" * 65536)
        assert len(lines.rest) <= LONGEST_LINE
    assert begun == []
    huge, after = lines.feed(b"9\nholdfast: loss=1\n")
    assert huge.is_cut
    with pytest.raises(Malformed, match="more than 1,048,576 bytes"):
        report_of(huge)
    assert report_of(after).metrics == {"loss": 1}


@given(st.binary(max_size=80))
def test_no_line_breaks_the_reader(text: bytes) -> None:
    may_report(text)
    with suppress(Malformed):
        report_of(Line(text=text))


@pytest.mark.parametrize("cut", range(len("\x1b[1mholdfast: a=1")))
def test_the_beginning_of_a_report_is_held_back(cut: int) -> None:
    assert may_report(b"\x1b[1mholdfast: a=1"[:cut]) or cut in (1, 2, 3)
    assert not may_report(b"epoch 1")


def test_a_row_is_extracted_when_each_metric_was_found() -> None:
    extractor = Extractor(
        {"loss": r"loss[=:] *([-+.eE0-9]+)", "acc": r"acc: ([\d.]+)%", "step": r"step (\d+)"}
    )
    texts = ["step 1 loss: 0.5", "loss=0.4", "noise", "\x1b[31macc: 71.5%", "loss=x", "acc: 3%"]
    rows = [extractor.take(line(text)) for text in texts]
    assert rows == [None, None, None, {"step": 1, "loss": 0.4, "acc": 71.5}, None, None]
    assert extractor.missing == ["loss", "step"]
    assert json.dumps(rows[3]) == '{"loss": 0.4, "acc": 71.5, "step": 1}'


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_what_the_ranks_of_torchrun_print_is_taken_apart(size: int) -> None:
    text = (
        b"before\n[default0]:holdfast:[default1]:rank[default0]: [default1]: 1 [x]\n"
        b"[default0]:loss=1\n[default1]:last[default0]:[default10]:ten\n"
    )
    ranks = Ranks()
    pieces = [ranks.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert b"".join(pieces) == b"before\nrank 1 [x]\nholdfast: loss=1\nten\n"
    assert ranks.end() == b"last"


def test_a_command_whose_rows_came_at_its_end_is_told_why() -> None:
    assert list(doubts(0, 19.5, 20.0, 5)) == [
        "all 5 reports came at the end, since the command buffers its output: "
        "print(..., flush=True), or append them to $HOLDFAST_REPORT_FILE"
    ]
    for first_s, ran_s, rows in ((1.0, 20.0, 5), (19.5, 20.0, 1), (0.5, 0.5, 5)):
        assert list(doubts(0, first_s, ran_s, rows)) == []
