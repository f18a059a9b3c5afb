"""Sweeps that are killed, preempted and resumed: `holdfast run`, as a user's shell starts it."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rig.bench import Bench
from tests.rig.script import UserScript
from tests.rig.workers.processes import wait_for_end

pytestmark = pytest.mark.process

COMMAND = """
import sys
from holdfast.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""

TRAIN = """
import json, os, pathlib, signal, subprocess, sys
from tests.rig.script import mark, wait_at

def saved(epoch):
    folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]) / str(epoch)
    folder.mkdir()
    (folder / "epoch").write_text(str(epoch))
    return f"checkpoint={folder.name}"

def save_now(*_):
    print(f"holdfast: loss=1 epoch={epoch + 1}", saved(epoch + 1), flush=True)
    sys.exit(0)

old = os.environ["HOLDFAST_RESUME_DIR"]
epoch = int((pathlib.Path(old) / "epoch").read_text()) if old else 0
signal.signal(signal.SIGTERM, save_now)
# It lives in a session of its own, and would live for ever.
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
mark("begun", epoch, os.getpid(), child.pid)
answers = open(os.environ["HOLDFAST_ACK"])
while epoch < 4:
    mark("at", epoch + 1)
    wait_at(f"epoch-{epoch + 1}")
    epoch += 1
    print(f"holdfast: loss=1 epoch={epoch} ack=1", saved(epoch), flush=True)
    assert answers.readline() == "ok\\n"
"""

SWEEP = """
command: ["{python}", train.py, "${{args}}"]
parameters: {{lr: {{values: [0.1]}}}}
metric: {{name: loss, goal: minimize}}
num_samples: 1
name: run
failure: {{max_failures: 1}}
"""


def start(bench: Bench, *words: str, cwd: Path | None = None) -> UserScript:
    return bench.run(bench.write(COMMAND, "command.py"), *words, cwd=cwd)


def run(bench: Bench, *words: str) -> UserScript:
    """`holdfast run code/digits.yaml`, from the folder above."""
    code = bench.folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(TRAIN)
    (code / "digits.yaml").write_text(SWEEP.format(python=sys.executable))
    storage = str(bench.storage)
    return start(bench, "run", "code/digits.yaml", "--storage", storage, *words, cwd=bench.folder)


def epochs(bench: Bench) -> list[Any]:
    (path,) = bench.root.glob("*/result.json")
    return [json.loads(line)["epoch"] for line in path.read_text().splitlines()]


def begun(script: UserScript) -> tuple[int, list[int]]:
    """Where it begins, and the processes of the command."""
    epoch, *pids = map(int, script.wait_for("begun").split()[1:])
    return epoch, pids


@pytest.mark.rest
def test_a_killed_sweep_resumes_from_anywhere(bench: Bench) -> None:
    third, fourth = bench.gate("epoch-3"), bench.gate("epoch-4")
    script = run(bench)
    assert begun(script)[0] == 0
    script.wait_for("at 3")
    script.dies()
    third.open()
    (bench.folder / "code" / "digits.yaml").unlink()
    resumed = start(bench, "resume", str(bench.root), cwd=Path("/"))
    assert begun(resumed)[0] == 2
    resumed.wait_for("at 4")
    resumed.dies()
    fourth.open()
    again = run(bench)
    assert begun(again)[0] == 3
    again.succeeds()
    assert again.left() == []
    assert epochs(bench) == [1, 2, 3, 4]
    assert bench.problems() == []
    assert "num_samples: 1" in (bench.root / "sweep.yaml").read_text()


def test_a_command_dies_with_its_worker_and_saves_itself_if_that_is_preempted(
    bench: Bench,
) -> None:
    gate = bench.gate("epoch-3")
    script = run(bench)
    _, pids = begun(script)
    script.wait_for("at 3")
    (worker,) = script.processes("worker")
    worker.kill()
    for pid in pids:
        wait_for_end(pid)
    assert begun(script)[0] == 2
    script.wait_for("at 3")
    (worker,) = script.processes("worker")
    worker.signal(signal.SIGTERM)
    assert begun(script)[0] == 3
    gate.open()
    script.succeeds()
    assert epochs(bench) == [1, 2, 3, 4]
    assert script.left() == []
    assert bench.problems() == []


def test_an_interrupted_sweep_says_how_it_resumes(bench: Bench) -> None:
    bench.gate("epoch-3")
    script = run(bench)
    script.wait_for("at 3")
    script.signal(signal.SIGINT)
    assert script.ends() == 130
    script.finish_reading()
    assert re.search(rf"To resume: \S.* run {bench.folder}/code/digits.yaml", script.stderr)
    assert script.left() == []
    for words, hint in (("--new",), "without --new"), (("--samples", "2"), "--extend applies"):
        refused = run(bench, *words)
        assert refused.ends() == 2
        refused.finish_reading()
        assert hint in refused.stderr
