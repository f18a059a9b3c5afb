"""An engine whose agents are one process, `simulated_agents.py`, and the run on it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import holdfast
from holdfast import cluster, tune
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.start import planning
from holdfast.runtime.engines.engine import EngineHost, NodeKind, Offer
from holdfast.runtime.process_exits import Watched

AGENTS = Path(__file__).with_name("simulated_agents.py")


class SimulatedAgents:
    """`agents` nodes of `workers` CPUs. The arguments are those of `simulated_agents.py`."""

    def __init__(self, agents: int, workers: int, *arguments: object) -> None:
        self.agents = agents
        self._kind = NodeKind(name="simulated", resources={"CPU": float(workers)}, most=agents)
        self.process = subprocess.Popen(
            [sys.executable, AGENTS, str(agents * workers), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._host: EngineHost | None = None

    def offer(self) -> Offer:
        return Offer(kinds=[self._kind])

    async def open(self, host: EngineHost) -> None:
        self._host = host

    def want(self, kind: str, count: int) -> None:
        assert self._host is not None
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            secrets = [self._host.invite(kind, over_pipe=False).secret for _ in range(count)]
            self.process.stdin.write("".join(f"{secret.hex()}\n" for secret in secrets))
            self.process.stdin.close()

    def give_back(self, ticket: str) -> None: ...

    def ask(self, ticket: str) -> None: ...

    def processes(self) -> list[Watched]:
        return []

    def kill(self) -> None:
        self.process.kill()

    async def close(self, grace_s: float) -> str:
        self.process.wait(grace_s)
        return ""

    def await_line(self) -> str:
        """The next line of the agents. For a thread."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def train(config: Mapping[str, Any]) -> None:
    raise AssertionError("nothing runs on a simulated node")


def run(engine: SimulatedAgents, storage: str, trials: int) -> None:
    """Run this many trials on them."""
    planned = PlannedEngine(
        offer=engine.offer(), least=engine.agents, most=engine.agents, make=lambda _: engine
    )
    vars(planning)["engine_of"] = lambda *_, **__: planned
    holdfast.init(cluster=cluster.Local(agents=engine.agents))
    tune.Tuner(
        train,
        param_space={"width": 1},
        tune_config=tune.TuneConfig(num_samples=trials),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()
