"""Folders that are removed, renamed or replaced during a run: it ends at once, and reports it."""

from __future__ import annotations

import pytest

from tests.rig.bench import Bench
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process

SCRIPT = """
import os, shutil, sys, time
from holdfast import tune

def remove_tree(root):
    while os.path.exists(root):  # something may be written there just now
        shutil.rmtree(root, ignore_errors=True)

def remove(root, what):
    journal = os.path.join(root, "journal")
    segment = os.path.join(journal, "000000.log")
    if what == "experiment":
        remove_tree(root)
    elif what == "journal":
        remove_tree(journal)
    elif what == "renamed":
        os.rename(journal, journal + "-elsewhere")
    elif what == "segment":
        os.unlink(segment)
    elif what == "replaced":
        shutil.copy(segment, segment + "-copy")
        os.replace(segment + "-copy", segment)
    elif what == "recreated":
        remove_tree(journal)
        os.mkdir(journal)
        with open(segment, "wb") as file:
            file.write(b"HFJRNL\\0\\1")

def train(config):
    tune.report({"value": 0})
    remove(config["root"], config["what"])
    tune.report({"value": 1})
    while config["endless"]:
        tune.report({"value": 2})
        time.sleep(0.01)

if __name__ == "__main__":
    storage, what, endless = sys.argv[1:]
    space = {"root": storage + "/run", "what": what, "endless": endless == "endless"}
    tune.Tuner(train, param_space=space, run_config=tune.RunConfig(
        storage_path=storage, name="run", verbose=0)).fit()
"""


@pytest.mark.parametrize(
    "what",
    rest_nightly(2, ["experiment", "segment", "journal", "renamed", "replaced", "recreated"]),
)
def test_a_run_whose_journal_is_taken_away_ends_with_an_error_that_says_so(
    bench: Bench, what: str
) -> None:
    bench.environ["HOLDFAST_FSYNC_PERIOD_S"] = "0.05"
    script = bench.run(bench.write(SCRIPT), str(bench.storage), what, "endless")
    assert script.ends() == 1
    script.finish_reading()
    assert "while the run wrote to it" in script.stderr
    assert "journal/000000.log" in script.stderr
    assert script.left() == []


@pytest.mark.parametrize("what", rest_nightly(1, ["experiment", "journal"]))
def test_it_is_noticed_at_the_end_of_the_run_at_the_latest(bench: Bench, what: str) -> None:
    bench.environ["HOLDFAST_FSYNC_PERIOD_S"] = "3600"
    script = bench.run(bench.write(SCRIPT), str(bench.storage), what, "ends")
    assert script.ends() == 1
    script.finish_reading()
    assert "while the run wrote to it" in script.stderr
