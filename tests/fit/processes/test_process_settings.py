"""What a user sets for a whole process, or its launcher did, changes nothing of holdfast's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import TuneError
from tests.fit.processes.process_settings import NAMES, SETTINGS
from tests.rig.nightly import rest_nightly
from tests.rig.script import LONGEST_S

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).with_name("settings_script.py")
# Those that once broke a run are first; the others are tried together in each trial's process.
BROKE = 13
# Interpreters that do not end well afterwards, in plain Python either: they cannot flush a stream,
# or an alarm finds no handler at the end.
ENDS_BADLY = {"stderr detached", "a stream that only writes", "alarm"}


def run(
    tmp_path: Path,
    *in_trials: str,
    settings: str = "",
    flags: Sequence[str] = (),
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does, in an environment without variables of these tests."""
    words = [*prefix, sys.executable, *flags, SCRIPT, tmp_path / "results", tmp_path / "answer"]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], NAMES: settings}
    return subprocess.run(
        [*map(str, words), *in_trials],
        env=environ,
        cwd=cwd or tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )


def assert_sound(tmp_path: Path, ended: subprocess.CompletedProcess[str]) -> None:
    answer = tmp_path / "answer"
    assert answer.exists(), ended.stderr
    assert answer.read_text() == "[]"


@pytest.mark.parametrize("setting", rest_nightly(BROKE, SETTINGS))
def test_a_setting_of_the_script_does_not_reach_holdfast(tmp_path: Path, setting: str) -> None:
    ended = run(tmp_path, settings=setting)
    assert_sound(tmp_path, ended)
    assert setting in ENDS_BADLY or ended.returncode == 0


def test_a_setting_in_a_trial_does_not_reach_holdfast(tmp_path: Path) -> None:
    ended = run(tmp_path, *SETTINGS)
    assert_sound(tmp_path, ended)
    assert ended.returncode == 0


@pytest.mark.parametrize(
    "flags",
    rest_nightly(
        1,
        ["-bb -W error -X dev -OO", "-I", "-O -s -E", "-X utf8"],
    ),
)
def test_options_of_the_interpreter_do_not_reach_holdfast(tmp_path: Path, flags: str) -> None:
    ended = run(tmp_path, flags=flags.split())
    assert_sound(tmp_path, ended)
    assert ended.returncode == 0
    assert "Warning" not in ended.stderr


@pytest.mark.parametrize("closed", rest_nightly(3, ["0 1", "2", "0 1 2", "0", "1", "1 2", "0 2"]))
def test_a_launcher_may_close_the_standard_streams(tmp_path: Path, closed: str) -> None:
    redirections = " ".join(f"{fd}>&-" for fd in closed.split())
    ended = run(tmp_path, prefix=("sh", "-c", f'exec "$0" "$@" {redirections}'))
    assert_sound(tmp_path, ended)
    assert ended.returncode == 0


def test_no_process_of_a_run_has_the_signals_blocked_that_its_launcher_blocked(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        here = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        blocked = [
            line.split()[1]
            for line in Path("/proc", str(os.getppid()), "status").read_text().splitlines()
            if line.startswith("SigBlk")
        ]
        tune.report({"here": len(here), "above": int(blocked[0], 16) if blocked else 0})

    if sys.platform != "linux":
        pytest.skip("only Linux shows the signals that a process blocks")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGUSR1})
    try:
        (result,) = fit(train)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (result.metrics["here"], result.metrics["above"]) == (0, 0)


def test_a_removed_working_directory_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    remove = ("sh", "-c", f'rmdir {gone}; exec "$0" "$@"')
    ended = run(tmp_path, prefix=remove, cwd=gone)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.endswith("the working directory has been removed: change to another one (cd)")
    assert "experiment/start" not in ended.stderr
    assert not (tmp_path / "results" / "run").exists()


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root may hide /proc, on Linux"
)
def test_a_machine_without_proc_is_refused_in_words(tmp_path: Path) -> None:
    hide = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"')
    ended = run(tmp_path, prefix=hide)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith("mount it (mount -t proc proc /proc)")
    assert "psutil" not in ended.stderr


@pytest.mark.parametrize(
    "setting",
    [
        {"name": "run\udcff"},
        {"log_to_file": ("out\udcff", "err")},
        {"stop": {"loss\udcff": 3}},
    ],
)
def test_a_name_that_is_not_utf_8_is_refused_in_words(fit: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(TuneError, match=r"\\udcff.* is not UTF-8 text and cannot be stored"):
        fit(lambda config: {"loss": 1}, **setting)


def test_a_metric_whose_name_is_not_utf_8_is_refused_in_words(fit: Any) -> None:
    (result,) = fit(lambda config: {"loss\udcff": 1})
    assert "'loss\\udcff' is text that is no valid Unicode" in str(result.error)
