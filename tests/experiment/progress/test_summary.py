"""The summary of a run, computed from the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import MAX_FAILURES, RunFacts, Summary
from holdfast.experiment.progress.wording import (
    closing_lines,
    failure_lines,
    node_lines,
    retry_advice,
    user_frame,
    workers_lines,
)
from holdfast.scheduler.events import EndOrdered, ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
from holdfast.syncer.checkpoint import staging
from holdfast.text.values import duration, format_value, size
from holdfast.trial.errors import Failure
from holdfast.trial.metrics import Mode
from holdfast.trial.resources import NodeKind, PlacementGroupFactory
from holdfast.trial.trial import Place, Status, Trial, TrialSpec
from holdfast.trial.values import Ref, format_tag

FACTS = RunFacts(name="exp", path="s3://bucket/exp", local_path="/results/exp", total=10)
TRACEBACK = """Traceback (most recent call last):
  File "/home/me/train.py", line 42, in train
    fit(config)
  File "/home/me/.venv/lib/python3.11/site-packages/sklearn/base.py", line 7, in fit
    raise ValueError("bad")
ValueError: bad
"""
BROKEN = Failure(kind="user", type_name="ValueError", message="bad", traceback=TRACEBACK)


def machine(metric: str | None = "acc", mode: Mode | None = "max", **spec: Any) -> Machine:
    made = Machine()
    made.spec = ExperimentSpec(
        experiment_id="e", run="aaaaa", trainable="t", seed=0, metric=metric, mode=mode, **spec
    )
    return made


def add(to: Machine, status: Status, row: dict[str, Any] | None = None, **fields: Any) -> Trial:
    index = len(to.trials)
    config = fields.pop("config", {"lr": 0.1 * (index + 1)})
    spec = TrialSpec(
        trial_id=f"aaaaa_{index:05}",
        index=index,
        name=f"t_aaaaa_{index:05}",
        dirname=f"dir_{index}",
        config=config,
        tag=format_tag(index, config),
    )
    trial = Trial(spec=spec, status=status, row=row, reported_at=float(index), **fields)
    to.trials[trial.trial_id] = trial
    return trial


def look(at: Machine, **options: Any) -> Summary:
    sizes = {key: options.pop(key) for key in ("max_rows", "infer_limit") if key in options}
    return Summarizer(at, **sizes).summarize(**{"facts": FACTS, "now": 100.0, **options})


def on_nodes(most: int | None = 4) -> Machine:
    """A machine of a cluster with the nodes a, b and c."""
    run = machine()
    offer = [NodeKind(name="gpu", most=most), NodeKind(name="cpu", resources={"CPU": 1}, most=0)]
    run.placement = Placement({}, cluster=Cluster(offer))
    for name in ("a", "b", "c"):
        run.cluster.join(name, {"CPU": 8}, kind="gpu", hostname=name, address="")
    return run


def nodes_told(run: Machine, now: float = 100.0) -> str:
    return "; ".join(node_lines(look(run, now=now)))


def test_on_a_cluster_the_nodes_are_counted_and_those_that_leave_or_have_left_named() -> None:
    assert nodes_told(machine()) == ""
    assert look(machine()).nodes is None
    run = on_nodes()
    assert nodes_told(run) == "3 of 4 nodes"
    run.cluster.close("b")
    assert nodes_told(run) == "2 of 4 nodes, b leaves"
    run.cluster.lose("b", "its time is over", now=90.0)
    assert nodes_told(run) == "2 of 4 nodes; b has left: its time is over"
    assert nodes_told(run, now=150.0) == "2 of 4 nodes", "it is no news any more"
    run.cluster.lose("a", "no beat for 10 s", now=100.0)
    assert nodes_told(run) == "1 of 4 nodes; a has left: no beat for 10 s (before it b)"
    run.placement = Placement({}, cluster=Cluster(run.cluster.offer, former=run.cluster.past))
    assert nodes_told(run) == "0 of 4 nodes"
    assert nodes_told(on_nodes(most=None)) == "3 nodes"


def test_a_trial_is_shown_on_its_nodes_while_it_has_a_worker_and_after_its_end() -> None:
    run = on_nodes()
    starting = add(run, Status.STARTING)
    nodes = PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}], strategy="STRICT_SPREAD")
    assert run.placement.take(starting.trial_id, nodes)
    for status in (Status.RUNNING, Status.ERROR, Status.PENDING, Status.PAUSED):
        add(run, status, place=Place(pid=7, nodes=("b",)))
    shown = {row.status: row.nodes for row in look(run).rows}
    assert sorted(shown.pop(Status.STARTING)) == ["a", "b"]
    assert shown == {
        Status.RUNNING: ("b",), Status.ERROR: ("b",), Status.PENDING: (), Status.PAUSED: ()
    }  # fmt: skip


@pytest.mark.parametrize(("mode", "best"), [("max", 0.9), ("min", 0.2)])
def test_the_best_trial_is_never_nan_infinite_or_without_a_value(mode: Mode, best: float) -> None:
    run = machine(mode=mode)
    for value in (0.5, float("nan"), 0.9, float("inf"), float("-inf"), 0.2, "high", True, None):
        add(run, Status.TERMINATED, {"acc": value})
    add(run, Status.RUNNING)
    found = look(run).best
    assert found is not None
    assert found.value == best


def test_an_automatic_metric_can_be_the_goal() -> None:
    run = machine(metric="time_total_s", mode="min")
    add(run, Status.TERMINATED, {"x": 1}, time_total_s=9.0)
    add(run, Status.TERMINATED, {"x": 1}, time_total_s=3.0)
    best = look(run).best
    assert best is not None
    assert best.value == 3.0


def test_the_table_has_those_at_work_first_then_the_best_then_those_that_wait() -> None:
    run = machine()
    add(run, Status.PENDING)
    low = add(run, Status.TERMINATED, {"acc": 0.1})
    add(run, Status.ERROR, error=BROKEN, failures=1)
    high = add(run, Status.TERMINATED, {"acc": 0.8})
    running = add(run, Status.RUNNING, {"acc": 0.3})
    paused = add(run, Status.PAUSED, {"acc": 0.3})
    order = [row.trial_id for row in look(run).rows]
    assert order == [
        *(running.trial_id, paused.trial_id, high.trial_id, low.trial_id),
        *("aaaaa_00002", "aaaaa_00000"),
    ]


def test_columns_are_the_metric_and_numbers_that_were_reported() -> None:
    run = machine()
    row = {"note": "x", "ok": True, "each": [1, 2], "loss": 0.5, "acc": 0.1, "net": {"norm": 2}}
    row |= {"late": 1, "trial_id": 3}  # which no row shows, because it is holdfast's
    add(run, Status.RUNNING, row, iteration=4, time_total_s=8.0)
    summary = look(run)
    assert summary.metrics == ("acc", "loss", "net/norm")
    assert summary.rows[0].metrics == {"acc": 0.1, "loss": 0.5, "net/norm": 2}
    assert (summary.rows[0].iteration, summary.rows[0].time_total_s) == (4, 8.0)
    assert look(run, infer_limit=0).metrics == ("acc",)


def test_a_parameter_that_is_not_a_plain_value_is_shown_by_its_summary() -> None:
    run = machine()
    add(run, Status.RUNNING, config={"opt": Ref(path=("opt",), index=0, summary="Adam"), "b": 1})
    summary = look(run)
    assert summary.params == ("opt", "b")
    assert summary.rows[0].params == {"opt": "Adam", "b": 1}


def test_failures_are_bounded_and_counted_all() -> None:
    run = machine()
    for _ in range(MAX_FAILURES + 5):
        add(run, Status.ERROR, error=BROKEN, failures=1)
    other = replace(BROKEN, message="another")
    add(run, Status.ERROR, error=other, failures=1)
    summary = look(run)
    # A frequent cause does not hide the others.
    assert [failure.headline for failure in summary.failures] == [
        *["ValueError: bad"] * 5,
        "ValueError: another",
    ]
    assert [failure.of_cause for failure in summary.failures] == [25] * 5 + [1]
    assert summary.counts.get(Status.ERROR, 0) == MAX_FAILURES + 6
    assert "(and 24 more trials)" in next(failure_lines(summary))
    for number in range(MAX_FAILURES):
        add(run, Status.ERROR, error=replace(BROKEN, message=chr(97 + number)), failures=1)
    assert len(look(run).failures) == MAX_FAILURES


def test_elapsed_time_is_that_in_which_the_experiment_was_alive() -> None:
    run = machine()
    run.active_s, run.now = 30.0, 95.0
    assert look(run, now=100.0).elapsed_s == 35.0
    run.finished = True
    assert look(run, now=500.0).elapsed_s == 30.0


def test_the_time_shown_is_what_the_user_has_waited_with_start_and_end() -> None:
    facts = replace(FACTS, began_at=100.0, before_s=20.0)
    assert facts.elapsed_s(130.0, active_s=3.0) == 50.0
    assert facts.elapsed_s(90.0, active_s=3.0) == 20.0, "the clock was set back"
    assert replace(facts, is_over=True).elapsed_s(130.0, active_s=3.0) == 3.0


def test_nothing_is_estimated_before_a_trial_has_finished_or_without_a_total() -> None:
    run = machine()
    add(run, Status.RUNNING, {"acc": 1})
    assert look(run).left_s is None
    add(run, Status.TERMINATED, {"acc": 1}, time_total_s=10.0)
    unknown = RunFacts(name="exp", path="p", local_path="l")
    assert look(run, facts=unknown).left_s is None


def test_the_time_left_counts_what_waits_and_what_is_at_work() -> None:
    run = machine()
    run.active_s = 30.0
    for _ in range(2):
        add(run, Status.TERMINATED, {"acc": 1}, time_total_s=10.0)
    add(run, Status.RUNNING, {"acc": 1}, iteration=1, time_total_s=4.0)
    run.trials["aaaaa_00002"] = replace(run.trials["aaaaa_00002"], reported_at=99.0)
    summary = look(run)
    # The running one has 5 s left, then come 7 of 10 s each, one after the other.
    assert summary.left_s == pytest.approx(75.0)
    assert summary.share == pytest.approx(2.5 / 10)


def test_a_constant_that_a_later_space_has_changed_is_there_for_every_trial() -> None:
    def part(name: str, text: str, *, varied: bool = False) -> dict[str, Any]:
        return {"path": [name], "text": text, "varied": varied}

    run = machine(space=[part("lr", "uniform", varied=True), part("epochs", "14")])
    for epochs in (12, 14):
        add(run, Status.TERMINATED, {"acc": 1}, config={"lr": 0.1, "epochs": epochs, "seed": 1})
    assert [row.params["epochs"] for row in look(run).rows] == [12, 14]


def test_a_training_whose_epochs_are_known_has_an_estimate_from_its_first_report() -> None:
    run = machine()
    alone = RunFacts(name="exp", path="p", local_path="l", total=1)
    config = {"train_loop_config": {"num_epochs": 10}}
    trial = add(run, Status.RUNNING, {"epoch": 3}, config=config, iteration=4, time_total_s=8.0)
    run.trials[trial.trial_id] = replace(trial, reported_at=100.0)
    summary = look(run, facts=alone)
    assert summary.left_s == pytest.approx(12.0)
    assert summary.share == pytest.approx(0.4)
    assert summary.rows[0].last == 10


def test_a_setback_of_any_kind_is_counted_in_addition_to_the_status() -> None:
    run = machine()
    add(run, Status.RUNNING, lost_workers=2, failures=1)
    add(run, Status.ERROR, lost_workers=1, error=BROKEN)
    assert [row.retries for row in look(run).rows] == [3, 0]


def test_lines_are_kept_for_the_best_trials_and_the_newest_failures() -> None:
    run = machine()
    for at in range(30):
        add(run, Status.TERMINATED, {"acc": at})
        add(run, Status.ERROR, {"acc": 0}, error=BROKEN, failures=1)
    for _ in range(50):
        add(run, Status.RUNNING)
    rows = look(run, max_rows=12).rows
    assert [row.status for row in rows].count(Status.RUNNING) == 5
    assert [row.metrics.get("acc") for row in rows[5:9]] == [29, 28, 27, 26]
    assert [row.trial_id for row in rows[9:]] == ["aaaaa_00059", "aaaaa_00057", "aaaaa_00055"]


def test_how_many_workers_an_elastic_trial_has_is_shown() -> None:
    run = machine()
    resources = PlacementGroupFactory([{}, *[{"CPU": 1}] * 4], least_bundles=2)
    trial = add(run, Status.RUNNING, bundles=4)
    run.trials[trial.trial_id] = replace(trial, spec=replace(trial.spec, resources=resources))
    before = look(run)
    assert (before.rows[0].workers, before.rows[0].most_workers) == (3, 4)
    run.trials[trial.trial_id] = replace(run.trials[trial.trial_id], bundles=5)
    assert list(workers_lines(before, look(run))) == [
        "t_aaaaa_00000 now has 4 of 4 workers (was 3)"
    ]
    assert list(workers_lines(before, before)) == []


def test_the_time_left_is_at_most_the_budget() -> None:
    run = machine(time_budget_s=40.0)
    run.active_s = 30.0
    assert look(run).left_s == 10.0
    add(run, Status.TERMINATED, {"acc": 1}, time_total_s=10.0)
    assert look(run).left_s == 10.0


def test_trials_of_no_time_at_all_are_done_at_once() -> None:
    run = machine()
    run.active_s = 5.0
    add(run, Status.TERMINATED, {"acc": 1})
    assert look(run).left_s == 0.0


def test_why_a_run_is_being_stopped_is_reported() -> None:
    run = machine()
    assert look(run).ending == ""
    run.ending = EndOrdered(reason="budget")
    assert look(run).ending == "budget"
    run.ending = EndOrdered(reason="abort", message="no such metric")
    assert look(run).ending == "no such metric"


def test_trials_that_finish_without_a_report_are_reported_unless_the_run_was_stopped() -> None:
    run = machine()
    add(run, Status.TERMINATED, {"acc": 1.0})
    add(run, Status.TERMINATED)
    add(run, Status.ERROR)
    assert (
        "1 trial finished without a report: did they call report()? A dict of metrics may also be "
        "returned; another value, such as a tuple, is not reported"
    ) in closing_lines(look(run))
    run.ending = EndOrdered(reason="budget", message="the time is over")
    assert not any("report()" in line for line in closing_lines(look(run)))


def test_looking_again_and_again_gives_what_one_fresh_look_gives() -> None:
    run = machine()
    summarizer = Summarizer(run, max_rows=4)
    for at in range(12):
        add(run, Status.RUNNING, {"acc": at % 5})
        if at % 2:
            first = next(t for t in run.trials.values() if t.status is Status.RUNNING)
            status = Status.ERROR if at % 3 == 0 else Status.TERMINATED
            error = BROKEN if status is Status.ERROR else None
            run.trials[first.trial_id] = Trial(
                spec=first.spec, status=status, row=first.row, error=error, time_total_s=at
            )
        assert summarizer.summarize(facts=FACTS, now=1.0) == look(run, now=1.0, max_rows=4)


def test_what_a_restore_reopened_is_no_longer_counted_as_ended() -> None:
    run = machine()
    summarizer = Summarizer(run)
    ended = add(run, Status.ERROR, error=BROKEN, failures=1)
    assert summarizer.summarize(facts=FACTS, now=1.0).counts[Status.ERROR] == 1
    run.trials[ended.trial_id] = Trial(spec=ended.spec)
    run.epoch = 2
    assert summarizer.summarize(facts=FACTS, now=1.0).counts == {Status.PENDING: 1}


def test_the_users_frame_is_the_innermost_one_outside_of_libraries() -> None:
    assert user_frame(BROKEN) == "train.py:42 in train"
    called_us = TRACEBACK.replace(
        "/home/me/.venv/lib/python3.11/site-packages/sklearn/base.py", staging.__file__
    )
    assert user_frame(replace(BROKEN, traceback=called_us)) == "train.py:42 in train"
    library = 'File "/usr/lib/python3.11/json/decoder.py", line 3, in decode'
    assert user_frame(Failure(kind="user", type_name="E", message="", traceback=library)) == (
        "decoder.py:3 in decode"
    )
    assert user_frame(Failure(kind="lost", type_name="WorkerLost", message="SIGKILL")) == ""


def test_a_resume_after_a_full_disk_says_how_to_run_what_failed_for_it() -> None:
    full = replace(BROKEN, type_name="OSError", message="[Errno 28] No space left on device")
    spec = TrialSpec(trial_id="t", index=0, name="t", dirname="t", config={})
    trials = [Trial(spec=spec, status=Status.ERROR, error=error) for error in (BROKEN, full, full)]
    assert retry_advice(trials[:1]) == ""
    assert retry_advice([replace(trials[1], status=Status.RUNNING)]) == ""
    assert retry_advice(trials) == (
        " --restart-errored (2 trials failed because a disk was full; --restart-errored runs them "
        "again)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-1, "0.0s"), (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m 00s")),
        *((80, "1m 20s"), (3599.7, "1h 00m"), (11100, "3h 05m"), (187200, "2d 04h")),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (5e15, "5000.0 TB")],
)
def test_sizes_have_three_digits(amount: float, text: str) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456, "0.1235"), (3, "3"), (10**15, "1e+15"), (True, "True"), ("a\n b", "a b")],
)
def test_values_are_short(value: object, text: str) -> None:
    assert format_value(value) == text


def test_a_long_text_is_cut() -> None:
    assert format_value("abcdefghij", 5) == "abcd…"
