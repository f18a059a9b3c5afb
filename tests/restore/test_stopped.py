"""Each process in turn is stopped (SIGSTOP) from outside, and never continued."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rig.bench import Bench, results, workbench
from tests.rig.nightly import rest_nightly, selected
from tests.rig.script import UserScript
from tests.rig.trackers.fake_tracker import told_to

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
USER_SCRIPT, TRACKED_SCRIPT = (
    HERE / "user_script.py",
    HERE.parent / "fit" / "outputs" / "tracked_script.py",
)
ROLES = ("warm", "worker", "projector", "uploader")
QUICK = {"HOLDFAST_STOPPED_DEADLINE_S": "0.4"}
# Stopped processes are not looked for: the deadlines of those that wait for them must suffice.
UNSEEN = {
    "HOLDFAST_STOPPED_DEADLINE_S": "0",
    "HOLDFAST_FLUSH_DEADLINE_S": "1",
    "HOLDFAST_STOP_GRACE_S": "1",
    "HOLDFAST_TRACKER_DEADLINE_S": "1",
}


def stop(script: UserScript, role: str) -> None:
    for process in script.processes(role):
        process.signal(signal.SIGSTOP)


def is_let_go_on_then_ended(bench: Bench, role: str) -> UserScript:
    """A process that is stopped again after it was continued is ended, and the run continues."""
    bench.environ |= QUICK
    script, gate = bench.held_in(2, samples=2, max_failures=2)
    stop(script, role)
    script.said("holdfast continues it (SIGCONT)")
    stop(script, role)
    script.said("and again after it had been continued")
    gate.open()
    return script.succeeds()


def is_interrupted(bench: Bench, role: str) -> UserScript:
    bench.environ |= UNSEEN
    script, gate = bench.held_in(2)
    stop(script, role)
    script.signal(signal.SIGINT)
    script.ends()
    gate.open()
    return script


def ends_by_itself(bench: Bench, role: str) -> UserScript:
    """At its end the run waits for the processes that it no longer communicates with."""
    bench.environ |= UNSEEN
    script, gate = bench.held_in(4)
    stop(script, role)
    gate.open()
    script.ends()
    return script


WAYS = {"continued": is_let_go_on_then_ended, "interrupted": is_interrupted, "end": ends_by_itself}
# A stopped worker cannot end by itself, and neither can one whose parent cannot reap it: that
# needs the watch, which is tested above.
FIRST = [
    ("continued", "warm"),
    ("interrupted", "worker"),
    ("interrupted", "uploader"),
    ("end", "projector"),
]
TRIED = [
    *FIRST,
    *(
        (way, role)
        for way in WAYS
        for role in ROLES
        if (way, role) not in FIRST and not (way == "end" and role in ("worker", "warm"))
    ),
]

TRACKED_WAYS = ("interrupted", "end")


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[tuple[str, str], Future[tuple[Bench, UserScript]]]]:
    """All at once, because they mostly wait for deadlines."""
    with ThreadPoolExecutor(4) as pool:
        folder = tmp_path_factory.mktemp("stopped")
        tried = selected(request, "way", "role")
        yield {(way, role): pool.submit(_play, folder, way, role) for way, role in tried}


def _play(folder: Path, way: str, role: str) -> tuple[Bench, UserScript]:
    with workbench(folder / f"{way}-{role}", USER_SCRIPT) as bench:
        bench.folder.mkdir()
        script = WAYS[way](bench, role)
        assert script.left() == []
        script.finish_reading()
        if way != "continued":
            bench.environ |= {**QUICK, "HOLDFAST_FLUSH_DEADLINE_S": "20"}
            assert [one["epoch"] for one in results(bench.restore().succeeds())] == [4, 4]
        return bench, script


@pytest.mark.parametrize(("way", "role"), rest_nightly(len(FIRST), TRIED))
def test_a_run_outlives_a_process_that_is_stopped_for_ever(
    played: Mapping[tuple[str, str], Future[tuple[Bench, UserScript]]], way: str, role: str
) -> None:
    bench, script = played[way, role].result()
    if way == "continued":
        assert [one["epoch"] for one in results(script)] == [4, 4, 4, 4], script.stderr
        assert [one["error"] for one in results(script)] == [None] * 4
    assert "out of memory" not in script.stderr
    assert "died" not in script.stderr
    assert bench.problems() == [], script.stderr


def test_a_tracker_process_that_is_stopped_is_continued(tmp_path: Path) -> None:
    with workbench(tmp_path, TRACKED_SCRIPT) as bench:
        bench.environ |= QUICK
        fake = ["tests.rig.trackers.fake_tracker", "FakeTracker", {"file": str(tmp_path / "told")}]
        gate = bench.gate("0-2")
        script = bench.start(lrs=[1.0], trackers=[fake])
        script.wait_for("at 0 2")
        stop(script, "tracker_process")
        gate.open()
        script.succeeds()
        script.finish_reading()
        assert "tracker process of FakeTracker" in script.said("holdfast continues it (SIGCONT)")
        assert "not delivered" not in script.stderr


@pytest.fixture(scope="module")
def played_with_a_tracker(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, Future[None]]]:
    tried = selected(request, "tracked_way")
    with ThreadPoolExecutor(len(tried)) as pool:
        folder = tmp_path_factory.mktemp("stopped-trackers")
        yield {way: pool.submit(_play_with_a_tracker, folder / way, way) for way in tried}


def _play_with_a_tracker(folder: Path, way: str) -> None:
    """Undelivered reports are listed, and a restore delivers them."""
    folder.mkdir()
    told = folder / "told"
    with workbench(folder, TRACKED_SCRIPT) as bench:
        bench.environ |= UNSEEN
        fake = ["tests.rig.trackers.fake_tracker", "FakeTracker", {"file": str(told)}]
        bench.options = {"lrs": [1.0], "trackers": [fake]}
        third, fourth = bench.gate("0-3"), bench.gate("0-4")
        script = bench.start()
        script.wait_for("at 0 3")
        script.wait_for("told row 2")
        stop(script, "tracker_process")
        third.open()
        script.wait_for("at 0 4")
        if way == "interrupted":
            script.signal(signal.SIGINT)
        else:
            fourth.open()
        script.ends()
        assert script.left() == []
        script.finish_reading()
        assert "not delivered to FakeTracker" in script.stderr
        assert "was killed by holdfast" not in script.stderr  # after another five seconds
        assert {fact["iteration"] for fact in told_to(told, "row")} == {1, 2}
        fourth.open()
        bench.environ |= {
            **QUICK,
            "HOLDFAST_FLUSH_DEADLINE_S": "20",
            "HOLDFAST_TRACKER_DEADLINE_S": "20",
        }
        bench.restore().succeeds()
        assert {fact["iteration"] for fact in told_to(told, "row")} == {1, 2, 3, 4}
        assert not list(bench.root.glob("undelivered-*"))


@pytest.mark.parametrize("tracked_way", rest_nightly(1, TRACKED_WAYS))
def test_a_tracker_process_that_is_stopped_for_ever_holds_up_no_end(
    played_with_a_tracker: Mapping[str, Future[None]], tracked_way: str
) -> None:
    played_with_a_tracker[tracked_way].result()
