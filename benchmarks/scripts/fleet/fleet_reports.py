"""Trials on simulated nodes: `fleet_reports.py STORAGE AGENTS WORKERS COUNT`.

`simulated_agents.py` plays the agents, which connect over TLS. When WORKERS trials run on each,
all make COUNT reports. Prints this process's CPU seconds meanwhile, and how far its memory has
grown over the whole run, and ends: the files of 10,000 trials would take minutes.
"""

import json
import os
import resource
import sys
import threading
import time
from importlib import import_module
from typing import Any

simulated: Any = import_module("simulated_engine")  # of this folder
storage, agents, workers, count = sys.argv[1], *map(int, sys.argv[2:])


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def meter(engine: Any, base_kib: int) -> None:
    """Measure this process from the moment when all trials run until all have reported."""
    engine.await_line()
    before_s = time.process_time()
    engine.await_line()
    cpu_s = time.process_time() - before_s
    print(json.dumps({"cpu_s": cpu_s, "grown_kib": peak_kib() - base_kib}), flush=True)
    engine.kill()
    os._exit(0)


def main() -> None:
    engine = simulated.SimulatedAgents(agents, workers, count)
    arguments = (engine, peak_kib())
    threading.Thread(target=meter, args=arguments, daemon=True).start()
    simulated.run(engine, storage, agents * workers)


if __name__ == "__main__":
    main()
