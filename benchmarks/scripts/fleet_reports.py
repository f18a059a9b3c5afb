"""Trials on simulated nodes: `fleet_reports.py STORAGE AGENTS WORKERS COUNT`.

`simulated_agents.py` plays the agents, which connect over TLS. When WORKERS trials run on each,
all make COUNT reports. Prints this process's CPU seconds meanwhile, and ends: the files of 10,000
trials would take minutes.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import holdfast
from holdfast import cluster, tune
from holdfast.experiment.nodes.engines import PlannedEngine
from holdfast.experiment.start import machines
from holdfast.runtime.engines.engine import EngineHost, NodeKind, Offer
from holdfast.runtime.stopped import Watched

storage, agents, workers, count = sys.argv[1], *map(int, sys.argv[2:])
AGENTS = Path(__file__).with_name("simulated_agents.py")
_KIND = NodeKind(name="simulated", resources={"CPU": float(workers)}, most=agents)


class SimulatedAgents:
    """An engine, whose agents are one process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, AGENTS, str(agents * workers), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._host: EngineHost | None = None

    def offer(self) -> Offer:
        return Offer(kinds=[_KIND])

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


def meter(engine: SimulatedAgents) -> None:
    """Measure this process from the moment when all trials run until all have reported."""
    assert engine.process.stdout is not None
    engine.process.stdout.readline()
    before_s = time.process_time()
    engine.process.stdout.readline()
    print(json.dumps({"cpu_s": time.process_time() - before_s}), flush=True)
    engine.kill()
    os._exit(0)


def train(config: Mapping[str, Any]) -> None:
    raise AssertionError("nothing runs on a simulated node")


def main() -> None:
    engine = SimulatedAgents()
    threading.Thread(target=meter, args=(engine,), daemon=True).start()
    planned = PlannedEngine(offer=engine.offer(), least=agents, most=agents, make=lambda _: engine)
    vars(machines)["engine_of"] = lambda *_, **__: planned
    holdfast.init(cluster=cluster.Local(agents=agents))
    tune.Tuner(
        train,
        param_space={"width": 1},
        tune_config=tune.TuneConfig(num_samples=agents * workers),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    ).fit()


if __name__ == "__main__":
    main()
