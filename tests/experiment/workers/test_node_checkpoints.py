"""An attempt on a node gets its checkpoint and its files there, with real uploaders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.workers.start_checkpoints import (
    CannotClone,
    CannotPrepare,
    StartCheckpoints,
    Verified,
)
from holdfast.scheduler.effects import Launch
from holdfast.scheduler.machine import Machine
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.resources import Allocation, Place
from holdfast.trial.trial import (
    CheckpointRecord,
    CheckpointUploadMode,
    Origin,
    Status,
    Trial,
    TrialSpec,
)
from tests.rig.nodes.uploaders import RunWithNodes, run_with_nodes
from tests.rig.storage.stores import MemoryStore
from tests.rig.storage.stores import Place as StoragePlace

pytestmark = pytest.mark.anyio

TRIAL = Trial(spec=TrialSpec(trial_id="t0", index=0, name="", dirname="trial", config={}))
CLONE = Trial(spec=TrialSpec(trial_id="t1", index=1, name="", dirname="clone", config={}))
FOLDER = "trial/checkpoint_000000"


def record(node: str, **changes: Any) -> CheckpointRecord:
    known: dict[str, Any] = {
        "index": 0,
        "iteration": 1,
        "attempt": 1,
        "files": 1,
        "size_bytes": 7,
        "node": node,
    }
    return CheckpointRecord(**(known | changes))


def launch(*nodes: str, checkpoint: CheckpointRecord | None = None) -> Launch:
    places = tuple(Place(node=node, amounts={"CPU": 1}) for node in nodes)
    allocation = Allocation(amounts={"CPU": 1}, places=places)
    return Launch(trial_id="t0", attempt=2, allocation=allocation, checkpoint=checkpoint)


def starts_of(
    run: RunWithNodes, *, has_ranks: bool = False, trials: dict[str, Trial] | None = None
) -> StartCheckpoints:
    known = {"t0": TRIAL, "t1": CLONE} if trials is None else trials
    machine = cast(Machine, SimpleNamespace(trials=known))
    experiment = SimpleNamespace(machine=machine, uploads=run.uploads)
    layout = Layout(run.trees.folder / "owner")
    return StartCheckpoints(cast(Any, experiment), layout, has_ranks=has_ranks)


def save(run: RunWithNodes, node: str) -> CheckpointRecord:
    """A checkpoint was reported on the node; its commit is under way."""
    run.trees.write(node, f"{FOLDER}/model")
    run.uploads.commit(TRIAL.spec, record(node))
    return record(node)


async def test_an_attempt_where_its_checkpoint_is_waits_for_nothing(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        starts, saved = starts_of(run), save(run, "a")
        await starts.verify(launch("a"), TRIAL)
        before = list(run.nodes["a"].ordered)
        assert not starts.has_to_look(launch("a", checkpoint=saved), TRIAL)
        assert run.nodes["a"].ordered == before


@pytest.mark.parametrize("is_remote", [True, False])
async def test_an_attempt_elsewhere_fetches_its_checkpoint_once_it_is_committed(
    tmp_path: Path, is_remote: bool
) -> None:
    async with run_with_nodes(tmp_path, "a", "b", is_remote=is_remote) as run:
        starts, saved = starts_of(run), save(run, "a")
        assert starts.has_to_look(launch("b", checkpoint=saved), TRIAL)
        assert await starts.verify(launch("b", checkpoint=saved), TRIAL) == Verified()
        assert run.events == [Committed(trial_id="t0", index=0)]
        assert run.trees.read("b", f"{FOLDER}/model") == "weights"
        assert not starts.has_to_look(launch("b", checkpoint=saved), TRIAL)
        # Both copies go when it is superseded, and then the stored one.
        run.uploads.discard(TRIAL.spec, saved)
        for node in ("a", "b"):
            assert (await run.nodes[node].answer("discarded"))[2] == [FOLDER]
            assert not (tmp_path / node / FOLDER).exists()
        assert run.owner.ordered[-1] == ["discard", "t0", [FOLDER]]


async def test_a_node_that_is_lost_during_the_upload_costs_only_this_checkpoint(
    tmp_path: Path,
) -> None:
    async with run_with_nodes(tmp_path, "a", "b") as run:
        starts = starts_of(run)
        run.nodes["a"].is_cut = True
        saved = save(run, "a")
        waiting = asyncio.ensure_future(starts.verify(launch("b", checkpoint=saved), TRIAL))
        await asyncio.sleep(0)
        run.lose_node("a")
        verified = await waiting
        assert "on node b:" in verified.lost
        assert "never committed" in verified.lost
        assert run.lost[0][:2] == ("t0", 0)


async def test_ranks_of_one_node_fetch_once(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a", "b", "c") as run:
        starts, saved = starts_of(run, has_ranks=True), save(run, "a")
        on = launch("c", "b", "b", "a", checkpoint=saved)  # the first place is the coordinator's
        assert await starts.verify(on, TRIAL) == Verified()
        assert [o[0] for o in run.nodes["b"].ordered].count("fetch") == 1
        assert not any(o[0] == "fetch" for name in "ac" for o in run.nodes[name].ordered)
        assert run.trees.read("b", f"{FOLDER}/model") == "weights"


async def test_a_copy_that_was_changed_on_its_node_is_fetched_again(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        starts, saved = starts_of(run), save(run, "a")
        await run.uploads.committed(TRIAL.spec, saved)
        starts.inherit([TRIAL], None)
        run.trees.write("a", f"{FOLDER}/model", "changed")
        known = record("a", committed=True, index=0)
        doubted = Trial(spec=TRIAL.spec, next_checkpoint=1, failures=1)
        assert await starts.verify(launch("a", checkpoint=known), doubted) == Verified()
        assert run.trees.read("a", f"{FOLDER}/model") == "weights"


async def test_a_checkpoint_that_was_not_uploaded_is_usable_on_its_node_only(
    tmp_path: Path,
) -> None:
    async with run_with_nodes(tmp_path, "a", "b") as run:
        starts = starts_of(run)
        run.trees.write("a", f"{FOLDER}/model")
        stays = record("a", upload=CheckpointUploadMode.NO_UPLOAD)
        run.uploads.commit(TRIAL.spec, stays)
        assert await starts.verify(launch("a", checkpoint=stays), TRIAL) == Verified()
        verified = await starts.verify(launch("b", checkpoint=stays), TRIAL)
        assert verified.lost == (
            "on node b: it is only on node a, because it was reported with NO_UPLOAD"
        )


async def test_a_node_that_does_not_see_the_storage_cannot_fetch(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        starts, saved = starts_of(run), save(run, "a")
        await run.join("b", storage=StoragePlace(MemoryStore()), timeout_s=0.05)
        with pytest.raises(CannotPrepare, match="cannot be read on b") as caught:
            await starts.verify(launch("b", checkpoint=saved), TRIAL)
        assert "node b cannot store checkpoints in the storage" in str(caught.value.cause)
        # A trial without a checkpoint runs there.
        assert await starts.verify(launch("b"), TRIAL) == Verified()


async def test_an_attempt_whose_node_leaves_while_it_is_prepared_has_lost_its_worker(
    tmp_path: Path,
) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        starts, saved = starts_of(run), save(run, "a")
        run.uploads.node_joined("b")  # nothing is known of its storage yet
        preparing = asyncio.ensure_future(starts.verify(launch("b", checkpoint=saved), TRIAL))
        await asyncio.sleep(0)
        run.uploads.node_left("b")
        with pytest.raises(CannotPrepare, match="cannot be read on b") as caught:
            await preparing
        assert caught.value.kind == "lost"


async def test_a_clone_on_another_node_gets_its_copy_there(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a", "b") as run:
        starts, saved = starts_of(run), save(run, "a")
        origin = Origin(trial_id="t0", checkpoint=saved)
        effect = launch("b")
        adopted = await starts.adopt(origin, CLONE, effect)
        assert (adopted.node, adopted.files, adopted.size_bytes) == ("b", 1, 7)
        assert run.trees.read("b", "clone/checkpoint_000000/model") == "weights"
        run.uploads.commit(CLONE.spec, adopted)
        await run.uploads.committed(CLONE.spec, adopted)
        assert run.events[-1] == Committed(trial_id="t1", index=0)


async def test_a_clone_of_a_checkpoint_that_is_nowhere_says_on_which_node(
    tmp_path: Path,
) -> None:
    async with run_with_nodes(tmp_path, "b") as run:
        origin = Origin(trial_id="t0", checkpoint=record("z"))
        with pytest.raises(CannotClone, match=r"on node b: .*never committed"):
            await starts_of(run).adopt(origin, CLONE, launch("b"))


async def test_a_clone_copies_nothing_from_behind_a_link(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        theirs = tmp_path / "theirs" / "checkpoint_000000"
        theirs.mkdir(parents=True)
        (theirs / "model").write_text("secret")
        owner = run.trees.folder / "owner"
        owner.mkdir(exist_ok=True)
        (owner / "trial").symlink_to(theirs.parent)
        origin = Origin(trial_id="t0", checkpoint=record(""))
        with pytest.raises(CannotClone, match="trial is a link"):
            await starts_of(run).adopt(origin, CLONE, launch())
        assert not (owner / "clone").exists()


@pytest.mark.parametrize("all_files", [True, False])
async def test_a_trial_takes_its_files_along(tmp_path: Path, all_files: bool) -> None:
    sync = SyncConfig(sync_artifacts=True, restore_artifacts=all_files)
    async with run_with_nodes(tmp_path, "a", "b", sync=sync) as run:
        starts = starts_of(run)
        await starts.verify(launch("a"), TRIAL)
        run.trees.write("a", "trial/stdout", "one\n")
        run.trees.write("a", "trial/plot.png", "a plot")
        run.trees.write("a", "trial/result.json", "the script's own")
        save(run, "a")
        await starts.verify(launch("b"), TRIAL)
        assert run.trees.memory.objects["trial/result.json.of-script"] == b"the script's own"
        assert run.trees.read("b", "trial/stdout") == "one\n"
        assert (tmp_path / "b" / "trial" / "plot.png").exists() is all_files
        left = sorted(path.name for path in (tmp_path / "a" / "trial").iterdir())
        assert left == ["checkpoint_000000"]
        # And back: what is on the first node by now is older.
        run.trees.write("b", "trial/stdout", "one\ntwo\n")
        await starts.verify(launch("a"), TRIAL)
        assert run.trees.read("a", "trial/stdout") == "one\ntwo\n"
        assert run.trees.memory.objects["trial/plot.png"] == b"a plot"


async def test_files_of_an_earlier_run_on_this_machine_go_to_the_node(tmp_path: Path) -> None:
    (tmp_path / "owner").mkdir()
    async with run_with_nodes(tmp_path, "a") as run:
        starts = starts_of(run)
        starts.inherit([TRIAL], None)
        run.trees.write("owner", "trial/stdout", "one\n")
        run.trees.write("owner", "trial/result.json", "{}")
        await starts.verify(launch("a"), TRIAL)
        assert run.trees.read("a", "trial/stdout") == "one\n"
        assert not (tmp_path / "a" / "trial" / "result.json").exists()
        run.trees.write("a", "trial/stdout", "one\ntwo\n")
        run.uploads.nodes.send_files(None, artifacts=True)
        run.nodes["a"].order("hand_over", "x", "trial")
        assert await run.nodes["a"].answer_to("x") == ["done", "x", ""]
        run.trees.write("owner", "trial/stdout", "one\n changed here\n")
        run.owner.order("send_files", None, True)
        run.owner.order("hand_over", "y", "trial")
        assert await run.owner.answer_to("y") == ["done", "y", ""]
        assert run.trees.memory.objects["trial/stdout"] == b"one\ntwo\n"


async def test_the_shares_of_several_nodes_become_one_checkpoint(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a", "b", "c") as run:
        run.trees.write("a", f"{FOLDER}/rank-0", "first")
        run.trees.write("a", f"{FOLDER}/common", "of rank 0")
        run.trees.write("b", f"{FOLDER}/rank-1", "second")
        run.trees.write("b", f"{FOLDER}/.holdfast-staged", "")
        run.trees.write("b", f"{FOLDER}/common", "of rank 1")
        run.trees.memory.objects[f"{FOLDER}/left"] = b"by an attempt that was not reported"
        run.uploads.note_shares("t0", 0, {"a": ["common"], "b": []})
        saved = record("a", files=3)
        run.uploads.commit(TRIAL.spec, saved)
        await run.uploads.committed(TRIAL.spec, saved)
        assert run.events == [Committed(trial_id="t0", index=0)]
        found = {k: v for k, v in run.trees.memory.objects.items() if k.startswith(FOLDER)}
        assert found.pop(f"{FOLDER}/.holdfast.json")
        assert found == {
            f"{FOLDER}/rank-0": b"first",
            f"{FOLDER}/rank-1": b"second",
            f"{FOLDER}/common": b"of rank 1",
        }
        # Each node fetches the whole, also those that have a share.
        starts = starts_of(run, has_ranks=True)
        assert await starts.verify(launch("a", "a", "c", checkpoint=saved), TRIAL) == Verified()
        for node in ("a", "c"):
            assert run.trees.read(node, f"{FOLDER}/common") == "of rank 1"
            assert run.trees.read(node, f"{FOLDER}/rank-1") == "second"
        run.uploads.discard(TRIAL.spec, saved)
        for node in ("a", "b", "c"):
            await run.nodes[node].answer("discarded")
            assert not (tmp_path / node / FOLDER).exists()


async def test_without_one_of_the_shares_there_is_no_checkpoint(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a", "b") as run:
        run.trees.write("a", f"{FOLDER}/rank-0", "first")
        run.nodes["b"].is_cut = True
        run.uploads.note_shares("t0", 0, {"a": [], "b": []})
        run.uploads.commit(TRIAL.spec, record("a", files=2))
        await run.nodes["a"].answer("shared")
        run.lose_node("b")
        await run.uploads.committed(TRIAL.spec, record("a"))
        assert run.lost[0][:2] == ("t0", 0)
        assert f"{FOLDER}/.holdfast.json" not in run.trees.memory.objects


async def test_shares_that_are_repeated_leave_the_whole_alone(tmp_path: Path) -> None:
    """The uploader was replaced before its answer arrived."""
    async with run_with_nodes(tmp_path, "a", "b", is_remote=False) as run:
        run.trees.write("a", f"{FOLDER}/rank-0", "first")
        run.trees.write("b", f"{FOLDER}/rank-1", "second")
        run.trees.write("b", f"{FOLDER}/.holdfast-staged", "")
        run.uploads.note_shares("t0", 0, {"a": [], "b": []})
        run.uploads.commit(TRIAL.spec, record("a", files=2))
        await run.uploads.committed(TRIAL.spec, record("a"))
        await run.nodes["a"].answer("shared")
        share = run.nodes["a"].ordered[-1]
        run.nodes["a"].order(*share)
        await run.nodes["a"].answer("shared")
        assert (tmp_path / "owner" / FOLDER / ".holdfast.json").exists()
        # The next attempt saves another one in its place.
        run.trees.write("a", f"{FOLDER}/rank-0", "again")
        run.nodes["a"].order(*share)
        await run.nodes["a"].answer("shared")
        assert not (tmp_path / "owner" / FOLDER / ".holdfast.json").exists()
        assert run.trees.read("owner", f"{FOLDER}/rank-0") == "again"


async def test_a_node_sends_the_files_of_a_trial_that_has_ended(tmp_path: Path) -> None:
    async with run_with_nodes(tmp_path, "a") as run:
        starts = starts_of(run, trials={"t0": TRIAL})
        await starts.verify(launch("a"), TRIAL)
        run.trees.write("a", "trial/stdout", "output")
        run.trees.write("a", "trial/picture", "artifact")
        run.uploads.nodes.trial_ended("trial")
        await run.nodes["a"].answer("sent_ended")
        assert run.trees.memory.objects["trial/stdout"] == b"output"
        assert run.trees.memory.objects["trial/picture"] == b"artifact"
        trials = run.uploads.nodes.trials_on("a")
        assert trials.unsent(all_have_ended=True) == []


async def test_a_node_forgets_trials_that_have_ended_when_it_gets_another_one(
    tmp_path: Path,
) -> None:
    trials = {"t0": TRIAL, "t1": CLONE}
    async with run_with_nodes(tmp_path, "a") as run:
        starts, saved = starts_of(run, trials=trials), save(run, "a")
        await starts.verify(launch("a"), TRIAL)
        run.trees.write("a", "trial/stdout", "output")
        trials["t0"] = Trial(spec=TRIAL.spec, status=Status.TERMINATED)
        await starts.verify(launch("a"), CLONE)
        assert run.nodes["a"].ordered[-1][0] != "release"  # its upload is under way
        await run.uploads.committed(TRIAL.spec, saved)
        await starts.verify(launch("a", "a"), CLONE)
        run.nodes["a"].order("hand_over", "x", "clone")
        await run.nodes["a"].answer_to("x")
        assert not (tmp_path / "a" / "trial").exists()
        assert run.trees.memory.objects["trial/stdout"] == b"output"
        # It can be cloned all the same.
        adopted = await starts.adopt(Origin(trial_id="t0", checkpoint=saved), CLONE, launch("a"))
        assert (adopted.node, adopted.files) == ("a", 1)
