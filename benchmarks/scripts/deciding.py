"""The machine with ASHA, and nothing else: `deciding.py TRIALS REPORTS`.

TRIALS run at once and report in turn, through the rungs of a reduction by 3; a stopped one makes
room for another. Prints CPU seconds of `handle` for each report, by batches of a thousand.
"""

import json
import random
import sys
import time

from holdfast.scheduler.effects import Launch, Reply
from holdfast.scheduler.events import Begun, Event, Exited, ExperimentSpec, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.verdict import Verdict
from holdfast.trial.events import Reported, Returned, Started
from holdfast.trial.trial import TrialSpec
from holdfast.tune.schedulers import ASHAScheduler

alive, reports = int(sys.argv[1]), int(sys.argv[2])
BATCH = 1000
machine = Machine(ASHAScheduler(max_t=3**9, grace_period=1, reduction_factor=3))
chance = random.Random(0)
running: list[str] = []
epochs: dict[str, int] = {}


def handle(*events: Event) -> list[object]:
    return [effect for event in events for effect in machine.handle(event, now=2.0)]


def begin() -> None:
    """Start another trial in the free place."""
    index = len(machine.trials)
    trial_id = f"d2a66_{index:05d}"
    spec = TrialSpec(
        trial_id=trial_id, index=index, name=trial_id, dirname=trial_id, config={"lr": 0.1}
    )
    effects = handle(Suggested(spec=spec))
    assert any(isinstance(effect, Launch) for effect in effects)
    handle(Started(trial_id=trial_id, attempt=1, pid=1, hostname="host", node_ip=""))
    running.append(trial_id)
    epochs[trial_id] = 0


def report(at: int) -> Reported:
    trial_id = running[at]
    epochs[trial_id] += 1
    return Reported(
        trial_id=trial_id,
        attempt=1,
        iteration=epochs[trial_id],
        metrics={"loss": chance.random()},
        timestamp=2.0,
        time_this_iter_s=1.0,
        time_total_s=float(epochs[trial_id]),
    )


def end(trial_id: str) -> None:
    handle(
        Returned(trial_id=trial_id, attempt=1),
        Exited(trial_id=trial_id, attempt=1, cause="exited"),
    )
    running.remove(trial_id)
    begin()


spec = ExperimentSpec(
    experiment_id="e", run="d2a66", trainable="train", seed=0, metric="loss", mode="min",
    num_samples=10**9,
)  # fmt: skip
handle(Begun(spec=spec, capacity={"CPU": float(alive)}))
for _ in range(alive):
    begin()
taken: list[float] = []
turn = 0
while len(taken) * BATCH < reports:
    count = min(BATCH, len(running))
    batch = [report((turn + at) % len(running)) for at in range(count)]
    turn = (turn + count) % len(running)
    began_s = time.process_time()
    answers = [machine.handle(event, now=2.0) for event in batch]
    taken.append((time.process_time() - began_s) / count)
    for effects in answers:
        for effect in effects:
            if isinstance(effect, Reply) and effect.verdict is Verdict.STOP:
                end(effect.trial_id)
print(json.dumps({"report_s": taken}))
