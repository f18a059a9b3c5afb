"""The task that runs an agent in a Dask worker, and the order that ends it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from holdfast.runtime.engines.agent_job import JOBS, AgentJob
from holdfast.runtime.interpreter import LIMITS
from holdfast.text.errors import named


def run(ticket: str, invitation: BytesIO, topic: str, agent: Mapping[str, Any]) -> str:
    """Run an agent until it ends. Returns why it ended.

    Its begin and its end are also events on `topic`, because a task's result is lost with the
    client that asked for it. No error leaves this function: Dask would log its arguments.
    """
    import dask.config
    from distributed import get_worker

    nanny = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    environ = own_environ(os.environ, nanny)
    log = get_worker().log_event
    try:
        cause, worked = JOBS.run(
            ticket,
            lambda: AgentJob(
                invitation.getvalue(),
                lambda: log(topic, ["began", ticket]),
                environ=environ,
                **agent,
            ),
        )
    except Exception as error:  # the host is told
        cause, worked = f"the agent cannot be started: {named(error)}", False
    log(topic, ["ended", ticket, cause, worked])
    return cause


def end(ticket: str, why: str, grace_s: float) -> None:
    """End an agent of this worker."""
    JOBS.end(ticket, why, grace_s)


def own_environ(environ: Mapping[str, str], nanny: Mapping[str, object]) -> dict[str, str]:
    """The environment for an agent: without the limits of threads that Dask's nanny sets for its
    workers, where many tasks share the cores."""
    set_by_nanny = {name: str(nanny[name]) for name in LIMITS if name in nanny}
    return {name: value for name, value in environ.items() if set_by_nanny.get(name) != value}
