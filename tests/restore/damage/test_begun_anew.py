"""A journal that `doctor repair` has started again with a snapshot's state.

Everyone who follows the run (storage, another machine, trackers, callbacks, reporters) misses
nothing without a message.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import read_snapshot, snapshot_names
from holdfast.syncer.journal.journal import read, segment_name
from holdfast.syncer.journal.stretches import parse_head, stretches_of
from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.nightly import rest_nightly
from tests.rig.script import UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server
from tests.rig.trackers.fake_tracker import told_to

pytestmark = [pytest.mark.process, pytest.mark.server]

SCRIPT = """
import json, sys
from holdfast import tune
from tests.rig.epochs import resumed, saved
from tests.rig.trackers.fake_tracker import FakeTracker
from tests.rig.script import mark, wait_at

OPTIONS = json.loads(sys.argv[1])

class Noting(tune.Callback):
    def __init__(self, file):
        self.file, self.rows = file, 0

    def note(self, *what):
        with open(self.file, "a") as file:
            file.write(" ".join(map(str, what)) + "\\n")

    def on_trial_start(self, iteration, trials, trial, **info):
        self.note("start", trial.trial_id[-1])

    def on_trial_restore(self, iteration, trials, trial, **info):
        self.note("restore", trial.trial_id[-1])

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.rows += 1
        self.note("row", trial.trial_id[-1], result["training_iteration"], len(trials))

    def on_experiment_end(self, trials, **info):
        self.note("end", sorted(trial.last_result["epoch"] for trial in trials))

    def get_state(self):
        return {"rows": self.rows}

    def set_state(self, state):
        self.note("state", state["rows"] > 0)
        self.rows = state["rows"]

def train(config):
    for epoch in range(resumed() + 1, 5):
        mark("at", config["n"], epoch)
        wait_at(f"any-{epoch}")
        tune.report({"epoch": epoch}, checkpoint=saved(epoch))

if __name__ == "__main__":
    storage, query = OPTIONS["storage"].partition("?")[::2]
    if "restore" in OPTIONS:
        tuner = tune.Tuner.restore(f"{storage}/run" + (f"?{query}" if query else ""), train)
    else:
        here = OPTIONS["notes"]
        tuner = tune.Tuner(
            train,
            param_space={"n": tune.grid_search([0, 1])},
            run_config=tune.RunConfig(
                storage_path=OPTIONS["storage"],
                name="run",
                callbacks=[FakeTracker(here + "/tracked"), Noting(here + "/called")],
                progress_reporter=tune.CLIReporter(metric_columns=["epoch"]),
                sync_config=tune.SyncConfig(sync_period=0.2),
            ),
        )
    results = tuner.fit()
    print("EPOCHS", [result.metrics["epoch"] for result in results], flush=True)
    print("ROWS", [list(result.metrics_dataframe["epoch"]) for result in results], flush=True)
"""


def killed_after_two_epochs(bench: Bench) -> None:
    bench.script = bench.write(SCRIPT)
    bench.options["notes"] = str(bench.folder)
    script, gate = bench.held_in(3)
    script.dies()
    gate.open()


def lose_the_start(root: Path, behind: int) -> None:
    """The records of the journal; the snapshot was taken this many records before its end."""
    layout = Layout(root)
    for name in snapshot_names(root):
        (root / name).unlink()
    places = [end for _, end in read(layout.journal)]
    projector = Projector(layout, ProjectorSettings(), boot="")
    projector.catch_up(places[-1 - behind])
    projector.snapshot()
    projector.catch_up()
    start = read_snapshot(layout, snapshot_names(root)[0]).last.record_start
    path = layout.journal / segment_name(0)
    lost = min(4096, start)
    path.write_bytes(bytes(lost) + path.read_bytes()[lost:])


def has_ended_well(script: UserScript) -> None:
    told = script.succeeds().stdout
    assert "EPOCHS [4, 4]" in told
    assert "ROWS [[1, 2, 3, 4], [1, 2, 3, 4]]" in told
    assert "Number of trials: 2/2 (2 TERMINATED)" in told


def published(bench: Bench, bucket: Bucket, name: str) -> Path:
    """The experiment in the bucket, in which every stretch matches the head."""
    copy = bucket.download(bench.folder / name)
    head = parse_head((copy / "head.json").read_bytes())
    for stretch in stretches_of(head):
        assert stretch.is_of((copy / "journal" / stretch.name).read_bytes()), stretch
    return copy


@pytest.mark.parametrize("machine", rest_nightly(1, ["this one", "second"]))
def test_whoever_follows_a_run_that_was_started_again_misses_nothing(
    bench: Bench, moto: S3Server, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues here, or in a bucket to which the repaired folder was copied, where it is
    published from another machine."""
    monkeypatch.setenv("HOME", str(bench.folder / "home"))
    killed_after_two_epochs(bench)
    lose_the_start(bench.root, behind=3)
    rows = {path: path.read_bytes() for path in bench.root.glob("*/result.json")}
    assert main(["doctor", "repair", str(bench.root)]) == 0
    assert {path: path.read_bytes() for path in rows} == rows
    bucket = Bucket(moto, bench.folder.name)
    here = bench.root
    if machine == "second":
        bucket.upload(bench.root)
        here = bench.use(bucket, machine="second")
    restored = bench.restore()
    has_ended_well(restored)
    assert checker.check(here, tensorboard=True) == []
    assert main(["doctor", "verify", str(here)]) == 0
    restored.finish_reading()
    each_row_was_told(bench, here, restored.stderr)

    if machine == "second":
        copy = published(bench, bucket, "bucket")
        assert checker.check(copy, tensorboard=True) == []
        # And on a machine that has never seen it: nothing is left to do.
        before = (bench.folder / "called").read_text()
        bench.use(bucket, machine="third")
        has_ended_well(bench.restore())
        assert "row" not in (bench.folder / "called").read_text().removeprefix(before)


def each_row_was_told(bench: Bench, here: Path, stderr: str) -> None:
    """The tracker gets all rows, except those that it had not taken when the start of the journal
    was lost, which are listed. Callbacks get all later ones."""
    every = {(n, epoch) for n in (0, 1) for epoch in range(1, 5)}
    tracked = {
        (one["trial"], one["iteration"]) for one in told_to(bench.folder / "tracked", "row")
    }
    listed = here / "undelivered-FakeTracker.json"
    named = set()
    if listed.exists():
        assert "not delivered to FakeTracker" in stderr
        for one in json.loads(listed.read_text())["undelivered"]:
            (span,) = one["refused"]
            assert "begun anew" in span["why"]
            first, _, last = span["iterations"].partition("-")
            epochs = range(int(first), int(last or first) + 1)
            named |= {(int(one["trial"][-1]), epoch) for epoch in epochs}
    # Rows that it had taken but not acknowledged when it was killed may be listed, too.
    assert every - tracked <= named <= {(n, epoch) for n in (0, 1) for epoch in (1, 2)}
    called = (bench.folder / "called").read_text().splitlines()
    heard = [tuple(map(int, line.split()[1:3])) for line in called if line.startswith("row ")]
    assert {(n, epoch) for n in (0, 1) for epoch in (3, 4)} <= set(heard)
    assert called[-1] == "end [4, 4]"
    if here == bench.root:  # a checkpoint that was only staged is nothing for another machine
        assert len(set(heard)) == len(heard)
        assert [called.count(f"restore {n}") for n in (0, 1)] == [1, 1]
