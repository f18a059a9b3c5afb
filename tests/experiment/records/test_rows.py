import json
import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.experiment.records.rows import (
    encode,
    error_entry,
    flatten_row,
    result_metrics,
    result_row,
    shown_config,
)
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Place, Status, Trial, TrialSpec
from holdfast.trial.values import Opaque, Ref

NOON = 1_700_000_000.75
AUTOMATIC = [
    "timestamp", "checkpoint_dir_name", "should_checkpoint", "done", "training_iteration",
    "trial_id", "date", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip",
    "time_since_restore", "iterations_since_restore",
]  # fmt: skip


def make_trial(**changes: object) -> Trial:
    spec = TrialSpec(
        trial_id="d2a66_00000",
        index=0,
        name="t_d2a66_00000",
        dirname="t_d2a66_00000_0",
        config={"lr": 0.6, "net": {"width": 3}},
        tag="0_lr=0.6",
    )
    place = Place(pid=41, hostname="here", node_ip="127.0.0.1")
    values = {
        "spec": spec,
        "status": Status.RUNNING,
        "place": place,
        "resumed_from": 3,
        "time_at_start_s": 4.5,
        "iteration": 5,
        "row": {"loss": 0.5},
        "reported_at": NOON,
        "time_this_iter_s": 1.5,
        "time_total_s": 7.5,
        **changes,
    }
    return Trial(**values)  # type: ignore[arg-type]


def test_a_row_holds_the_metrics_first_and_then_every_automatic_value() -> None:
    row = result_row(make_trial())
    assert list(row) == ["loss", *AUTOMATIC, "config"]
    assert row == {
        "loss": 0.5,
        "timestamp": 1_700_000_000,
        "checkpoint_dir_name": None,
        "should_checkpoint": False,
        "done": False,
        "training_iteration": 5,
        "trial_id": "d2a66_00000",
        "date": time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(NOON)),
        "time_this_iter_s": 1.5,
        "time_total_s": 7.5,
        "pid": 41,
        "hostname": "here",
        "node_ip": "127.0.0.1",
        "time_since_restore": 3.0,
        "iterations_since_restore": 2,
        "config": {"lr": 0.6, "net": {"width": 3}},
    }


def test_a_metric_of_the_users_wins_over_an_automatic_one() -> None:
    metrics = {"pid": "mine", "config": 7, "hostname": "theirs", "date": None}
    row = result_row(make_trial(row=metrics))
    assert {key: row[key] for key in metrics} == metrics


def test_what_identifies_a_row_cannot_be_reported_otherwise() -> None:
    metrics = {"training_iteration": 99, "trial_id": "other", "done": False}
    row = result_row(make_trial(status=Status.STOPPING, row=metrics))
    assert (row["training_iteration"], row["trial_id"], row["done"]) == (5, "d2a66_00000", True)


@pytest.mark.parametrize(
    ("status", "metrics", "done"),
    [
        (Status.RUNNING, {}, False),
        (Status.PAUSED, {}, False),
        (Status.STOPPING, {}, True),
        (Status.TERMINATED, {}, True),
        (Status.RUNNING, {"done": True}, True),
        (Status.RUNNING, {"done": 1}, False),
    ],
)
def test_a_row_is_done_once_its_trial_is_to_end(
    status: Status, metrics: dict[str, object], done: bool
) -> None:
    row = result_row(make_trial(status=status, row=metrics))
    assert row["done"] is done


def test_the_metrics_of_a_result_add_the_tag_the_config_and_the_end() -> None:
    trial = make_trial(status=Status.TERMINATED)
    row = result_row(trial, with_config=False)
    metrics = result_metrics(trial, {**row, "done": False})
    assert metrics["experiment_tag"] == "0_lr=0.6"
    assert metrics["config"] == {"lr": 0.6, "net": {"width": 3}}
    assert metrics["done"] is True
    assert metrics["loss"] == 0.5


def test_what_is_not_plain_in_a_config_is_named_by_its_summary() -> None:
    config = {
        "loader": Ref(path=("loader",), index=1, summary="Loader[1]"),
        "deep": [{"model": Opaque(pickled=b"\x80", summary="Model")}],
        "salt": b"a\xff",
        "sizes": (1, 2),
    }
    shown = shown_config(config)
    assert json.loads(json.dumps(shown)) == {
        "loader": "Loader[1]",
        "deep": [{"model": "Model"}],
        "salt": "a\\xff",
        "sizes": [1, 2],
    }


def test_a_config_that_json_does_not_know_is_shown_as_far_as_it_can_be_read() -> None:
    config = {
        "labels": {0: "cat", True: {None: 1}},
        "kept": {"b", "a"},
        "seed": 10**30,
        "sizes": Ref(path=("sizes",), index=None, summary="ndarray", shown=[[1, 2], [3, 4]]),
        "deep": [{"table": Opaque(pickled=b"\x80", summary="Table", shown={"1": [2]})}],
    }
    row = result_row(make_trial(spec=replace(make_trial().spec, config=config)))
    assert json.loads(encode(row))["config"] == {
        "labels": {"0": "cat", "True": {"None": 1}},
        "kept": ["a", "b"],
        "seed": 10**30,
        "sizes": [[1, 2], [3, 4]],
        "deep": [{"table": {"1": [2]}}],
    }


def test_a_flat_row_has_a_key_per_leaf_and_a_list_in_one_cell() -> None:
    row = {"a": 1, "val": {"loss": 0.5, "by": {"cat": None}}, "rates": [1, "x"], "none": {}}
    assert flatten_row(row) == {
        "a": 1,
        "val/loss": 0.5,
        "val/by/cat": None,
        "rates": '[1, "x"]',
        "none": "{}",
    }


def test_nan_and_infinity_are_written_as_python_reads_them() -> None:
    line = encode({"a": math.nan, "b": -math.inf})
    assert line == '{"a": NaN, "b": -Infinity}'


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = LEAVES | st.lists(LEAVES) | st.dictionaries(st.text(), LEAVES)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), VALUES))
def test_every_plain_row_comes_back_from_its_line(row: dict[str, object]) -> None:
    line = encode(row)
    assert "\n" not in line
    assert json.loads(line) == row


def test_an_entry_of_error_txt_says_what_where_and_when() -> None:
    failure = Failure(
        kind="user",
        type_name="ValueError",
        message="oh no",
        traceback="Traceback: line 7\n",
        pid=41,
        hostname="here",
    )
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(NOON))
    assert error_entry(2, failure, NOON) == (
        f"Attempt 2 failed at {when} (user, process 41 on here)\n"
        "ValueError: oh no\n"
        "Traceback: line 7\n\n"
    )
    on_a_node = error_entry(2, replace(failure, node="a"), NOON)
    assert on_a_node.startswith(f"Attempt 2 failed at {when} (user, process 41 on node a, host ")
