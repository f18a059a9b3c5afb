"""Agents as children of a cluster's worker: what `AgentProcess` does is tested in its own file."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.runtime.engines.agent_job import AgentJobs, Ending
from tests.rig.workers.processes import PATIENCE_S

pytestmark = pytest.mark.process


def run(jobs: AgentJobs, code: str, began: Callable[[], None] = lambda: None) -> Ending:
    """Run an agent that is a line of shell, which gets the sign of an agent as its `$SIGN`."""
    shell = f"SIGN='\\000holdfast agent\\000\\n'; {code}"
    agent = {
        "python": ["sh", "-c", shell],
        "module": "none",
        "variables": {"SHOWN": "to the agent"},
        "answer_s": PATIENCE_S,
    }
    return jobs.run("t", b"the invitation\n", began, agent)


def test_it_gets_its_invitation_when_it_says_that_it_runs() -> None:
    begun = threading.Event()
    cause, worked = run(
        AgentJobs(), 'printf "$SIGN"; read line; echo $line; echo $SHOWN', begun.set
    )
    assert begun.is_set()
    assert worked
    assert "Its last lines: the invitation | to the agent" in cause


def test_one_that_was_ended_before_it_began_never_begins() -> None:
    jobs = AgentJobs()
    jobs.end("t", "it was given back", 1.0)
    assert run(jobs, "exit 1") == ("it was given back before it began", False)


def test_one_that_does_not_end_by_itself_is_killed() -> None:
    jobs, begun = AgentJobs(), threading.Event()

    def end() -> None:
        assert begun.wait(PATIENCE_S)
        jobs.end("t", "it was given back", 0.0)

    ender = threading.Thread(target=end)
    ender.start()
    cause, worked = run(jobs, 'printf "$SIGN"; exec sleep 300', begun.set)
    ender.join(PATIENCE_S)
    assert worked
    assert "was killed by holdfast: it was given back" in cause
