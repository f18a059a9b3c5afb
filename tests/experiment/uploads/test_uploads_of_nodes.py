"""Orders to the owner's keeper and to those of nodes, with keepers that record their orders."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any, Self, cast

import pytest

from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads import nodes as nodes_module
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.runtime.service import RestartingService
from holdfast.scheduler.events import Event
from holdfast.syncer.errors import StorageUnavailable
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.trial import CheckpointRecord, TrialSpec
from tests.experiment.uploads.test_uploads import FakeKeeper, FakeLedger
from tests.rig.storage.answers import commit_of

pytestmark = pytest.mark.anyio

FOLDER = "folder/checkpoint_000000"
SPEC = TrialSpec(trial_id="t0", index=0, name="", dirname="folder", config={})
# The order to commit all of it, inside another one.
WHOLE = asdict(commit_of("t0", 0, FOLDER, time_total_s=0.0))


def record(node: str) -> CheckpointRecord:
    return CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1, node=node)


def found(folder: Any, iteration: Any, seconds: Any, files: Any, size: Any) -> dict[str, Any]:
    """A checkpoint in an answer to `find`."""
    return {
        "folder": folder,
        "iteration": iteration,
        "time_total_s": seconds,
        "files": files,
        "size_bytes": size,
    }


class Desk:
    """The controller's uploads, with two nodes that see the storage."""

    def __init__(self) -> None:
        self.owner = FakeKeeper()
        self.sent: dict[str, list[Any]] = {}
        self.events: list[Event] = []
        self.lost: list[tuple[str, int, str]] = []
        self.warned: list[str] = []
        self.uploads = Uploads(
            cast(RestartingService, self.owner),
            cast(JournalWriter, FakeLedger()),
            host=self,
            sync=SyncConfig(sync_artifacts=True),
            begins=0,
            is_remote=True,
            transport=self,
            where="s3://bucket/x",
        )

    @classmethod
    async def of(cls, *nodes: str) -> Self:
        desk = cls()
        for node in nodes:
            await desk.join(node)
        desk.owner.sent.clear()
        return desk

    async def join(self, node: str, problem: str | None = "") -> None:
        self.uploads.node_joined(node)
        self.uploads.on_answer(["seen", ".epochs/seen-1", "content"], node)
        order = self.owner.sent[-1]
        assert [order[0], *order[2:]] == ["take_token", ".epochs/seen-1", "content"]
        if problem is not None:
            await self.find_token(problem)

    async def find_token(self, problem: str) -> None:
        """The owner answers whether it has found the last token."""
        self.uploads.on_answer(["done", self.owner.sent[-1][1], problem])
        await asyncio.sleep(0)

    def order(self, node: str, message: list[Any]) -> None:
        self.sent.setdefault(node, []).append(message)

    def post(self, event: Event) -> None:
        self.events.append(event)

    def warn(self, text: str, level: str = "warning") -> None:
        self.warned.append(text)

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        self.lost.append((trial_id, index, reason))

    def lose_ownership(self, text: str) -> None:
        raise AssertionError(text)


async def test_a_checkpoint_is_ordered_where_it_lies() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.commit(SPEC, record("b"))
    assert desk.sent == {"b": [["commit", "t0", 0, FOLDER, 1, 0.0, False]]}
    assert desk.owner.sent == []
    desk.uploads.on_answer(["committed", "t0", 0], "b")
    assert desk.events == [Committed(trial_id="t0", index=0)]
    await desk.uploads.drain(3600)


async def test_no_other_node_can_commit_it() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.commit(SPEC, record("b"))
    for answer in (["committed", "t0", 0], ["lost", "t0", 0, "x"], ["uncommitted", "t0", 0, "x"]):
        desk.uploads.on_answer(answer, "a")
    assert (desk.events, desk.lost, desk.warned) == ([], [], [])
    [waiting] = desk.uploads.waiting()
    assert waiting.startswith(f"{FOLDER} (it was on node b")


async def test_a_keeper_that_was_replaced_gets_its_orders_again() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.commit(SPEC, record("a"))
    asked = asyncio.ensure_future(desk.uploads.questions.fetch(SPEC, record("b"), "a"))
    await asyncio.sleep(0)
    before = list(desk.sent["a"])
    desk.uploads.on_answer(["replaced"], "a")
    assert desk.sent["a"] == before * 2
    assert "b" not in desk.sent
    desk.uploads.resend_state()  # the owner was replaced
    assert [order[0] for order in desk.owner.sent] == ["send_files"]
    desk.uploads.on_answer(["done", "t0/0", ""], "a")
    assert await asked == ""


async def test_the_owner_looks_for_what_a_lost_node_was_about_to_commit() -> None:
    desk = await Desk.of("a")
    desk.uploads.commit(SPEC, record("a"))
    desk.uploads.node_left("a")
    assert desk.owner.sent == [["look_for", WHOLE]]
    desk.uploads.on_answer(["committed", "t0", 0], "a")  # a late frame
    assert desk.events == []
    desk.uploads.resend_state()
    assert desk.owner.sent[1] == ["look_for", WHOLE]
    desk.uploads.on_answer(["lost", "t0", 0, "it has no manifest"])
    assert desk.lost == [("t0", 0, "it has no manifest")]


async def test_what_a_cut_off_node_uploads_after_it_was_removed_is_removed_at_the_end() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.commit(SPEC, record("a"))
    desk.uploads.node_left("a")
    desk.uploads.on_answer(["lost", "t0", 0, "it has no manifest"])
    desk.uploads.discard(SPEC, record("a"))
    desk.uploads.discard(SPEC, replace(record("b"), index=1))
    removal = ["discard", "t0", [FOLDER]]
    assert desk.owner.sent.count(removal) == 1
    closing = asyncio.ensure_future(desk.uploads.close(60))
    await asyncio.sleep(0)
    assert desk.owner.sent[-2:] == [removal, ["close", 60, False]]
    desk.uploads.on_answer(["closed", []])
    assert await closing == []


async def test_a_checkpoint_on_a_node_of_an_earlier_run_is_looked_for_in_storage() -> None:
    desk = await Desk.of("a")
    desk.uploads.commit(SPEC, record("z"))
    assert desk.owner.sent == [["look_for", WHOLE]]


async def test_what_a_node_has_is_removed_from_storage_after_it_was_removed_there() -> None:
    """The node may be about to upload it."""
    desk = await Desk.of("a", "b")
    desk.uploads.commit(SPEC, record("a"))
    desk.uploads.note_copy(SPEC, 0, "b")
    desk.uploads.discard(SPEC, record("a"))
    assert desk.sent["a"][-1] == desk.sent["b"][-1] == ["discard", "t0", [FOLDER]]
    desk.uploads.on_answer(["discarded", "t0", [FOLDER]], "a")
    assert desk.owner.sent == []
    desk.uploads.node_left("b")
    assert desk.owner.sent == [["discard", "t0", [FOLDER]]]


async def test_a_question_to_a_lost_node_is_not_waited_for() -> None:
    desk = await Desk.of("a")
    asked = asyncio.ensure_future(desk.uploads.questions.check(SPEC, record("a"), "a"))
    await asyncio.sleep(0)
    desk.uploads.node_left("a")
    with pytest.raises(StorageUnavailable, match="node a: the node is gone"):
        await asked


async def test_a_question_to_a_node_that_has_left_before_is_not_waited_for() -> None:
    desk = await Desk.of("a")
    desk.uploads.node_left("a")
    with pytest.raises(StorageUnavailable, match="node a: the node is gone"):
        await desk.uploads.questions.fetch(SPEC, record("a"), "a")
    assert desk.sent == {}


async def test_a_node_that_does_not_see_the_storage_is_told_of_once() -> None:
    desk = await Desk.of("a")
    await desk.join("b", "it is not there")
    desk.uploads.nodes.warn_of_blind()
    await desk.join("c", None)
    desk.uploads.node_joined("d")
    desk.uploads.on_answer(["blind", "no such folder"], "d")
    desk.uploads.nodes.warn_of_blind()  # c is not known yet
    assert desk.warned == [
        "this node does not see the storage s3://bucket/x: b (it is not there). Metrics are kept, "
        "but report() with a checkpoint raises there. Use cloud storage or a shared file system "
        "to keep checkpoints"
    ]
    assert desk.uploads.nodes.sees_storage("c") is None
    await desk.find_token("it is not there")
    desk.uploads.nodes.warn_of_blind()
    assert desk.warned[1].startswith(
        "these nodes do not see the storage s3://bucket/x: c (it is not there); d (no such folder)"
    )
    seen = {node: desk.uploads.nodes.sees_storage(node) for node in ("a", "b", "c", "d")}
    assert seen == {"a": True, "b": False, "c": False, "d": False}
    assert desk.uploads.nodes.refusal("a") == ""
    assert desk.uploads.nodes.refusal("d").startswith(
        "node d cannot store checkpoints in s3://bucket/x (no such folder). Use a storage that"
    )


async def test_a_checkpoint_from_a_node_that_does_not_see_the_storage_is_not_ordered() -> None:
    desk = Desk()
    await desk.join("b", "it is not there")
    refused: list[str] = []
    desk.uploads.commit(SPEC, record("b"))
    desk.uploads.hold_until_kept("t0", 0, refused.append)
    await asyncio.sleep(0)
    assert "node b cannot store checkpoints" in refused[0]
    assert desk.sent == {}


async def test_a_keeper_that_failed_for_good_keeps_nobody_waiting() -> None:
    desk = await Desk.of("a")
    desk.uploads.commit(SPEC, record("a"))
    desk.uploads.on_answer(["gone", "the keeper died"], "a")
    assert desk.uploads.waiting() == []
    assert "on node a: the keeper died" in desk.warned[-1]


async def test_only_the_owner_says_that_another_run_owns_the_storage() -> None:
    desk = await Desk.of("a")
    desk.uploads.on_answer(["refused", "a newer restore has taken over"], "a")
    assert desk.owner.sent == [["check_claim"]]


async def test_the_files_of_trials_are_sent_by_their_nodes() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.nodes.trials_on("a").note("folder", "t0")
    desk.uploads.publish()
    assert desk.sent == {
        "a": [["send_files", ["folder"], True], ["send_files", ["folder"], False]]
    }


async def test_the_node_of_a_trial_that_has_ended_sends_its_files_at_once() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.nodes.trials_on("a").note("folder", "t0")
    for _ in range(2):
        desk.uploads.nodes.trial_ended("folder")
    assert desk.sent == {"a": [["send_ended", "folder"]]}
    desk.uploads.on_answer(["replaced"], "a")
    assert desk.sent == {"a": [["send_ended", "folder"]] * 2}
    desk.uploads.on_answer(["sent_ended", "folder"], "a")
    desk.uploads.on_answer(["replaced"], "a")
    desk.uploads.node_left("a")
    assert desk.sent == {"a": [["send_ended", "folder"]] * 2}
    assert desk.warned == []


async def test_a_lost_node_that_had_not_sent_the_files_of_ended_trials_is_a_loss() -> None:
    desk = await Desk.of("a", "b")
    for number in range(12):
        desk.uploads.nodes.trials_on("a").note(f"folder{number}", f"t{number}")
        desk.uploads.nodes.trial_ended(f"folder{number}")
    desk.uploads.nodes.trials_on("a").note("begun", "runs again elsewhere")
    desk.uploads.nodes.trials_on("b").note("begun too", "runs again elsewhere")
    desk.uploads.on_answer(["sent_ended", "folder1"], "a")
    desk.uploads.node_left("a")
    desk.uploads.node_left("b")
    assert desk.warned == [
        "node a was lost before it had sent the newest output and artifacts of trials t0, t2, t3, "
        "t4, t5, t6, t7, t8, t9, t10 and 1 more"
    ]


async def test_a_node_that_has_sent_everything_may_be_lost_at_the_end() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.nodes.trials_on("a").note("folder", "t0")
    desk.uploads.nodes.trial_ended("folder")
    closing = asyncio.ensure_future(desk.uploads.close_nodes(60.0))
    await asyncio.sleep(0)
    desk.uploads.on_answer(["sent_ended", "folder"], "a")
    desk.uploads.node_left("a")
    desk.uploads.on_answer(["closed", []], "b")
    await closing
    desk.uploads.on_answer(["closed", []])
    assert await desk.uploads.close(60.0) == []


async def test_a_released_trial_is_missed_until_its_files_are_in_storage() -> None:
    desk = await Desk.of("a")
    trials = desk.uploads.nodes.trials_on("a")
    for number in range(3):
        trials.note(f"folder{number}", f"t{number}")
    trials.ended("folder0")
    trials.sent("folder0")
    assert trials.release(lambda trial_id: trial_id != "t2") == ["t0", "t1"]
    assert desk.sent["a"] == [
        ["send_ended", "folder0"],
        ["release", "folder0"],
        ["send_ended", "folder1"],
        ["release", "folder1"],
    ]
    desk.uploads.on_answer(["replaced"], "a")
    assert desk.sent["a"][4:] == [["send_ended", "folder1"], ["release", "folder1"]]
    trials.send_files(None, artifacts=True)
    assert desk.sent["a"][-1] == ["send_files", ["folder2"], True]
    assert trials.unsent(all_have_ended=True) == ["t1", "t2"]
    trials.sent("folder1")
    assert trials.unsent(all_have_ended=True) == ["t2"]
    assert trials.release(lambda trial_id: True) == ["t2"]


async def test_the_end_waits_for_all_nodes_and_lists_what_they_lack() -> None:
    desk = await Desk.of("a", "b", "c", "d")
    desk.uploads.nodes.trials_on("c").note("folder", "t0")
    closing = asyncio.ensure_future(desk.uploads.close_nodes(60.0))
    await asyncio.sleep(0)
    assert all(desk.sent[node][-1] == ["close", 60.0, False] for node in "abc")
    desk.uploads.on_answer(["closed", ["upload x: no answer"]], "a")
    desk.uploads.on_answer(["replaced"], "b")
    assert desk.sent["b"][-1] == ["close", 60.0, False]
    desk.uploads.on_answer(["closed", []], "b")
    await asyncio.sleep(0)
    assert not closing.done()
    desk.uploads.node_left("c")
    desk.uploads.node_left("d")  # where no trial has run
    await closing
    desk.uploads.on_answer(["kept", "/scratch/holdfast-kept-0/1-a"], "a")
    for node in "ab":
        desk.uploads.node_left(node)  # as ordered
    desk.uploads.on_answer(["closed", []])
    assert await desk.uploads.close(60.0) == [
        "upload x: no answer (kept on node a in /scratch/holdfast-kept-0/1-a)",
        "node c was lost before it had sent the newest output and artifacts of trial t0",
    ]


async def test_what_no_node_has_kept_is_not_said_to_be_there() -> None:
    desk = await Desk.of("a", "b")
    closing = asyncio.ensure_future(desk.uploads.close_nodes(60.0))
    await asyncio.sleep(0)
    desk.uploads.on_answer(["closed", ["upload x: no answer"]], "a")
    closing.cancel()  # the time is up
    desk.uploads.on_answer(["closed", []])
    assert await desk.uploads.close(60.0) == [
        "upload x: no answer (it was on node a, which has not kept it)",
        "the uploader of node b had not finished in time "
        "(it was on node b, which has not kept it)",
    ]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        ["opened", ".epochs/000009"],
        ["published", 0, 10],
        ["committed", "t0", True],
        ["committed", "t0", -1],
        ["committed", "../t0", 0],
        ["committed", b"t0", 0],
        ["lost", "t0", 0],
        ["discarded", "t0", ["../x/checkpoint_000000"]],
        ["sent_ended", "../x"],
        ["sent_ended", 1],
        ["discarded", "t0", ["folder/../../etc"]],
        ["found", "ticket", [found("..", 1, 1.0, 1, 1)]],
        ["found", "ticket", [found("checkpoint_000000", 1, float("nan"), 1, 1)]],
        ["found", "ticket", [found("checkpoint_000000", 1, 1.0, 1, 1 << 70)]],
        ["copied", "ticket", 1, "1"],
        ["shared", "t0", 0, {"../x": [1, "0" * 64]}, []],
        ["shared", "t0", 0, {".holdfast.json": [1, "0" * 64]}, []],
        ["shared", "t0", 0, {"x": [1, "not a checksum"]}, []],
        ["shared", "t0", 0, {"x": [-1, "0" * 64]}, []],
        ["shared", "t0", 0, {"x": 1}, []],
        ["shared", "t0", 0, {}, ["/x"]],
        ["seen", "/etc/passwd", "x"],
        ["closed", [1]],
        ["kept", "not/a/path"],
        ["kept", 1],
        ["warning", 3],
        ["progress", 1, 2, 3],
    ],
)
async def test_what_no_uploader_of_a_node_sends_is_refused(answer: list[Any]) -> None:
    desk = await Desk.of("a")
    with pytest.raises(ValueError, match=r"."):
        desk.uploads.on_answer(answer, "a")


async def test_a_node_without_a_share_adds_nothing_to_a_checkpoint() -> None:
    desk = await Desk.of("a", "b", "c")
    desk.uploads.note_shares("t0", 0, {"a": [], "b": ["x"]})
    desk.uploads.commit(SPEC, record("a"))
    assert desk.sent["b"] == [["upload_share", WHOLE, ["x"]]]
    fact = [1, "0" * 64]
    desk.uploads.on_answer(["shared", "t0", 0, {"evil": fact}, []], "c")
    desk.uploads.on_answer(["committed", "t0", 0], "a")
    desk.uploads.on_answer(["shared", "t0", 0, {"x": fact}, ["empty", "d"]], "a")
    desk.uploads.on_answer(["shared", "t0", 0, {"twice": fact}, []], "a")
    assert (desk.owner.sent, desk.events) == ([], [])
    desk.uploads.on_answer(["shared", "t0", 0, {"d/y": fact}, []], "b")
    files = {"x": fact, "d/y": fact}
    assert desk.owner.sent == [["complete", WHOLE, files, ["empty"]]]
    desk.uploads.on_answer(["committed", "t0", 0])
    assert desk.events == [Committed(trial_id="t0", index=0)]


async def test_a_later_attempt_does_not_use_the_shares_of_a_report_that_was_not_recorded() -> None:
    desk = await Desk.of("a", "b")
    desk.uploads.note_shares("t0", 0, {"a": [], "b": []})
    desk.uploads.note_shares("t0", 0, {})
    desk.uploads.commit(SPEC, record("a"))
    assert [order[0] for order in desk.sent["a"]] == ["commit"]


async def test_an_answer_to_another_question_is_refused() -> None:
    desk = await Desk.of("a")
    asked = asyncio.ensure_future(desk.uploads.questions.fetch(SPEC, record("b"), "a"))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="found does not answer fetch"):
        desk.uploads.on_answer(["found", "t0/0", []], "a")
    desk.uploads.on_answer(["done", "t0/0", "gone"], "a")
    assert await asked == "gone"


async def test_a_node_is_not_blind_because_the_script_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its keeper has answered meanwhile, and nobody has read it yet."""
    desk, loop = Desk(), asyncio.get_running_loop()
    now = [loop.time()]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    desk.uploads.node_joined("late")
    now[0] += 3600.0
    for _ in range(3):
        await asyncio.sleep(0)
    nodes = desk.uploads.nodes
    assert nodes.sees_storage("late") is None
    nodes.decide("late", "")
    assert nodes.sees_storage("late")
    desk.uploads.node_joined("silent")
    now[0] += nodes_module.SEEN_WITHIN_S + 0.1
    for _ in range(3):
        await asyncio.sleep(0)
    assert "did not answer within 120 s" in nodes.refusal("silent")
