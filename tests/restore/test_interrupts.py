"""Ctrl-C, SIGTERM and errors of the script: the run can be resumed, and no process stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.rig.bench import Bench, epochs_of
from tests.rig.nightly import rest_nightly
from tests.rig.script import UserScript

pytestmark = pytest.mark.process


def test_ctrl_c_stops_the_trials_and_tells_how_to_continue(bench: Bench) -> None:
    """A terminal sends it to the whole group."""
    script, gate = bench.held_in(3)
    os.killpg(script.process.pid, signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    _, shown = script.stderr.split("Traceback (most recent call last):\n")
    frames = re.findall(r'^  File "(.+)", line', shown, re.M)
    assert shown.endswith("\nKeyboardInterrupt\n")
    assert frames
    assert set(frames) == {str(bench.script)}
    assert f"Tuner.restore('{bench.root}', trainable=train).fit()" in script.stderr
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


PASTED = "import os, sys\nos.execvp('sh', ['sh', '-c', sys.argv[1]])\n"


def test_the_command_that_ctrl_c_prints_resumes_the_run_when_it_is_pasted(bench: Bench) -> None:
    """Also from another directory, with the functions and the modules of the script."""
    module = bench.write("EPOCHS = 3\n", "my_settings.py")
    script = bench.write(
        f"""
from holdfast import tune
from tests.rig.script import mark, wait_at
import my_settings

def train(config):
    start = 1 if tune.get_checkpoint() is None else 2
    for epoch in range(start, my_settings.EPOCHS + 1):
        wait_at(f"any-{{epoch}}")
        folder = tune.staging_directory()
        open(f"{{folder}}/epoch", "w").close()
        tune.report({{"epoch": epoch}}, checkpoint=tune.Checkpoint.from_directory(folder))
        mark("at", epoch)

if __name__ == "__main__":
    run_config = tune.RunConfig(storage_path={str(bench.storage)!r}, name="run")
    tune.Tuner(train, run_config=run_config).fit()
""",
        "script.py",
    )
    gate = bench.gate("any-2")
    (elsewhere := bench.folder / "else where").mkdir()
    held = bench.run(script, cwd=elsewhere)
    held.wait_for("at 1")
    held.signal(signal.SIGINT)
    assert held.ends() == -signal.SIGINT
    held.finish_reading()
    (command,) = re.findall(r"^To resume: (.+)$", held.stderr, re.M)
    assert command.endswith(f"holdfast resume {bench.root}")
    assert "PYTHONPATH" not in command
    gate.open()
    away = module.rename(module.with_suffix(".away"))
    failing = bench.run(bench.write(PASTED, "sh.py"), command, cwd=elsewhere)
    assert failing.ends() == 1
    failing.finish_reading()
    assert f"your modules are looked for in {elsewhere}, in PYTHONPATH and where" in failing.stderr
    assert "PYTHONPATH to the folder of the module 'my_settings'" in failing.stderr
    away.rename(module)
    bench.run(bench.folder / "sh.py", command, cwd=elsewhere).succeeds()
    assert epochs_of_root(bench) == [1, 2, 3]


def epochs_of_root(bench: Bench) -> list[int]:
    (rows,) = bench.root.glob("*/result.json")
    return [json.loads(line)["epoch"] for line in rows.read_text().splitlines()]


def test_a_second_ctrl_c_kills_without_waiting_for_the_grace(bench: Bench) -> None:
    gate = bench.gate("any-3")
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "3600"
    script = bench.start(ignore_stop=True)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.signal(signal.SIGINT)
    script.wait_for("asked to stop 0")
    script.signal(signal.SIGINT)
    assert script.ends() != 0
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_trial_that_ignores_being_stopped_is_killed_after_the_grace(bench: Bench) -> None:
    gate = bench.gate("any-3")
    bench.environ["HOLDFAST_STOP_GRACE_S"] = "0.2"
    script = bench.start(ignore_stop=True)
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]


def _hears(signum: int) -> Callable[[UserScript], None]:
    """The batch system, `docker stop`, or a terminal that is closed."""
    return lambda script: script.signal(signum)


def _all_hear(script: UserScript) -> None:
    """As `scancel` does."""
    for process in script.processes():
        process.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("asks", "signum"),
    rest_nightly(
        1,
        [
            (_hears(signal.SIGTERM), signal.SIGTERM),
            (_hears(signal.SIGHUP), signal.SIGHUP),
            (_all_hear, signal.SIGTERM),
        ],
    ),
    ids=["SIGTERM", "SIGHUP", "every process"],
)
def test_a_script_that_is_asked_to_end_lets_its_trials_save(
    bench: Bench, asks: Callable[[UserScript], None], signum: int
) -> None:
    script, gate = bench.held_in(3, checkpoint_every=100, saves_at_the_end=True)
    asks(script)
    script.said("5 s to save, then")
    gate.open()
    assert script.ends() == -signum
    script.finish_reading()
    assert f"Tuner.restore('{bench.root}', trainable=train).fit()" in script.stderr
    assert script.left() == []
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []
    ran = sorted(note["iteration"] for note in bench.notes() if note["what"] == "ran")
    assert ran == [1, 1, 2, 2, 3, 3, 4, 4]


def test_trials_that_do_not_save_are_ended_in_time(bench: Bench) -> None:
    script, gate = bench.held_in(3, preemption_grace_s=0.2)
    script.signal(signal.SIGTERM)
    assert script.ends() == -signal.SIGTERM
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


@pytest.mark.nightly
def test_a_second_sigterm_kills(bench: Bench) -> None:
    script, gate = bench.held_in(3, preemption_grace_s=3600)
    script.signal(signal.SIGTERM)
    script.said("3600 s to save, then")
    script.signal(signal.SIGTERM)
    assert script.ends() == -signal.SIGTERM
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]


IN_PLACE = """
import os, sys
command = {command!r} + [sys.executable, "-u", *sys.argv[1:]]
os.execvp(command[0], command)
"""


def started_by(bench: Bench, command: list[str]) -> UserScript:
    given = {"storage": str(bench.storage), "epochs": 4, "preemption_grace_s": 0.2}
    wrapper = bench.write(IN_PLACE.format(command=command), "wrapper.py")
    return bench.run(wrapper, str(bench.script), json.dumps(given))


def test_under_nohup_a_closed_terminal_changes_nothing_and_sigterm_ends(bench: Bench) -> None:
    gate = bench.gate("any-3")
    script = started_by(bench, ["nohup"])
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    script.signal(signal.SIGHUP)
    gate.open()
    last = bench.gate("any-4")
    script.wait_for("reported 0 3")
    script.signal(signal.SIGTERM)
    assert script.ends() == -signal.SIGTERM
    assert script.left() == []
    last.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]


CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


@pytest.mark.parametrize("signum", rest_nightly(1, [signal.SIGTERM, signal.SIGINT]))
def test_the_first_process_of_a_container_stops_as_any_other(bench: Bench, signum: int) -> None:
    """A process without default actions; an ordinary process where none can be created."""
    is_allowed = subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0
    gate = bench.gate("any-3")
    script = started_by(bench, CONTAINER if is_allowed else ["env"])
    script.wait_for("at 0 3")
    script.wait_for("at 1 3")
    (first,) = script.processes("other" if is_allowed else "script")
    first.signal(signum)
    assert script.ends() in (-signum, 128 + signum)
    script.finish_reading()
    assert "To resume: " in script.stderr
    assert script.left() == []
    gate.open()
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


OWN_HANDLER = """
import signal, sys
from holdfast import tune
from tests.rig.script import mark

def train(config):
    tune.report({"x": 1})
    mark("reported")
    while True:
        signal.pause()

def mine(*_):
    print("mine", flush=True)
    sys.exit(3)

signal.signal(signal.SIGTERM, mine)
if __name__ == "__main__":
    tune.Tuner(train, run_config=tune.RunConfig(storage_path=sys.argv[1], name="run")).fit()
"""


def test_a_signal_that_the_script_handles_itself_is_left_to_it(bench: Bench) -> None:
    script = bench.run(bench.write(OWN_HANDLER), str(bench.storage))
    script.wait_for("reported")
    script.signal(signal.SIGTERM)
    assert script.ends() == 3
    assert script.left() == []
    script.finish_reading()
    assert "mine" in script.stdout


RAISING_HANDLER = """
import signal, sys
from holdfast import tune
from tests.rig.script import mark, wait_at

class Preempted(Exception):
    pass

def train(config):
    tune.report({"x": 1})
    mark("reported")
    wait_at("end")

def preempted(*_):
    raise Preempted

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, preempted)
    run = tune.RunConfig(storage_path=sys.argv[1], name="run")
    try:
        tune.Tuner(train, run_config=run).fit()
    except Preempted:
        mark("left")
    wait_at("again")
    [result] = tune.Tuner.restore(f"{sys.argv[1]}/run", train).fit()
    print("restored", result.error, result.metrics["x"])
"""


def test_nothing_of_a_run_outlives_an_exception_of_a_signal_handler(bench: Bench) -> None:
    end, again = bench.gate("end"), bench.gate("again")
    script = bench.run(bench.write(RAISING_HANDLER), str(bench.storage))
    script.wait_for("reported")
    script.signal(signal.SIGTERM)
    script.wait_for("left")
    assert [process.role for process in script.processes()] == ["script"]
    assert "Traceback" not in script.stderr
    end.open()
    again.open()
    script.succeeds()
    assert "restored None 1" in script.stdout
    assert bench.problems() == []


def test_ctrl_c_before_the_first_trial_runs_leaves_what_can_be_restored(bench: Bench) -> None:
    script = bench.start()
    script.wait_for("made")
    script.signal(signal.SIGINT)
    assert script.ends() != 0
    assert script.left() == []
    assert epochs_of(bench.start(go_on=True).succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_ctrl_c_while_the_code_is_imported_leaves_nothing_and_promises_nothing(
    bench: Bench,
) -> None:
    bench.write(
        """
import os
from tests.rig.script import mark, wait_at

if os.environ.setdefault("SCRIPT", str(os.getpid())) != str(os.getpid()):  # in the warm parent
    mark("importing")
    wait_at("import")

def train(config):
    pass
""",
        "slow_module.py",
    )
    script = bench.write(
        f"""
from holdfast import tune
import slow_module

if __name__ == "__main__":
    run_config = tune.RunConfig(storage_path={str(bench.storage)!r}, name="run")
    tune.Tuner(slow_module.train, run_config=run_config).fit()
"""
    )
    gate = bench.gate("import")
    held = bench.run(script)
    held.wait_for("importing")
    held.signal(signal.SIGINT)
    assert held.ends() == -signal.SIGINT
    held.finish_reading()
    assert "Nothing had begun: start the script again\n" in held.stderr
    assert "resume" not in held.stderr
    assert held.left() == []
    assert not bench.root.exists()
    gate.open()
    bench.run(script).succeeds()
