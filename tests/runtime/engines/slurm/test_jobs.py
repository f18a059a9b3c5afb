"""What follows from Slurm's answers, with values."""

from dataclasses import replace

import pytest

from holdfast.runtime.engines.slurm import jobs
from holdfast.runtime.engines.slurm.commands import Row
from holdfast.runtime.engines.slurm.jobs import Job, Rest

RUNNING = Row(array="7", number=0, name="x-1", state="RUNNING", used_s=30.0, node="n1")
PENDING = Row(array="7", number=0, name="x-1", state="PENDING", reason="Priority")


def job(row: Row | None = None, **given: object) -> Job:
    made = Job(ticket="t", name="x-1", number=0, array="7", row=row)
    return replace(made, **given)  # type: ignore[arg-type]


def look(known: Job, *rows: Row) -> Job:
    return jobs.looked(known, jobs.by_place(rows))


def test_a_job_has_ended_when_it_is_not_listed_twice_in_a_row() -> None:
    once = look(job(RUNNING))
    assert not once.is_over
    assert look(once).is_over
    assert not look(look(once, RUNNING)).is_over


def test_a_job_without_an_id_is_not_missed() -> None:
    unknown = job(array="")
    assert look(look(look(unknown))) == unknown


def test_a_job_never_starts_if_slurm_says_so_twice_in_a_row() -> None:
    hopeless = replace(PENDING, reason="PartitionTimeLimit")
    once = look(job(), hopeless)
    assert not once.is_hopeless
    assert look(once, hopeless).is_hopeless
    assert not look(look(once, PENDING), hopeless).is_hopeless


@pytest.mark.parametrize(
    ("used_s", "left_s", "soon"),
    [(3600, 61, False), (3600, 60, True), (60, 60, False), (3600, None, False), (90, 30, True)],
)
def test_an_end_is_announced_a_minute_before_or_late_in_a_short_job(
    used_s: float, left_s: float | None, soon: bool
) -> None:
    running = job(replace(RUNNING, used_s=used_s, left_s=left_s))
    assert jobs.ends_soon(running) == soon
    assert not jobs.ends_soon(replace(running, is_leaving=True))


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("CANCELLED", "Slurm job 7_0 on n1 was cancelled (scancel)"),
        ("TIMEOUT", "Slurm job 7_0 on n1 reached its time limit"),
        ("NODE_FAIL", "Slurm job 7_0 on n1 lost its node, which failed or was taken down"),
        ("PREEMPTED", "Slurm job 7_0 on n1 was preempted by another job"),
        ("REVOKED", "Slurm job 7_0 on n1 ended (REVOKED)"),
    ],
)
def test_causes(state: str, text: str) -> None:
    assert jobs.end_of(job(replace(RUNNING, state=state))) == text


def test_a_failure_names_status_and_last_lines() -> None:
    failed = job(replace(RUNNING, state="FAILED"), is_leaving=True)
    assert jobs.end_of(failed, "exit status 3", "oh | no") == (
        "Slurm job 7_0 on n1 failed (exit status 3), shortly before its time limit. "
        "Its last lines: oh | no"
    )


def test_what_slurm_ended_before_holdfast_could_keeps_its_own_cause() -> None:
    given_back = job(replace(RUNNING, state="NODE_FAIL"), ordered="it was given back")
    assert "lost its node" in jobs.end_of(given_back)
    assert jobs.end_of(replace(given_back, is_cancelled=True)) == (
        "Slurm job 7_0 on n1 was ended by holdfast: it was given back"
    )
    by_itself = job(replace(RUNNING, state="COMPLETED"), ordered="it was given back")
    assert "was ended by holdfast: it was given back" in jobs.end_of(by_itself)


def test_other_ends() -> None:
    assert jobs.end_of(job(unseen=2)) == "Slurm job 7_0 is not known to Slurm any more"
    assert jobs.end_of(job(array="", ordered="the run ended")) == (
        "its Slurm job was not submitted: the run ended"
    )


def test_the_queue_is_shown_with_its_reasons() -> None:
    waiting = [job(PENDING), job(PENDING), job(replace(PENDING, reason="Resources"))]
    assert jobs.queue_text([*waiting, job(RUNNING)]) == (
        "3 of 4 nodes wait in Slurm's queue (Priority, Resources)"
    )
    assert jobs.queue_text([job(PENDING)]) == "the node waits in Slurm's queue (Priority)"
    assert jobs.queue_text([job(), job(RUNNING)]) == "1 of 2 nodes waits in Slurm's queue"
    assert jobs.queue_text([job(RUNNING), job(PENDING, ordered="it was given back")]) == ""


def test_a_submission_without_an_answer_is_found_in_the_queue_and_a_second_one_is_a_stray() -> (
    None
):
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
    running = job(replace(RUNNING, used_s=60.0))
    assert (jobs.is_silent(running, 60.0), jobs.is_silent(running, 61.0)) == (True, False)
    for other in (job(), job(PENDING), replace(running, has_answered=True)):
        assert not jobs.is_silent(other, 60.0)


def test_jobs_that_fail_are_replaced_after_longer_and_longer_rests() -> None:
    rest, now, rests = Rest(), 100.0, []
    for _ in range(8):
        rest = rest.after_failure(now, 1, "oh no")
        rests.append(rest.until - now)
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert (rest.is_over(now), rest.is_over(now + 60)) == (False, True)
    assert "oh no" in rest.text
    assert rest.after_success() == Rest()
    assert [Rest().after_failure(now, count, "").is_in_vain for count in (2, 3)] == [False, True]


def test_jobs_that_are_cancelled_again_and_again_are_unwanted() -> None:
    cancelled = job(replace(RUNNING, state="CANCELLED", used_s=5000.0))
    ours = replace(cancelled, ordered="it was given back", is_cancelled=True)
    rest, rests = Rest(), []
    for at in (0.0, 100.0, 200.0):
        assert not rest.is_unwanted
        rest = rest.after([cancelled, ours], {"t": "Slurm job 7_0 was cancelled"}, at)
        rests.append(rest.until - at)
    assert rests == [1.0, 2.0, 4.0]
    assert (rest.is_unwanted, rest.is_in_vain) == (True, False)
    assert rest.text == (
        "a new Slurm job, because the last one was cancelled (Slurm job 7_0 was cancelled)"
    )
    assert rest.after([ours], {"t": ""}, 300.0) == Rest()
    told = jobs.replaced_text("X was cancelled. Its last lines: oh")
    assert told.startswith("X was cancelled, and not by holdfast, which submits another job")
    assert "(X was cancelled). Restore the run" in jobs.unwanted_text("X was cancelled")


def test_what_may_still_run_is_named() -> None:
    left = [job(), job(array="", name="x-2")]
    assert jobs.left_text(left) == (
        "Slurm jobs may still run; end them with `scancel 7_0`, `scancel --name=x-2`"
    )
    assert jobs.left_text([]) == ""
