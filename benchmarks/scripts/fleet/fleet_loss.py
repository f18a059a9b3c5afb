"""The loss of one of many nodes: `fleet_loss.py STORAGE AGENTS WORKERS`.

When WORKERS trials run on each of the AGENTS simulated nodes, one node is silent. Prints the
seconds from its last message until its trials are queued again, and for how long that has kept
the loop busy.
"""

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any

from holdfast.experiment.control.run_cluster import RunCluster
from holdfast.runtime.fleet.fleet import Fleet
from holdfast.trial.trial import Status

simulated: Any = import_module("simulated_engine")  # of this folder
storage, agents, workers = sys.argv[1], *map(int, sys.argv[2:])
seen: dict[str, Any] = {}
leave, on_node = vars(Fleet)["_leave"], RunCluster.node_joined


def watched(self: RunCluster, node: Any) -> None:
    seen["machine"] = self.controller.machine
    on_node(self, node)


def timed(self: Fleet, node: Any, cause: str) -> None:
    running = _running()
    began_s, cpu_s = time.perf_counter(), time.thread_time()
    leave(self, node, cause)
    ended_s = time.perf_counter()
    told = {
        "loop_s": ended_s - began_s,
        "cpu_s": time.thread_time() - cpu_s,
        "silent_s": time.monotonic() - node.link.received_s,
        "requeued": running - _running(),
        "cause": cause,
    }
    print(json.dumps(told), flush=True)
    seen["engine"].kill()
    os._exit(0)


def _running() -> int:
    trials = seen["machine"].trials.values()
    return sum(trial.status is Status.RUNNING for trial in trials)


def main() -> None:
    engine = seen["engine"] = simulated.SimulatedAgents(agents, workers, 1, "silent")
    RunCluster.node_joined = watched  # type: ignore[method-assign]
    Fleet._leave = timed  # type: ignore[method-assign]
    threading.Thread(target=engine.await_line, daemon=True).start()
    simulated.run(engine, storage, agents * workers)


if __name__ == "__main__":
    main()
