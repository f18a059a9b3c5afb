"""Runs one agent on a machine of a cluster, as a child of a worker of Dask or Ray.

The worker imports this module, so it imports little, and Dask only where a worker of Dask calls.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from holdfast.runtime.engines import started
from holdfast.runtime.engines.agent_process import AgentProcess, Job
from holdfast.runtime.interpreter import LIMITS
from holdfast.text.errors import named

AGENT = "holdfast.agent"
# `python`, `module`, `variables` and `answer_s`, as a frame carries them.
AgentOptions = Mapping[str, Any]
# How an agent has ended: the cause in one line, and whether it had been of use.
Ending = tuple[str, bool]


class AgentJobs:
    """The agents of one worker process, by ticket. Its methods are called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Callable[[str, float], object]] = {}
        self._refused: set[str] = set()

    def run(
        self,
        ticket: str,
        invitation: bytes,
        on_started: Callable[[], None],
        agent: AgentOptions,
        environ: Mapping[str, str] | None = None,
    ) -> Ending:
        """Run an agent until it ends. It gets `environ`, by default that of this process.
        `on_started` is called when it has begun."""
        python = agent["python"] or (sys.executable,)
        job = Job(
            command=[*python, "-m", started.MODULE, agent["module"], "-"],
            environ={**(os.environ if environ is None else environ), **agent["variables"]},
            answer_s=agent["answer_s"],
            dies_with_parent=True,
        )
        return asyncio.run(self._run(ticket, job, invitation, on_started))

    async def _run(
        self, ticket: str, job: Job, invitation: bytes, on_started: Callable[[], None]
    ) -> Ending:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Ending] = loop.create_future()
        with self._lock:
            if ticket in self._refused:
                return "it was given back before it began", False
            try:
                process = AgentProcess(
                    job,
                    invitation,
                    lambda _: on_started(),
                    lambda *ending: over.set_result(ending),
                )
            except OSError as error:
                return f"the agent cannot be started: {error}", False
            self._running[ticket] = lambda *how: loop.call_soon_threadsafe(process.end, *how)
        try:
            return await over
        finally:
            with self._lock:
                del self._running[ticket]
            if not over.done():
                process.kill("its task was ended")

    def end(self, ticket: str, why: str, grace_s: float) -> None:
        """End this agent: its host has ordered it to, and after `grace_s` seconds it is killed. If
        it has not begun yet, it never will."""
        with self._lock:
            self._refused.add(ticket)
            if (end := self._running.get(ticket)) is not None:
                end(why, grace_s)


JOBS = AgentJobs()


def run_in_dask(ticket: str, invitation: BytesIO, topic: str, agent: AgentOptions) -> str:
    """Run an agent until it ends. Returns why it ended.

    Its begin and its end are also events on `topic`, because a task's result is lost with the
    client that asked for it. No error leaves this function: Dask would log its arguments.
    """
    import dask.config
    from distributed import get_worker

    nanny = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    environ = environ_in_dask(os.environ, nanny)
    log = get_worker().log_event
    try:
        cause, worked = JOBS.run(
            ticket,
            invitation.getvalue(),
            lambda: log(topic, ["began", ticket]),
            agent,
            environ,
        )
    except Exception as error:  # the host is told
        cause, worked = f"the agent cannot be started: {named(error)}", False
    log(topic, ["ended", ticket, cause, worked])
    return cause


def end_in_dask(ticket: str, why: str, grace_s: float) -> None:
    """End an agent of this worker."""
    JOBS.end(ticket, why, grace_s)


def environ_in_dask(environ: Mapping[str, str], nanny: Mapping[str, object]) -> dict[str, str]:
    """The environment for an agent: without the limits of threads that Dask's nanny sets for its
    workers, where many tasks share the cores."""
    set_by_nanny = {name: str(nanny[name]) for name in LIMITS if name in nanny}
    return {name: value for name, value in environ.items() if set_by_nanny.get(name) != value}


_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class RayAgent:
    """One agent. Its methods run in threads of the actor.

    The invitation comes with a call, because Ray keeps the arguments of constructors.
    """

    def __init__(self) -> None:
        self._jobs = AgentJobs()
        self._begun = threading.Event()

    def run(self, ticket: str, invitation: bytes, agent: AgentOptions, has_gpus: bool) -> Ending:
        """Run the agent until it ends. `has_gpus`: Ray has assigned GPUs to this actor."""
        environ = environ_in_ray(os.environ, started_with(), has_gpus=has_gpus)
        return self._jobs.run(ticket, invitation, self._begun.set, agent, environ)

    def begun(self, within_s: float) -> bool:
        """Wait until the agent has begun."""
        return self._begun.wait(within_s)

    def end(self, ticket: str, why: str, grace_s: float) -> None:
        self._jobs.end(ticket, why, grace_s)


def started_with() -> dict[str, str] | None:
    """The environment that this process was started with; None if the system does not tell."""
    try:
        data = Path("/proc/self/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def environ_in_ray(
    environ: Mapping[str, str], before: Mapping[str, str] | None, *, has_gpus: bool
) -> dict[str, str]:
    """The environment for an agent: without the limits that Ray has set in this process because
    the actor asks for no CPU, and for no GPU (Ray before 2.6x hides the GPUs of the node then)."""
    made = dict(environ)
    if before is not None:
        for name in LIMITS if has_gpus else (*LIMITS, *_GPUS):
            made.pop(name, None)
            made |= {name: before[name]} if name in before else {}
    return made
