"""Trials that run commands, in several languages: reports, checkpoints, failures, stops."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from tests.fit.conftest import Fit

pytestmark = pytest.mark.process

RESULT = "result.json"


def rows(result: tune.Result) -> list[dict[str, Any]]:
    text = (Path(result.path) / RESULT).read_text()
    return [json.loads(line) for line in text.splitlines()]


def losses(result: tune.Result) -> list[Any]:
    return [row["loss"] for row in rows(result)]


def output(result: tune.Result, name: str = "stdout") -> str:
    return (Path(result.path) / name).read_text(errors="replace")


def python(source: str, **given: Any) -> tune.CommandTrainable:
    return tune.CommandTrainable([sys.executable, "-c", source], name="train", **given)


LANGUAGES = {
    "sh": 'for i in 1 2 3; do echo "holdfast: loss=$((10 - i)) i=$i"; done',
    "awk": """awk 'BEGIN {for (i = 1; i <= 3; i++) print "holdfast: loss=" 10 - i}'""",
    "perl": """perl -e 'for $i (1..3) {print "holdfast: loss=", 10 - $i, "\\n"}'""",
    "node": """node -e '
        for (let i = 1; i <= 3; i++) console.log("holdfast:", JSON.stringify({loss: 10 - i}))'""",
    "file": 'for i in 1 2 3; do echo "loss=$((10 - i))" >> "$HOLDFAST_REPORT_FILE"; done',
}


def test_scripts_of_any_language_report_by_lines(fit: Fit) -> None:
    here = [line for name, line in LANGUAGES.items() if name == "file" or shutil.which(name)]
    trainable = tune.CommandTrainable(["sh", "-c", "{line}"], name="train")
    results = fit(trainable, {"line": tune.grid_search(here)})
    assert [result.error for result in results] == [None] * len(here)
    assert [losses(result) for result in results] == [[9, 8, 7]] * len(here)


ACKNOWLEDGED = """
import json, os
config = json.load(open(os.environ["HOLDFAST_CONFIG"]))
answers = open(os.environ["HOLDFAST_ACK"])
folder = os.environ["HOLDFAST_CHECKPOINT_DIR"]
for i in range(1, 4):
    with open(os.path.join(folder, "state"), "w") as file:
        file.write(f"{config['net']['x']} {i}")
    print("holdfast:", json.dumps({"loss": i, "checkpoint": ".", "ack": True}), flush=True)
    print("answer", answers.readline().strip(), os.path.exists(os.path.join(folder, "state")))
print("resumes", repr(os.environ["HOLDFAST_RESUME_DIR"]), os.environ["HOLDFAST_ATTEMPT"])
print(os.getcwd() == os.environ["HOLDFAST_TRIAL_DIR"], os.environ["MINE"])
"""


def test_an_answer_says_that_the_row_and_its_checkpoint_are_stored(fit: Fit) -> None:
    (result,) = fit(python(ACKNOWLEDGED, env={"MINE": "mine"}), {"net": {"x": 7}})
    assert result.error is None
    said = [line for line in output(result).splitlines() if not line.startswith("holdfast:")]
    # It has the folder for itself again, empty, so it may use the same name.
    assert said == [*["answer ok False"] * 3, "resumes '' 1", "True mine"]
    checkpoints = [Path(one.path, "state").read_text() for one, _ in result.best_checkpoints]
    assert sorted(checkpoints) == ["7 1", "7 2", "7 3"]


def test_checkpoints_are_folders_or_files_and_a_retry_resumes_from_one(fit: Fit) -> None:
    source = """
import os, pathlib, sys
new, old = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]), os.environ["HOLDFAST_RESUME_DIR"]
begin = int(next(pathlib.Path(old).iterdir()).read_text()) if old else 0
print("begins at", begin, os.environ["HOLDFAST_ITERATION"], os.environ["HOLDFAST_ATTEMPT"])
for i in range(begin + 1, 6):
    if i == 3 and begin == 0:
        sys.exit("out of luck")
    (new / f"{i}.txt").write_text(str(i))
    print(f"holdfast: loss={i} checkpoint={i}.txt")
"""
    failures = tune.FailureConfig(max_failures=1)
    (result,) = fit(python(source), failure_config=failures)
    assert result.error is None
    assert losses(result) == [1, 2, 3, 4, 5]
    assert "begins at 0 0 1\n" in output(result)
    assert "begins at 2 2 2\n" in output(result)


def test_what_a_link_leads_to_is_copied_and_stays(fit: Fit, tmp_path: Path) -> None:
    source = """
import os, pathlib, sys
new, data = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]), pathlib.Path(sys.argv[1])
(new / "run").symlink_to(data)
for i in range(1, 3):
    (data / f"{i}").mkdir()
    (data / f"{i}" / "w").write_text(str(i))
    (data / f"{i}.txt").write_text(str(i))
    (new / f"latest-{i}.txt").symlink_to(f"run/{i}.txt")
    for name in (f"run/{i}", f"run/{i}.txt", f"latest-{i}.txt"):
        print(f"holdfast: loss={i} checkpoint={name}")
"""
    trainable = tune.CommandTrainable([sys.executable, "-c", source, str(tmp_path)], name="train")
    kept = tune.CheckpointConfig(num_to_keep=1)
    (result,) = fit(trainable, checkpoint_config=kept)
    assert result.error is None
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "latest-2.txt").read_text() == "2"
    for i in "12":
        assert (tmp_path / f"{i}.txt").read_text() == (tmp_path / i / "w").read_text() == i
        assert [path.name for path in (tmp_path / i).iterdir()] == ["w"]


FAILURES = {
    "import sys; print('no luck', file=sys.stderr); sys.exit(3)": (
        "exit code 3: no luck.\nThe command: .*\nno luck"
    ),
    "import os, signal; os.kill(os.getpid(), signal.SIGABRT)": "SIGABRT: ",
    "print('holdfast: loss=1 checkpoint=gone')": "checkpoint 'gone' does not exist",
    """
import os
for _ in 1, 2:
    os.makedirs(os.environ["HOLDFAST_CHECKPOINT_DIR"] + "/x", exist_ok=True)
    print("holdfast: loss=1 checkpoint=x")
""": "checkpoint 'x' was reported twice",
    "print('holdfast: loss=1 checkpoint=..')": "checkpoint '..' is not a folder of its own",
    "print('holdfast: loss=1 checkpoint=../..')": "checkpoint '../..' is not a folder of its own",
    # The screen shows the beginning: the hint comes before a long command.
    "print('hello')": "^the command ended and reported nothing. A line such as holdfast: loss=0",
    "print('holdfast: loss')": "reported nothing. It has printed holdfast: 'loss'",
}


def test_a_failure_says_what_the_command_did(fit: Fit) -> None:
    programs = [*[sys.executable] * len(FAILURES), "no-such-program"]
    cases = [
        {"program": program, "source": source}
        for program, source in zip(programs, [*FAILURES, "x"], strict=True)
    ]
    trainable = tune.CommandTrainable(
        ["{case.program}", "-c", "{case.source}"], name="train", must_report=True
    )
    *failed, not_started = fit(trainable, {"case": tune.grid_search(cases)})
    for result, fault in zip(failed, FAILURES.values(), strict=True):
        assert isinstance(result.error, tune.TrialError)
        assert result.error.failure.type_name == "CommandFailed"
        assert re.search(fault, result.error.failure.message)
        assert 'File "' not in result.error.failure.traceback
    assert isinstance(not_started.error, tune.TrialError)
    assert not_started.error.failure.headline == (
        "CommandNotStarted: [Errno 2] No such file or directory: 'no-such-program': "
        "no-such-program -c x"
    )


def test_a_retry_that_resumes_after_the_last_row_has_nothing_to_report(fit: Fit) -> None:
    source = """
mkdir "$HOLDFAST_CHECKPOINT_DIR/1"
[ -n "$HOLDFAST_RESUME_DIR" ] && exit
echo "holdfast: loss=1 checkpoint=1"
exit 1
"""
    trainable = tune.CommandTrainable(["sh", "-c", source], name="train", must_report=True)
    (result,) = fit(trainable, failure_config=tune.FailureConfig(max_failures=1))
    assert result.error is None
    assert losses(result) == [1]


def test_errors_of_argparse_are_not_about_folders(fit: Fit, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse, sys\np = argparse.ArgumentParser()\n"
        "p.add_argument('--data', type=argparse.FileType())\np.parse_args()"
    )
    (tmp_path / "data.csv").touch()
    trainable = tune.CommandTrainable(
        f"{sys.executable} train.py --{{name}}=data.csv", here=str(tmp_path)
    )
    failed = fit(trainable, {"name": tune.grid_search(["more", "data"])})
    unknown, gone = (str(result.error) for result in failed)
    assert "unrecognized arguments: --more=data.csv.\n" in unknown
    assert f"A command runs in its trial's folder: pass {tmp_path}/data.csv" in gone


def test_a_program_may_be_a_module_of_the_files_folder(fit: Fit, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("print('holdfast: loss=1')")
    command = [sys.executable, "-m", "${program}", "${args}"]
    (result,) = fit(tune.CommandTrainable(command, program="pkg.train", here=str(tmp_path)))
    assert losses(result) == [1]


WANDB = """
import os
print(open(os.environ["WANDB_SWEEP_PARAM_PATH"]).read())
print("holdfast: loss=1")
"""


def test_a_command_finds_its_config_in_the_form_of_wandbs_agent(fit: Fit) -> None:
    config = {"lr": 1e-5, "net": {"width": [1, 2.5]}, "opt": "1e-5", "top": float("inf")}
    (result,) = fit(python(WANDB), config)
    # W&B reads YAML 1.1, in which 1e-05 is text.
    assert output(result).splitlines()[0] == (
        '{"lr": {"value": 1.0e-05}, "net": {"value": {"width": [1, 2.5]}}, '
        '"opt": {"value": "1e-5"}, "top": {"value": .inf}}'
    )


RANKS = """
import os
rank = 0 if os.fork() else 1
for i in range(1000):
    if rank:
        print("rank", 1, "step", i, flush=True)
    else:
        print("holdfast:", '{"loss": 1}', flush=True)
if rank:
    os._exit(0)
os.wait()
"""


def test_reports_are_whole_where_two_processes_print(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    (result,) = fit(python(RANKS))
    assert losses(result) == [1] * 1000


RANKS_OF_TORCHRUN = """
import os
rank = int(os.environ["RANK"])
for i in range(100):
    print("holdfast:", '{"rank": %d, "i": %d}' % (rank, i))
"""


def test_no_row_that_ranks_of_torchrun_print_is_lost(fit: Fit, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(RANKS_OF_TORCHRUN)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    (result,) = fit(tune.CommandTrainable([*words, str(tmp_path / "ranks.py")], name="train"))
    assert result.error is None
    reported = [(row["rank"], row["i"]) for row in rows(result)]
    assert [i for rank, i in reported if rank == 0] == list(range(100))
    assert [i for rank, i in reported if rank == 1] == list(range(100))
    assert "could not be read" not in output(result, "stderr")


def test_lines_that_seem_to_be_reports_are_counted(fit: Fit) -> None:
    source = """
print('holdfast: loss=1')
print('rank 1 holdfast: loss=2')
print('holdfast: loss')
"""
    (result,) = fit(python(source))
    assert losses(result) == [1]
    said = output(result, "stderr").splitlines()[-1]
    assert said.startswith("holdfast: 2 lines looked like a report and could not be read")
    assert "$HOLDFAST_REPORT_FILE" in said


NOISE = r"""
import os, sys
def put(data):
    os.write(1, data)
put(b"plain\n\x1b[32mholdfast:\x1b[0m lo")
put(b"ss=1\r\n 10%|#  |\r 20%|## |\rholdfast: loss=2\n")
put(b"\xff\xfe not UTF-8\nholdfast: {broken\nholdfast: {also broken\n")
put(b"x" * 3_000_000 + b"\n" + b"holdfast: x=" + b"9" * 2_000_000 + b"\n")
put(b'holdfast: {"loss": NaN}\nholdfast: loss=3')
"""


def test_noise_is_passed_on_and_one_warning_shows_the_first_malformed_line(fit: Fit) -> None:
    (result,) = fit(python(NOISE))
    assert result.error is None
    assert [repr(loss) for loss in losses(result)] == ["1", "2", "nan", "3"]
    written = Path(result.path, "stdout").read_bytes()
    assert len(written) > 5_000_000
    assert b"\xff\xfe not UTF-8\n" in written
    assert output(result, "stderr").splitlines()[:-1] == [
        "holdfast: not reported: holdfast: '{broken': not JSON (Expecting property name enclosed "
        "in double quotes: line 1 column 2 (char 1))"
    ]


def test_a_strict_command_fails_at_a_malformed_report(fit: Fit) -> None:
    (result,) = fit(python("print('holdfast: loss')", strict=True))
    assert isinstance(result.error, tune.TrialError)
    assert "a malformed report: holdfast: 'loss'" in result.error.failure.message


def test_metrics_are_found_in_the_output_of_a_script_that_cannot_report(fit: Fit) -> None:
    source = "for i in 1, 2:\n  print(f'epoch {i}: loss {1 / i}')\n  print(f'accuracy: {i}%')"
    trainable = python(
        "{source}",
        metrics={"loss": r"loss ([\d.]+)", "accuracy": r"accuracy: (\d+)%"},
        must_report=True,
    )
    found, failed = fit(trainable, {"source": tune.grid_search([source, "print('accuracy: 1%')"])})
    assert [(row["loss"], row["accuracy"]) for row in rows(found)] == [(1.0, 1), (0.5, 2)]
    assert isinstance(failed.error, tune.TrialError)
    assert "Not found in its stdout: loss." in failed.error.failure.message


def test_a_scheduler_stops_commands_and_what_they_say_at_the_end_is_kept(fit: Fit) -> None:
    source = """
import os, signal, sys
# It may arrive within print(), which cannot be called again there.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
answers = open(os.environ["HOLDFAST_ACK"])
try:
    for i in range(1, 1000):
        print(f"holdfast: loss={i} ack=1", flush=True)
        answers.readline()
finally:
    print("stopped, and saves itself", flush=True)
    print("holdfast: loss=0", flush=True)
"""
    (result,) = fit(python(source), stop={"training_iteration": 3})
    assert result.error is None
    assert losses(result) == [1, 2, 3]
    assert "stopped, and saves itself\n" in output(result)


STUBBORN = """
trap '' TERM INT HUP
mkfifo ready
sh -c 'echo $$ > kept; echo > ready; exec sleep 1000' &
read -r _ < ready
setsid sh -c 'echo $$ > left; echo > ready; exec sleep 1000' &
read -r _ < ready
echo 'holdfast: loss=1'
wait
"""


@pytest.mark.skipif(sys.platform != "linux", reason="macOS lists no children")
@pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid")
def test_what_ignores_sigterm_is_killed_with_all_that_it_started(fit: Fit) -> None:
    trainable = tune.CommandTrainable(["sh", "-c", STUBBORN], name="train", grace_s=0.2)
    (result,) = fit(trainable, stop={"loss": 1})
    assert result.error is None
    for name in ("kept", "left"):
        pid = int((Path(result.path) / name).read_text())
        assert not Path(f"/proc/{pid}").exists()


def test_what_a_command_leaves_in_the_background_ends_with_it(fit: Fit) -> None:
    source = """
mkfifo ready
(trap 'echo later; echo "holdfast: loss=2"; exit' TERM; echo > ready; sleep 1000 & wait) &
read -r _ < ready
echo 'holdfast: loss=1'
"""
    (result,) = fit(tune.CommandTrainable(["sh", "-c", source], name="train"))
    assert result.error is None
    assert losses(result) == [1, 2]
    assert "later\n" in output(result)
