"""How soon a cluster's nodes are ready: `fleet_ready.py STORAGE NODES`.

HOLDFAST_CLUSTER names the cluster. Prints the seconds from the call of `fit()` until NODES nodes
can run trials, and until a trial runs on each.
"""

import fcntl
import json
import sys
import time
from typing import Any

from holdfast import tune
from holdfast.experiment.control.run_cluster import RunCluster

storage, nodes = sys.argv[1], int(sys.argv[2])
joined: list[float] = []
on_node = RunCluster.node_joined


def train(config: dict[str, Any]) -> None:
    """Occupy the node until there is a trial on each."""
    tune.report({"began_s": time.monotonic()})
    with open(config["gate"]) as gate:
        fcntl.flock(gate, fcntl.LOCK_SH)


def main() -> None:
    gate = f"{storage}/gate"
    with open(gate, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def watched(self: RunCluster, node: Any) -> None:
            on_node(self, node)
            joined.append(time.monotonic())
            if len(joined) == nodes:
                fcntl.flock(held, fcntl.LOCK_UN)

        RunCluster.node_joined = watched  # type: ignore[method-assign]
        began_s = time.monotonic()
        results = tune.Tuner(
            train,
            param_space={"gate": gate},
            tune_config=tune.TuneConfig(num_samples=nodes),
            run_config=tune.RunConfig(storage_path=storage, verbose=0),
        ).fit()
    ran_s = max((result.metrics or {})["began_s"] for result in results)
    print(json.dumps({"ready_s": joined[nodes - 1] - began_s, "ran_s": ran_s - began_s}))


if __name__ == "__main__":
    main()
