"""Promise 9. The controller unpickles nothing that a worker sends, nothing listens on an address,
and credentials enter no file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.rig import checker
from tests.rig.bench import Bench

pytestmark = pytest.mark.process

HOSTILE = """
import os, pickle, socket, stat, struct, sys
import msgpack
from holdfast import tune
from tests.rig.script import mark, wait_at

class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {sys.argv[1]}/exploded",)

def frames():
    bomb = pickle.dumps(Bomb())
    def pack(message):
        body = msgpack.packb(message)
        return struct.pack(">I", len(body)) + body
    return {
        "raw": bomb,
        "framed": struct.pack(">I", len(bomb)) + bomb,
        "report": pack(["report", bomb, bomb, bomb, bomb, bomb, bomb, bomb]),
        "metrics": pack(["report", 1, 1, {"x": bomb}, 1.0, 1.0, 1.0, {"index": bomb}]),
        "checkpoint": pack(["saved", 1, {"index": 0, "iteration": 1, "attempt": 1, "files": 1,
                                         "size_bytes": bomb}]),
        "unknown": pack(["fork", bomb]),
        "failure": pack(["raised", 1, {"kind": bomb}]),
        "huge": struct.pack(">I", 0xFFFFFFF0) + b"x" * 1000,
    }

def train(config):
    if config["attack"] == "none":
        wait_at("peace")
        tune.report({"x": 1})
        return
    mark("attacks", config["attack"])
    # Whatever socket this process has leads to the controller.
    for fd in range(3, 200):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, frames()[config["attack"]])
        except OSError:
            continue
    wait_at("never")

if __name__ == "__main__":
    attacks = ["none", *sys.argv[2:]]
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 0.1}),
        param_space={"attack": tune.grid_search(attacks)},
        run_config=tune.RunConfig(storage_path=sys.argv[1], name="run", verbose=0)).fit()
    for result in results:
        print("RESULT", result.config["attack"], "ERROR" if result.error else result.metrics["x"])
"""
ATTACKS = ("raw", "framed", "report", "metrics", "checkpoint", "unknown", "failure", "huge")


def test_what_a_hostile_worker_sends_is_an_error_of_its_trial_and_never_code(
    bench: Bench,
) -> None:
    peace = bench.gate("peace")
    bench.gate("never")
    bench.storage.mkdir()
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "0.5"
    script = bench.run(bench.write(HOSTILE), str(bench.storage), *ATTACKS)
    for attack in ATTACKS:
        script.wait_for(f"attacks {attack}")
    peace.open()
    script.succeeds()
    assert "RESULT none 1" in script.stdout
    for attack in ATTACKS:
        assert f"RESULT {attack} ERROR" in script.stdout
    assert not (bench.storage / "exploded").exists()
    assert script.left() == []


def listening(pid: int) -> list[str]:
    """The TCP addresses on which a process listens."""
    own = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            own.add(os.readlink(fd))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                found.append(address)
    return found


def test_nothing_listens_on_any_address(bench: Bench) -> None:
    gate = bench.gate("any-2")
    script = bench.start()
    script.wait_for("at 0 2")
    processes = script.processes()
    assert {process.role for process in processes} >= {"script", "warm", "projector", "worker"}
    assert [listening(process.pid) for process in processes] == [[]] * len(processes)
    gate.open()
    script.succeeds()


def test_a_variable_of_the_runtime_env_reaches_the_worker_and_no_file(bench: Bench) -> None:
    secret = "a-t0ken-f0r-the-tracker"
    script = bench.start(env_vars={"TRACKER_TOKEN": secret}, tell_length_of="TRACKER_TOKEN")
    script.wait_for(f"length {len(secret)}")
    script.succeeds()
    assert bench.problems(secrets=[secret]) == []
    assert checker.fold(bench.root).trials
    restored = bench.restore(env_vars={"TRACKER_TOKEN": secret}).succeeds()
    assert secret not in script.stdout + script.stderr + restored.stderr
