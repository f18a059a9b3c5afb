"""A lock that is removed or released during a run, and what user code can reach of it."""

from __future__ import annotations

import stat

import pytest

from tests.rig.bench import Bench

pytestmark = pytest.mark.process

SCRIPT = """
import fcntl, os, sys, time
from holdfast import tune

def descriptors():
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue

def unlock_all():
    for fd, target in list(descriptors()):
        if os.path.basename(target) == ".lock":
            print("REACHED", target, flush=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError:
            continue

def train(config):
    tune.report({"value": 0})
    if config["what"] == "unlock":
        unlock_all()
    else:
        os.unlink(os.path.join(config["root"], ".lock"))
    for value in range(1, 1_000_000 if config["what"] == "remove" else 30):
        tune.report({"value": value})
        time.sleep(0.01)

if __name__ == "__main__":
    storage, what = sys.argv[1:]
    space = {"root": storage + "/run", "what": what}
    grid = tune.Tuner(train, param_space=space, run_config=tune.RunConfig(
        storage_path=storage, name="run", verbose=0)).fit()
    print("ROWS", len(grid[0].metrics_dataframe), flush=True)
"""


def test_a_run_whose_lock_is_removed_ends_and_says_so(bench: Bench) -> None:
    script = bench.run(bench.write(SCRIPT), str(bench.storage), "remove")
    assert script.ends() == 1
    script.finish_reading()
    assert ".lock: it was removed" in script.stderr
    assert script.left() == []


def test_user_code_reaches_no_descriptor_that_unlocks_the_experiment(bench: Bench) -> None:
    script = bench.run(bench.write(SCRIPT), str(bench.storage), "unlock").succeeds()
    script.finish_reading()
    assert "ROWS 30" in script.stdout
    outputs = [path.read_text() for path in bench.root.glob("*/stdout")]
    assert not any("REACHED" in text for text in [script.stdout, *outputs])


@pytest.mark.parametrize("shared", [False, True])
def test_the_experiments_folder_is_its_owners_unless_it_is_to_be_shared(
    bench: Bench, shared: bool
) -> None:
    if shared:
        bench.environ["HOLDFAST_SHARED"] = "1"
    bench.run(bench.write(SCRIPT), str(bench.storage), "unlock").succeeds()
    mode = stat.S_IMODE(bench.root.stat().st_mode)
    assert mode == (0o777 & ~_umask() if shared else 0o700)
    for lock in (".lock", ".lock-workers"):
        assert stat.S_IMODE((bench.root / lock).stat().st_mode) == 0o600


def _umask() -> int:
    import os

    known = os.umask(0o022)
    os.umask(known)
    return known
