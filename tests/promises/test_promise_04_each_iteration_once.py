"""Promise 4. Every attempt stays in the journal; `result.json`, `progress.csv` and TensorBoard
show each iteration once, from the newest attempt. An epoch that was acknowledged together with its
checkpoint is not run again."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, epochs_of

pytestmark = pytest.mark.process


def test_rolled_back_rows_are_shown_once_and_both_attempts_stay_in_the_journal(
    bench: Bench,
) -> None:
    bench.options |= {"epochs": 9, "checkpoint_every": 3, "max_failures": 9, "failing": 2}
    bench.options["fail"] = [[0, 6], [1, 9]]
    gate = bench.gate("any-8")
    script = bench.start()
    script.wait_for("at 0 8")
    script.dies()
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [9, 9]
    assert bench.problems(tensorboard=True) == []
    first, second = checker.fold(bench.root).trials.values()
    for trial in (first, second):
        assert sorted(trial.rows) == list(range(1, 10))
        assert len(trial.all_rows) > 9  # those of the attempts that were given up, too
        shown = [row["attempt"] for _, row in sorted(trial.rows.items())]
        assert shown == sorted(shown)
        assert shown[-1] > 1


def test_no_epoch_that_was_acknowledged_with_its_checkpoint_runs_twice(bench: Bench) -> None:
    gates = [bench.gate(f"any-{epoch}") for epoch in range(2, 6)]
    script = bench.start(epochs=5)
    for epoch, gate in enumerate(gates, start=1):
        script.wait_for(f"reported 0 {epoch}")
        script.wait_for(f"reported 1 {epoch}")
        script.kill()
        gate.open()
        script = bench.restore(epochs=5)
    script.succeeds()
    acknowledged = Counter(
        (note["trial"], note["iteration"])
        for note in bench.notes()
        if note["what"] == "acknowledged"
    )
    assert set(acknowledged.values()) == {1}
    assert len(acknowledged) == 10
    assert bench.problems(tensorboard=True) == []


TRACKED = """
import sys
from holdfast import tune
from tests.rig.script import mark, note, wait_at

class Tracker(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        note(what="tracked", key=[trial.trial_id, result["training_iteration"]])

def train(config):
    for epoch in range(1, 4):
        wait_at(f"{tune.get_context().get_attempt()}-{epoch}")
        tune.report({"epoch": epoch})
        note(what="acknowledged", trial=tune.get_context().get_trial_id(), iteration=epoch,
             attempt=tune.get_context().get_attempt(), checkpoint=False)
        mark("reported", epoch)

if __name__ == "__main__":
    if sys.argv[2] == "begin":
        tuner = tune.Tuner(train, run_config=tune.RunConfig(
            storage_path=sys.argv[1], name="run", verbose=0, callbacks=[Tracker()]))
    else:
        tuner = tune.Tuner.restore(sys.argv[1] + "/run")
    tuner.fit()
"""


def test_trackers_get_each_row_of_the_final_attempt_under_a_stable_key(bench: Bench) -> None:
    path = bench.write(TRACKED)
    gate = bench.gate("1-3")
    script = bench.run(path, str(bench.storage), "begin")
    script.wait_for("reported 2")
    script.dies()
    gate.open()
    bench.run(path, str(bench.storage), "restore").succeeds()
    keys = [tuple(note["key"]) for note in bench.notes() if note["what"] == "tracked"]
    (trial,) = checker.fold(bench.root).trials
    assert keys[-3:] == [(trial, 1), (trial, 2), (trial, 3)]
