"""What a job is, and the state that follows from its file and its lock."""

from __future__ import annotations

from holdfast.experiment.queue.queue_folder import Job, LastLines, State

NEW = Job(id=1, name="train", command=["train"], directory="/", added_at=1.0)
RUNNING = NEW.begun(2.0, "bell")


def ended(code: int, *, interrupted: bool = False) -> Job:
    return RUNNING.ended(3.0, code, interrupted=interrupted, lines=LastLines(text="end"))


def test_a_new_job_waits() -> None:
    assert NEW.state(is_held=False) is State.WAITING
    assert NEW.state(is_held=True) is State.WAITING  # its runner waits for CPUs
    assert NEW.since(State.WAITING) == 1.0


def test_a_job_that_a_runner_holds_runs() -> None:
    assert RUNNING.state(is_held=True) is State.RUNNING
    assert RUNNING.since(State.RUNNING) == 2.0


def test_a_job_whose_runner_is_gone_is_due_again() -> None:
    assert RUNNING.state(is_held=False) is State.INTERRUPTED
    assert RUNNING.due


def test_a_job_ends_by_its_exit_code() -> None:
    assert ended(0).state(is_held=False) is State.DONE
    assert ended(3).state(is_held=False) is State.FAILED
    assert ended(-9).state(is_held=False) is State.FAILED
    assert not ended(3).due
    assert ended(0).since(State.DONE) == 3.0


def test_a_job_that_was_asked_to_end_is_due_again_unless_it_was_done() -> None:
    assert ended(-2, interrupted=True).state(is_held=False) is State.INTERRUPTED
    assert ended(-2, interrupted=True).due
    assert ended(0, interrupted=True).state(is_held=False) is State.DONE


def test_a_stopped_job_waits_for_a_retry() -> None:
    stopped = RUNNING.stopped_by_user()
    assert stopped.state(is_held=True) is State.RUNNING
    over = stopped.ended(3.0, -2, interrupted=True, lines=LastLines())
    assert over.state(is_held=False) is State.STOPPED
    assert not over.due
    assert over.retried().state(is_held=False) is State.INTERRUPTED
    assert ended(1).retried().state(is_held=False) is State.WAITING


def test_a_job_holds_as_a_whole_only_what_it_names() -> None:
    from dataclasses import replace

    assert NEW.holds == {}
    assert replace(NEW, cpus=2).holds == {"CPU": 2, "GPU": 0}
    assert replace(NEW, gpus=1).holds == {"CPU": 1, "GPU": 1}
