"""What follows from Slurm's answers, with values."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.runtime.engines.slurm import jobs
from holdfast.runtime.engines.slurm.commands import Row
from holdfast.runtime.engines.slurm.jobs import Job

RUNNING = Row(array="7", number=0, name="x-1", state="RUNNING", used_s=30.0, node="n1")
PENDING = Row(array="7", number=0, name="x-1", state="PENDING", reason="Priority")


def job(row: Row | None = None, **given: Any) -> Job:
    return Job(**{"ticket": "t", "name": "x-1", "number": 0, "array": "7", "row": row, **given})


def seen(*rows: Row | None, **given: Any) -> Job:
    """A job that squeue has shown like this, one answer after the other."""
    made = job(**given)
    for row in rows:
        made.see(row)
    return made


def test_one_answer_that_does_not_list_a_job_ends_it_not() -> None:
    assert [seen(RUNNING, *[None] * times).is_over for times in (1, 2)] == [False, True]
    assert not seen(RUNNING, None, RUNNING, None).is_over
    assert not seen(None, None, None, array="").is_over  # its submission was not answered yet


def test_a_job_never_starts_if_slurm_says_so_twice_in_a_row() -> None:
    hopeless = replace(PENDING, reason="PartitionTimeLimit")
    assert [seen(*[hopeless] * times).is_hopeless for times in (1, 2)] == [False, True]
    assert not seen(hopeless, PENDING, hopeless).is_hopeless


@pytest.mark.parametrize(
    ("used_s", "left_s", "soon"),
    [(3600, 61, False), (3600, 60, True), (60, 60, False), (3600, None, False), (90, 30, True)],
)
def test_an_end_is_announced_a_minute_before_or_late_in_a_short_job(
    used_s: float, left_s: float | None, soon: bool
) -> None:
    row = replace(RUNNING, used_s=used_s, left_s=left_s)
    assert job(row).ends_soon() == soon
    assert not job(row, is_leaving=True).ends_soon()


FAILED = replace(RUNNING, state="FAILED")


@pytest.mark.parametrize(
    ("given", "told", "text"),
    [
        (job(replace(RUNNING, state="CANCELLED")), (), " on n1 was cancelled (scancel)"),
        (job(replace(RUNNING, state="NODE_FAIL")), (), " on n1 lost its node, which failed or"),
        (job(replace(RUNNING, state="REVOKED")), (), " on n1 ended (REVOKED)"),
        (
            job(FAILED, is_leaving=True),
            ("exit status 3", "oh | no"),
            "failed (exit status 3), shortly before its time limit. Its last lines: oh | no",
        ),
        (job(replace(RUNNING, state="NODE_FAIL"), ordered="given back"), (), "lost its node"),
        (job(replace(RUNNING, state="COMPLETED"), ordered="given back"), (), "ended by holdfast"),
        (job(RUNNING, ordered="back", is_cancelled=True), (), "was ended by holdfast: back"),
        (job(unseen=2), (), "Slurm job 7_0 is not known to Slurm any more"),
        (job(array="", ordered="the run ended"), (), "was not submitted: the run ended"),
    ],
)
def test_the_cause_of_an_end(given: Job, told: tuple[str, ...], text: str) -> None:
    assert text in jobs.end_of(given, *told)


def test_the_queue_is_shown_with_its_reasons() -> None:
    waiting = [job(PENDING), job(PENDING), job(replace(PENDING, reason="Resources"))]
    assert jobs.queue_text([*waiting, job(RUNNING)]) == (
        "3 of 4 nodes wait in Slurm's queue (Priority, Resources)"
    )
    assert jobs.queue_text([job(PENDING)]) == "the node waits in Slurm's queue (Priority)"
    assert jobs.queue_text([job(), job(RUNNING)]) == "1 of 2 nodes waits in Slurm's queue"
    assert jobs.queue_text([job(RUNNING), job(PENDING, ordered="it was given back")]) == ""


def test_a_submission_without_an_answer_is_found_and_a_second_one_is_a_stray() -> None:
    rows = [PENDING, replace(PENDING, array="9"), replace(PENDING, array="8", name="y-1")]
    assert jobs.adopted([job(array="")], rows[:1]) == {"x-1": "7"}
    assert jobs.adopted([job()], rows) == {}
    assert jobs.strays("x-", {"x-1": "7"}, rows) == ["9_0"]
    assert jobs.strays("x-", {}, rows[:1]) == ["7_0"]


def test_of_jobs_that_are_not_needed_the_newest_in_the_queue_go() -> None:
    held = [job(PENDING, ticket="a"), job(RUNNING, ticket="b"), job(PENDING, ticket="c")]
    assert [one.ticket for one in jobs.surplus(held, 2)] == ["c"]
    assert [one.ticket for one in jobs.surplus(held, 0)] == ["c", "a"]
    assert jobs.surplus(held, 3) == []


@pytest.mark.parametrize(
    ("row", "failed"),
    [
        (replace(RUNNING, state="FAILED", used_s=1.0), True),
        (replace(RUNNING, state="COMPLETED", used_s=1.0), True),
        (replace(RUNNING, state="FAILED", used_s=11.0), False),
        (replace(RUNNING, state="FAILED", used_s=1, reason="RaisedSignal:9(Killed)"), False),
        (replace(RUNNING, state="FAILED", used_s=1, reason="RaisedSignal:11(SIGSEGV)"), True),
        (replace(RUNNING, state="PREEMPTED", used_s=0.0), False),
        (replace(PENDING, state="CANCELLED"), False),
        (replace(PENDING, state="BOOT_FAIL"), True),
    ],
)
def test_an_agent_that_ends_at_once_was_of_no_use(row: Row, failed: bool) -> None:
    assert job(row).has_failed == failed
    assert not job(row, ordered="it was given back").has_failed
    assert job(row, is_useless=True).has_failed


def test_an_agent_should_begin_soon_after_its_job() -> None:
    row = replace(RUNNING, used_s=60.0)
    assert (job(row).is_silent(60.0), job(row).is_silent(61.0)) == (True, False)
    for other in (job(), job(PENDING), job(row, has_answered=True)):
        assert not other.is_silent(60.0)


def test_what_somebody_has_cancelled_or_may_still_run_is_named() -> None:
    told = jobs.replaced_text("X was cancelled. Its last lines: oh")
    assert told.startswith("X was cancelled, and not by holdfast, which submits another job")
    assert "(X was cancelled). Restore the run" in jobs.unwanted_text("X was cancelled")
    assert jobs.left_text([job(), job(array="", name="x-2")]) == (
        "Slurm jobs may still run; end them with `scancel 7_0`, `scancel --name=x-2`"
    )
    assert jobs.left_text([]) == ""
