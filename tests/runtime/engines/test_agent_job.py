"""Agents as children of a cluster's worker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.runtime.engines import agent_job, started
from holdfast.runtime.engines.agent_job import AgentJob, Jobs
from tests.rig.workers.processes import PATIENCE_S

pytestmark = pytest.mark.process


def job(code: str, began: Callable[[], None] = lambda: None) -> Callable[[], AgentJob]:
    """An agent that is a line of shell, which gets the sign of an agent as its `$SIGN`."""
    shell = f"SIGN='\\000holdfast agent\\000\\n'; {code}"
    return lambda: AgentJob(
        b"the invitation\n",
        began,
        python=["sh", "-c", shell],
        answer_s=PATIENCE_S,
        variables={"SHOWN": "to the agent"},
    )


def test_it_gets_its_invitation_when_it_says_that_it_runs() -> None:
    begun = threading.Event()
    cause, worked = Jobs().run("t", job('printf "$SIGN"; cat; echo $SHOWN', begun.set))
    assert begun.is_set()
    assert worked
    assert "Its last lines: the invitation | to the agent" in cause


def test_one_that_starts_before_its_job_is_complete_gets_its_invitation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy machine may run the thread that reads, and the agent, before the thread that has
    started them."""
    begun = threading.Event()
    start = threading.Thread.start

    def start_and_stand_still(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "holdfast-agent":
            assert begun.wait(PATIENCE_S)

    monkeypatch.setattr(threading.Thread, "start", start_and_stand_still)
    _, worked = Jobs().run("t", job('printf "$SIGN"; cat', begun.set))
    assert worked


def test_one_that_says_that_it_runs_after_its_end_was_ordered_gets_no_invitation() -> None:
    begun = threading.Event()
    started_job = job('read line; printf "$SIGN"; cat; exec sleep 300', begun.set)()
    started_job._is_ended = True  # as `end` does, before its timer fires
    stdin = started_job._process.stdin
    assert stdin is not None
    stdin.write(b"go on\n")
    started_job.end("it was given back", 1.0)
    cause, worked = started_job.wait()
    assert not worked
    assert not begun.is_set()
    assert "was killed by holdfast: it was given back" in cause


def test_one_that_fails_at_once_has_not_worked() -> None:
    cause, worked = Jobs().run("t", job('printf "$SIGN"; cat >&2; exit 3'))
    assert not worked
    assert "exited with status 3. Its last lines: the invitation" in cause


def test_one_that_tried_for_long_to_reach_its_host_has_not_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_job, "_SOON_S", 0.0)
    assert Jobs().run("t", job('printf "$SIGN"; exit 1'))[1]
    assert not Jobs().run("t", job(f'printf "$SIGN"; exit {started.UNREACHED}'))[1]


def test_one_that_was_ended_before_it_began_never_begins() -> None:
    jobs = Jobs()
    jobs.end("t", "it was given back", 1.0)
    assert jobs.run("t", job("exit 1")) == ("it was given back before it began", False)


def test_one_that_does_not_end_by_itself_is_killed() -> None:
    jobs, begun = Jobs(), threading.Event()

    def end() -> None:
        assert begun.wait(PATIENCE_S)
        jobs.end("t", "it was given back", 0.0)

    ender = threading.Thread(target=end)
    ender.start()
    cause, worked = jobs.run("t", job('printf "$SIGN"; cat; exec sleep 300', begun.set))
    ender.join(PATIENCE_S)
    assert worked
    assert "was killed by holdfast: it was given back" in cause


def test_a_command_that_does_not_exist_is_named() -> None:
    def start() -> AgentJob:
        return AgentJob(
            b"", lambda: None, python=["no-such-python"], answer_s=PATIENCE_S, variables={}
        )

    cause, worked = Jobs().run("t", start)
    assert not worked
    assert "no-such-python cannot be run: [Errno 2]" in cause
