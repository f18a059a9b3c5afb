"""Trials on three nodes of this machine: `on_nodes.py LIBRARY STORAGE reports|death COUNT`.

LIBRARY is holdfast, with a local agent for each node, or ray, with `cluster_utils`. Each node has
one CPU. `reports`: each of three trials makes COUNT reports; measures the seconds of the cluster's
start (holdfast: within `fit()`), those from `fit()` to the first report that has returned, and the
sum of the trials' reports per second. `death`: one of two nodes with a trial is killed, and a node
is free; measures the seconds until its trial runs again. The file `told` in STORAGE gets them.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

library, storage, what, count = sys.argv[1:]
tune: Any = import_module(f"{library}.tune")
NODES = 3


def tell(config: dict[str, Any], **told: Any) -> None:
    """Send this to the script."""
    with socket.create_connection(("127.0.0.1", config["port"])) as sock:
        sock.sendall(json.dumps({"pid": os.getpid(), "at_s": time.monotonic(), **told}).encode())


def reporting(config: dict[str, Any]) -> None:
    tune.report({"loss": 0.5})
    began_s = time.monotonic()
    for step in range(config["count"]):
        tune.report({"loss": 0.5 * step})
    tell(config, began_s=began_s)


def waiting(config: dict[str, Any]) -> None:
    tell(config, trial=tune.get_context().get_trial_id(), node=config["node"]())
    while True:
        tune.report({"loss": 0.5})
        time.sleep(0.1)  # the work of a trial


class Heard:
    """What trials tell."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def next(self) -> dict[str, Any]:
        sock, _ = self._socket.accept()
        with sock, sock.makefile() as file:
            told: dict[str, Any] = json.load(file)
            return told


def keep(measured: dict[str, float]) -> None:
    Path(storage, "told").write_text(json.dumps(measured))


def fit(trainable: Any, config: dict[str, Any], trials: int) -> None:
    tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=config,
        tune_config=tune.TuneConfig(num_samples=trials),
        run_config=tune.RunConfig(
            storage_path=storage,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=3),
        ),
    ).fit()


def measure_reports(config: dict[str, Any], heard: Heard) -> dict[str, float]:
    began_s = time.monotonic()
    fit(reporting, {**config, "count": int(count)}, NODES)
    told = [heard.next() for _ in range(NODES)]
    first_s = min(one["began_s"] for one in told)
    rates = [int(count) / (one["at_s"] - one["began_s"]) for one in told]
    return {"first_s": first_s - began_s, "rate": sum(rates)}


def measure_death(
    config: dict[str, Any], heard: Heard, node: Callable[[], Any], kill: Callable[[Any], None]
) -> None:
    def watch() -> None:
        one, _ = heard.next(), heard.next()
        time.sleep(2.0)  # both have reported for a while
        began_s = time.monotonic()
        kill(one["node"])
        again = heard.next()
        if again["trial"] != one["trial"]:
            raise AssertionError(f"another trial has begun: {again}")
        keep({"again_s": again["at_s"] - began_s})
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()
    try:
        fit(waiting, {**config, "node": node}, NODES - 1)
    except KeyboardInterrupt:
        return


def agent() -> int:
    """The pid of the agent of this worker: the parent of the warm parent."""
    import psutil

    parents = [one.pid for one in psutil.Process().parents() if "holdfast.agent" in one.cmdline()]
    return parents[0]


def kill_agent(pid: int) -> None:
    """As a node dies: everything on it."""
    import psutil

    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        process.kill()


def ray_node() -> str:
    ray: Any = import_module("ray")
    node: str = ray.get_runtime_context().get_node_id()
    return node


def main() -> None:
    heard = Heard()
    config = {"port": heard.port}
    node: Callable[[], Any] = agent
    kill: Callable[[Any], None] = kill_agent
    started_s = 0.0
    if library == "ray":
        ray: Any = import_module("ray")
        cluster_utils: Any = import_module("ray.cluster_utils")
        began_s = time.monotonic()
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes()
        started_s = time.monotonic() - began_s
        by_id = {one.node_id: one for one in nodes}
        node = ray_node

        def kill(found: Any) -> None:
            cluster.remove_node(by_id[found], allow_graceful=False)

    else:
        holdfast: Any = import_module("holdfast")
        holdfast.init(cluster=holdfast.cluster.Local(agents=NODES, cpus_per_node=1))
    if what == "reports":
        measured = measure_reports(config, heard)
        keep({"started_s": started_s, **measured})
    else:
        measure_death(config, heard, node, kill)
    if library == "ray":
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
