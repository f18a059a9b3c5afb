"""A run as lines of a terminal, and what a script prints meanwhile."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import replace

import pytest

from holdfast.experiment.progress.summary import (
    FailedTrial,
    NodesSummary,
    RankWait,
    StorageAge,
    Summary,
    TrialRow,
)
from holdfast.experiment.progress.terminal_view import Prints, StdoutAbove
from holdfast.experiment.progress.trial_table import Line, bar, picture, shares
from holdfast.text.values import width_of
from holdfast.trial.trial import Status
from tests.experiment.progress.screens import Terminal


def row(index: int, status: Status) -> TrialRow:
    return TrialRow(
        trial_id=f"aaaaa_{index:05}",
        name=f"train_aaaaa_{index:05}",
        status=status,
        params={"lr": 0.01},
        iteration=3,
        time_total_s=80.0,
        metrics={"acc": 0.5},
        last=10,
    )


ONE = Summary(name="digits", path="p", counts={Status.RUNNING: 1}, total=1,
              rows=(row(0, Status.RUNNING),), metrics=("acc",), params=("lr",))  # fmt: skip


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def shown(summary: Summary, width: int = 100, height: int = 30) -> list[str]:
    return texts(picture(summary, width=width, height=height))


def test_of_one_training_without_a_known_end_no_bar_is_shown() -> None:
    assert shown(replace(ONE, share=0.0))[:2] == ["digits  0.0s", "running, iteration 3 of 10"]
    assert "━" in shown(replace(ONE, share=0.3))[1]
    assert " 30%  running, iteration 3 of 10" in shown(replace(ONE, share=0.3))[1]


def test_on_a_cluster_each_trial_has_its_node_and_the_notes_name_the_missing_ones() -> None:
    nodes = NodesSummary(here=2, most=3, left=(("c", "no beat for 10 s"),))
    many = tuple(f"gpu-{number}" for number in range(8))
    rows = (
        replace(row(0, Status.RUNNING), nodes=("gpu-1",)),
        replace(row(1, Status.RUNNING), nodes=("gpu-1", "gpu-2")),
        replace(row(2, Status.RUNNING), nodes=many),
        row(3, Status.PENDING),
    )
    waiting = "waiting for a node of Slurm: job 7 is pending (Resources)"
    lines = shown(replace(ONE, rows=rows, nodes=nodes, waiting=waiting))
    header, *table = lines[2:7]
    at = header.index("node")
    assert header.split()[:4] == ["trial", "status", "node", "iter"]
    assert [line[at : at + 12].rstrip() for line in table] == [
        "gpu-1", "gpu-1, gpu-2", "gpu-0 +7", ""
    ]  # fmt: skip
    assert lines[-2:] == ["2 of 3 nodes; c has left: no beat for 10 s", waiting]
    assert "node" not in shown(replace(ONE, rows=rows))[2].split()


def test_what_is_waited_for_is_shown() -> None:
    wait = RankWait(name="train_0", ranks=tuple(range(1, 9)), waited_s=90.0)
    lines = shown(
        replace(
            ONE,
            waits=(wait, replace(wait, name="b"), replace(wait, name="c")),
            storage=StorageAge(oldest_s=4.0),
            phase="waiting for storage, 60 s at most",
        )
    )
    assert lines[-5] == (
        "train_0: ranks 1, 2, 3, 4, 5 and 3 more have not reported; "
        "the others have waited for 1m 30s"
    )
    assert lines[-3:] == [
        "and ranks of 1 trial more wait",
        "storage has everything up to 4.0s ago",
        "waiting for storage, 60 s at most",
    ]


def test_storage_that_is_late_is_shown_in_another_colour() -> None:
    styles = [
        picture(
            replace(ONE, storage=StorageAge(oldest_s=age, checkpoints=1)), width=99, height=30
        )[-1][0][1]
        for age in (10.0, 61.0)
    ]
    assert styles == ["dim", "yellow"]


def test_where_not_all_fit_the_best_and_the_newest_failures_keep_lines() -> None:
    rows = (
        *(row(at, Status.RUNNING) for at in range(20)),
        *(row(at, Status.TERMINATED) for at in range(20, 30)),
        *(row(at, Status.ERROR) for at in range(30, 35)),
    )
    lines = shown(replace(ONE, total=1000, rows=rows, hidden={Status.TERMINATED: 600}), height=24)
    states = [line.split()[1] for line in lines if line.startswith("train_")]
    assert states == ["running"] * 5 + ["finished"] * 4 + ["failed"] * 3
    assert lines[-1] == "… 623 more: 606 finished, 2 failed, 15 running"


@pytest.mark.parametrize("width", [20, 40, 80, 300])
@pytest.mark.parametrize("height", [5, 12, 60])
def test_no_picture_is_larger_than_its_terminal(width: int, height: int) -> None:
    failed = FailedTrial(
        trial_id="a",
        attempt=1,
        name="train_漢字",
        headline="ValueError: 漢字 " * 30,
        where="train.py:42 in train",
        error_file="/r" * 90,
        retries=0,
        final=True,
    )
    causes = tuple(replace(failed, headline=f"{sign}: no") for sign in "abcd")
    wide = replace(
        ONE,
        name="名前 " * 40,
        total=1000,
        share=0.5,
        rows=tuple(replace(row(at, Status.RUNNING), name="試行") for at in range(50)),
        failures=(failed, *causes),
        left_s=9.0,
    )
    lines = shown(wide, width, height)
    assert len(lines) < height
    assert max(map(width_of, lines)) <= width


def test_a_bar_fills_in_halves_of_a_column() -> None:
    assert [texts([bar(share, 4)])[0] for share in (0.0, 0.125, 0.5, 1.0, 7.0)] == [
        *("━━━━", "╸━━━", "━━━━", "━━━━", "━━━━")
    ]
    assert bar(0.5, 4)[0] == ("━━", "green")


def test_lines_are_shared_in_the_order_of_groups_except_the_reserved_ones() -> None:
    groups = ["aaaaa", "bbbbb", "c"]
    assert "".join(shares(groups, (0, 0, 0), 6)) == "aaaaab"
    assert "".join(shares(groups, (0, 2, 2), 6)) == "aaabbc"
    assert "".join(shares(groups, (0, 2, 2), 2)) == "bb"
    assert "".join(shares(groups, (0, 0, 0), 60)) == "aaaaabbbbbc"


# -- what the script prints itself ------------------------------------------------------------


def test_prints_of_the_script_and_its_loggers_are_caught_until_the_table_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, errors, shown_lines = Terminal(), Terminal(), list[str]()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", errors)
    handler = logging.StreamHandler(errors)
    logger = logging.getLogger("a test of prints")
    logger.addHandler(handler)
    logger.propagate = False
    prints = Prints(shown_lines.append)
    prints.start()
    print("one\ntw", end="")
    print("o", flush=True)
    logger.warning("three")
    print("half a line", end="")
    assert shown_lines == ["one", "two", "three"]
    prints.stop()
    assert shown_lines[3:] == ["half a line"]
    assert handler.stream is errors
    print("later", file=sys.stderr)
    logger.removeHandler(handler)
    assert (terminal.getvalue(), errors.getvalue()) == ("", "later\n")


def test_a_stream_that_another_process_has_put_there_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    prints = Prints(lambda line: None)
    prints.start()
    assert isinstance(sys.stdout, StdoutAbove)
    assert sys.stdout.isatty()
    assert sys.stdout.getvalue() == ""  # what only the stream has
    theirs = io.StringIO()
    monkeypatch.setattr(sys, "stdout", theirs)
    prints.stop()
    print("to them")
    assert theirs.getvalue() == "to them\n"


def test_parameters_without_room_for_a_column_are_counted_below_the_table() -> None:
    names = tuple(f"a_parameter_{number}" for number in range(6))
    known = replace(row(0, Status.RUNNING), params=dict.fromkeys(names, 0.25))
    narrow = shown(replace(ONE, rows=(known,), params=names, hidden={Status.PENDING: 3}), 80)
    assert "a_parameter_1" in narrow[2]
    assert "a_parameter_2" not in narrow[2]
    assert narrow[4] == "… 3 more: 3 queued; 4 more parameters do not fit here"
    wide = shown(replace(ONE, rows=(known,), params=names), 200)
    assert "a_parameter_5" in wide[2]
    assert not [line for line in wide if "not fit" in line]
