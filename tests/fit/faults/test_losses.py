"""Lost or incomplete outputs are reported at `verbose=0`, where nothing else is: real runs.

`tests/experiment/control/test_services.py` has the losses that no short run can cause.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.rig.epochs import resumed, saved
from tests.rig.trackers.fake_tracker import FakeTracker


def train(config: dict[str, Any]) -> None:
    """The first attempt fails in its third epoch."""
    for n in range(resumed() + 1, 4):
        if n == 3 and tune.get_context().get_attempt() == 1:
            raise RuntimeError("oh no")
        tune.report({"n": n}, checkpoint=saved(n))


class Stateful(tune.Callback):
    """Its state cannot be pickled."""

    def get_state(self) -> Any:
        return {"lock": threading.Lock()}


@pytest.fixture
def damaged(fit: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Path:
    """A failed run with damage in every file that a restore does not need."""
    tracker = FakeTracker(tmp_path / "told", refuses=(1,))
    results = fit(train, name="run", callbacks=[Stateful(), tracker])
    root = Path(results.experiment_path)
    shutil.rmtree(Path(results[0].path, "checkpoint_000001"))
    for snapshot in root.glob("experiment_state-*"):
        snapshot.write_bytes(snapshot.read_bytes()[:-9])
    with (root / "journal" / "000000.log").open("ab") as segment:
        segment.write(b"\xff" * 40)
    (root / "callbacks.msgpack").write_bytes(b"no states")
    capfd.readouterr()
    return root


def said_once(said: str, expected: Sequence[str]) -> None:
    """Assert that each of these appears once, in its own line, and nothing else."""
    for text in expected:
        assert said.count(text) == 1, f"{text!r} in {said}"
    assert len(said.splitlines()) == len(expected), said


def test_a_restore_says_all_that_it_finds_damaged(
    damaged: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = tune.Tuner.restore(str(damaged), train, resume_errored=True).fit()
    assert result.error is None
    said_once(
        capfd.readouterr().err,
        [
            "is not used: it is truncated or damaged",  # the snapshot
            "40 bytes from offset",  # the journal
            "is lost: ",  # the checkpoint
            "callbacks start without their states",
            "the states of callbacks are not kept",
            "not delivered to FakeTracker: ",
        ],
    )


def takes_the_place(config: dict[str, Any]) -> None:
    """A folder replaces result.json, whether that was started already or not."""
    place = Path("result.json")
    while not place.is_dir():
        place.unlink(missing_ok=True)
        try:
            place.mkdir()
        except FileExistsError:
            continue
    tune.report({"n": 1})


def test_trials_without_their_result_json_are_named(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    told = "ended, but result.json and the other files of 1 trial are missing or incomplete: "
    with pytest.raises(tune.TuneError, match=told):
        fit(takes_the_place)
    said_once(capfd.readouterr().err, ["result.json: it is a folder. No report is lost"])
