"""Makes the spec for the journal and the job for the workers from a request."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import Any

from holdfast import ray_path
from holdfast.experiment.folder.layout import log_names_of
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.place import ExperimentPlace
from holdfast.experiment.start.extension import stop_fields
from holdfast.experiment.start.request import Request
from holdfast.experiment.worker import wrap
from holdfast.experiment.worker.job import Job
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.global_numbers import drawn_seed
from holdfast.scheduler.events import ExperimentSpec
from holdfast.trial.options import ENFORCED, FOR_RAY
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.runtime_env import RuntimeEnv
from holdfast.trial.search_space.description import describe
from holdfast.trial.values import unwrap_scalar

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
        trainable=wrap.name_of(request.trainable),
        seed=seed,
        metric=request.metric,
        mode=request.mode,
        strict_metric=settings.strict_metric,
        strict_stop=settings.strict_metric,
        strict_kind=settings.strict_metric,
        num_samples=tune.num_samples,
        max_concurrent=request.max_concurrent,
        time_budget_s=tune.budget_seconds,
        reuse_actors=request.reuses_actors,
        **stop_fields(request.run.stop),
        scheduler=request.scheduler_name,
        saves_when_told=wrap.can_save(request.trainable),
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
