"""`replay`: a recorded run under another scheduler or on other workers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.records.rows import columns_of
from holdfast.experiment.user_objects.stored_objects import config_without_code
from holdfast.plain_numbers import finite_number, takes_numbers
from holdfast.scheduler.events import Begun, ExperimentSpec, SearchEnded, Suggested
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.simulate.scene import Faults, Scene, Training
from holdfast.simulate.simulation import RecordedTrial, Recording, Replay, read_recording
from holdfast.simulate.study import NO_FAULTS, keeping_little, play, policy_of
from holdfast.simulate.world import Sink
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import Mode
from holdfast.trial.resources import ONE_CPU, PlacementGroupFactory
from holdfast.trial.trial import Trial

if TYPE_CHECKING:
    import pyarrow.fs
_WIDE = 100.0


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
        confirm=0,
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


class OwnConfig(dict[str, Any]):
    """A config with its recorded trial; "" if it belongs to none."""

    trial_id = ""


class CurvePoint(NamedTuple):
    """The position of a training on a recorded curve; `metrics` are those of the newest report
    if they differ from the recorded ones."""

    source: str
    iteration: int
    metrics: Mapping[str, Any] | None = None


class RecordedCurve:
    """A `Curve` from the reports of recorded trials.

    `cut_short` has the trials whose curve was followed to an early end: they had been stopped or
    had failed before they had come as far as others. `approximated` counts reports of configs that
    were not recorded.
    """

    def __init__(self, trials: Sequence[RecordedTrial]) -> None:
        self._trials = {trial.spec.trial_id: trial for trial in trials}
        self._longest = max((len(trial.reports) for trial in trials), default=0)
        reporting = [trial for trial in trials if trial.reports]
        self._nearest = Nearest(
            [(config_without_code(t.spec.config), t.spec.trial_id) for t in reporting]
        )
        self.cut_short: set[str] = set()
        self.approximated = 0

    def begin(self, config: dict[str, Any]) -> CurvePoint:
        return CurvePoint(self._source(config), 0)

    def step(
        self, state: CurvePoint, config: dict[str, Any]
    ) -> tuple[CurvePoint, Mapping[str, Any] | None]:
        source = self._source(config)
        trial, done = self._trials[source], state.iteration
        if done >= len(trial.reports):
            if not trial.is_whole and done < self._longest:
                self.cut_short.add(source)
            return state, None
        target = trial.reports[done].metrics
        self.approximated += not _recorded_id(config)
        if state.metrics is None and (state.source == source or not done):
            return CurvePoint(source, done + 1), target
        former = state.metrics
        if former is None:
            former = self._trials[state.source].reports[done - 1].metrics
        base = trial.reports[done - 1].metrics if done else {}
        metrics = {
            key: self._moved(key, former.get(key), base.get(key), target[key]) for key in target
        }
        return CurvePoint(source, done + 1, metrics), metrics

    def seconds(
        self, config: dict[str, Any], iteration: int, resources: Mapping[str, float]
    ) -> float:
        """The seconds of that iteration; 0 if it was not recorded."""
        reports = self._trials[self._source(config)].reports
        return reports[iteration - 1].seconds if iteration <= len(reports) else 0.0

    def _moved(self, key: str, former: object, base: object, target: object) -> object:
        """`former`, changed as the recorded value changed. Only numbers change; others are copied.

        It stays within the range of all recorded values, so that no accuracy exceeds 1.
        """
        have, low, high = number(former), number(base), number(target)
        if have is None or low is None or high is None:
            return target
        least, most = self._ranges[key]
        return min(max(have + (high - low), least), most)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The least and greatest reported value of each metric that is a number."""
        found: dict[str, tuple[float, float]] = {}
        for trial in self._trials.values():
            for report in trial.reports:
                for key, value in report.metrics.items():
                    if (known := number(value)) is not None:
                        least, most = found.get(key, (known, known))
                        found[key] = min(least, known), max(most, known)
        return found

    def _source(self, config: dict[str, Any]) -> str:
        """The trial whose curve a config follows."""
        return _recorded_id(config) or self._nearest.find(config)


def _recorded_id(config: dict[str, Any]) -> str:
    return config.trial_id if isinstance(config, OwnConfig) else ""


class Nearest:
    """Configs with names, to find the nearest one.

    The distance of two configs is the root of the sum of squares over their parameters: numbers by
    their share of the known range, as logarithms if it is positive and spans a factor of 100 or
    more; other values 0 if equal, else 1.
    """

    def __init__(self, known: Sequence[tuple[Mapping[str, Any], str]]) -> None:
        self._known = [(_flat(config), name) for config, name in known]
        keys = {key for config, _ in self._known for key in config}
        self._scales = {key: self._scale(key) for key in sorted(keys)}
        self._found: dict[str, str] = {}

    def find(self, config: Mapping[str, Any]) -> str:
        """The name of the nearest; of several the first. Raises ValueError if there is none."""
        flat = _flat(config)
        text = repr(sorted(flat.items()))
        if text not in self._found:
            self._found[text] = min(self._known, key=lambda one: self._distance(flat, one[0]))[1]
        return self._found[text]

    def _scale(self, key: str) -> tuple[float, float, bool] | None:
        """Least value and range of a parameter that is always a number, and if in logarithms."""
        values = [number(config[key]) for config, _ in self._known if key in config]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values) or not numbers:
            return None
        least, most = min(numbers), max(numbers)
        is_wide = least > 0 and most / least >= _WIDE
        if is_wide:
            least, most = math.log(least), math.log(most)
        return least, (most - least) or 1.0, is_wide

    def _distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return math.hypot(*(self._apart(key, one, other) for key in self._scales))

    def _apart(self, key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        scale = self._scales[key]
        here, there = number(one.get(key)), number(other.get(key))
        if scale is None or here is None or there is None:
            return float(one.get(key) != other.get(key))
        _, span, is_wide = scale
        if is_wide:
            here, there = math.log(max(here, 1e-300)), math.log(max(there, 1e-300))
        return (here - there) / span


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without empty dicts, with names such as `net/width`."""
    columns = columns_of(config)
    return {name: value for name, value in columns.items() if not isinstance(value, Mapping)}


def number(value: object) -> float | None:
    """A finite number, else None."""
    return finite_number(value)
