"""Promise 5. The control loop never waits for storage, user code, a logger or a tracker: reports
are answered while all of them hang."""

from __future__ import annotations

import os
import signal

import pytest

from tests.rig.bench import Bench, epochs_of
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


@pytest.mark.server
def test_a_stalled_bucket_delays_no_report(bench: Bench, moto: S3Server, proxy: Proxy) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    script, gate = bench.held_in(2, epochs=120, checkpoint_every=10)
    os.kill(moto.pid, signal.SIGSTOP)
    try:
        gate.open()
        script.wait_for("reported 0 120")
        script.wait_for("reported 1 120")
    finally:
        os.kill(moto.pid, signal.SIGCONT)
    script.succeeds()
    assert epochs_of(script) == [120, 120]


def test_a_projector_and_a_uploader_that_stand_still_delay_no_report(bench: Bench) -> None:
    script, gate = bench.held_in(2, epochs=100, checkpoint_every=10)
    services = [*script.processes("projector"), *script.processes("uploader")]
    for service in services:
        service.signal(signal.SIGSTOP)
    gate.open()
    script.wait_for("reported 0 100")
    script.wait_for("reported 1 100")
    for service in services:
        service.signal(signal.SIGCONT)
    script.succeeds()
    assert bench.problems(tensorboard=True) == []


BLOCKING = """
import sys
from holdfast import tune
from tests.rig.script import mark, wait_at

class Blocking(tune.Callback):
    def on_trial_result(self, iteration, trials, trial, result, **info):
        wait_at("tracker")

def stop(trial_id, result):
    if trial_id.endswith("1"):
        wait_at("stopper")
    return False

def train(config):
    for epoch in range(1, 101):
        tune.report({"epoch": epoch})
    mark("done", config["n"])

if __name__ == "__main__":
    results = tune.Tuner(train, param_space={"n": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="run", verbose=0,
            **{"callbacks": [Blocking()]} if sys.argv[2] == "tracker" else {})).fit()
    print("EPOCHS", [result.metrics["epoch"] for result in results])
"""


def test_a_callback_that_blocks_delays_no_report(bench: Bench) -> None:
    gate = bench.gate("tracker")
    script = bench.run(bench.write(BLOCKING), str(bench.storage), "tracker")
    script.wait_for("done 0")
    script.wait_for("done 1")
    gate.open()
    script.succeeds()
    assert "EPOCHS [100, 100]" in script.stdout
