"""Orders of a person to real runs: in the journal when they are answered, and after a kill."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.layout import CONTROL, JOURNAL
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import read_events
from holdfast.experiment.steering.orders import StopExperiment
from holdfast.results.reading import find
from holdfast.results.steering_client import CannotSteer, send_order
from holdfast.scheduler.events import EndOrdered, Event
from tests.rig.bench import Bench, results
from tests.rig.script import UserScript

pytestmark = pytest.mark.process

BY = f"{pwd.getpwuid(os.geteuid()).pw_name} (command)"


def ordered(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    """The answer to a command, as it prints it."""
    assert main([*map(str, words)]) == code
    found = capsys.readouterr()
    text: str = found.err if code else found.out
    return text


def events_of(root: Path) -> list[Event]:
    return [found.event for found, _ in read_events(root / JOURNAL)]


def orders_in(root: Path) -> list[str]:
    """The kinds of the orders in the journal, which all name the person."""
    found = [one for one in events_of(root) if hasattr(one, "by")]
    assert {getattr(one, "by", "") for one in found} <= {BY}
    return [type(one).__name__ for one in found]


def shown(capsys: pytest.CaptureFixture[str], root: Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(ordered(capsys, "show", root, "--json"))
    return plain


def test_orders_are_in_the_journal_and_hold_after_a_kill(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    root = bench.root
    script, gate = bench.held_in(3, at_once=2)
    assert "trial" in ordered(capsys, "note", root, "0", "worth another look")
    assert "at its next report with a checkpoint" in ordered(capsys, "pause", root, "1")
    assert "num_samples is now 2: the search makes 4 trials" in ordered(
        capsys, "add", root, "--trials", "1"
    )
    assert "a trial with this config is added" in ordered(
        capsys, "add", root, "--config", '{"lr": 0.05}'
    )
    assert "at most 1 trial runs at once" in ordered(capsys, "limit", root, "1")
    assert "trial" in ordered(capsys, "stop", root, "0", "--yes")
    given = ["NoteWritten", "PauseRequested", "SamplesAdded", "ConfigAdded", "LimitChanged"]
    assert orders_in(root) == [*given, "TrialStopOrdered"]
    script.said(f"{BY}: at most 1 trial runs at once from now on")
    script.dies()
    gate.open()
    assert not os.path.lexists(root / CONTROL)  # its processes have removed it
    script = bench.restore()
    script.wait_for("at 2 1")
    held = [trial for trial in shown(capsys, root)["trials"] if trial["index"] == 1]
    assert [trial["iteration"] for trial in held] == [2]
    paused = ordered(capsys, "resume", root, code=1)
    assert "1 trial is paused in it: " in paused
    assert f"resume {root} {held[0]['trial_id']} resumes it" in paused
    assert "resumes" in ordered(capsys, "resume", root, "1")
    script.succeeds()
    assert not (root / CONTROL).exists()
    found = {trial["index"]: trial for trial in shown(capsys, root)["trials"]}
    assert len(found) == 5
    assert (found[0]["stop_reason"], found[0]["why"]) == (
        "user",
        f"{BY} stopped it at iteration 2",
    )
    assert {found[at]["iteration"] for at in range(1, 5)} == {4}
    assert 0.05 in {trial["params"]["lr"] for trial in found.values()}
    assert len(results(script)) == 5
    assert bench.problems() == []


def test_the_experiment_stops_as_after_a_ctrl_c_and_resumes(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    root = bench.root
    script, gate = bench.held_in(3)
    held = hang(script, root, capsys)
    assert ordered(capsys, "stop", root).startswith(f"run: {held}")
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    # It may have ended before this could say more.
    told = rf"Stopped by {re.escape(BY)}(: trials have 2 s to end, .*)?$"
    assert re.search(told, script.stderr, re.MULTILINE), script.stderr
    assert "To resume: " in script.stderr
    assert script.stderr.rstrip().endswith("KeyboardInterrupt")
    end = [one for one in events_of(root) if isinstance(one, EndOrdered)]
    assert end == [EndOrdered(reason="interrupt", message=f"stopped by {BY}")]
    assert shown(capsys, root)["ending"] == f"stopped by {BY}"
    assert ordered(capsys, "stop", root, code=1).startswith("holdfast: no process runs ")
    gate.open()
    script = bench.restore().succeeds()
    assert [found["epoch"] for found in results(script)] == [4, 4]
    assert bench.problems() == []


def hang(script: UserScript, root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Suspend the run: nobody can steer it until it continues."""
    experiment = find(str(root), Settings.read({}), {})
    script.suspend()
    began = time.monotonic()
    with pytest.raises(CannotSteer, match="is suspended") as caught:
        send_order(experiment, StopExperiment(), via="page", deadline_s=0.2)
    assert f"process {script.process.pid} on " in str(caught.value)
    assert time.monotonic() - began < 60
    script.signal(signal.SIGCONT)
    return "the experiment stops. A restore resumes it"
