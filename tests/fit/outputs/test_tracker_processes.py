"""Trackers of a run: killed, stalled, raising, and how that is reported."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast import tune
from holdfast.trial.errors import TuneError
from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript
from tests.rig.trackers.fake_tracker import FakeTracker, told_to

pytestmark = pytest.mark.process
SCRIPT = Path(__file__).parent / "tracked_script.py"
FAKE = ["tests.rig.trackers.fake_tracker", "FakeTracker"]


@pytest.fixture
def tracked(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, SCRIPT) as bench:
        bench.environ |= {"HOLDFAST_TENSORBOARD": "0", "HOLDFAST_TRACKER_DEADLINE_S": "20"}
        bench.options = {"lrs": [1.0], "trackers": [[*FAKE, {"file": str(tmp_path / "told")}]]}
        yield bench


def train(config: dict[str, Any]) -> None:
    for epoch in range(1, config.get("epochs", 3) + 1):
        tune.report({"loss": 1 / epoch})


def run(tmp_path: Path, *callbacks: Any, **config: Any) -> Any:
    run_config = tune.RunConfig(storage_path=str(tmp_path), name="run", callbacks=list(callbacks))
    return tune.Tuner(train, param_space=config, run_config=run_config).fit()


def keys(file: Path, what: str = "row") -> list[tuple[int, int]]:
    return [(told["iteration"], told["attempt"]) for told in told_to(file, what)]


def tracker_process_of(script: UserScript) -> psutil.Process:
    for process in psutil.Process(script.process.pid).children(recursive=True):
        if " ".join(process.cmdline()).startswith("holdfast: tracker"):
            return process
    raise AssertionError("no tracker process runs")


def niceness(process: psutil.Process) -> set[int]:
    """The niceness of a process, and of its session if the kernel has one."""
    session = Path(f"/proc/{process.pid}/autogroup")
    found = [session.read_text().rpartition(" ")[2]] if session.exists() else []
    return {process.nice(), *map(int, found)}


def test_a_tracker_gets_every_row_and_its_key_which_is_in_no_file(tmp_path: Path) -> None:
    file, secret = tmp_path / "told", "a-very-secret-key"
    results = run(tmp_path, FakeTracker(file, key=secret))
    assert told_to(file, "setup") == [{"what": "setup", "key": secret}]
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    told = told_to(file)
    assert [fact["what"] for fact in told] == ["setup", "start", "row", "row", "row", "end"]
    assert [fact["step"] for fact in told[2:5]] == [1, 2, 3]
    trial_id = results[0].metrics["trial_id"]
    assert {fact["run"].startswith(f"{trial_id}-") for fact in told[1:]} == {True}
    assert not list((tmp_path / "run").glob("undelivered-*"))


def test_what_can_never_work_is_said_before_the_first_trial(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no key"):
        run(tmp_path, FakeTracker(tmp_path / "told", needs_key=True))
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_cannot_travel_is_refused_by_the_name_of_what_cannot(
    tmp_path: Path,
) -> None:
    tracker = FakeTracker(tmp_path / "told")
    tracker.lock = __import__("threading").Lock()  # type: ignore[attr-defined]
    with pytest.raises(TuneError, match=r"FakeTracker.*\.lock.*cannot be pickled"):
        run(tmp_path, tracker)


class Unfit(FakeTracker):
    def setup(self, *args: Any, **info: Any) -> None:
        raise RuntimeError("no such store")


def test_a_tracker_whose_setup_raises_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"Unfit\.setup: RuntimeError: no such store"):
        run(tmp_path, Unfit(tmp_path / "told"), epochs=10_000)


def test_rows_are_given_again_after_an_error_and_set_aside_where_it_is_a_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, FakeTracker(tmp_path / "told", fails={2: 2}, refuses=(3,)), epochs=4)
    assert keys(tmp_path / "told") == [(1, 1), (2, 1), (4, 1)]
    assert len(told_to(tmp_path / "told", "failed")) == 2
    (listed,) = json.loads((tmp_path / "run" / "undelivered-FakeTracker.json").read_text())[
        "undelivered"
    ]
    assert listed["refused"] == [
        {"iterations": "3", "why": "ValueError: iteration 3 is not to its taste"}
    ]
    shown = capsys.readouterr().err
    assert shown.count("the tracker is away; the run continues") == 1
    assert "not delivered to FakeTracker" in shown


def test_a_stalled_tracker_is_given_up_in_time_and_what_it_lacks_is_listed_and_restored(
    tracked: Bench,
) -> None:
    told = tracked.folder / "told"
    tracked.options["trackers"][0][1:] = ["FakeTracker", {"file": str(told), "stalls": 2}]
    other = tracked.folder / "other"
    tracked.options["trackers"].append([*FAKE, {"file": str(other)}])
    tracked.environ["HOLDFAST_TRACKER_DEADLINE_S"] = "3"
    gate, last = tracked.gate("tracker"), tracked.gate("0-4")
    script = tracked.start(epochs=4)
    script.wait_for("told row 3")  # the other one is up, which takes long on a busy machine
    began = time.monotonic()
    last.open()
    script.succeeds()
    assert time.monotonic() - began < 60
    assert "not delivered to FakeTracker[0]: " in script.stderr
    assert "iterations 1-4" in script.stderr or "iterations 2-4" in script.stderr
    assert keys(other) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert "not delivered to FakeTracker[1]" not in script.stderr
    listed = json.loads((tracked.root / "undelivered-FakeTracker-0.json").read_text())
    assert listed["undelivered"][0]["iterations"] in (["1-4"], ["2-4"])
    assert script.left() == []
    gate.open()
    tracked.environ["HOLDFAST_TRACKER_DEADLINE_S"] = "60"  # within which a tracker process starts
    tracked.restore().succeeds()
    assert set(keys(told)) == {(1, 1), (2, 1), (3, 1), (4, 1)}
    assert not list(tracked.root.glob("undelivered-*"))


def test_a_tracker_process_killed_at_any_row_is_started_again_and_no_row_is_lost(
    tracked: Bench,
) -> None:
    gates = [tracked.gate(f"0-{epoch}") for epoch in (2, 3, 4)]
    script = tracked.start(epochs=4)
    for epoch, gate in enumerate(gates, start=2):
        script.wait_for(f"at 0 {epoch}")
        script.wait_for("told setup")
        tracker_process = tracker_process_of(script)
        assert niceness(tracker_process) == {min(19, os.nice(0) + 10)}
        tracker_process.kill()
        gate.open()
    script.succeeds()
    assert sorted(set(keys(tracked.folder / "told"))) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert not list(tracked.root.glob("undelivered-*"))
    assert "the tracker process of FakeTracker was killed" in script.stderr


def test_a_script_that_was_killed_continues_after_what_was_acknowledged(tracked: Bench) -> None:
    told, gate = tracked.folder / "told", tracked.gate("0-4")
    script = tracked.start(epochs=6)
    script.wait_for("at 0 4")
    script.wait_for("told row 3")
    script.dies()
    gate.open()
    tracked.restore(epochs=6).succeeds()
    found = keys(told)
    # It had saved in the second epoch, so the next attempt repeats the third.
    assert set(found) == {(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2), (6, 2)}
    assert {fact["run"] for fact in told_to(told) if "run" in fact} == {told_to(told)[1]["run"]}
    steps = {(fact["iteration"], fact["attempt"]): fact["step"] for fact in told_to(told, "row")}
    assert sorted(steps.values()) == [1, 2, 3, 4, 5, 6, 7]


def test_rows_that_a_tracker_only_holds_are_reported_again_after_a_kill(tracked: Bench) -> None:
    told, gate = tracked.folder / "told", tracked.gate("0-4")
    arguments = {"file": str(told), "keeps_until_the_end": True}
    tracked.options["trackers"] = [[*FAKE, arguments]]
    script = tracked.start(epochs=4)
    script.wait_for("at 0 4")
    script.wait_for("told row 3")
    script.dies()
    gate.open()
    tracked.restore(epochs=4).succeeds()
    assert keys(told).count((1, 1)) == 2
    assert not list(tracked.root.glob("undelivered-*"))


def test_a_worker_that_is_killed_shows_as_another_attempt(tracked: Bench) -> None:
    told = tracked.folder / "told"
    tracked.start(epochs=4, dies=[4]).succeeds()
    assert keys(told) == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2)]
    assert [fact["step"] for fact in told_to(told, "row")] == [1, 2, 3, 4, 5]
    assert len(told_to(told, "start")) == 2
