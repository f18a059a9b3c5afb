"""The least that a report costs, whatever decides on it: `replacing.py TRIALS REPORTS`.

TRIALS trials report in turn, and each record is replaced by its successor, nothing else. Prints
CPU seconds for each report, by batches of a thousand.
"""

import json
import random
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice

from holdfast.trial.events import Launched, Reported, Started
from holdfast.trial.lifecycle import advance
from holdfast.trial.trial import Trial, TrialSpec

count, reports = int(sys.argv[1]), int(sys.argv[2])
BATCH = min(1000, reports)
ids = [f"d2a66_{index:05d}" for index in range(count)]
trials: dict[str, Trial] = {}


def started(index: int) -> Trial:
    trial_id = ids[index]
    spec = TrialSpec(
        trial_id=trial_id, index=index, name=trial_id, dirname=trial_id, config={"lr": 0.1}
    )
    launched = advance(Trial(spec=spec), Launched(trial_id=trial_id))
    begun = Started(trial_id=trial_id, attempt=1, pid=1, hostname="host", node_ip="")
    return advance(launched, begun)


def report(trial: Trial) -> Reported:
    return Reported(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        iteration=trial.iteration + 1,
        metrics={"loss": float(trial.iteration)},
        timestamp=2.0,
        time_this_iter_s=1.0,
        time_total_s=float(trial.iteration + 1),
    )


def replaced(several: Sequence[Reported]) -> float:
    began_s = time.process_time()
    for event in several:
        trials[event.trial_id] = advance(trials[event.trial_id], event)
    return (time.process_time() - began_s) / len(several)


trials.update((ids[index], started(index)) for index in range(count))
# As after some hours of a run, neighbours in this order are not neighbours in memory.
random.Random(0).shuffle(ids)
turns = cycle(ids)
taken: list[float] = []
for place in range(-count, reports, BATCH):
    report_s = replaced([report(trials[trial_id]) for trial_id in islice(turns, BATCH)])
    if place >= 0:  # the first round is not measured
        taken.append(report_s)
print(json.dumps(taken))
