"""What a restore reads from a run's records, and which checkpoints it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.experiment.records.recovery import changed_checkpoint, lost_checkpoints, recover
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policy import (
    Decision,
    FIFOScheduler,
    Observation,
    TrialReported,
    TrialScheduler,
    View,
)
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.errors import StorageError, StorageUnavailable
from holdfast.syncer.journal.journal import Journal
from tests.rig.runs.recorded import RecordedExperiment


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path)
    yield recorded
    recorded.close()


class Counting(TrialScheduler):
    """A policy with a state: the number of reports that it saw."""

    def __init__(self) -> None:
        self.reports = 0

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        self.reports += isinstance(event, TrialReported)
        return ()


def test_a_scheduler_is_shown_everything_again_also_what_a_snapshot_holds(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.report(trial, {"loss": 1.0})
    run.write_files(snapshot=True)
    run.report(trial, {"loss": 0.5})
    recovered = recover(run.layout, Counting())
    policy = recovered.machine.policy
    assert isinstance(policy, Counting)
    assert policy.reports == 2
    assert recovered.machine.trials[trial].iteration == 2


def test_no_snapshot_is_used_of_what_comes_after_a_damage_of_the_journal(
    run: RecordedExperiment,
) -> None:
    """The journal is cut there at the next write: otherwise the two would not match."""
    first = run.begin()
    size = next(run.layout.journal.glob("*.log")).stat().st_size
    second = run.begin()
    run.write_files(snapshot=True)
    path = next(run.layout.journal.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[size + 20] ^= 1
    path.write_bytes(data)

    assert second in recover(run.layout).machine.trials  # a reader gets all that there is
    recovered = recover(run.layout, will_continue=True)
    assert list(recovered.machine.trials) == [first]
    assert "the journal before it is damaged" in recovered.notices[0]
    journal = Journal(run.layout.journal)
    journal.close()
    assert list(recover(run.layout, will_continue=True).machine.trials) == [first]


def test_what_was_recovered_before_is_used_as_long_as_the_journal_ends_there(
    run: RecordedExperiment,
) -> None:
    trial = run.begin()
    run.write_files(snapshot=True)
    run.report(trial, {"loss": 1.0})
    known = recover(run.layout)
    again = recover(run.layout, FIFOScheduler(), will_continue=True, known=known)
    assert again.machine is known.machine
    seen = recover(run.layout, Counting(), will_continue=True, known=known).machine.policy
    assert isinstance(seen, Counting)
    assert seen.reports == 1
    run.report(trial, {"loss": 0.5})
    newer = recover(run.layout, FIFOScheduler(), will_continue=True, known=known)
    assert newer.machine.trials[trial].iteration == 2


def lost(run: RecordedExperiment, *, also_final: bool = False) -> list[int]:
    found = lost_checkpoints(run.machine, run.layout, is_remote=False, also_final=also_final)
    return [event.index for event in found]


def test_of_a_trial_that_has_ended_only_what_was_not_committed_is_looked_at(
    run: RecordedExperiment,
) -> None:
    """A power cut may have emptied it, and its remains must not be hashed."""
    trial = run.begin()
    run.report(trial, {"loss": 1.0}, checkpoint="committed")
    run.report(trial, {"loss": 0.5}, checkpoint="staged")
    run.finish(trial)
    for model in run.folder(trial).glob("*/model.txt"):
        model.write_bytes(b"")
    assert lost(run) == [1]
    assert lost(run, also_final=True) == [1, 0]


def test_a_checkpoint_that_cannot_be_looked_at_is_not_lost(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files, or an unreachable network disk: it may be complete, and is not
    dropped."""
    trial = run.begin()
    run.report(trial, {"loss": 1.0}, checkpoint="committed")

    def unavailable(*_: object, **__: object) -> None:
        raise StorageUnavailable("read", "checkpoint_000000", "Too many open files")

    monkeypatch.setattr(manifest, "verify", unavailable)
    assert lost(run) == []
    record = run.trial(trial).checkpoints[0]
    with pytest.raises(StorageError, match="Too many open files"):
        changed_checkpoint(run.layout.checkpoint(run.trial(trial).spec, record), record)


def test_a_scheduler_that_recalls_what_it_has_seen_is_shown_only_what_follows_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = ASHAScheduler(max_t=8)
    with closing(RecordedExperiment(tmp_path, policy=scheduler, metric="loss", mode="min")) as run:
        trials = [run.begin(), run.begin()]
        run.report(trials[0], {"loss": 1.0})
        run.write_files(snapshot=True)
        run.report(trials[1], {"loss": 0.5})
        shown: list[Observation] = []
        judged = ASHAScheduler.decide

        def decide(self: ASHAScheduler, view: View, event: Observation) -> Sequence[Decision]:
            shown.append(event)
            return judged(self, view, event)

        monkeypatch.setattr(ASHAScheduler, "decide", decide)
        policy = recover(run.layout, scheduler).machine.policy
        assert [event.trial_id for event in shown] == [trials[1]]
        assert isinstance(policy, ASHAScheduler)
        assert policy._brackets[0].rungs[0]._judged == {*trials}
        shown.clear()
        known = recover(run.layout)
        again = recover(run.layout, scheduler, will_continue=True, known=known)
        assert again.machine is known.machine
        assert isinstance(again.machine.policy, ASHAScheduler)
        assert again.machine.policy._brackets[0].rungs[0]._judged == {*trials}
        assert not shown
