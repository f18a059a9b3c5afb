"""A simulated study: `simulated.py TRIALS WORKERS EPOCHS SCHEDULER CHECKPOINT_EVERY`.

SCHEDULER is fifo or asha. Prints seconds and CPU seconds of the simulation, its reports and
events, and by how many bytes the peak of this process's memory grew.
"""

import json
import resource
import sys
import time
from typing import Any

from holdfast import tune
from holdfast.simulate import simulate
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler

trials, workers, epochs, every = (int(sys.argv[at]) for at in (1, 2, 3, 5))
SCHEDULERS = {
    "fifo": FIFOScheduler(),
    "asha": ASHAScheduler(max_t=epochs, grace_period=1, reduction_factor=3),
}


def curve(config: dict[str, Any], iteration: int) -> float:
    return float(config["lr"]) + 1 / iteration


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def study(num_samples: int) -> Any:
    return simulate(
        curve,
        param_space={"lr": tune.loguniform(1e-4, 1e-1), "width": tune.choice([16, 32, 64])},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=num_samples,
            scheduler=SCHEDULERS[sys.argv[4]],
        ),
        run_config=tune.RunConfig(stop={"training_iteration": epochs}),
        seconds_per_iteration=lambda config: 1 + config["lr"],
        checkpoint_every=every,
        workers=workers,
    )


study(2)  # which imports what is needed
before, began_s, cpu_s = peak(), time.perf_counter(), time.process_time()
found = study(trials)
print(
    json.dumps(
        {
            "wall_s": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - cpu_s,
            "memory": peak() - before,
            "reports": found.reports,
            "events": found.events,
            "digest": found.digest,
        }
    )
)
