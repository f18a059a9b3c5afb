"""The thread of `fit()` during a run: looks, messages, and its end."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.control import watch as watch_module
from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.run import RunResult
from holdfast.experiment.control.watch import Refresher, repeated_text, watch
from holdfast.experiment.progress.summary import RunFacts, Summary, TrialRow
from holdfast.experiment.progress.views import LogView, SilentView
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.trial.trial import CheckpointRecord, Status, Trial, TrialSpec


def trial(iteration: int, saved: int = 0, status: Status = Status.PENDING) -> Trial:
    """A trial that takes 2 s per iteration."""
    checkpoint = CheckpointRecord(
        index=0,
        iteration=saved,
        attempt=1,
        size_bytes=1,
        files=1,
        time_total_s=2.0 * saved,
    )
    return Trial(
        spec=TrialSpec(trial_id="a", index=0, name="a", dirname="a", config={}),
        status=status,
        iteration=iteration,
        time_total_s=2.0 * iteration,
        checkpoints=(checkpoint,) if saved else (),
    )


def test_trials_without_a_checkpoint_start_over() -> None:
    text = repeated_text([trial(12), trial(8)])
    assert "2 unfinished trials have no checkpoint and will start over" in text
    assert "repeats 20 iterations (40s of training). Pass report() a checkpoint" in text
    assert repeated_text([trial(1)]).startswith("1 unfinished trial has no checkpoint")


def test_a_trial_repeats_what_it_reported_after_its_checkpoint() -> None:
    text = repeated_text([trial(12, saved=10)])
    assert (
        text == "1 trial will resume from a checkpoint and repeat 2 iterations (4.0s of training)."
    )


def test_nothing_is_repeated_of_trials_that_have_ended_or_saved_or_not_reported() -> None:
    ended = trial(5, status=Status.TERMINATED)
    assert repeated_text([ended, trial(4, saved=4), trial(0)]) == ""


FACTS = RunFacts(name="exp", path="/results/exp", local_path="/results/exp", total=1)


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """Also if the tests were started in the background of a shell, which ignores it there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Ending:
    """A run that is asked to end by `signum`, with its only trial in this `status`."""

    has_begun = True
    inline = None
    stopped_by = ""

    def __init__(self, status: Status, signum: int = signal.SIGINT) -> None:
        self.machine = Machine()
        self.machine.spec = ExperimentSpec(experiment_id="e", run="r", trainable="train", seed=0)
        spec = TrialSpec(trial_id="t_0", index=0, name="t_0", dirname="d", config={})
        self.machine.trials["t_0"] = Trial(spec=spec, status=status)
        settings = SimpleNamespace(
            stop_grace_s=10.0, flush_deadline_s=60.0, callback_deadline_s=10.0
        )
        self.plan: Any = SimpleNamespace(machine=self.machine, settings=settings)
        self.output = RunOutput("")
        self.result = RunResult()
        self.signum = signum
        self.waits = 0

    def start(self) -> None: ...

    def join(self) -> None: ...

    def interrupt(self, *, preempted: bool) -> None: ...

    def wait(self, timeout_s: float) -> bool:
        self.waits += timeout_s > 0
        if self.waits == 1 and timeout_s:
            os.kill(os.getpid(), self.signum)
        return self.waits > 2

    def wait_for_news(self, seen: float, rest_s: float, quiet_s: float) -> bool:
        return False

    def summary(self, facts: RunFacts) -> Summary:
        return Summary(name="exp", path=facts.path, counts={}, total=1)


def ended(
    status: Status,
    *,
    facts: RunFacts = FACTS,
    view: type[LogView | SilentView] = LogView,
    unsaved: tuple[str, ...] = (),
) -> str:
    run: Any = Ending(status)
    run.result.unsaved = unsaved
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(run, view(stream), facts)
    return stream.getvalue()


def test_a_command_for_the_shell_comes_first() -> None:
    facts = replace(FACTS, command="holdfast resume /results/exp")
    shown = ended(Status.PENDING, facts=facts)
    assert "To resume: holdfast resume /results/exp\n" in shown
    assert "  or in Python: tune.Tuner.restore('/results/exp', trainable=train).fit()\n" in shown
    shown = ended(Status.PENDING, facts=replace(facts, resumes=True))
    assert "To resume: start this script again, or holdfast resume /results/exp\n" in shown


def test_a_run_that_finished_in_time_has_nothing_to_resume() -> None:
    shown = ended(Status.TERMINATED)
    assert "To go on" not in shown
    assert "The run had finished. Its results: tune.Tuner.restore('/results/exp'" in shown


def test_one_whose_uploads_are_missing_can_be_resumed() -> None:
    shown = ended(Status.TERMINATED, unsaved=("checkpoint_000001",))
    assert "Not in storage yet: checkpoint_000001" in shown
    assert "To resume: " in shown


def test_what_is_not_in_storage_is_said_at_verbose_0_too() -> None:
    shown = ended(Status.TERMINATED, view=SilentView, unsaved=("checkpoint_000001",))
    assert shown == "Not in storage yet: checkpoint_000001\n"


class Stopped(Ending):
    """A run that a person stops from outside, at its first look or `at_its_end`."""

    def __init__(self, *, at_its_end: bool) -> None:
        super().__init__(Status.PENDING)
        self._last = 1 if at_its_end else 2

    def interrupt(self, *, preempted: bool) -> None:
        raise AssertionError("the order is in the journal already, with the name of the person")

    def wait(self, timeout_s: float) -> bool:
        self.waits += timeout_s > 0
        self.stopped_by = "ann (page)"
        return self.waits >= self._last


@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_run_that_a_person_stops_ends_as_after_a_ctrl_c(at_its_end: bool) -> None:
    run: Any = Stopped(at_its_end=at_its_end)
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(run, LogView(stream), replace(FACTS, command="holdfast resume /results/exp"))
    shown = stream.getvalue()
    told = (
        "warning: Stopped by ann (page): trials have 10 s to end, uploads 60 s. Press Ctrl-C to "
        "kill everything now\n"
    )
    assert (told in shown) is not at_its_end
    assert ("warning: Stopped by ann (page)\n" in shown) is at_its_end
    assert "To resume: holdfast resume /results/exp\n" in shown


class Suspended(Ending):
    """A run that is suspended for an hour (Ctrl-Z) while it ends."""

    is_aborted = False

    def __init__(self) -> None:
        super().__init__(Status.RUNNING)
        self.now = 0.0

    def wait(self, timeout_s: float) -> bool:
        has_ended = super().wait(timeout_s)
        self.now += 3600.0 if self.waits == 2 else timeout_s
        return has_ended

    def abort(self) -> None:
        pytest.fail("it had no time to end")


def test_the_time_in_which_an_end_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run: Any = Suspended()
    monkeypatch.setattr(
        watch_module, "time", SimpleNamespace(**{**vars(time), "monotonic": lambda: run.now})
    )
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        watch(run, LogView(stream), FACTS)
    assert "Killing all" not in stream.getvalue()


def test_messages_come_before_the_picture_and_a_look_waits_for_its_turn() -> None:
    run: Any = Ending(Status.RUNNING)
    row = TrialRow(
        trial_id="t_0",
        name="t_0",
        status=Status.RUNNING,
        params={},
        iteration=1,
        time_total_s=1.0,
        metrics={},
        workers=3,
        most_workers=4,
    )
    looks = 0

    def summary(facts: RunFacts) -> Summary:
        nonlocal looks
        looks += 1
        workers = replace(row, workers=2 + looks)
        return Summary(name="exp", path="p", counts={}, total=1, rows=(workers,))

    run.summary = summary
    stream = io.StringIO()
    refresher = Refresher(run, LogView(stream), FACTS)
    run.output.tell("look out")
    refresher.refresh()
    refresher.refresh(at_once=True)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "warning: look out"
    assert "t_0 now has 4 of 4 workers (was 3)" in lines
    assert looks == 2
