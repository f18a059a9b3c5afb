"""A search of 10,000 trials and a million rows, on the disk as a run with ASHA leaves it.

No worker takes part: the machine decides, the journal is written record by record, and the
projector makes all files from it, in four minutes. The same seed makes the same search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.scheduler.events import Exited, SearchEnded
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.description import describe
from holdfast.trial.trial import Status
from holdfast.tune import choice, loguniform, quniform, randint, uniform
from tests.rig.runs.recorded import RecordedExperiment

_GRACE = 51  # a trial has 100 rows on average: most end here, others at 102 or 204
SPACE: Mapping[str, Any] = {
    "lr": loguniform(1e-5, 1e-1),
    "weight_decay": loguniform(1e-6, 1e-2),
    "momentum": uniform(0.5, 0.99),
    "dropout": uniform(0.0, 0.6),
    "width": choice([64, 128, 256, 512]),
    "layers": randint(1, 9),
    "warmup": quniform(0, 1000, 50),
    "optimizer": choice(["sgd", "adam", "adamw", "lion"]),
}
_ALIVE = 16
_STEP_S = 0.5 / _ALIVE  # each trial reports twice a second
_CHECKPOINTED = 50  # one trial in so many has checkpoints, every 25 iterations
_FAILING = 40  # one trial in so many fails, some more than once
_ERRORS = (
    ("ValueError", "loss is nan at step {step}"),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate {step} MiB"),
    ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/shard-{step:05d}'"),
)


def write_search(root: Path, *, trials: int, running: int = 0, seed: int = 0) -> int:
    """Write an experiment; return its number of rows. Takes 0.2 s per 1,000 rows.

    It is finished, or `running` of its trials run, and a restore resumes them. Such an experiment
    has no scheduler, which would end them.
    """
    search = _Search(root, trials, seed, is_live=running > 0)
    while not search.is_over(running):
        search.turn()
    search.recorded.close()
    projector = Projector(search.recorded.layout, ProjectorSettings(tensorboard=False))
    projector.catch_up()
    projector.snapshot()
    return search.rows


class _Search:
    """A run of `trials` trials, of which a few are alive at a time."""

    def __init__(self, root: Path, trials: int, seed: int, *, is_live: bool) -> None:
        self._random = Random(seed)
        self._is_live = is_live
        self._left = trials
        self.rows = 0
        self.recorded = RecordedExperiment(
            root,
            step_s=_STEP_S,
            policy=None if is_live else _asha(),
            scheduler="" if is_live else "ASHAScheduler",
            metric="loss",
            mode="min",
            num_samples=trials,
            resources=PlacementGroupFactory([{"CPU": 1}]),
            failure=FailureConfig(max_failures=1),
            space=describe(SPACE),
            options={"verbose": 0},
        )
        self._alive: dict[str, _Training] = {}

    def is_over(self, running: int) -> bool:
        trials = map(self.recorded.trial, self._alive)
        return not self._left and sum(not one.status.is_final for one in trials) <= running

    def turn(self) -> None:
        """Each trial that is alive does its next step."""
        while self._left and len(self._alive) < _ALIVE:
            self._begin()
        for trial_id, training in list(self._alive.items()):
            self._step(trial_id, training)

    def _begin(self) -> None:
        config = {name: domain.sample(self._random) for name, domain in SPACE.items()}
        tag = ",".join(f"{name}={_short(config[name])}" for name in ("dropout", "layers", "lr"))
        trial_id = self.recorded.suggest(config, f"{self._count}_{tag}")
        self._alive[trial_id] = _Training(config, self._random, self._count)
        self._left -= 1
        if not self._left:
            self.recorded.add(SearchEnded())

    @property
    def _count(self) -> int:
        return len(self.recorded.machine.trials)

    def _step(self, trial_id: str, training: _Training) -> None:
        trial = self.recorded.trial(trial_id)
        match trial.status:
            case Status.STARTING:
                self.recorded.start(trial_id)
            case Status.RUNNING if trial.iteration + 1 == training.fails_at:
                self._fail(trial_id, training)
            case Status.RUNNING if self._is_live and trial.iteration == training.length:
                self.recorded.finish(trial_id)
            case Status.RUNNING:
                self.rows += 1
                has_checkpoint = training.is_checkpointed and not (trial.iteration + 1) % 25
                self.recorded.report(
                    trial_id,
                    training.metrics(trial.iteration + 1),
                    checkpoint="committed" if has_checkpoint else "",
                )
            case Status.STOPPING:
                self.recorded.add(Exited(trial_id=trial_id, attempt=trial.attempt, cause="ended"))
            case status if status.is_final:
                del self._alive[trial_id]
            case _:
                pass

    def _fail(self, trial_id: str, training: _Training) -> None:
        type_name, message = self._random.choice(_ERRORS)
        text = message.format(step=self._random.randrange(10_000))
        self.recorded.fail(trial_id, type_name, text)
        training.plan_failure()


class _Training:
    """A trial's curves: power laws whose limits depend on its config, with noise."""

    def __init__(self, config: Mapping[str, Any], random: Random, number: int) -> None:
        self._random = random
        off = math.log10(config["lr"] / 3e-3)
        self._limit = 0.1 + 0.08 * off**2 + 0.3 * config["dropout"] ** 2 + 0.4 / config["width"]
        self._limit += 0.02 * random.random()
        self._speed = 0.6 + 0.05 * config["layers"]
        # As ASHA ends them.
        self.length = random.choice((_GRACE, _GRACE, 2 * _GRACE, 4 * _GRACE))
        self.is_checkpointed = number % _CHECKPOINTED == 0
        self._failures = iter(self._planned_failures(number))
        self.plan_failure()

    def plan_failure(self) -> None:
        """The iteration before whose report it fails next; 0 for none."""
        self.fails_at = next(self._failures, 0)

    def _planned_failures(self, number: int) -> Iterator[int]:
        if number % _FAILING == _FAILING - 1:
            yield self._random.randrange(2, _GRACE)
            if self._random.random() < 0.5:
                yield self._random.randrange(2, _GRACE)

    def metrics(self, iteration: int) -> dict[str, float]:
        loss = self._limit + 2.0 * iteration**-self._speed * (1 + 0.1 * self._random.gauss(0, 1))
        return {
            "loss": loss,
            "acc": 1.0 - 0.9 * loss / (1 + loss),
            "grad_norm": self._random.lognormvariate(0, 0.5),
        }


def _asha() -> ASHAScheduler:
    return ASHAScheduler(max_t=4 * _GRACE, grace_period=_GRACE, reduction_factor=2)


def _short(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
