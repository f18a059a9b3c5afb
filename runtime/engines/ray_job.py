"""The actor that runs an agent on a Ray node."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.runtime.engines.agent_job import AgentJob, Ending, Jobs
from holdfast.runtime.threads import LIMITS

_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class RayAgent:
    """One agent. Its methods run in threads of the actor.

    The invitation comes with a call, because Ray keeps the arguments of constructors.
    """

    def __init__(self) -> None:
        self._jobs = Jobs()
        self._begun = threading.Event()

    def run(
        self, ticket: str, invitation: bytes, agent: Mapping[str, Any], has_gpus: bool
    ) -> Ending:
        """Run the agent until it ends. `has_gpus`: Ray has assigned GPUs to this actor."""
        environ = own_environ(os.environ, started_with(), has_gpus=has_gpus)
        return self._jobs.run(
            ticket, lambda: AgentJob(invitation, self._begun.set, environ=environ, **agent)
        )

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


def own_environ(
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
