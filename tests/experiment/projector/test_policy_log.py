"""The log of a policy: written from the journal, and rewritten unless it is known to be
complete."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.scheduler.events import Exited
from holdfast.scheduler.policy import (
    CloneTrial,
    Decision,
    Observation,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.trial.events import Adopted
from holdfast.trial.trial import CheckpointRecord
from tests.rig import checker
from tests.rig.runs.recorded import RecordedExperiment


class TakesOver(TrialScheduler):
    """Each trial is cloned from the one before it when it reports a loss of 9."""

    def __init__(self, *, is_logged: bool = True) -> None:
        self._is_logged = is_logged

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if not isinstance(event, TrialReported) or event.row["loss"] != 9:
            return ()
        number = int(event.trial_id[-5:])
        source = f"{event.trial_id[:-5]}{number - 1:05d}"
        config = {"lr": number / 10}
        return [
            CloneTrial(
                trial_id=event.trial_id, source=source, config=config, is_logged=self._is_logged
            )
        ]


def recorded(root: Path, policy: TrialScheduler) -> RecordedExperiment:
    """The second of three is cloned from the first, and the third from the second."""
    run = RecordedExperiment(root)
    run.machine.policy = policy
    one, two, three = (run.begin({"lr": 1.0 + number}) for number in range(3))
    for _ in range(4):
        run.report(one, {"loss": 1}, checkpoint="staged")
    run.report(two, {"loss": 1})
    run.report(two, {"loss": 9})
    goes_on(run, two)
    run.report(two, {"loss": 1}, checkpoint="staged")
    run.report(three, {"loss": 9})
    return run


def goes_on(run: RecordedExperiment, trial_id: str) -> None:
    run.add(Exited(trial_id=trial_id, attempt=1, cause="ended"))
    trial = run.trial(trial_id)
    assert trial.origin is not None
    copy = CheckpointRecord(index=0, iteration=4, attempt=2, files=1, size_bytes=10)
    run.add(Adopted(trial_id=trial_id, attempt=2, checkpoint=copy))
    run.start(trial_id)


def project(run: RecordedExperiment, *, tensorboard: bool = False) -> None:
    Projector(run.layout, ProjectorSettings(tensorboard=tensorboard)).catch_up()


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


FIRST = ["1", "0", 2, 4, {"lr": 1.0}, {"lr": 0.1}]
SECOND = ["2", "1", 1, 5, {"lr": 0.1}, {"lr": 0.2}]


def test_a_trial_has_those_above_its_own_of_whom_it_took_over_from(tmp_path: Path) -> None:
    run = recorded(tmp_path, TakesOver())
    project(run)
    assert lines(run.layout.policy_log) == [FIRST, SECOND]
    assert not run.layout.policy_log_of("d2a66_00000").exists()
    assert lines(run.layout.policy_log_of("d2a66_00001")) == [FIRST]
    assert lines(run.layout.policy_log_of("d2a66_00002")) == [FIRST, SECOND]


@pytest.mark.parametrize("left", ["", "half a li", "[]\n" * 5])
def test_it_is_rewritten_whatever_is_there(tmp_path: Path, left: str) -> None:
    run = recorded(tmp_path, TakesOver())
    project(run)
    run.layout.policy_log.write_text(left)
    run.layout.policy_log_of("d2a66_00002").write_text(left)
    project(run)
    assert lines(run.layout.policy_log) == [FIRST, SECOND]
    assert lines(run.layout.policy_log_of("d2a66_00002")) == [FIRST, SECOND]


def test_it_resumes_after_a_snapshot_with_all_that_was_before(tmp_path: Path) -> None:
    run = recorded(tmp_path, TakesOver())
    before = Projector(run.layout, ProjectorSettings(tensorboard=False))
    before.catch_up()
    before.snapshot()
    goes_on(run, "d2a66_00002")
    run.report("d2a66_00002", {"loss": 9})
    after = Projector(run.layout, ProjectorSettings(tensorboard=False))
    after.catch_up()
    assert [row[:2] for row in lines(run.layout.policy_log)] == [
        ["1", "0"],
        ["2", "1"],
        ["2", "1"],
    ]


def test_a_log_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    run = recorded(tmp_path, TakesOver())
    run.layout.policy_log_of("d2a66_00002").mkdir()
    projector = Projector(run.layout, ProjectorSettings(tensorboard=False))
    projector.catch_up()
    assert "Is a directory" in str(projector.trouble)
    run.layout.policy_log_of("d2a66_00002").rmdir()
    projector.repair()
    assert not projector.trouble
    assert lines(run.layout.policy_log) == [FIRST, SECOND]
    assert lines(run.layout.policy_log_of("d2a66_00002")) == [FIRST, SECOND]


def test_there_is_none_where_no_one_wants_one(tmp_path: Path) -> None:
    run = recorded(tmp_path, TakesOver(is_logged=False))
    project(run)
    assert not run.layout.policy_log.exists()


def test_a_clone_keeps_its_own_rows_up_to_where_it_continues(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path, tensorboard=True)
    run.machine.policy = TakesOver()
    one, two = run.begin({"lr": 1.0}), run.begin({"lr": 2.0})
    for _ in range(4):
        run.report(one, {"loss": 1}, checkpoint="staged")
    run.report(two, {"loss": 1}, checkpoint="staged")
    for loss in (1, 1, 1, 1, 9):
        run.report(two, {"loss": loss})
    goes_on(run, two)
    run.report(two, {"loss": 3})
    project(run, tensorboard=True)
    shown = lines(run.folder(two) / "result.json")
    assert [row["training_iteration"] for row in shown] == [1, 2, 3, 4, 5]
    assert [row["config"] for row in shown] == [{"lr": 2.0}] * 4 + [{"lr": 0.1}]
    found = checker.fold(tmp_path).trials[two]
    assert [*checker.rows(tmp_path, found), *checker.events(tmp_path, found)] == []


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "5",
        '"text"',
        "null",
        '["training_iteration"]',
        '{"training_iteration": "4"}',
        '{"training_iteration": null}',
        "[" * 200_000,
        "not JSON",
    ],
)
def test_rows_that_something_else_has_written_are_replaced_by_those_of_the_journal(
    tmp_path: Path, line: str
) -> None:
    """As long as holdfast's, so that only the content shows the difference."""
    run = RecordedExperiment(tmp_path)
    run.machine.policy = TakesOver()
    one, two = run.begin({"lr": 1.0}), run.begin({"lr": 2.0})
    for _ in range(4):
        run.report(one, {"loss": 1}, checkpoint="staged")
    run.report(two, {"loss": 1}, checkpoint="staged")
    for loss in (1, 1, 1, 1, 9):
        run.report(two, {"loss": loss, "text": "x" * 50_000})
    projector = Projector(run.layout, ProjectorSettings(tensorboard=False))
    projector.catch_up()
    path = run.folder(two) / "result.json"
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    path.write_bytes(data[:first] + line.encode().ljust(len(data) - first - 1) + b"\n")
    goes_on(run, two)
    run.report(two, {"loss": 3})
    projector.catch_up()
    assert projector.trouble is None
    assert [row["training_iteration"] for row in lines(path)] == [1, 2, 3, 4, 5]
