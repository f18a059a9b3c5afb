"""Agents as plain processes of this machine: to try out a script for several nodes, and for tests.

An agent ends when its connection to the controller ends, or its stdin before it has one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from holdfast.runtime.engines import started
from holdfast.runtime.engines.agent_process import Job
from holdfast.runtime.engines.engine import NodeKind
from holdfast.runtime.engines.seated import SeatedEngine, Times
from holdfast.runtime.engines.seats import Seat

KIND = "local"


class LocalEngine(SeatedEngine):
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
        self._command = (*(python or (sys.executable,)), "-m", started.MODULE, module, "-")
        self._environ = {**(os.environ if environ is None else environ), **(variables or {})}
        self._gpu_names = tuple(gpu_names)
        self._over_pipe = over_pipe
        self._numbers = {f"agent {number}": number - 1 for number in range(1, agents + 1)}
        super().__init__(
            [NodeKind(name=KIND, resources=resources, most=agents)],
            [Seat(name=name, kind=KIND) for name in self._numbers],
            times or Times(),
        )

    def job_at(self, seat: str) -> Job:
        return Job(
            where=seat,
            command=self._command,
            environ={**self._environ, **self._gpus(self._numbers[seat])},
            over_pipe=self._over_pipe,
            answer_s=self.times.answer_s,
        )

    def _gpus(self, number: int) -> dict[str, str]:
        """The environment that shows an agent its share of the GPUs."""
        if not self._gpu_names:
            return {}
        share = len(self._gpu_names) // len(self._numbers)
        names = self._gpu_names[number * share : (number + 1) * share]
        return {"CUDA_VISIBLE_DEVICES": ",".join(names)}
