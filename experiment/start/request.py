"""The request that a call of `fit()` runs: from a script, or read back by a restore.

`spec_of` and `job_of` make of it the spec for the journal and the job for the workers.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.compat import ray_path
from holdfast.compat.advice import instead_of_search
from holdfast.dataclass import dataclass
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.folder.layout import (
    CHECKPOINT_PREFIX,
    EVENTS_PREFIX,
    STAGING,
    STDERR,
    STDOUT,
    TRIAL_FILES,
    log_names_of,
)
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.place import ExperimentPlace
from holdfast.experiment.start.extension import Changes, stop_fields, stop_options
from holdfast.experiment.user_objects.pickling import NotPicklable, pickles
from holdfast.experiment.user_objects.stored_objects import StoredField, stored
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.job import Job
from holdfast.experiment.worker.script import kept_of, located
from holdfast.experiment.worker.train_loop import TrainLoop, check_datasets
from holdfast.experiment.worker.trainables import check_class
from holdfast.global_numbers import drawn_seed
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policies.ray_style import scheduler_of
from holdfast.scheduler.policy import is_memoryless
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.config import (
    CHDIR,
    ENFORCED,
    FOR_RAY,
    ResumeConfig,
    RunConfig,
    RuntimeEnv,
    TuneConfig,
    runtime_env_of,
)
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import MODES, Mode
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.search_space.description import describe
from holdfast.trial.search_space.spaces import combined
from holdfast.trial.space import check_called, is_searched
from holdfast.trial.stoppers import ends_all, is_asked
from holdfast.trial.values import check_nesting, unwrap_scalar

if TYPE_CHECKING:
    from holdfast.experiment.records.opened import OpenedExperiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of `fit()`. `resume` is None for a new experiment; `notices` are for the user.

    `resources`: the resources of unfinished trials of a resumed experiment from now on. `changes`
    are those of a restore to its settings. `spaces`: the search spaces before `param_space`, by
    number. `resumes`: the same call, made again, resumes the experiment. Unless `trusted`, nothing
    in the experiment's files is unpickled.
    `opened` is the experiment, None if `run` says where to find it. `record`: the name and content
    of a file that describes the experiment, for its folder. `command` makes the same call from any
    folder of a shell; "" for a script. `retries`: with corrected code, the failed trials of a
    finished experiment run again. `choice`: what an automatic search or scheduler has chosen.
    """

    trainable: Any
    param_space: Mapping[str, Any]
    tune: TuneConfig
    run: RunConfig
    resume: ResumeConfig | None = None
    resources: PlacementGroupFactory | None = None
    notices: tuple[str, ...] = ()
    spaces: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    changes: Changes | None = None
    resumes: bool = False
    trusted: bool = True
    opened: OpenedExperiment | None = None
    record: tuple[str, bytes] | None = None
    command: str = ""
    retries: bool = False
    choice: str = ""

    @property
    def search(self) -> Any:
        return self.tune.search_alg or BasicVariantGenerator()

    @property
    def stopper(self) -> Any:
        """`stop`, if it needs to see the reports."""
        stop = self.run.stop
        return stop if is_asked(stop) else None

    @property
    def max_concurrent(self) -> int | None:
        """How many trials may run at once: the lower of the Tuner's and the search's limit."""
        limits = (self.tune.max_concurrent_trials, getattr(self.search, "max_concurrent", None))
        return min((limit for limit in limits if limit), default=None)

    @property
    def search_name(self) -> str:
        """The class of the search algorithm, "" where the seed determines everything."""
        search = self.tune.search_alg
        return "" if _follows_from_spec(search) else type(search).__name__

    @property
    def scheduler_name(self) -> str:
        """The class of the scheduler, "" for one that decides nothing."""
        scheduler = self.tune.scheduler
        return "" if is_memoryless(scheduler) else type(scheduler).__name__

    def with_run_settings_of(self, script: Request) -> Request:
        """A copy with the script's callbacks, output, sync settings, resources and record."""
        shown = self._shown_by({name: getattr(script.run, name) for name in _RUN_SETTINGS})
        return replace(
            shown,
            resources=script.resources,
            record=script.record,
            command=script.command,
        )

    def with_run_settings_in(self, run: RunConfig) -> Request:
        """A copy with the callbacks, output and sync settings that `run` sets."""
        given = {name: getattr(run, name) for name in _RUN_SETTINGS}
        plain = RunConfig()
        return self._shown_by({k: v for k, v in given.items() if v != getattr(plain, k)})

    def _shown_by(self, given: Mapping[str, Any]) -> Request:
        known = tuple(name.removesuffix("s") for name in given)
        of_others = tuple(text for text in self.notices if not text.startswith(known))
        return replace(self, run=replace(self.run, **given), notices=of_others)

    def values(self, number: int) -> dict[Any, Any]:
        """The user's values by their place, for trials' configs. `param_space` has this number."""
        return combined({**self.spaces, number: self.param_space})

    def with_artifacts(self, *, brought: bool) -> Request:
        """A copy that downloads artifacts written on another machine, or does not."""
        sync = replace(self.run.sync_config, restore_artifacts=brought)
        return replace(self, run=replace(self.run, sync_config=sync))

    def check(self) -> None:
        """Refuse a search that never ends, datasets that cannot be read, and settings that do not
        fit together. Raises InvalidConfig.
        """
        check_nesting(self.param_space, "param_space")
        expressions = getattr(self.tune.search_alg, "expressions", "")
        check_called(dict(self.param_space), "param_space", expressions)
        if isinstance(self.trainable, TrainLoop):
            self.trainable.check_datasets(self.param_space)
        else:
            check_datasets(self.param_space)
        # A search algorithm may end on its own.
        is_drawn = isinstance(self.search, BasicVariantGenerator)
        endless = self.tune.num_samples == -1 and is_drawn
        ends = self.tune.budget_seconds is not None or ends_all(self.run.stop)
        if endless and not ends:
            raise InvalidConfig(
                f"num_samples=-1 starts trials without end"
                f"{' of an empty search space' if not self.param_space else ''}: set "
                f"TuneConfig(time_budget_s=...) or a Stopper with stop_all()"
            )
        kept = self.run.checkpoint_config
        by_steps = kept.checkpoint_frequency or kept.checkpoint_at_end
        if by_steps and not isinstance(self.trainable, type):
            raise InvalidConfig(
                "checkpoint_frequency and checkpoint_at_end are for a Trainable class; a function "
                "makes its own checkpoints: tune.report(metrics, checkpoint=...)"
            )
        if isinstance(self.trainable, type):
            check_class(self.trainable, saves=bool(by_steps))
        log = self.run.log_to_file
        for name in () if isinstance(log, bool) else (log,) if isinstance(log, str) else log:
            _check_log_name(name)
        scheduler_of(self.tune.scheduler)
        search = self.tune.search_alg
        if search is not None and not isinstance(search, (Searcher, BasicVariantGenerator)):
            if instead := instead_of_search(search):
                raise InvalidConfig(
                    f"search_alg must not be Optuna's {type(search).__name__}: write {instead}"
                )
            raise InvalidConfig(
                f"search_alg must be a tune.search.Searcher, as create_searcher() makes one, or a "
                f"BasicVariantGenerator; not {search!r:.100}"
            )
        self._check_confirm()
        if self.tune.scheduler is not None and self.metric and not self.mode:
            raise InvalidConfig(f"TuneConfig(metric={self.metric!r}) needs mode='max' or 'min'")
        if isinstance(search, Searcher) and self.resume is None:
            search.check_space(self.metric, self.mode, self.param_space)

    def _check_confirm(self) -> None:
        confirm, scheduler = self.tune.confirm, self.tune.scheduler
        if confirm and not (self.metric and self.mode):
            goals = f", not {len(self.goals)} goals" if self.goals else ""
            raise InvalidConfig(
                f"confirm={confirm} needs one metric and its mode{goals}: set "
                f"TuneConfig(metric=..., mode=...)"
            )
        if confirm and scheduler_of(scheduler).changes_configs:
            raise InvalidConfig(
                f"confirm={confirm} runs the best configs again, but the trials of "
                f"{type(scheduler).__name__} change theirs while they train: leave it out"
            )

    def environment(self, host_resources: MachineResources) -> RuntimeEnv:
        """The workers' environment: the RunConfig's over that of `init`.

        Raises InvalidConfig for a working_dir that does not exist.
        """
        where = "runtime_env"
        own = located(runtime_env_of(self.run.runtime_env, where=where), where=where)
        return own.over(host_resources.environment)

    def options(self, environment: RuntimeEnv) -> dict[str, Any]:
        """The settings that a restore needs and the machine does not, as plain data without
        absolute paths."""
        log = self.run.log_to_file
        return {
            "sync": asdict(self.run.sync_config),
            "verbose": self.run.verbose,
            "log_to_file": list(log) if isinstance(log, tuple) else log,
            "objects": [name for name, value in self._named_objects() if value is not None],
            "trainer": self._trainer,
            "search": self.search_name,
            **({"choice": self.choice} if self.choice else {}),
            **({"tags": dict(self.run.tags)} if self.run.tags else {}),
            **({} if (chdir := self.tune.chdir_to_trial_dir) is None else {CHDIR: chdir}),
            **({"search_space": space} if (space := self.search_space) else {}),
            **({"goals": goals} if (goals := self.goals) else {}),
            **stop_options(self.run.stop),
            **kept_of(environment),
        }

    @property
    def metric(self) -> str | None:
        """The Tuner's metric, else the scheduler's, else the search's. `mode` follows the same
        rule."""
        several = (_named(one, "metric") for one in (self.tune.scheduler, self.tune.search_alg))
        return self.tune.metric or next(filter(None, several), None)

    @property
    def mode(self) -> Mode | None:
        return self.tune.mode or _mode_of(self.tune.scheduler) or _mode_of(self.tune.search_alg)

    @property
    def search_space(self) -> list[dict[str, Any]]:
        """The description of a space that the search has of its own; empty for other spaces."""
        space = getattr(self.tune.search_alg, "own_space", None)
        return describe(space) if isinstance(space, Mapping) else []

    @property
    def goals(self) -> dict[str, str]:
        """The metrics of a search or a scheduler that optimizes several, each with its mode."""
        search, scheduler = self.tune.search_alg, self.tune.scheduler
        return (
            _several(getattr(search, "metric", None), getattr(search, "mode", None))
            or _several(getattr(scheduler, "metrics", None), getattr(scheduler, "modes", None))
            or {}
        )

    @property
    def reuses_actors(self) -> bool:
        return self.tune.reuse_actors and not isinstance(self.trainable, TrainLoop)

    @property
    def _trainer(self) -> str:
        """The class of the trainer that restores this, "" where a Tuner does."""
        is_one = self.tune.num_samples == 1 and not is_searched(dict(self.param_space))
        return self.trainable.name if is_one and isinstance(self.trainable, TrainLoop) else ""

    def _named_objects(self) -> Iterator[tuple[str, Any]]:
        """The objects that are lost without tuner.pkl. The journal keeps their names."""
        search, scheduler = self.tune.search_alg, self.tune.scheduler
        yield "search_alg", None if _follows_from_spec(search) else search
        yield "scheduler", None if is_memoryless(scheduler) else scheduler
        yield "trial_name_creator", self.tune.trial_name_creator
        yield "trial_dirname_creator", self.tune.trial_dirname_creator
        yield "callbacks", self.run.callbacks or None
        yield "progress_reporter", self.run.progress_reporter

    def objects(self, *, travels: bool) -> dict[str, StoredField]:
        """The user's objects for tuner.pkl.

        Raises NotPicklable for an object that decides how the experiment continues: a restore
        without it would be another experiment. Any other object that cannot be pickled is left
        out, and `missing` names it; so is each one where nothing travels to a worker.
        """
        decisive = {
            "trainable": self.trainable,
            "param_space": dict(self.param_space),
            "stop": self.stopper,
            "search_alg": self.tune.search_alg,
            "scheduler": self.tune.scheduler,
            "trial_name_creator": self.tune.trial_name_creator,
            "trial_dirname_creator": self.tune.trial_dirname_creator,
        }
        fields, missing = {}, []
        for name, value in decisive.items():
            if value is not None:
                try:
                    fields[name] = stored(value, "the trainable" if name == "trainable" else name)
                except NotPicklable:
                    if travels:
                        raise
                    missing.append(name)
        callbacks = []
        for one in self.run.callbacks or ():
            if pickles(one):
                callbacks.append(one)
            else:
                missing.append(f"callback {type(one).__name__}")
        fields["callbacks"] = stored(callbacks, "callbacks")
        if self.run.progress_reporter is not None:
            if pickles(self.run.progress_reporter):
                fields["progress_reporter"] = stored(self.run.progress_reporter, "the reporter")
            else:
                missing.append("progress_reporter")
        return {**fields, "missing": stored(missing, "missing")}


# Settings that do not change what a run computes. A notice of an object that is missing in
# tuner.pkl begins with its name here, or with "callback X" for one of several.
_RUN_SETTINGS = ("callbacks", "progress_reporter", "verbose", "sync_config", "web")


def _named(algorithm: Any, what: str) -> str | None:
    given = getattr(algorithm, what, None)
    return given if isinstance(given, str) else None


def _several(metrics: Any, modes: Any) -> dict[str, str] | None:
    """Metrics with their modes; None if these are not several."""
    if not isinstance(metrics, (list, tuple)) or not isinstance(modes, (list, tuple)):
        return None
    are_names = all(isinstance(metric, str) for metric in metrics)
    if not are_names or len(metrics) < 2 or len(metrics) != len(modes):
        return None
    return dict(zip(metrics, modes, strict=True)) if all(m in MODES for m in modes) else None


def _mode_of(algorithm: Any) -> Mode | None:
    """Raises InvalidConfig."""
    match _named(algorithm, "mode"):
        case None | "max" | "min" as mode:
            return mode
        case other:
            raise InvalidConfig(
                f"{type(algorithm).__name__}.mode must be 'max' or 'min', not {other!r:.60}"
            )


def _follows_from_spec(search: Any) -> bool:
    """True if the seed in the journal is all that a restore needs to draw the same trials."""
    return search is None or (
        type(search) is BasicVariantGenerator
        and not search.points_to_evaluate
        and not search.constant_grid_search
    )


def _check_log_name(name: str) -> None:
    records = {*TRIAL_FILES, STAGING} - {STDOUT, STDERR}
    ours = name in records or name.startswith((EVENTS_PREFIX, CHECKPOINT_PREFIX))
    if ours or name in ("", ".", "..") or any(sign in name for sign in "/\\\0"):
        raise InvalidConfig(
            f"log_to_file names a file in each trial's folder that nothing else uses; it cannot "
            f"be {name!r}"
        )


_SEED_BITS = 63


def seed_of(search: object) -> int:
    """The search's seed, reduced to what the journal can hold; else one from the generators that
    the script has seeded; else a random one.

    A user's own search may call something else its `seed`, for instance a generator.
    """
    seed = unwrap_scalar(getattr(search, "seed", None))
    if not isinstance(seed, int):
        seed = drawn_seed()
        return secrets.randbits(_SEED_BITS) if seed is None else seed
    return seed if seed.bit_length() <= _SEED_BITS else seed % 2**_SEED_BITS


def spec_of(
    request: Request,
    settings: Settings,
    resources: PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory],
    environment: RuntimeEnv,
    seed: int,
) -> ExperimentSpec:
    """The spec that the journal of a new experiment begins with."""
    tune = request.tune
    return ExperimentSpec(
        experiment_id=secrets.token_hex(8),
        run=secrets.token_hex(3)[:5],
        trainable=trainables.name_of(request.trainable),
        seed=seed,
        metric=request.metric,
        mode=request.mode,
        strict_metric=settings.strict_metric,
        strict_stop=settings.strict_metric,
        strict_kind=settings.strict_metric,
        num_samples=tune.num_samples,
        max_concurrent=request.max_concurrent,
        time_budget_s=tune.budget_seconds,
        fits_budget=tune.budget is not None,
        confirm=tune.confirm,
        reuse_actors=request.reuses_actors,
        **stop_fields(request.run.stop),
        scheduler=request.scheduler_name,
        saves_when_told=trainables.can_save(request.trainable),
        resources=resources if isinstance(resources, PlacementGroupFactory) else None,
        failure=request.run.failure_config,
        checkpoint=request.run.checkpoint_config,
        space=describe(request.param_space),
        options={
            **request.options(environment),
            **({ENFORCED: True} if settings.enforce_memory else {}),
            **({FOR_RAY: True} if ray_path.is_active() else {}),
        },
    )


def job_of(
    request: Request,
    settings: Settings,
    place: ExperimentPlace,
    spec: ExperimentSpec,
    environment: RuntimeEnv,
) -> Job:
    """The job of every worker. In debug mode trials run in the script's own process."""
    debug, verbose = settings.debug, request.run.verbose
    chdir = request.tune.chdir_to_trial_dir
    loop = request.trainable if isinstance(request.trainable, TrainLoop) else None
    return Job(
        trainable=request.trainable,
        param_space=request.values(spec.space_number),
        experiment_name=place.name,
        experiment_dir=str(place.layout.root),
        storage=place.location.public,
        # In debug mode the script returns to its own directory.
        working_dir=(None if debug else environment.working_dir) or os.getcwd(),
        chdir=settings.chdir_to_trial_dir if chdir is None else chdir,
        log_names=log_names_of(request.run.log_to_file),
        echo=settings.echo and (verbose is None or verbose > 0),
        capture=not debug,
        checkpoint_frequency=spec.checkpoint.checkpoint_frequency or 0,
        checkpoint_at_end=bool(spec.checkpoint.checkpoint_at_end),
        reuse_actors=spec.reuse_actors,
        preemption_grace_s=spec.failure.preemption_grace_s,
        is_mirrored=place.remote is not None,
        group=loop.terms if loop else None,
        metadata=loop.metadata if loop else {},
        trusted=request.trusted,
        goals=() if ray_path.is_active() else _goals_of(spec),
    )


def _goals_of(spec: ExperimentSpec) -> tuple[str, ...]:
    return (spec.metric,) if spec.metric else tuple(spec.options.get("goals", ()))
