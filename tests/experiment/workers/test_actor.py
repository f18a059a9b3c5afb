"""The controller's side of a worker, with workers that are lists of the messages they got."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pytest

from holdfast.experiment.worker.job import Assignment
from holdfast.experiment.workers import worker_messages
from holdfast.experiment.workers.actor import AttemptUsage, HangTimer, TrialActor, amount_of
from holdfast.experiment.workers.group import RankDeadlines
from holdfast.experiment.workers.hosts import WorkerTimeouts
from holdfast.experiment.workers.ranks import Barrier
from holdfast.experiment.workers.worker_messages import AttemptRaised, WorkerReport
from holdfast.late import LATE_S
from holdfast.runtime import process_control
from holdfast.runtime.launcher import ExitCause, Grant, Listener
from holdfast.runtime.usage.used import Used
from holdfast.scheduler.effects import Verdict
from holdfast.scheduler.events import Exited, Raised
from holdfast.trial.errors import Failure, ProcessFailureKind
from holdfast.trial.events import Measured, Reported, Returned, Started
from holdfast.trial.trial import CheckpointRecord, CheckpointUploadMode
from tests.experiment.workers.ranks import Desk, Rank
from tests.experiment.workers.ranks import assignment as assigned
from tests.experiment.workers.ranks import host as host
from tests.rig.jumping_clock import JumpingClock

CHECKPOINT = CheckpointRecord(
    index=3, iteration=7, attempt=1, files=2, size_bytes=4096, upload=CheckpointUploadMode.SYNC
)
FAILURE = Failure(kind="user", type_name="ValueError", message="bad", traceback="...", pid=41)
MESSAGES: list[list[Any]] = [
    ["started", 1, 41, "host", "127.0.0.1"],
    ["report", 1, 7, {"loss": 0.25, "net": {"depth": [1, 2]}}, 1.7e9, 0.5, 3.5, None],
    ["report", 1, 7, {"loss": 0.25}, 1.7e9, 0.5, 3.5, asdict(CHECKPOINT)],
    ["saved", 1, asdict(CHECKPOINT)],
    ["log", "stdout", "one\ntwo"],
    ["returned", 1],
    ["stopped", 1],
    ["preempted", 1],
    ["unfit", 1],
    ["raised", 1, asdict(FAILURE)],
]
ODD: list[Any] = [
    *(None, True, -1, 1 << 70, 1e308, math.nan, math.inf, "", "\x1b[2J", b"x"),
    *([], [1], [[]], {}, {"x": 1}, {1: 1}, {"x": object()}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[0])
def test_a_message_has_its_fields_in_order(message: list[Any]) -> None:
    said = worker_messages.MESSAGES.read(message)
    first, second, *_ = (getattr(said, name) for name in type(said).__dataclass_fields__)
    assert [first, second] == message[:2]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[0])
def test_whatever_stands_in_a_field_it_is_read_or_refused(message: list[Any]) -> None:
    for at in range(1, len(message)):
        for odd in ODD:
            with suppress(ValueError):
                worker_messages.MESSAGES.read([*message[:at], odd, *message[at + 1 :]])
    for other in (message[:-1], [*message, 1]):
        with pytest.raises(ValueError, match="must be a list of"):
            worker_messages.MESSAGES.read(other)


def test_the_controllers_pid_and_node_count_and_long_text_is_shortened() -> None:
    plain = asdict(FAILURE) | {"pid": -7, "node": ["mine"], "message": "x" * 1_000_000}
    said = worker_messages.MESSAGES.read(["raised", 1, plain])
    assert isinstance(said, AttemptRaised)
    known = worker_messages.failure(said.failure, pid=99, node="a")
    assert (known.pid, known.node) == (99, "a")
    assert len(known.message) < 1 << 17
    assert replace(known, message="bad", pid=41, node="") == FAILURE


def test_what_only_the_controller_says_of_a_checkpoint_is_not_taken_from_a_worker() -> None:
    plain = asdict(CHECKPOINT) | {"score": 9.0, "committed": True}
    said = worker_messages.MESSAGES.read(["report", 1, 7, {}, 1.7e9, 0.5, 3.5, plain])
    assert isinstance(said, WorkerReport)
    assert said.checkpoint is not None
    assert (
        worker_messages.record(said.checkpoint, attempt=1, iteration=7, least_index=3)
        == CHECKPOINT
    )


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ({"attempt": 2}, "the checkpoint's attempt must be 2, not 1"),
        ({"iteration": 8}, "the checkpoint's iteration must be 8, not 7"),
        ({"least_index": 4}, "index must be from 4 to 100004, not 3"),
    ],
)
def test_a_checkpoint_of_another_report_is_refused(expected: dict[str, Any], told: str) -> None:
    report: dict[str, Any] = {"attempt": 1, "iteration": 7, "least_index": 3}
    with pytest.raises(ValueError, match=told):
        worker_messages.record(CHECKPOINT, **report | expected)


pytestmark = pytest.mark.anyio

TIMEOUT_S = 5.0


def hang_timer(on_end: Callable[[], None]) -> None:
    HangTimer(TIMEOUT_S, on_end).begin()


def rank_deadline(on_end: Callable[[], None]) -> None:
    deadlines = RankDeadlines(Barrier(2, 0), TIMEOUT_S, lambda rank, late: on_end())
    deadlines.expect_texts(lambda: [1])


@pytest.mark.parametrize("begin", [hang_timer, rank_deadline])
async def test_the_time_in_which_the_controller_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[Callable[[], None]], None]
) -> None:
    clock, ended = JumpingClock(monkeypatch), asyncio.Event()
    begin(ended.set)
    await clock.jump(TIMEOUT_S + 2 * LATE_S)
    assert not ended.is_set()
    await clock.jump(TIMEOUT_S / 2)
    assert not ended.is_set()
    await clock.jump(TIMEOUT_S / 2)
    assert ended.is_set()


async def test_a_report_that_was_not_read_while_the_controller_was_suspended_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, ended = JumpingClock(monkeypatch), asyncio.Event()
    timer = HangTimer(TIMEOUT_S, ended.set)
    timer.begin()
    await clock.jump(TIMEOUT_S + 2 * LATE_S)
    timer.end()
    await clock.jump(TIMEOUT_S)
    assert not ended.is_set()


STARTED = ["started", 1, 41, "host", "127.0.0.1"]


def assignment(trial_id: str = "t0", **fields: Any) -> Assignment:
    """For one worker."""
    return assigned(trial_id, **{"bundles": [{"CPU": 1}], "cpus": 1, **fields})


def report(iteration: int, index: int | None = None) -> list[Any]:
    saved = None if index is None else asdict(CHECKPOINT) | {"index": index}
    checkpoint = saved and {**saved, "attempt": 1, "iteration": iteration}
    return ["report", 1, iteration, {"loss": 0.5}, 1.0, 0.1, 0.1, checkpoint]


@pytest.fixture
async def actor(host: Desk) -> TrialActor:
    return TrialActor(host, assignment(), timeouts=WorkerTimeouts(grace_s=3600), reusable=True)


def hosts(actor: TrialActor, *messages: list[Any]) -> None:
    for message in messages:
        actor.on_message(message)


async def test_a_worker_gets_its_job_and_its_messages_become_events(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED, report(1), ["returned", 1])
    assert host.ranks[0].sent == [["run", assignment()]]
    assert [type(event) for event in host.events] == [Started, Reported, Returned]
    assert actor.pid == 41


@pytest.mark.parametrize(
    "messages",
    [
        [report(1)],
        [["returned", 1]],
        [["saved", 1, {}]],
        [STARTED, STARTED],
        [STARTED, report(1), report(1)],
        [STARTED, report(1, index=4), report(2, index=4)],
    ],
)
async def test_a_worker_whose_story_makes_no_sense_is_killed_and_its_trial_fails(
    host: Desk, actor: TrialActor, messages: list[list[Any]]
) -> None:
    hosts(actor, *messages)
    last = host.events[-1]
    assert isinstance(last, Raised)
    assert "an invalid message" in last.failure.message
    assert host.ranks[0].signals == [signal.SIGKILL]


async def test_what_a_worker_imported_is_learned(host: Desk, actor: TrialActor) -> None:
    hosts(actor, STARTED, ["imported", ["torch", "torch._dynamo"], 1.5])
    assert host.learned == [(["torch", "torch._dynamo"], 1.5)]
    assert [type(event) for event in host.events] == [Started]


async def test_an_idle_worker_hosts_the_next_trial(host: Desk, actor: TrialActor) -> None:
    hosts(actor, STARTED, report(1), ["returned", 1])
    actor.assign(assignment("t1", iteration=3))
    hosts(actor, STARTED, report(4))
    assert len(host.ranks) == 1
    assert [getattr(event, "trial_id", "") for event in host.events[-2:]] == ["t1", "t1"]


async def test_a_worker_that_died_idle_is_replaced_by_one_that_hosts_the_next_trial(
    host: Desk, actor: TrialActor
) -> None:
    """Its death was reported only after it had got the trial."""
    hosts(actor, STARTED, ["returned", 1])
    actor.assign(assignment("t1"))
    actor.on_exit(ExitCause(cause="was killed by signal 9 (SIGKILL)"))
    assert [worker.sent[-1][1].trial_id for worker in host.ranks] == ["t1", "t1"]
    hosts(actor, STARTED)
    assert [type(event) for event in host.events] == [Started, Returned, Started]
    actor.on_exit(ExitCause(cause="exited with status 1"))
    assert host.events[-1] == Exited(trial_id="t1", attempt=1, cause="exited with status 1")
    assert len(host.ranks) == 2


async def test_an_order_to_stop_that_came_too_late_does_not_reach_the_next_trial(
    host: Desk, actor: TrialActor
) -> None:
    """The message may still be on its way when the worker has returned and gets another trial."""
    hosts(actor, STARTED)
    actor.halt()
    hosts(actor, ["returned", 1])
    actor.assign(assignment("t1"))
    assert host.ranks[0].sent[-1] == ["exit"]
    actor.on_exit(ExitCause(cause="exited with status 0"))
    assert host.ranks[1].sent == [["run", assignment("t1")]]


async def test_a_worker_that_is_halted_before_it_started_is_not_replaced(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED, ["returned", 1])
    actor.assign(assignment("t1"))
    actor.halt()
    actor.on_exit(ExitCause(cause="was killed by signal 15 (SIGTERM)"))
    assert len(host.ranks) == 1
    assert isinstance(host.events[-1], Exited)


async def test_a_trial_that_is_halted_while_its_worker_is_replaced_gets_no_other(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED, ["unfit", 1])
    actor.halt()
    actor.on_exit(ExitCause(cause="exited with status 0"))
    assert len(host.ranks) == 1
    assert isinstance(host.events[-1], Exited)


async def test_an_idle_worker_that_is_gone_is_replaced_when_it_is_needed(
    host: Desk, actor: TrialActor
) -> None:
    """It died while the next trial's checkpoint was verified."""
    hosts(actor, STARTED, ["returned", 1])
    actor.on_exit(ExitCause(cause="was killed by signal 9 (SIGKILL)"))
    actor.assign(assignment("t1"))
    assert host.ranks[1].sent == [["run", assignment("t1")]]


async def test_the_attempt_that_an_idle_worker_will_not_host_ends_with_it(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED, ["returned", 1])
    actor.dismiss("t1", 4)
    assert host.ranks[0].sent[-1] == ["exit"]
    actor.on_exit(ExitCause(cause="exited with status 0"))
    assert host.events[-1] == Exited(trial_id="t1", attempt=4, cause="exited with status 0")
    actor.dismiss("t2", 1)
    assert host.events[-1] == Exited(trial_id="t2", attempt=1, cause="never started")


async def test_a_signal_that_no_one_here_has_sent_makes_the_attempt_fail(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED, ["stopped", 1])
    last = host.events[-1]
    assert isinstance(last, Raised)
    assert last.failure.kind == "preempted"


async def test_a_worker_that_was_halted_has_ended_well_when_it_says_so(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED)
    actor.halt()
    hosts(actor, ["stopped", 1])
    assert isinstance(host.events[-1], Returned)


async def test_a_worker_that_may_end_its_step_hears_of_the_stop_when_it_reports(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED)
    actor.halt(after_step=True)
    hosts(actor, report(1))
    actor.reply(Verdict.STOP)
    assert host.ranks[0].sent[-1] == ["reply", "stop"]
    assert host.ranks[0].signals == []


async def test_a_step_that_does_not_end_in_the_grace_is_interrupted_then_killed(
    host: Desk,
) -> None:
    actor = TrialActor(host, assignment(), timeouts=WorkerTimeouts(grace_s=0.01), reusable=False)
    hosts(actor, STARTED)
    actor.halt(after_step=True)
    async with asyncio.timeout(30):
        await host.ranks[0].killed.wait()
    assert host.ranks[0].signals == [process_control.STOP, signal.SIGKILL]


async def test_the_time_in_which_the_controller_was_suspended_is_none_of_the_grace(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = JumpingClock(monkeypatch)
    actor = TrialActor(host, assignment(), timeouts=WorkerTimeouts(grace_s=5), reusable=False)
    hosts(actor, STARTED)
    actor.halt()
    await clock.jump(3600)
    assert host.ranks[0].signals == [process_control.STOP]
    await clock.jump(4.9)
    assert not host.ranks[0].killed.is_set()
    await clock.jump(0.2)
    assert host.ranks[0].killed.is_set()


async def test_a_report_that_its_node_cannot_store_raises_and_the_worker_continues(
    host: Desk,
) -> None:
    host.blind = "blind"
    blind = assignment(nodes=[("blind", "", ())])
    actor = TrialActor(host, blind, timeouts=WorkerTimeouts(grace_s=3600), reusable=False)
    record = {"index": 0, "iteration": 1, "attempt": 1, "files": 1, "size_bytes": 1,
              "time_total_s": 0.1, "upload": "ASYNC"}  # fmt: skip
    hosts(actor, STARTED, [*report(1)[:-1], record])
    assert host.ranks[0].sent[-1] == ["refused", "node blind cannot store"]
    hosts(actor, report(2))
    (reported,) = (event for event in host.events if isinstance(event, Reported))
    assert (reported.iteration, reported.checkpoint) == (2, None)
    assert host.ranks[0].signals == []


# -- preemption -----------------------------------------------------------------------------------


async def test_a_worker_that_is_preempted_saves_and_says_so(host: Desk, actor: TrialActor) -> None:
    hosts(actor, STARTED)
    actor.preempt("node a leaves")
    assert host.ranks[0].signals == [signal.SIGTERM]
    hosts(actor, report(1))
    actor.reply(Verdict.CONTINUE)
    hosts(actor, ["preempted", 1])
    last = host.events[-1]
    assert isinstance(last, Raised)
    assert (last.failure.kind, last.failure.pid) == ("preempted", 41)
    assert last.failure.message == "node a leaves"


async def test_a_worker_that_does_not_save_in_time_is_interrupted_then_killed(host: Desk) -> None:
    timeouts = WorkerTimeouts(grace_s=0.01, preemption_grace_s=0.01)
    actor = TrialActor(host, assignment(), timeouts=timeouts, reusable=False)
    hosts(actor, STARTED)
    actor.preempt("node a leaves")
    async with asyncio.timeout(30):
        await host.ranks[0].killed.wait()
    assert host.ranks[0].signals == [signal.SIGTERM, process_control.STOP, signal.SIGKILL]


async def test_a_worker_that_took_sigterm_for_something_else_was_preempted_all_the_same(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED)
    actor.preempt("node a leaves")
    hosts(actor, ["stopped", 1])
    assert isinstance(host.events[-1], Raised)


async def test_a_preempted_worker_whose_trial_was_to_stop_has_ended_well(
    host: Desk, actor: TrialActor
) -> None:
    hosts(actor, STARTED)
    actor.halt()
    hosts(actor, ["preempted", 1])
    assert isinstance(host.events[-1], Returned)


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (ExitCause(cause="was killed", signum=signal.SIGKILL), "lost"),
        (ExitCause(cause="was killed", signum=signal.SIGTERM), "preempted"),
        (ExitCause(cause="was killed", signum=9, is_out_of_memory=True), "memory"),
        (ExitCause(cause="exited with status 1"), "lost"),
    ],
)
async def test_an_exit_is_reported_with_the_kind_of_failure_that_it_is(
    host: Desk, actor: TrialActor, ending: ExitCause, kind: ProcessFailureKind
) -> None:
    hosts(actor, STARTED)
    actor.on_exit(ending)
    assert host.events[-1] == Exited(trial_id="t0", attempt=1, cause=ending.cause, kind=kind)


# -- hangs ----------------------------------------------------------------------------------------


def impatient(host: Desk, hang_timeout_s: float = 0.01) -> TrialActor:
    timeouts = WorkerTimeouts(grace_s=3600, hang_timeout_s=hang_timeout_s)
    return TrialActor(host, assignment(), timeouts=timeouts, reusable=False)


async def signalled(host: Desk) -> list[int]:
    async with asyncio.timeout(30):
        await host.ranks[0].signalled.wait()
    return host.ranks[0].signals


@pytest.mark.parametrize("messages", [[], [STARTED], [STARTED, ["log", "stdout", "at it"]]])
async def test_a_worker_that_never_reports_is_asked_for_its_stack(
    messages: list[list[Any]],
) -> None:
    host = Desk()
    actor = impatient(host)
    hosts(actor, *messages)
    assert await signalled(host) == [process_control.DUMP]
    actor.on_exit(ExitCause(cause="was killed", signum=process_control.DUMP))
    last = host.events[-1]
    assert isinstance(last, Exited)
    assert last.kind == "hang"
    assert last.cause == "reported nothing for hang_timeout_s=0.01 s; its stack is in its stderr"


async def test_a_worker_that_shows_no_stack_is_killed(host: Desk) -> None:
    timeouts = WorkerTimeouts(grace_s=0.01, hang_timeout_s=0.01)
    actor = TrialActor(host, assignment(), timeouts=timeouts, reusable=False)
    async with asyncio.timeout(30):
        await host.ranks[0].killed.wait()
    actor.on_exit(ExitCause(cause="was killed", signum=signal.SIGKILL))
    last = host.events[-1]
    assert isinstance(last, Exited)
    assert last.cause.endswith("its stack could not be written")


async def test_the_time_between_a_report_and_its_answer_is_not_the_workers() -> None:
    """A report waits while too many checkpoints wait for storage."""
    host, other = Desk(), Desk()
    actor = impatient(host)
    hosts(actor, STARTED, report(1))
    impatient(other)
    await signalled(other)
    assert host.ranks[0].signals == []
    actor.reply(Verdict.CONTINUE)
    assert await signalled(host) == [process_control.DUMP]


async def test_a_worker_that_keeps_reporting_does_not_hang() -> None:
    host, other = Desk(), Desk()
    actor = impatient(host, 0.2)
    hosts(actor, STARTED)
    impatient(other, 0.3)
    loop = asyncio.get_running_loop()

    def go_on(iteration: int) -> None:
        hosts(actor, report(iteration))
        actor.reply(Verdict.CONTINUE)
        if not other.ranks[0].signals:
            loop.call_soon(go_on, iteration + 1)

    go_on(1)
    await signalled(other)
    assert host.ranks[0].signals == []


async def test_a_worker_that_cannot_be_given_its_trial_is_ended_and_says_nothing(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(self: Rank, message: list[Any]) -> None:
        raise OverflowError("too large a number")

    monkeypatch.setattr(Rank, "send", deaf)
    with pytest.raises(OverflowError):
        TrialActor(host, assignment(), timeouts=WorkerTimeouts(grace_s=3600), reusable=True)
    (worker,) = host.ranks
    assert worker.signals == [signal.SIGKILL]
    assert host.events == []


async def test_another_worker_that_cannot_be_started_fails_the_trial(
    host: Desk, actor: TrialActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts(actor, STARTED, ["returned", 1])
    actor.assign(assignment("t1"))
    hosts(actor, ["unfit", 1])

    def refuses(name: str, listener: Listener, node: str = "", **_: Grant) -> Rank:
        raise OverflowError("too large a number")

    monkeypatch.setattr(host, "launch", refuses)
    actor.on_exit(ExitCause(cause="ended"))
    raised, exited = host.events[-2:]
    assert isinstance(raised, Raised)
    assert "too large a number" in raised.failure.message
    assert isinstance(exited, Exited)
    assert (exited.trial_id, exited.cause) == ("t1", "never started")


BUNDLES = [{"CPU": 1, "memory": 5.0}, {"GPU": 2, "memory": 7.0}]


def used(wall_s: float, **other: Any) -> Used:
    return Used(wall_s=wall_s, **{"cpu_s": wall_s / 2, "memory_bytes": 10, **other})


def test_the_journal_gets_the_first_samples_soon_and_then_one_a_minute() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    posted = [
        at for at in range(5, 305, 5) if usage.so_far(assignment(), used(float(at))) is not None
    ]
    assert posted == [5, 10, 20, 40, 80, 140, 200, 260]


def test_the_gpus_that_an_attempt_holds_count_for_as_long_as_it_has_them() -> None:
    usage = AttemptUsage(is_rank=False)
    measured = usage.at_end(assignment(bundles=BUNDLES), used(9.0, gpu_utilisation=0.5))
    assert isinstance(measured, Measured)
    assert (measured.usage.gpu_s, measured.usage.gpu_utilisation) == (18.0, 0.5)


def test_an_attempt_in_a_reused_process_has_used_the_part_since_it_began() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    usage.so_far(assignment("first"), used(20.0))
    usage.begin(is_reused=True)
    assert usage.at_end(assignment("second")) is None  # no sample since
    usage.so_far(assignment("second"), used(26.0))
    measured = usage.at_end(assignment("second"), used(30.0))
    assert measured is not None
    assert (measured.trial_id, measured.usage.wall_s, measured.usage.cpu_s) == ("second", 10, 5)


def test_what_is_known_at_the_exit_is_not_replaced_by_an_earlier_sample() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    usage.so_far(assignment(), used(5.0))
    assert usage.at_end(assignment(), used(6.0)) is not None
    assert usage.at_end(assignment()) is None


def test_a_rank_has_its_own_bundle_and_a_single_worker_all() -> None:
    assert amount_of(assignment(bundles=BUNDLES), "memory", is_rank=False) == 12
    assert amount_of(assignment(bundles=BUNDLES), "memory", is_rank=True) == 7
    assert amount_of(assignment(bundles=BUNDLES), "GPU", is_rank=True) == 2
