"""Promise 6. Every wait has a deadline, every process a parent: nothing of holdfast's process
groups outlives its experiment, not after Ctrl-C, not after SIGKILL of the controller."""

from __future__ import annotations

import signal

import pytest

from tests.rig.bench import Bench
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process

STUBBORN = """
import os, signal, subprocess, sys
from holdfast import tune
from holdfast.runtime import process_control
from tests.rig.script import mark, wait_at

def train(config):
    for signum in (signal.SIGTERM, process_control.STOP):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    text = "import signal; signal.signal(15, 1); signal.signal(1, 1); print(flush=True)"
    text += "\\nwhile 1: signal.pause()"
    for own_session in (False, True):
        child = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=own_session)
        child.stdout.readline()
    if os.fork() == 0:  # a daemon, whose parent ends
        os.setsid()
        if os.fork() == 0:
            mark("daemon", config["n"])
            signal.pause()
        os._exit(0)
    mark("started", config["n"])
    while True:
        try:
            wait_at("never")
        except BaseException:
            pass

if __name__ == "__main__":
    tune.Tuner(train, param_space={"n": tune.grid_search([0, 1])},
               run_config=tune.RunConfig(
                   storage_path=sys.argv[1], name="run", verbose=0,
                   failure_config=tune.FailureConfig(preemption_grace_s=0.5))).fit()
"""


@pytest.mark.parametrize("ending", rest_nightly(2, ["SIGKILL", "SIGINT", "SIGTERM", "SIGHUP"]))
def test_no_process_outlives_the_end_of_the_controller(bench: Bench, ending: str) -> None:
    bench.gate("never")
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "0.3"
    script = bench.run(bench.write(STUBBORN), str(bench.storage))
    for mark in ("started 0", "started 1", "daemon 0", "daemon 1"):
        script.wait_for(mark)
    assert len(script.processes()) >= 11  # script, warm, projector, two workers and their three
    script.signal(getattr(signal, ending))
    assert script.ends() != 0
    assert script.left() == []


def test_workers_that_stand_still_end_with_the_controller(bench: Bench) -> None:
    bench.gate("never")
    script = bench.run(bench.write(STUBBORN), str(bench.storage))
    script.wait_for("started 0")
    script.wait_for("started 1")
    for worker in script.processes("worker"):
        worker.signal(signal.SIGSTOP)
    script.dies()


HANGING = """
import sys, time
from holdfast import tune
from tests.rig.script import mark, wait_at

class Hanging(tune.Callback):
    def on_trial_complete(self, iteration, trials, trial, **info):
        wait_at("never")

if __name__ == "__main__":
    tune.Tuner(lambda config: tune.report({"x": 1}), run_config=tune.RunConfig(
        storage_path=sys.argv[1], name="run", callbacks=[Hanging()])).fit()
"""


def test_a_callback_that_never_returns_is_named_at_its_deadline(bench: Bench) -> None:
    bench.gate("never")
    bench.environ["HOLDFAST_CALLBACK_DEADLINE_S"] = "0.5"
    script = bench.run(bench.write(HANGING), str(bench.storage)).succeeds()
    assert "Hanging.on_trial_complete" in script.stderr
    assert "did not finish within 0.5 s" in script.stderr
    assert script.left() == []


def test_storage_that_never_answers_ends_fit_at_the_deadline(bench: Bench) -> None:
    """A server that accepts connections and does not answer is the worst case."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"s3://bucket/x?endpoint_override=http://127.0.0.1:{silent.getsockname()[1]}"
        bench.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "local")
        script = bench.start(storage=place)
        assert script.ends() == 1
    script.finish_reading()
    assert "write to s3://bucket/x" in script.stderr
    assert "no answer within 10 s" in script.stderr
