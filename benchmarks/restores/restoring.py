"""From the start of a script that restores a large experiment to its first resumed trial, and from
the end of its last trial to that of the script."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.measure import OURS, Bench, ScriptFailed, environment, finish, script
from benchmarks.prepared import prepare
from benchmarks.rows import Goal, Row
from holdfast.experiment.folder.layout import SNAPSHOT_PREFIX, Layout
from holdfast.syncer.uploader.lock import ExperimentLock

_DEADLINE_S = 120.0
_BOUND = Goal(of="ours", bound=3.0)


def measure(bench: Bench) -> list[Row]:
    """With `--long`, also of 100,000 trials."""
    trials, unfinished = bench.size(10_000, 60), bench.size(20, 4)
    found = [
        *_restored(bench, trials, unfinished, rows=10),
        *_restored(bench, trials, unfinished, rows=bench.size(100, 20)),
        *_restored(bench, trials, unfinished, rows=bench.size(100, 20), asha=True),
    ]
    if bench.long:
        found += _restored(bench, 100_000, 20, rows=10, is_bound=False)
    return found


def _restored(
    bench: Bench,
    trials: int,
    unfinished: int,
    *,
    rows: int,
    asha: bool = False,
    is_bound: bool = True,
) -> list[Row]:
    storage = bench.scratch()
    experiment = storage / "experiment"
    prepare(experiment, done=trials - unfinished, rows=rows, unfinished=unfinished, asha=asha)
    untouched = shutil.copytree(experiment, storage / "untouched")
    # Not in turns: a run that is killed leaves no snapshot if it found none.
    with_snapshot = bench.interleaved({OURS: partial(_restore_s, experiment)})
    without = bench.interleaved({OURS: partial(_from_journal_s, experiment)})
    size = f"{trials:,} trials with {trials * rows:,} rows{' under ASHA' if asha else ''}"
    work = f"restore of {size} to the first that runs"
    return [
        Row(work=work, unit="s", ours=with_snapshot[OURS], goal=_BOUND if is_bound else None),
        Row(work=f"{work}, without a snapshot", unit="s", ours=without[OURS]),
        Row(
            work=f"from the end of the last trial to that of the script, {size}",
            unit="s",
            ours=[_end_s(untouched)],
        ),
    ]


def _end_s(experiment: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        newest = Path(folder, "newest")
        done = finish(script("restores/resume", experiment), NEWEST=str(newest))
        return done.began_s + done.wall_s - float(newest.read_text())


def _from_journal_s(experiment: Path) -> float:
    for snapshot in experiment.glob(f"{SNAPSHOT_PREFIX}*"):
        snapshot.unlink()
    return _restore_s(experiment)


def _restore_s(experiment: Path) -> float:
    """Seconds from the start of the script until user code runs; the script is then killed."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as meeting:
        path = str(Path(folder, "meeting"))
        meeting.bind(path)
        meeting.listen()
        meeting.settimeout(_DEADLINE_S)
        began_s = time.monotonic()
        process = subprocess.Popen(
            script("restores/resume", experiment),
            env=environment(MEETING=path),
            stdin=subprocess.DEVNULL,
        )
        try:
            running_s = _told(meeting)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            _wait_until_gone(experiment)
    return running_s - began_s


def _told(meeting: socket.socket) -> float:
    """The time at which the first trial ran, as it reports it. Raises ScriptFailed."""
    try:
        line, _ = meeting.accept()
    except TimeoutError as error:
        raise ScriptFailed(f"no trial was resumed within {_DEADLINE_S:g} s") from error
    with line:
        return float(line.recv(64))


def _wait_until_gone(experiment: Path) -> None:
    """Wait until the lock is free: all processes of the experiment share it."""
    ExperimentLock(Layout(experiment).lock, deadline_s=_DEADLINE_S).release()
