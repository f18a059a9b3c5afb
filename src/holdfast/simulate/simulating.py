"""`simulate`: a study in virtual time, as `Tuner(...).fit()` would run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.start.extension import stop_fields
from holdfast.experiment.start.request import Request
from holdfast.experiment.user_objects.pickling import users_config
from holdfast.scheduler.events import Begun, ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policies.goal import is_number
from holdfast.scheduler.policy import TrialScheduler, scheduler_of
from holdfast.simulate.curves import Curve, CurveFunction, Seconds, cost_of, curve_of
from holdfast.simulate.faults import Faults
from holdfast.simulate.simulation import SimulatedTrial, Simulation
from holdfast.simulate.tally import Tally, ending_of
from holdfast.simulate.trace import Sink, Trace, tracing
from holdfast.simulate.worker import Training
from holdfast.simulate.world import Scene, World
from holdfast.trial.config import CheckpointConfig, RunConfig
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.resources import PlacementGroupFactory, request, validated
from holdfast.trial.search_space.description import describe
from holdfast.trial.trial import Trial
from holdfast.trial.tuning import TuneConfig

Resources = (
    PlacementGroupFactory
    | Mapping[str, float]
    | Callable[[dict[str, Any]], PlacementGroupFactory]
    | None
)
NO_FAULTS = Faults()


def simulate(
    curve: Curve | CurveFunction,
    *,
    param_space: Mapping[str, Any] | None = None,
    tune_config: TuneConfig | None = None,
    run_config: RunConfig | None = None,
    workers: int = 25,
    seconds_per_iteration: Seconds = 1.0,
    iterations: int | None = None,
    checkpoint_every: int | None = None,
    saves_when_told: bool = True,
    start_s: float = 0.0,
    stop_s: float = 0.0,
    commit_s: float = 0.0,
    resources: Resources = None,
    capacity: Mapping[str, float] | None = None,
    faults: Faults = NO_FAULTS,
    seed: int = 0,
    trace: Sink = None,
) -> Simulation:
    """Run a study in virtual time: the machine, scheduler and search of `Tuner(...).fit()`, with
    simulated workers in place of processes. The same arguments give the same trace, byte for byte.

    `curve`: what a trial reports, as a function of (config, iteration from 1) or as a `Curve` with
    a state; a dict of metrics, or a number, which is TuneConfig's metric. `param_space`,
    `tune_config` and `run_config` as for a Tuner; of the latter `stop`, `failure_config` and
    `checkpoint_config` count. A scheduler may serve again; a search algorithm remembers what it
    was told, so give a new one each time.

    `workers`: trials at once, of which each asks for `resources` (1 CPU). `capacity`: all that
    there is, instead of `workers` times `resources`; needed where those are a function of the
    config. `seconds_per_iteration`: a number, or a function of (config), (config, iteration) or
    (config, iteration, resources held). `iterations`: after so many the training function returns;
    None for a training that only `stop` or the scheduler ends. `checkpoint_every`: iterations
    between two checkpoints, 0 for none; None for CheckpointConfig(checkpoint_frequency=...).
    `saves_when_told`: trials save themselves when the scheduler pauses them or wants it, too, as
    class trainables do and functions do not. Of its checkpoints a trial keeps the newest, unless
    CheckpointConfig(num_to_keep=...) says more. A worker needs `start_s` to begin and `stop_s` to
    end, storage `commit_s` to have a checkpoint. `trace`: a function that is given each record of
    the journal, or a directory that a journal is written to, as of an experiment. `faults`: what
    goes wrong, and how often. `seed`: of the faults and of the search, unless that has its own.

    Raises InvalidConfig, CurveFailed, and what a search algorithm raises.
    """
    tune, run = tune_config or TuneConfig(), run_config or RunConfig()
    space = dict(param_space or {})
    kept = run.checkpoint_config
    every = (kept.checkpoint_frequency or 0) if checkpoint_every is None else checkpoint_every
    run = replace(run, checkpoint_config=keeping_little(kept))
    asked = Request(trainable=curve, param_space=space, tune=tune, run=run)
    asked.check()
    _check(workers, every, iterations)
    for name, seconds in (("start_s", start_s), ("stop_s", stop_s), ("commit_s", commit_s)):
        require(is_number(seconds, least=0), f"{name} must be a number from 0 on, not {seconds!r}")
    for_each = resources if callable(resources) else request(resources)
    spec = _spec(asked, for_each, seed, saves_when_told=saves_when_told)
    training = Training(
        curve=curve_of(curve),
        cost=cost_of(seconds_per_iteration),
        checkpoint_every=every,
        saves_when_told=saves_when_told,
        metric=spec.metric,
        iterations=iterations,
        start_s=start_s,
        stop_s=stop_s,
    )
    scene = Scene(
        begun=Begun(spec=spec, capacity=_capacity(capacity, workers, for_each)),
        proposer=_proposer(asked, spec, for_each),
        training=training,
        config_of=lambda trial: users_config(trial.config, space),
        places=workers,
        stopper=asked.stopper,
        faults=faults,
        commit_s=commit_s,
    )
    policy = policy_of(tune.scheduler, training)
    with tracing(trace) as records:
        return play(scene, policy, records)


def play(scene: Scene, policy: TrialScheduler, trace: Trace) -> Simulation:
    """Simulate a scene to its end. Raises CurveFailed, and what a search algorithm raises."""
    spec = scene.begun.spec
    tally = Tally(spec.metric, spec.mode)
    world = World(Machine(policy), scene, trace, tally)
    outcome = world.run()
    trials = [_ended(world, trial, tally) for trial in world.trials.values()]
    return Simulation(
        metric=spec.metric,
        mode=spec.mode,
        seed=spec.seed,
        trials=tuple(trials),
        incumbents=tuple(tally.incumbents),
        duration_s=world.agenda.elapsed_s,
        workers=scene.places,
        busy_s=tally.busy_s,
        trained_s=tally.trained_s,
        reports=tally.reports,
        repeated=tally.repeated,
        events=trace.records,
        failures=dict(tally.befell),
        warnings=tuple(world.warnings),
        reason=outcome.reason,
        message=outcome.message,
        digest=trace.digest,
    )


def policy_of(scheduler: Any, training: Training) -> TrialScheduler:
    """The user's scheduler, of which the machine makes a copy. Raises InvalidConfig."""
    policy = scheduler_of(scheduler)
    if policy.needs_checkpoints and not (training.saves_when_told or training.checkpoint_every):
        raise InvalidConfig(
            f"{type(policy).__name__} lets trials go on from checkpoints, and these make none: "
            f"give checkpoint_every=1, or leave saves_when_told=True"
        )
    return policy


def keeping_little(config: CheckpointConfig) -> CheckpointConfig:
    """The newest checkpoint alone where all were to be kept: nobody will look at them, and memory
    is not to grow with the reports. No decision depends on the older ones."""
    return replace(
        config,
        num_to_keep=config.num_to_keep or 1,
        checkpoint_frequency=0,
        checkpoint_at_end=None,
    )


def run_of(seed: int) -> str:
    """The five hexadecimal digits that begin each trial's id."""
    return blake2b(f"{seed}".encode(), digest_size=3).hexdigest()[:5]


def _check(workers: int, checkpoint_every: int, iterations: int | None) -> None:
    counts = {"workers": (workers, 1), "checkpoint_every": (checkpoint_every, 0)}
    if iterations is not None:
        counts["iterations"] = (iterations, 1)
    for name, (count, least) in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise InvalidConfig(f"{name} must be a whole number from {least} on, not {count!r}")


def _spec(
    asked: Request,
    resources: PlacementGroupFactory | Callable[..., Any],
    seed: int,
    *,
    saves_when_told: bool,
) -> ExperimentSpec:
    tune = asked.tune
    own = getattr(asked.search, "seed", None)
    return ExperimentSpec(
        experiment_id=f"simulation-{seed}",
        run=run_of(seed),
        trainable="simulated",
        seed=seed if own is None else own,
        metric=asked.metric,
        mode=asked.mode,
        num_samples=tune.num_samples,
        max_concurrent=asked.max_concurrent,
        time_budget_s=tune.budget_seconds,
        reuse_actors=tune.reuse_actors,
        **stop_fields(asked.run.stop),
        strict_stop=True,
        scheduler="" if tune.scheduler is None else type(tune.scheduler).__name__,
        saves_when_told=saves_when_told,
        resources=resources if isinstance(resources, PlacementGroupFactory) else None,
        failure=asked.run.failure_config,
        checkpoint=asked.run.checkpoint_config,
        space=describe(asked.param_space),
    )


def _capacity(
    capacity: Mapping[str, float] | None,
    workers: int,
    resources: PlacementGroupFactory | Callable[..., Any],
) -> dict[str, float]:
    if capacity is not None:
        return validated(capacity, where="capacity")
    if not isinstance(resources, PlacementGroupFactory):
        raise InvalidConfig("resources that are a function of the config need capacity={...}")
    return {key: workers * amount for key, amount in resources.required_resources.items()}


def _proposer(
    asked: Request,
    spec: ExperimentSpec,
    resources: PlacementGroupFactory | Callable[[dict[str, Any]], PlacementGroupFactory],
) -> Proposer:
    naming = Naming(
        trial=asked.tune.trial_name_creator, directory=asked.tune.trial_dirname_creator
    )
    return Proposer(
        spec,
        asked.param_space,
        asked.search,
        resources,
        naming,
        root=Path(),
        stamp=lambda: "",
    )


def _ended(world: World, trial: Trial, tally: Tally) -> SimulatedTrial:
    return SimulatedTrial(
        trial_id=trial.trial_id,
        config=world.config_of(trial),
        status=trial.status,
        ending=ending_of(trial, world.machine.spec.stop, tally),
        iteration=trial.iteration,
        attempts=trial.attempt,
        metrics=trial.row,
        best=tally.best.get(trial.trial_id),
        error=trial.error,
    )
