"""Several workers that train one trial, with workers that are lists of the messages they got."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.experiment.progress.summary import RankWait
from holdfast.experiment.worker.job import GroupTerms
from holdfast.experiment.workers import group as worker_group
from holdfast.experiment.workers.group import WorkerGroup
from holdfast.experiment.workers.hosts import WorkerTimeouts
from holdfast.experiment.workers.ranks import cause_of
from holdfast.runtime import process_control
from holdfast.runtime.launcher import Grant, Listener
from holdfast.runtime.usage.used import Used
from holdfast.scheduler.effects import Verdict
from holdfast.scheduler.events import Exited, Raised
from holdfast.trial.errors import Failure
from holdfast.trial.events import Measured, Reported, Returned, Started
from tests.experiment.workers.ranks import WHOLE, Desk, Rank, assignment, opened
from tests.experiment.workers.ranks import group as group
from tests.experiment.workers.ranks import host as host

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "message",
    [
        ["validated", "GREAT", {}],
        ["validated", "NONE", {}],
        ["validated", "VALIDATED", [1]],
        ["validated", "VALIDATED", {"a": object()}],
    ],
)
async def test_a_validation_that_no_worker_of_holdfast_sends_ends_that_rank(
    host: Desk, group: WorkerGroup, message: list[Any]
) -> None:
    host.ranks[1].reports(1)
    host.ranks[0].reports(1, files=True)
    host.ranks[0].says(message)
    assert host.ranks[0].signals == [signal.SIGKILL]


async def test_a_validation_without_a_checkpoint_ends_that_rank(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[0].says(["validated", "VALIDATED", {}])
    assert host.ranks[0].signals == [signal.SIGKILL]


@pytest.mark.parametrize(
    ("first", "then", "who", "fact"),
    [
        (
            lambda ranks: ranks[0].says(["gather", ""]),
            lambda ranks: ranks[1].reports(1),
            1,
            "rank 1 is at report() while rank 0 waits at a barrier",
        ),
        (
            lambda ranks: ranks[1].reports(1),
            lambda ranks: ranks[0].says(["gather", ""]),
            0,
            "rank 0 is at a barrier while rank 1 waits at report()",
        ),
        (
            lambda ranks: ranks[0].says(["gather", ""]),
            lambda ranks: ranks[1].says(["returned", 1]),
            1,
            "rank 1 is at its end while rank 0 waits at a barrier",
        ),
        (
            lambda ranks: ranks[1].says(["returned", 1]),
            lambda ranks: ranks[0].says(["gather", ""]),
            1,
            "rank 1 is at its end while rank 0 waits at a barrier",
        ),
    ],
)
async def test_ranks_that_can_never_meet_at_a_barrier_end_the_attempt(
    host: Desk,
    group: WorkerGroup,
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Any], None],
    then: Callable[[Any], None],
    who: int,
    fact: str,
) -> None:
    monkeypatch.setattr(worker_group, "AFTERMATH_S", 0.0)
    first(host.ranks)
    then(host.ranks)
    await host.ranks[0].signalled.wait()
    (raised,) = (event for event in host.events if isinstance(event, Raised))
    assert fact in raised.failure.message
    assert raised.failure.rank == who


async def test_a_rank_gets_the_machines_of_the_run(host: Desk, group: WorkerGroup) -> None:
    host.ranks[1].says(["machines"])
    told = ["a", "host-a", "10.0.0.1", {"CPU": 4}, {"CPU": 1}]
    assert host.ranks[1].orders == [["machines", [told]]]


async def test_no_rank_begins_before_all_have_started(host: Desk) -> None:
    opened(host)
    host.ranks[1].starts()
    assert [len(rank.sent) for rank in host.ranks] == [1, 1]
    host.ranks[0].starts()
    assert [rank.sent[1:] for rank in host.ranks] == [[["go"]], [["go"]]]


async def test_a_rank_that_does_not_start_is_given_up(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "START_TIMEOUT_S", 0.0)
    opened(host)
    host.ranks[0].starts()
    await host.ranks[1].signalled.wait()
    host.ranks[1].ends(host.ranks[1].signals[0])
    host.ranks[0].ends(signal.SIGKILL)
    (raised,) = (event for event in host.events if isinstance(event, Raised))
    assert "had not started 0 s after other ranks" in raised.failure.message
    assert raised.failure.message.startswith("rank 1")


async def test_no_rank_begins_where_one_has_failed_before_all_had_started(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "AFTERMATH_S", 0.0)
    opened(host)
    host.ranks[0].starts()
    host.ranks[0].raises("no module named model")
    host.ranks[1].starts()
    await host.ranks[1].signalled.wait()
    assert ["go"] not in host.ranks[1].sent
    assert host.kinds == [Raised]


async def test_all_ranks_see_all_gpus_as_under_torchrun(host: Desk) -> None:
    whole = assignment(bundles=[{}, {"GPU": 2}, {"GPU": 2}], gpus=("a", "b", "c", "d"))
    opened(host, whole)
    assert [rank.sent[0][1].gpus for rank in host.ranks] == [("a", "b", "c", "d")] * 2


async def test_it_is_known_since_when_which_ranks_are_waited_for(
    host: Desk, group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "wall_time", lambda: 1000.0)
    assert group.awaited(1000.0) is None
    host.ranks[0].reports(1)
    assert group.awaited(1035.0) == RankWait(name="t0", ranks=(1,), waited_s=35.0)
    host.ranks[1].reports(1)
    assert group.awaited(1036.0) is None


async def test_rank_0_makes_one_checkpoint_of_the_parts_before_it_is_reported(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].reports(1, files=True)
    host.ranks[0].reports(1)
    assert host.ranks[0].orders == [["merge", 0, [1], "ASYNC"]]
    assert host.kinds == [Started]
    host.ranks[0].says(["merged", WHOLE, {}])
    reported = host.events[-1]
    assert isinstance(reported, Reported)
    assert reported.checkpoint is not None
    group.reply(Verdict.CONTINUE)
    told = [["newest", "checkpoint_000000"], ["reply", "continue"]]
    assert [rank.orders[-2:] for rank in host.ranks] == [told, told]
    assert host.warnings == []


async def test_the_trial_returns_and_exits_when_all_ranks_have(
    host: Desk, group: WorkerGroup
) -> None:
    for rank in host.ranks:
        rank.says(["returned", 1])
    assert host.kinds == [Started, Returned]
    host.ranks[0].ends()
    assert host.kinds == [Started, Returned]
    host.ranks[1].ends()
    assert host.kinds == [Started, Returned, Exited]


async def test_a_trial_of_which_a_rank_pruned_itself_is_pruned(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[0].says(["pruned", 1])
    host.ranks[1].says(["returned", 1])
    (returned,) = [event for event in host.events if isinstance(event, Returned)]
    assert returned.pruned


async def test_the_cause_is_reported_with_what_it_did_to_the_others(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].raises("boom")
    host.ranks[0].raises("connection closed by peer")
    host.ranks[0].ends()
    host.ranks[1].ends()
    assert host.kinds == [Started, Raised, Exited]
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.message == "rank 1 on host: boom"
    assert failure.traceback.startswith("Traceback of boom")
    assert "After it, rank 0: ValueError: connection closed by peer" in failure.traceback


async def test_on_nodes_a_trial_has_those_of_all_ranks_and_its_failure_that_of_its_rank(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "AFTERMATH_S", 0.0)
    opened(host, assignment(nodes=[("b", "10.0.0.2", ()), ("a", "10.0.0.1", ())]))
    for rank in host.ranks:
        rank.starts()
    (started,) = host.events
    assert isinstance(started, Started)
    assert started.nodes == ("b", "a")
    host.ranks[1].ends(signal.SIGKILL)
    await host.ranks[0].signalled.wait()
    (raised,) = (event for event in host.events if isinstance(event, Raised))
    assert (raised.failure.node, raised.failure.hostname) == ("a", "host")
    assert raised.failure.message.startswith("rank 1: the worker process")


def test_what_several_ranks_say_alike_is_reported_once() -> None:
    said = [
        Failure(
            kind="user", type_name="ValueError", message=text, traceback=f"Traceback of {text}"
        )
        for text in ("boom", "boom", "gone", "gone")
    ]
    told = cause_of(list(enumerate(said)), {}).traceback
    assert told == (
        "Traceback of boom\n\nAfter it, rank 1: the same"
        "\n\nAfter it, ranks 2, 3: ValueError: gone\nTraceback of gone"
    )


async def test_a_rank_that_was_killed_is_the_cause_though_another_was_heard_before(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[0].raises("connection closed by peer")
    host.ranks[1].ends(signal.SIGKILL)
    host.ranks[0].ends()
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.kind == "lost"
    assert "rank 1 on host: the worker process 40" in failure.message
    assert "After it, rank 0" in failure.traceback


async def test_who_does_not_end_by_itself_is_killed_after_a_moment(
    host: Desk, group: WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "AFTERMATH_S", 0.0)
    host.ranks[1].raises("boom")
    host.ranks[1].ends()
    await host.ranks[0].signalled.wait()
    assert host.ranks[0].signals == [signal.SIGKILL]
    host.ranks[0].ends(signal.SIGKILL)
    assert host.kinds == [Started, Raised, Exited]


async def test_a_rank_that_returns_early_is_named(host: Desk, group: WorkerGroup) -> None:
    host.ranks[0].reports(1)
    host.ranks[1].says(["returned", 1])
    for rank in host.ranks:
        rank.ends()
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.type_name == "RanksOutOfStep"
    assert "rank 1 on host: its function returned after report 0" in failure.message


async def test_a_rank_that_others_wait_for_too_long_leaves_its_stack(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = WorkerTimeouts(grace_s=3600, barrier_timeout_s=0.0)
    opened(host, timeouts=timeouts)
    for rank in host.ranks:
        rank.starts()
    host.ranks[0].reports(1)
    await host.ranks[1].signalled.wait()
    dumped = host.ranks[1].signals[0]
    host.ranks[1].ends(dumped)
    host.ranks[0].ends(signal.SIGKILL)
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.kind == "hang"
    assert "has not reported for 0 s while other ranks waited with their report 1" in (
        failure.message
    )
    assert "its stack is in its stderr" in failure.message


async def test_a_rank_that_has_said_where_to_meet_may_hang_all_the_same(host: Desk) -> None:
    opened(host, timeouts=WorkerTimeouts(grace_s=3600, hang_timeout_s=0.0))
    for rank in host.ranks:
        rank.starts()
    host.ranks[0].says(["address", "127.0.0.1:1"])
    await host.ranks[0].signalled.wait()
    assert host.ranks[0].signals == [process_control.DUMP]


async def test_a_rank_that_continues_after_a_report_that_was_refused_may_hang(host: Desk) -> None:
    group = opened(host, timeouts=WorkerTimeouts(grace_s=3600, hang_timeout_s=0.0))
    for rank in host.ranks:
        rank.starts()
        rank.reports(1)
    group.refuse("not in storage")
    await host.ranks[0].signalled.wait()
    assert host.ranks[0].signals == [process_control.DUMP]


async def test_a_rank_that_does_not_put_the_parts_together_is_waited_for_no_longer(
    host: Desk,
) -> None:
    opened(host, timeouts=WorkerTimeouts(grace_s=3600, barrier_timeout_s=0.0))
    for rank in host.ranks:
        rank.starts()
    for rank in host.ranks:
        rank.reports(1, files=True)
    await host.ranks[0].signalled.wait()
    host.ranks[0].ends(process_control.DUMP)
    host.ranks[1].ends(signal.SIGKILL)
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.kind == "hang"
    assert "rank 0 on host: the worker process" in failure.message
    assert "has not put the checkpoint of all ranks together for 0 s" in failure.message


async def test_where_no_one_continues_after_it_the_error_of_rank_0_is_the_cause(
    host: Desk, group: WorkerGroup
) -> None:
    for rank in host.ranks:
        rank.reports(1, files=True)
    host.ranks[0].says(["merge_failed", "the disk is full"])
    host.ranks[1].raises("refused")
    host.ranks[0].raises("the disk is full")
    for rank in host.ranks:
        rank.ends()
    failure = next(event for event in host.events if isinstance(event, Raised)).failure
    assert failure.message == "rank 0 on host: the disk is full"


async def test_halted_ranks_return_from_wherever_they_are(host: Desk, group: WorkerGroup) -> None:
    host.ranks[0].reports(1)
    group.halt()
    for rank in host.ranks:
        rank.says(["stopped", 1])
        rank.ends()
    assert host.kinds == [Started, Returned, Exited]


async def test_when_one_rank_is_preempted_all_others_get_the_order_once(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].says(["preempting"])
    host.ranks[0].says(["preempting"])
    assert [rank.signals for rank in host.ranks] == [[signal.SIGTERM], []]


async def test_each_rank_says_why_it_was_preempted(host: Desk, group: WorkerGroup) -> None:
    group.preempt("node a leaves (SIGTERM)")
    for rank in host.ranks:
        rank.says(["preempted", 1])
    for rank in host.ranks:
        rank.ends()
    (raised,) = (event for event in host.events if isinstance(event, Raised))
    assert raised.failure.kind == "preempted"
    assert raised.failure.message == "rank 0 on host: node a leaves (SIGTERM)"
    assert "After it, rank 1: the same" in raised.failure.traceback


async def test_the_others_get_the_address_of_rank_0(host: Desk, group: WorkerGroup) -> None:
    host.ranks[0].says(["address", "127.0.0.1:1"])
    assert host.ranks[0].orders == []
    assert host.ranks[1].orders == [["address", "127.0.0.1:1"]]


async def test_every_rank_gets_the_texts_of_all_once_each_has_sent_its_own(
    host: Desk, group: WorkerGroup
) -> None:
    host.ranks[1].says(["gather", "10.0.0.2:7"])
    assert host.ranks[0].orders == host.ranks[1].orders == []
    host.ranks[0].says(["gather", "10.0.0.1:7"])
    for rank in host.ranks:
        assert rank.orders == [["gathered", ["10.0.0.1:7", "10.0.0.2:7"]]]


async def test_after_a_report_that_was_refused_the_ranks_meet_at_the_next(
    host: Desk, group: WorkerGroup
) -> None:
    for rank in host.ranks:
        rank.reports(1)
    group.refuse("not in storage")
    assert [rank.orders[-1] for rank in host.ranks] == [["refused", "not in storage"]] * 2
    for rank in host.ranks:
        rank.reports(2)
    assert [event.iteration for event in host.events if isinstance(event, Reported)] == [1, 2]


async def test_ranks_of_a_group_that_cannot_be_begun_are_ended_and_say_nothing(
    host: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = host.launch

    def fails_later(name: str, listener: Listener, node: str = "", **_: Grant) -> Rank:
        if host.ranks:
            raise ZeroDivisionError
        return launch(name, listener)

    monkeypatch.setattr(host, "launch", fails_later)
    with pytest.raises(ZeroDivisionError):
        opened(host)
    (rank,) = host.ranks
    assert rank.signals == [signal.SIGKILL]
    rank.starts()
    rank.ends(signal.SIGKILL)
    assert host.events == []


# -- checkpoints of ranks on several nodes --------------------------------------------------------

ON_NODES = (("a", "", ()), ("a", "", ()), ("b", "", ()))


def share(**files: tuple[int, int, str]) -> list[Any]:
    """What a rank says of its node's share: files with the rank, the size and a fingerprint."""
    return ["merged", WHOLE, {}, {name: list(fact) for name, fact in files.items()}]


@pytest.fixture
async def spread(host: Desk) -> WorkerGroup:
    """Three ranks on two nodes."""
    return spread_group(host, GroupTerms())


async def test_a_node_that_cannot_store_its_share_fails_the_report_of_all_who_may_continue(
    host: Desk, spread: WorkerGroup
) -> None:
    host.blind = "b"
    for rank in host.ranks:
        rank.reports(1, files=True)
    assert [rank.orders for rank in host.ranks] == [[["refused", "node b cannot store"]]] * 3
    for rank in host.ranks:
        rank.reports(2)
    (report,) = (event for event in host.events if isinstance(event, Reported))
    assert (report.iteration, report.checkpoint) == (2, None)


async def test_ranks_on_a_node_that_cannot_store_may_report_without_a_part(
    host: Desk, spread: WorkerGroup
) -> None:
    host.blind = "b"
    for number, rank in enumerate(host.ranks):
        rank.reports(1, files=number < 2)
    assert host.ranks[0].orders == [["merge", 0, [0, 1], "ASYNC"]]


def spread_group(host: Desk, terms: GroupTerms) -> WorkerGroup:
    bundles = [{}, *[{"CPU": 1}] * 3]
    timeouts = WorkerTimeouts(grace_s=3600, barrier_timeout_s=3600)
    made = opened(
        host, assignment(bundles=bundles, nodes=ON_NODES), timeouts=timeouts, terms=terms
    )
    for rank in host.ranks:
        rank.starts()
    return made


async def test_one_rank_of_each_node_puts_its_share_together(
    host: Desk, spread: WorkerGroup
) -> None:
    for rank in host.ranks:
        rank.reports(1, files=True)
    assert host.ranks[0].orders == [["merge", 0, [0, 1], "ASYNC", True]]
    assert host.ranks[1].orders == []
    assert host.ranks[2].orders == [["merge", 0, [2], "ASYNC", False]]
    host.ranks[2].says(share(common=(2, 7, "x"), last=(2, 3, "y")))
    assert host.kinds == [Started]
    host.ranks[0].says(share(common=(0, 7, "z"), first=(1, 5, "w")))
    reported = host.events[-1]
    assert isinstance(reported, Reported)
    assert reported.checkpoint is not None
    kept = reported.checkpoint
    assert (kept.node, kept.files, kept.size_bytes) == ("a", 3, 15)
    assert host.shares == [("t0", 0, {"a": ["common"], "b": []})]
    assert [rank.orders[-1] for rank in host.ranks] == [["saved", "checkpoint_000000"]] * 3
    assert "common in one checkpoint from ranks 0, 2: that of rank 2 is kept" in host.warnings[0]


async def test_parts_on_one_node_only_are_put_together_there(
    host: Desk, spread: WorkerGroup
) -> None:
    host.ranks[0].reports(1)
    host.ranks[1].reports(1)
    host.ranks[2].reports(1, files=True)
    assert host.ranks[2].orders == [["merge", 0, [2], "ASYNC"]]
    host.ranks[2].says(["merged", WHOLE, {}])
    reported = host.events[-1]
    assert isinstance(reported, Reported)
    assert reported.checkpoint is not None
    assert (reported.checkpoint.node, host.shares) == ("b", [("t0", 0, {})])
    words = [rank.orders[-1][0] for rank in host.ranks]
    assert words == ["saved", "saved", "newest"]
    spread.reply(Verdict.CONTINUE)
    for rank in host.ranks:
        rank.reports(2, files=True)
    assert host.ranks[0].orders[-1] == ["merge", 1, [0, 1], "ASYNC", True]


async def test_files_of_the_same_name_on_two_nodes_are_refused_if_that_is_asked_for(
    host: Desk,
) -> None:
    spread_group(host, GroupTerms(refuses_clashes=True))
    for rank in host.ranks:
        rank.reports(1, files=True)
    host.ranks[0].says(share(common=(0, 7, "x")))
    host.ranks[2].says(share(common=(2, 7, "x")))
    for rank in host.ranks:
        assert rank.orders[-1][0] == "refused"
        assert "common: ranks 0 and 2 each saved a file" in rank.orders[-1][1]


async def test_parts_on_several_nodes_are_refused_if_nothing_may_be_uploaded(
    host: Desk, spread: WorkerGroup
) -> None:
    for rank in host.ranks:
        rank.reports(1, files=True, upload="NO_UPLOAD")
    for rank in host.ranks:
        assert rank.orders[-1][0] == "refused"
        assert "the parts of this one are on a, b" in rank.orders[-1][1]


@pytest.mark.parametrize(
    "files", [{"../x": [0, 1, ""]}, {"x": [9, 1, ""]}, {"x": [0, -1, ""]}, {"x": 1}, [1]]
)
async def test_a_share_that_no_worker_sends_fails_the_trial(
    host: Desk, spread: WorkerGroup, files: Any
) -> None:
    for rank in host.ranks:
        rank.reports(1, files=True)
    host.ranks[0].says(["merged", WHOLE, {}, files])
    assert signal.SIGKILL in host.ranks[0].signals


async def test_a_group_has_used_what_its_ranks_have_together(
    host: Desk, group: WorkerGroup
) -> None:
    first, second = host.ranks
    second.uses(Used(wall_s=5.0, cpu_s=2.0, memory_bytes=100))
    first.uses(Used(wall_s=5.0, cpu_s=1.0, memory_bytes=10))
    for rank in host.ranks:
        rank.says(["returned", 1])
        rank.ends(used=Used(wall_s=6.0, cpu_s=3.0, memory_bytes=200))
    so_far, *_, in_total = (e.usage for e in host.events if isinstance(e, Measured))
    assert (so_far.cpu_s, so_far.memory_bytes) == (3.0, 110)
    assert (in_total.cpu_s, in_total.wall_s, in_total.memory_bytes) == (6.0, 6.0, 400)
    assert host.kinds[-2:] == [Measured, Exited]
