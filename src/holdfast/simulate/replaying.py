"""`replay`: a recorded run under another scheduler or on other workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.experiment.control.proposing.naming import Naming
from holdfast.experiment.control.proposing.proposer import Proposer
from holdfast.experiment.user_objects.placeholders import config_without_code
from holdfast.plain_numbers import takes_numbers
from holdfast.scheduler.events import Begun, ExperimentSpec, SearchEnded, Suggested
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.simulate.comparison import Replay
from holdfast.simulate.faults import Faults
from holdfast.simulate.recorded_curve import OwnConfig, RecordedCurve
from holdfast.simulate.recording import RecordedTrial, Recording, read_recording
from holdfast.simulate.study import NO_FAULTS, keeping_little, play, policy_of
from holdfast.simulate.trace import Sink
from holdfast.simulate.worker import Scene, Training
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import ONE_CPU, PlacementGroupFactory
from holdfast.trial.trial import Trial
from holdfast.trial.tuning import Mode

if TYPE_CHECKING:
    import pyarrow.fs


@takes_numbers
def replay(
    path: str | os.PathLike[str],
    *,
    scheduler: Any = None,
    workers: int | None = None,
    search_alg: Searcher | None = None,
    param_space: Mapping[str, Any] | None = None,
    num_samples: int | None = None,
    metric: str | None = None,
    mode: Mode | None = None,
    checkpoint_every: int = 0,
    saves_when_told: bool = True,
    start_s: float | None = None,
    faults: Faults = NO_FAULTS,
    seed: int = 0,
    trace: Sink = None,
    storage_filesystem: pyarrow.fs.FileSystem | None = None,
) -> Replay:
    """Simulate the configs of a run, in their order, with their recorded curves.

    `path`: the experiment's directory <storage_path>/<name>, or its URI. `scheduler` replaces the
    run's own (None: FIFO). `workers` trials run at once, by default as many as in the run.
    `metric` and `mode` default to the run's. A `search_alg` suggests `num_samples` other configs
    (by default as many as in the run) from `param_space`.

    An iteration takes its recorded time, and the start of an attempt `start_s` (None: the recorded
    average). A trial ends where its recorded curve ends. A config that was not recorded, such as
    one of a search algorithm or of population based training, follows the nearest recorded one: it
    starts like that one, or continues from its own value by the same increments, within the range
    of all recorded values. Its figures are estimates, and `approximated` counts them.

    `checkpoint_every`, `saves_when_told`, `faults`, `seed` and `trace` are as in `simulate`;
    `storage_filesystem` is the run's, if `path` is a path in it.

    Raises ExperimentNotFound, StorageError, and InvalidConfig for invalid settings, or for a run
    whose trials changed their configs.
    """
    recording = read_recording(path, storage_filesystem, metric=metric, mode=mode)
    if not any(trial.reports for trial in recording.trials):
        raise InvalidConfig(
            f"no trial of {path} has reported anything, so there is nothing to replay"
        )
    places = recording.workers if workers is None else workers
    if not isinstance(places, int) or places < 1:
        raise InvalidConfig(f"workers must be a whole number of at least 1, not {workers!r}")
    curve = RecordedCurve(recording.trials)
    spec = _spec(recording, scheduler, places, seed, saves_when_told=saves_when_told)
    spec = replace(spec, metric=metric or spec.metric, mode=mode or spec.mode)
    training = Training(
        curve=curve,
        cost=curve.seconds,
        checkpoint_every=checkpoint_every,
        saves_when_told=saves_when_told,
        metric=spec.metric,
        start_s=recording.overhead_s if start_s is None else start_s,
    )
    proposer: Proposer = _Recorded(spec, recording.trials)
    if search_alg is not None:
        count = len(recording.trials) if num_samples is None else num_samples
        spec = replace(spec, num_samples=count, run=f"{spec.run[:4]}s")
        proposer = _searching(spec, param_space or {}, search_alg)
    scene = Scene(
        begun=Begun(spec=spec, capacity=_capacity(recording, places)),
        proposer=proposer,
        training=training,
        config_of=_configs(recording),
        places=places,
        faults=faults,
    )
    policy = policy_of(scheduler, training)
    simulated = play(scene, policy, trace)
    return Replay(
        recorded=recording,
        simulated=simulated,
        scheduler=type(policy).__name__,
        cut_short=len(curve.cut_short),
        approximated=curve.approximated,
    )


class _Recorded(Proposer):
    """Proposes the trials of the run again, with their ids and configs."""

    def __init__(self, spec: ExperimentSpec, trials: Sequence[RecordedTrial]) -> None:
        super().__init__(spec, {}, BasicVariantGenerator(), ONE_CPU, Naming(), root=Path())
        self._trials = trials

    def propose(self, index: int) -> Suggested | SearchEnded:
        if index >= len(self._trials):
            return SearchEnded()
        is_last = index + 1 == len(self._trials)
        return Suggested(spec=self._trials[index].spec, is_last=is_last)

    def with_users_config(
        self,
        question: Mapping[str, Any],
        ask: Callable[[Mapping[str, Any]], Mapping[str, Any]],
        about: str = "",
    ) -> dict[str, Any]:
        """Leaves out the user's objects, which no code can use here."""
        return dict(ask(question))


def _configs(recording: Recording) -> Callable[[Trial], OwnConfig]:
    """A trial's config; it is a recorded one unless it was changed."""
    own = {trial.spec.trial_id for trial in recording.trials if trial.reports}

    def config_of(trial: Trial) -> OwnConfig:
        config = OwnConfig(config_without_code(trial.config))
        if trial.changed_config is None and trial.trial_id in own:
            config.trial_id = trial.trial_id
        return config

    return config_of


def _spec(
    recording: Recording, scheduler: Any, workers: int, seed: int, *, saves_when_told: bool
) -> ExperimentSpec:
    """The run's spec, without the parts that need its code or its clock."""
    was = recording.spec
    return replace(
        was,
        experiment_id=f"replay-of-{was.experiment_id}",
        seed=seed,
        max_concurrent=workers,
        time_budget_s=None,
        timeout_s=None,
        has_stopper=False,
        space_number=0,
        strict_metric=False,
        strict_stop=False,
        reuse_actors=False,
        scheduler="" if scheduler is None else type(scheduler).__name__,
        saves_when_told=saves_when_told,
        checkpoint=keeping_little(was.checkpoint),
    )


def _capacity(recording: Recording, workers: int) -> dict[str, float]:
    """Enough resources for `workers` of the largest trials at once."""
    most: dict[str, float] = dict(ONE_CPU.required_resources)
    for trial in recording.trials:
        for key, amount in trial.spec.resources.required_resources.items():
            most[key] = max(amount, most.get(key, 0))
    return {key: -(-amount // 1) * workers for key, amount in most.items()}


def _searching(spec: ExperimentSpec, param_space: Mapping[str, Any], search: Searcher) -> Proposer:
    resources: PlacementGroupFactory = spec.resources or ONE_CPU
    return Proposer(
        spec, dict(param_space), search, resources, Naming(), root=Path(), stamp=lambda: ""
    )
