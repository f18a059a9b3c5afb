"""Engines that run one command on this machine for each agent: Python itself, `ssh` or `srun`."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.runtime.engines import started
from holdfast.runtime.engines.agent_process import AgentProcess, Job
from holdfast.runtime.engines.engine import NodeKind, Pipe
from holdfast.runtime.engines.supplied import SuppliedEngine, Times
from holdfast.runtime.engines.supply import Place
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.tasks import happens

# The part of the time to close that is left for what has to be killed.
_FOR_KILLS = 0.2


class CommandEngine(SuppliedEngine):
    """An agent at each place is a process of a command."""

    # The command only leads to the place: to kill it does not end the agent.
    is_elsewhere = False

    def __init__(self, kinds: Sequence[NodeKind], places: Sequence[Place], times: Times) -> None:
        super().__init__(kinds, places, times)
        self._running: dict[str, AgentProcess] = {}  # by the name of the place
        self._all_ended = asyncio.Event()

    @abstractmethod
    def job_at(self, place: str) -> Job:
        """The job that runs an agent at the place of this name."""

    def start_agent(self, place: Place, secret: bytes) -> None:
        job = self.job_at(place.name)
        on_started, on_ended = partial(self._on_started, place), partial(self._on_ended, place)
        try:
            self._running[place.name] = AgentProcess(job, secret, on_started, on_ended)
        except OSError as error:
            self.ended(place, f"{job.where}: `{job.shown}` cannot be run: {error}", worked=False)

    def end_agent(self, place: Place) -> None:
        self._running[place.name].end("was given back", self.times.end_s)

    def refuse(self, why: str) -> None:
        if not self._is_stopped:
            for process in list(self._running.values()):
                process.end("no agent could be started", self.times.end_s)
        super().refuse(why)

    def processes(self) -> list[Watched]:
        return [
            Watched(process.pid, f"the process of {name}", process.kill)
            for name, process in self._running.items()
        ]

    def kill(self) -> None:
        self.stop()
        for process in self._running.values():
            process.kill("the run was aborted")

    async def close(self, grace_s: float) -> str:
        self.stop()
        for name, process in list(self._running.items()):
            if self.is_elsewhere and self._supply.places[name].is_leaving:
                # A lost node's ssh may not know of the loss. Its agent ends without it.
                process.kill("was given back")
            else:
                process.end("the run ended", grace_s)
        if await self._have_ended(grace_s * (1 - _FOR_KILLS)):
            return ""
        late = list(self._running)
        self.kill()
        if not await self._have_ended(grace_s * _FOR_KILLS):
            return "; ".join(process.abandon() for process in list(self._running.values()))
        if not self.is_elsewhere:
            return ""
        return f"the agents at {', '.join(late)} did not end in time, and may still run"

    async def _have_ended(self, within_s: float) -> bool:
        self._all_ended.clear()
        return not self._running or await happens(self._all_ended, within_s)

    def _on_started(self, place: Place, pipe: Pipe | None) -> None:
        place.has_begun = True
        self.plan()
        if pipe is not None:
            self._host.attach(place.ticket, pipe)

    def _on_ended(self, place: Place, cause: str, worked: bool) -> None:
        del self._running[place.name]
        self.ended(place, cause, worked=worked)
        if not self._running:
            self._all_ended.set()


KIND = "local"


class LocalEngine(CommandEngine):
    """`agents` agents on this machine, which connect to the controller over TLS, or talk over
    their stdin and stdout with `over_pipe`.

    Each counts as a node with these `resources`. The GPUs of this machine, by the names that
    CUDA_VISIBLE_DEVICES has for them, are split among the agents.
    """

    def __init__(
        self,
        *,
        agents: int = 2,
        resources: Mapping[str, float] | None = None,
        gpu_names: Sequence[str] = (),
        over_pipe: bool = False,
        python: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        module: str = "holdfast.agent",
        times: Times | None = None,
    ) -> None:
        """`resources` are those of each agent; None if it finds out itself. `python` is the
        command of the interpreter; this one if it is empty. `variables` are set for agents, in
        addition to `environ`."""
        self.over_pipe = over_pipe
        self._command = (*(python or (sys.executable,)), "-m", started.MODULE, module, "-")
        self._environ = {**(os.environ if environ is None else environ), **(variables or {})}
        self._gpu_names = tuple(gpu_names)
        self._numbers = {f"agent {number}": number - 1 for number in range(1, agents + 1)}
        super().__init__(
            [NodeKind(name=KIND, resources=resources, most=agents)],
            [Place(name=name, kind=KIND) for name in self._numbers],
            times or Times(),
        )

    def job_at(self, place: str) -> Job:
        return Job(
            where=place,
            command=self._command,
            environ={**self._environ, **self._gpus(self._numbers[place])},
            over_pipe=self.over_pipe,
            answer_s=self.times.answer_s,
        )

    def _gpus(self, number: int) -> dict[str, str]:
        """The environment that shows an agent its share of the GPUs."""
        if not self._gpu_names:
            return {}
        share = len(self._gpu_names) // len(self._numbers)
        names = self._gpu_names[number * share : (number + 1) * share]
        return {"CUDA_VISIBLE_DEVICES": ",".join(names)}
