"""The machine's time for an event of a large study: `deciding_nodes.py NODES EACH TRIALS KNOWN`.

Nodes are lost at random and come back. With KNOWN the machine knows the nodes and places trials on
them; without, it sees one machine with the same workers, some of which are lost. Prints its CPU
seconds and the events of each kind.
"""

import json
import sys
import time
from collections import Counter
from typing import Any

from holdfast import tune
from holdfast.scheduler.machine import Machine
from holdfast.simulate import Faults, simulate

nodes, per_node, trials, known = (int(argument) for argument in sys.argv[1:5])
EPOCHS = 9
taken_ns = 0
told: Counter[str] = Counter()
handle = Machine.handle


def timed(self: Machine, event: Any, *, now: float) -> Any:
    global taken_ns
    began_ns = time.process_time_ns()
    effects = handle(self, event, now=now)
    taken_ns += time.process_time_ns() - began_ns
    told[type(event).__name__] += 1
    return effects


def study(num_samples: int, nodes: int) -> Any:
    # Each node is lost three times in a study of ten rounds of trials.
    faults = Faults(workers_per_node=per_node, node_life_s=30.0, node_absence_s=3.0)
    return simulate(
        lambda config, iteration: float(config["lr"]) + 1 / iteration,
        param_space={"lr": tune.loguniform(1e-4, 1e-1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=num_samples),
        run_config=tune.RunConfig(
            stop={"training_iteration": EPOCHS},
            failure_config=tune.FailureConfig(max_failures=-1),
        ),
        seconds_per_iteration=lambda config: 1 + config["lr"],
        checkpoint_every=3,
        faults=faults,
        nodes=nodes if known else None,
        workers=nodes * per_node,
    )


study(20, 2)  # which imports and compiles what is needed
Machine.handle = timed  # type: ignore[method-assign]
found = study(trials, nodes)
print(
    json.dumps(
        {
            "cpu_s": taken_ns / 1e9,
            "events": found.events,
            "kinds": told,
            "lost": found.failures["node"],
            "digest": found.digest,
        }
    )
)
