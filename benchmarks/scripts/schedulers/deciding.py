"""The machine with a scheduler, and nothing else: `deciding.py SCHEDULER TRIALS REPORTS COLLECTS`.

TRIALS run at once and report in turn, each with a checkpoint unless the scheduler is ASHA. One
that stops or pauses makes room for another. Prints CPU seconds for each report, by batches of a
thousand: `report_s` of the reports alone, `all_s` with every event that follows from them
(commits, ends, starts, new trials, copies of clones). `mean_s` is that of the reports alone, with
all passes of the garbage collector that fell into them; if COLLECTS is 0, it is off.
"""

import gc
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from holdfast.scheduler.effects import Commit, Effect, Launch, Reply, Suggest, Verdict
from holdfast.scheduler.events import Begun, Event, Exited, ExperimentSpec, SearchEnded, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Started
from holdfast.trial.trial import CheckpointRecord, Trial, TrialSpec
from holdfast.tune.schedulers import (
    ASHAScheduler,
    HyperBandForBOHB,
    PopulationBasedTraining,
)

SCHEDULERS: dict[str, Callable[[], TrialScheduler]] = {
    "asha": lambda: ASHAScheduler(max_t=81, grace_period=1, reduction_factor=3),
    "bohb": lambda: HyperBandForBOHB(max_t=81, reduction_factor=3),
    # Every report is a comparison with the whole population.
    "pbt": lambda: PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": [0.1, 0.2, 0.3]},
    ),
}
BATCH = 1000
# Each trial reports so often before it is measured. At every size, the trials that are measured
# must have the same ages: young ones reach a rung, and end, twice as often as old ones.
WARM = 3
name, alive, reports = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
saves = name != "asha"
machine = Machine()
chance = random.Random(0)
# The trials that run, each as often as it was started: only the newest attempt reports.
turns: list[tuple[str, int]] = []


def handle(several: Sequence[Event]) -> list[Effect]:
    return [effect for event in several for effect in machine.handle(event, now=2.0)]


def following(effects: Sequence[Effect]) -> Iterator[Event]:
    """What the shell posts when it has performed these."""
    for effect in effects:
        match effect:
            case Suggest(index=index):
                is_over = index == machine.spec.num_samples
                yield SearchEnded() if is_over else suggested()
            case Launch(trial_id=trial_id, attempt=attempt):
                trial = machine.trials[trial_id]
                if trial.origin is not None:
                    yield Adopted(
                        trial_id=trial_id, attempt=attempt, checkpoint=checkpoint(trial, 0)
                    )
                yield Started(
                    trial_id=trial_id, attempt=attempt, pid=1, hostname="host", node_ip=""
                )
                turns.append((trial_id, attempt))
            case Commit(trial_id=trial_id, checkpoint=record):
                yield Committed(trial_id=trial_id, index=record.index)
            case Reply(trial_id=trial_id, attempt=attempt, verdict=verdict):
                if verdict is Verdict.STOP:
                    yield Returned(trial_id=trial_id, attempt=attempt)
                if verdict is not Verdict.CONTINUE:
                    yield Exited(trial_id=trial_id, attempt=attempt, cause="exited")
            case _:
                pass


def suggested() -> Suggested:
    index = len(machine.trials)
    is_last = index + 1 == machine.spec.num_samples
    trial_id = f"d2a66_{index:05d}"
    return Suggested(
        spec=TrialSpec(
            trial_id=trial_id, index=index, name=trial_id, dirname=trial_id, config={"lr": 0.1}
        ),
        is_last=is_last,
    )


def checkpoint(trial: Trial, further: int) -> CheckpointRecord:
    return CheckpointRecord(
        index=trial.next_checkpoint,
        iteration=trial.iteration + further,
        attempt=trial.attempt,
        files=1,
        size_bytes=10,
        time_total_s=float(trial.iteration + further),
    )


def report(trial: Trial) -> Reported:
    return Reported(
        trial_id=trial.trial_id,
        attempt=trial.attempt,
        iteration=trial.iteration + 1,
        metrics={"loss": chance.random()},
        timestamp=2.0,
        time_this_iter_s=1.0,
        time_total_s=float(trial.iteration + 1),
        checkpoint=checkpoint(trial, 1) if saves else None,
    )


def batch() -> list[Reported]:
    """The next reports, of the trials that have not reported for the longest time."""
    global turns
    going: list[Trial] = []
    while not going:
        turn, turns = turns[:BATCH], turns[BATCH:]
        going = [machine.trials[one] for one, attempt in turn if machine.is_current(one, attempt)]
    turns += [(trial.trial_id, trial.attempt) for trial in going]
    return [report(trial) for trial in going]


def timed(several: Sequence[Event]) -> tuple[list[Effect], float]:
    began_s = time.process_time()
    effects = handle(several)
    return effects, time.process_time() - began_s


spec = ExperimentSpec(
    experiment_id="e", run="d2a66", trainable="train", seed=0, metric="loss", mode="min",
    # A population does not change.
    num_samples=alive if name == "pbt" else 10**9,
    checkpoint=CheckpointConfig(num_to_keep=1),
)  # fmt: skip


def begin() -> None:
    """A new machine whose trials have started."""
    global machine, turns
    machine, turns = Machine(SCHEDULERS[name]()), []
    effects = handle([Begun(spec=spec, capacity={"CPU": float(alive)})])
    while effects:
        effects = handle(list(following(effects)))


def measured(count: int) -> Iterator[tuple[int, float, float]]:
    """So many reports, by batches: their number, the CPU seconds of the reports alone, and with
    what follows."""
    made = 0
    while made < count:
        several = batch()
        effects, alone_s = timed(several)
        whole_s = alone_s
        while follow := list(following(effects)):
            effects, more_s = timed(follow)
            whole_s += more_s
        made += len(several)
        yield len(several), alone_s, whole_s


if sys.argv[4:] == ["0"]:
    gc.disable()
taken: list[tuple[int, float, float]] = []
while (left := reports - sum(count for count, *_ in taken)) > 0:
    begin()
    deque(measured(WARM * alive), maxlen=0)
    taken += measured(min(alive, left))
print(
    json.dumps(
        {
            "report_s": [alone_s / count for count, alone_s, _ in taken],
            "all_s": [whole_s / count for count, _, whole_s in taken],
            "mean_s": sum(alone_s for _, alone_s, _ in taken) / sum(one[0] for one in taken),
        }
    )
)
