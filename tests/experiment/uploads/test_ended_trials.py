"""Which folders the uploader need not look at: those of trials whose files are all written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.experiment.uploads import publishing
from holdfast.experiment.uploads.publishing import EndedTrials
from holdfast.scheduler.events import Resumed
from holdfast.syncer.journal.journal import Position
from holdfast.trial.config import ResumeType
from holdfast.trial.events import Committed
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp")
    yield recorded
    recorded.close()


def ended(run: RecordedExperiment) -> str:
    trial = run.begin()
    run.report(trial, {"loss": 1})
    run.finish(trial)
    return trial


def by_number(parts: Iterator[dict[str, str]]) -> dict[str, str]:
    """The words of ended trials, by the numbers in their folders' names."""
    return {name.split("_")[2]: word for words in parts for name, word in words.items()}


def told(trials: EndedTrials, end: int = 0) -> dict[str, str]:
    return by_number(trials.news(Position(0, end)))


def written(trials: EndedTrials, upto: int) -> dict[str, str]:
    return by_number(trials.written(Position(0, upto)))


def test_a_trial_that_has_ended_is_told_once_and_again_when_its_files_are_written(
    run: RecordedExperiment,
) -> None:
    trials = EndedTrials(run.machine)
    ended(run)
    run.begin()
    words = told(trials, 100)
    assert [*words] == ["00000"]
    assert told(trials, 200) == {}
    assert written(trials, 99) == {}
    assert written(trials, 100) == words
    assert written(trials, 300) == {}


def test_a_trial_whose_worker_still_ends_has_not_ended(run: RecordedExperiment) -> None:
    trials = EndedTrials(run.machine)
    trial = run.begin()
    run.fail(trial, exits=False)
    assert run.trial(trial).status.is_final
    assert told(trials) == {}


def test_a_trial_with_a_checkpoint_on_its_way_has_not_ended(run: RecordedExperiment) -> None:
    trials = EndedTrials(run.machine)
    trial = run.begin()
    run.report(trial, {"loss": 1}, checkpoint="staged")
    run.finish(trial)
    assert told(trials) == {}
    run.add(Committed(trial_id=trial, index=0))
    assert [*told(trials)] == ["00000"]


def test_a_trial_that_runs_again_is_taken_back_and_has_another_word_later(
    run: RecordedExperiment,
) -> None:
    trials = EndedTrials(run.machine)
    trial = ended(run)
    (word,) = told(trials).values()
    run.add(Resumed(epoch=2, capacity={"CPU": 2}, finished=ResumeType.RESTART))
    assert told(trials) == {"00000": ""}
    assert written(trials, 100) == {}
    run.start(trial)
    assert told(trials) == {}
    run.report(trial, {"loss": 1})
    run.finish(trial)
    (later,) = told(trials).values()
    assert later != word


def test_a_restore_has_the_same_words_until_another_boot(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After another boot the projector writes all files anew."""
    ended(run)
    words = told(EndedTrials(run.machine))
    assert told(EndedTrials(run.machine)) == words
    monkeypatch.setattr(publishing, "boot_id", lambda: "another")
    assert told(EndedTrials(run.machine)) != words


def test_a_new_uploader_is_told_everything(run: RecordedExperiment) -> None:
    trials = EndedTrials(run.machine)
    ended(run)
    words = told(trials, 100)
    assert written(trials, 100) == words
    trials.forget()
    assert told(trials, 100) == words
    assert written(trials, 100) == words


def test_many_are_told_in_several_messages(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_AT_ONCE", 2)
    for _ in range(5):
        ended(run)
    trials = EndedTrials(run.machine)
    assert [len(words) for words in trials.news(Position())] == [2, 2, 1]
    assert [len(words) for words in trials.written(Position())] == [2, 2, 1]
