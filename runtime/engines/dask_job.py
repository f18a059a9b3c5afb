"""The task that runs an agent in a Dask worker, and the order that ends it."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from holdfast.runtime.engines.agent_job import JOBS, AgentJob
from holdfast.runtime.safe_text import named


def run(ticket: str, invitation: BytesIO, topic: str, agent: Mapping[str, Any]) -> str:
    """Run an agent until it ends. Returns why it ended.

    Its begin and its end are also events on `topic`, because a task's result is lost with the
    client that asked for it. No error leaves this function: Dask would log its arguments.
    """
    from distributed import get_worker

    log = get_worker().log_event
    try:
        cause, worked = JOBS.run(
            ticket,
            lambda: AgentJob(
                invitation.getvalue(), lambda: log(topic, ["began", ticket]), **agent
            ),
        )
    except Exception as error:  # the host is told
        cause, worked = f"the agent cannot be started: {named(error)}", False
    log(topic, ["ended", ticket, cause, worked])
    return cause


def end(ticket: str, why: str, grace_s: float) -> None:
    """End an agent of this worker."""
    JOBS.end(ticket, why, grace_s)
