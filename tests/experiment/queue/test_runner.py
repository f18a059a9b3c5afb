"""`holdfast queue run`: real commands, side by side, killed and continued."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast.__main__
from holdfast.cli import main
from holdfast.experiment.machine.machine_share import MachineFolder, MachineShare, member_here
from holdfast.experiment.queue.queue_folder import STDOUT, Job, QueueFolder, State
from holdfast.experiment.queue.runner import Happened, QueueRunner
from holdfast.trial.resources import Allocation
from tests.rig.bench import Bench, workbench
from tests.rig.script import MARKS, UserScript
from tests.rig.workers.processes import PATIENCE_S, count_fds, no_process_is_left, wait_for_end

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "queue_script.py"
COMMAND = Path(holdfast.__main__.__file__)


@pytest.fixture
def folder(tmp_path: Path) -> QueueFolder:
    return QueueFolder(tmp_path / "queue")


def add(folder: QueueFolder, *command: str, **settings: Any) -> Job:
    return folder.add(
        lambda number: Job(
            id=number,
            name=f"job{number}",
            command=command,
            directory=str(folder.path),
            added_at=1.0,
            **settings,
        )
    )


def run(
    folder: QueueFolder, *, most: int = 2, environ: Mapping[str, str] | None = None
) -> list[tuple[str, int]]:
    """Run all that is due; what the runner has said."""
    said: list[tuple[str, int]] = []

    def tell(happened: Happened) -> None:
        said.append((happened.what, happened.job.id))

    before = count_fds()
    with no_process_is_left():
        QueueRunner(
            folder, most=most, forever=False, environ=environ or os.environ, tell=tell
        ).run()
    assert count_fds() == before
    return said


def states(folder: QueueFolder) -> list[State]:
    return [one.state for one in folder.jobs()]


def test_jobs_run_in_order_and_their_ends_are_written_down(folder: QueueFolder) -> None:
    add(folder, "sh", "-c", "echo hello; exit 3")
    add(folder, "sh", "-c", "echo bad >&2; echo good")
    add(folder, "/nowhere/program")
    said = run(folder, most=1)
    assert said[:4] == [("started", 1), ("failed", 1), ("started", 2), ("done", 2)]
    assert states(folder) == [State.FAILED, State.DONE, State.FAILED]
    first, second, third = (one.job.last for one in folder.jobs())
    assert first is not None
    assert (first.exit_code, first.last_lines, first.of_stdout) == (3, "hello", True)
    assert second is not None
    assert (second.exit_code, second.last_lines, second.of_stdout) == (0, "bad", False)
    assert third is not None
    assert third.exit_code == 127
    assert "cannot run /nowhere/program" in third.last_lines
    assert folder.file(2, STDOUT).read_text() == "good\n"
    assert run(folder) == []


def test_a_job_that_is_added_later_runs_beside_those_that_run(folder: QueueFolder) -> None:
    os.mkfifo(folder.path / "gate")
    add(folder, "timeout", f"{PATIENCE_S}", "sh", "-c", "read line <gate")

    def tell(happened: Happened) -> None:
        if (happened.what, happened.job.id) == ("started", 1):
            add(folder, "sh", "-c", "echo >gate")

    QueueRunner(folder, most=2, forever=False, environ=os.environ, tell=tell).run()
    assert states(folder) == [State.DONE] * 2


def test_what_a_killed_runner_has_left_is_waited_for_and_a_living_one_is_not(
    folder: QueueFolder,
) -> None:
    add(folder, "true")
    lock = folder.lock(1)
    assert lock is not None
    with folder.runner() as name:
        folder.change(1, lambda job: job.begun(1.0, name))
        assert run(folder) == []
    threading.Timer(2.0, fcntl.flock, [lock, fcntl.LOCK_UN]).start()
    assert run(folder) == [("started", 1), ("done", 1)]
    os.close(lock)


def test_a_job_with_many_arguments_runs(folder: QueueFolder) -> None:
    add(folder, "sh", "-c", "echo $#", *["x" * 1000] * 200)
    add(folder, "true")
    assert run(folder, most=1)[-1] == ("done", 2)
    assert folder.file(1, STDOUT).read_text() == "199\n"


def test_a_job_that_cannot_start_keeps_no_other_from_it(folder: QueueFolder) -> None:
    add(folder, "sh", "-c", "true", *["x" * 100_000] * 40)  # more than Linux takes
    add(folder, "true")
    assert run(folder, most=1) == [("cannot start", 1), ("started", 2), ("done", 2)]


def test_a_full_disk_at_a_jobs_end_stops_no_other_and_runs_nothing_again(
    folder: QueueFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(folder, "sh", "-c", "echo ran")
    add(folder, "sh", "-c", "echo ran")
    write, refused = QueueFolder._write, [1, 2]

    def full(self: QueueFolder, job: Job) -> None:
        if job.last is not None and job.last.ended_at is not None and refused:
            refused.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, job)

    monkeypatch.setattr(QueueFolder, "_write", full)
    assert sorted(run(folder, most=1)) == [
        ("done", 1),
        ("done", 2),
        ("started", 1),
        ("started", 2),
    ]
    assert refused == []
    assert [folder.file(number, STDOUT).read_text() for number in (1, 2)] == ["ran\n"] * 2


def test_what_a_command_leaves_behind_ends_with_it(folder: QueueFolder) -> None:
    add(folder, "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
    run(folder)
    wait_for_end(int(folder.file(1, STDOUT).read_text()))


def test_a_job_with_cpus_of_its_own_waits_for_them_and_sees_no_more(
    folder: QueueFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SHARE_DIR", str(tmp_path / "machine"))
    monkeypatch.setattr(
        "holdfast.experiment.queue.runner.detect_total", lambda: {"CPU": 2.0, "GPU": 2.0}
    )
    holding = {"CPU": 1.0, "GPU": 1.0}
    member = member_here("e", shares=True, total={"CPU": 2, "GPU": 2}, uses={}, gpus=["0", "1"])
    granted, waits = threading.Event(), threading.Event()
    held: list[Allocation] = []

    def take(allocation: Allocation) -> None:
        held.append(allocation)
        granted.set()

    share = MachineShare(MachineFolder(tmp_path / "machine"), member, lambda text: waits.set())
    share.take(Allocation(amounts=holding), take)
    assert granted.wait(PATIENCE_S)
    # It is behind the job, so it waits until the job has what it asked for.
    add(
        folder,
        "sh",
        "-c",
        "echo $HOLDFAST_CPUS $HOLDFAST_SHARE $CUDA_VISIBLE_DEVICES",
        cpus=2,
        gpus=1,
    )
    add(folder, "sh", "-c", "echo $HOLDFAST_SHARE")

    def let_go(happened: Happened) -> None:
        if happened.what == "done" and happened.job.id == 2:  # the first one waits meanwhile
            assert states(folder)[0] is State.WAITING
            share.give_back(held[0])

    runner = QueueRunner(
        folder, most=2, forever=False, environ={**os.environ, "HOLDFAST_SHARE": ""}, tell=let_go
    )
    runner.run()
    share.close()
    assert folder.file(1, STDOUT).read_text() == "2 0 0\n"
    assert folder.file(2, STDOUT).read_text() == "1\n"


# -- whole runs -----------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, SCRIPT) as made:
        made.environ |= {
            "HOLDFAST_SHARE": "",
            "HOLDFAST_SHARE_DIR": str(tmp_path / "machine"),
            "HOLDFAST_QUEUE": str(tmp_path / "queue"),
        }
        yield made
        left = [path.name for path in tmp_path.glob("machine/*") if path.name != "mutex"]
        assert left == []


def queue(bench: Bench, folder: QueueFolder, job: str, **options: Any) -> None:
    given = {"job": job, "storage": str(bench.storage), **options}
    add(folder, sys.executable, str(SCRIPT), json.dumps(given))


def runner(bench: Bench, *words: str) -> UserScript:
    return bench.run(COMMAND, "queue", "run", *words)


def most_at_once(notes: Sequence[Mapping[str, Any]]) -> int:
    changes = sorted([(one["began"], 1) for one in notes] + [(one["ended"], -1) for one in notes])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def test_three_scripts_two_at_a_time_share_two_cpus(bench: Bench, folder: QueueFolder) -> None:
    gates = [bench.gate(f"{job}-{n}") for job in "ab" for n in range(2)]
    for job in ("a", "b", "c"):
        queue(bench, folder, job, trials=2)
    script = runner(bench, "--jobs", "2")
    # Both CPUs are taken, by one script or by two.
    script.wait_for("began")
    script.wait_for("began")
    assert states(folder)[2] is State.WAITING
    for gate in gates:
        gate.open()
    script.succeeds()
    assert states(folder) == [State.DONE] * 3
    assert len(bench.notes()) == 6
    assert most_at_once(bench.notes()) == 2
    assert "3 done" in script.stdout


def test_a_killed_runner_leaves_jobs_that_the_next_one_continues(
    bench: Bench, folder: QueueFolder
) -> None:
    """The script has no names and no `resume`: the queue finds what it has begun."""
    gate = bench.gate("a-1")
    queue(bench, folder, "a", trials=3, cpus=1, fits=2)
    first = runner(bench)
    first.wait_for("began a 1")
    first.kill()
    second = runner(bench)  # it waits until what the killed one has left is gone
    second.wait_for("began a 1")
    assert first.left() == []
    second.kill_all()  # as when the machine restarts
    assert second.left() == []
    assert states(folder) == [State.INTERRUPTED]
    gate.open()
    runner(bench).succeeds()
    assert states(folder) == [State.DONE]
    ran = [one["n"] for one in bench.notes()]
    assert ran.count(0) == 2  # once in each of the two experiments of the script
    assert sorted(set(ran)) == [0, 1, 2]
    assert len(list(bench.storage.iterdir())) == 2
    (listed,) = folder.jobs()
    assert [one.exit_code for one in listed.job.attempts] == [None, None, 0]
    assert folder.file(1, STDOUT).read_text() == "None 3 3\nnamed-a 3 3\n"


def test_ctrl_c_interrupts_jobs_and_a_stopped_one_waits_for_a_retry(
    bench: Bench, folder: QueueFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = bench.gate("a-1")
    queue(bench, folder, "a", trials=3, cpus=1)
    script = runner(bench)
    script.wait_for("began a 1")
    script.signal(signal.SIGINT)
    assert script.ends() == 130
    script.finish_reading()
    assert "job 1: job1 is interrupted" in script.stdout
    assert states(folder) == [State.INTERRUPTED]
    script = runner(bench)
    script.wait_for("began a 1")
    main(["queue", "stop", "--queue", str(folder.path), "1"])
    assert script.ends() == 0
    assert states(folder) == [State.STOPPED]
    gate.open()
    main(["queue", "retry", "--queue", str(folder.path), "1"])
    runner(bench).succeeds()
    assert states(folder) == [State.DONE]
    assert [one["n"] for one in bench.notes()].count(0) == 1
    capsys.readouterr()


@pytest.mark.skipif(sys.platform != "linux", reason="macOS lists no children")
def test_a_killed_guard_leaves_nothing_of_its_job(bench: Bench, folder: QueueFolder) -> None:
    child = f"echo $PPID > parent; echo $$ > child; echo began >${MARKS}; exec sleep 1000"
    (folder.path / "child.sh").write_text(child)
    add(folder, "sh", "-c", "echo $PPID > guard; setsid sh child.sh & wait")
    script = runner(bench)
    script.wait_for("began")
    os.kill(int((folder.path / "guard").read_text()), signal.SIGKILL)
    assert script.ends() == 1
    assert not Path(f"/proc/{int((folder.path / 'child').read_text())}").exists()
    assert states(folder) == [State.FAILED]


def test_a_second_ctrl_c_kills(bench: Bench, folder: QueueFolder) -> None:
    add(folder, "sh", "-c", f"trap '' INT; echo began >${MARKS}; while :; do sleep 1000; done")
    add(folder, "sh", "-c", f"echo began >${MARKS}; exec sleep 1000")
    script = runner(bench, "--jobs", "2")
    script.wait_for("began")
    script.wait_for("began")
    script.signal(signal.SIGINT)
    script.said("job 2: job2 is interrupted", stream="stdout")
    script.signal(signal.SIGINT)
    assert script.ends() == 130
    assert script.left() == []
    assert states(folder) == [State.INTERRUPTED] * 2
