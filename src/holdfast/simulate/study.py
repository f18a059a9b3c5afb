"""`simulate`: a study in virtual time, as `Tuner(...).fit()` would run it, and its journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.start.extension import stop_fields
from holdfast.experiment.start.request import Request
from holdfast.experiment.start.short_names import with_algorithms
from holdfast.experiment.user_objects.pickling import users_config
from holdfast.plain_numbers import takes_numbers
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import Begun, ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policies.goal import is_finite_number
from holdfast.scheduler.policies.ray_style import RayStyleScheduler, scheduler_of
from holdfast.scheduler.policy import TrialScheduler
from holdfast.simulate.scene import (
    Curve,
    CurveFunction,
    Faults,
    NodesSpec,
    Scene,
    Seconds,
    Training,
    cost_of,
    curve_of,
)
from holdfast.simulate.simulation import SimulatedTrial, Simulation, Tally
from holdfast.simulate.world import Sink, World, tracing
from holdfast.text.trials import stop_reason
from holdfast.trial.config import CheckpointConfig, RunConfig, TuneConfig
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.resources import PlacementGroupFactory, request, validated
from holdfast.trial.search_space.description import describe
from holdfast.trial.trial import Trial

Resources = (
    PlacementGroupFactory
    | Mapping[str, float]
    | Callable[[dict[str, Any]], PlacementGroupFactory]
    | None
)
NO_FAULTS = Faults()


@takes_numbers
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
    nodes: int | None = None,
    node_resources: Mapping[str, float] | None = None,
    faults: Faults = NO_FAULTS,
    seed: int = 0,
    trace: Sink = None,
) -> Simulation:
    """Run a study in virtual time: the machine, scheduler and search of `Tuner(...).fit()`, with
    simulated workers in place of processes. The same arguments give the same trace, byte for byte.

    `curve`: a trial's reports, as a function of (config, iteration from 1) or as a `Curve` with a
    state. It returns a dict of metrics, or a number, the value of TuneConfig's metric.
    `param_space`, `tune_config` and `run_config` as for a Tuner; of `run_config` only `stop`,
    `failure_config` and `checkpoint_config` apply. You may reuse a scheduler. A search algorithm
    remembers its results, so pass a new one each time.

    `workers`: the number of trials at once, each with `resources` (1 CPU). `capacity`: the total
    instead of `workers` times `resources`; required if `resources` is a function of the config.
    `nodes`: run on a cluster of so many nodes instead, each with `node_resources` (by default
    those of `Faults.workers_per_node` trials). The machine knows them: it chooses where trials
    run, and sees nodes leave and join.
    `seconds_per_iteration`: a number, or a function of (config), (config, iteration) or (config,
    iteration, resources held). `iterations`: the length of a training; None for one that only
    `stop` or the scheduler ends. `checkpoint_every`: iterations between two checkpoints, 0 for
    none; None for CheckpointConfig(checkpoint_frequency=...). `saves_when_told`: trials also save
    themselves when the scheduler pauses them or asks for it, as class trainables do and functions
    do not. A trial keeps its newest checkpoint, unless CheckpointConfig(num_to_keep=...) says
    more. A worker takes `start_s` to start and `stop_s` to end, and a checkpoint `commit_s` to
    reach storage. `trace`: a function that gets each record of the journal, or a directory for a
    journal, as of an experiment. `faults`: the faults and their frequency. `seed`: of the faults,
    and of the search unless it has its own.

    Raises InvalidConfig, CurveFailed, and the exceptions of a search algorithm.
    """
    space = dict(param_space or {})
    tune, _ = with_algorithms(tune_config or TuneConfig(), space)
    run = run_config or RunConfig()
    kept = run.checkpoint_config
    every = (kept.checkpoint_frequency or 0) if checkpoint_every is None else checkpoint_every
    run = replace(run, checkpoint_config=keeping_little(kept))
    asked = Request(trainable=curve, param_space=space, tune=tune, run=run)
    asked.check()
    _check(workers, every, iterations)
    for name, seconds in (("start_s", start_s), ("stop_s", stop_s), ("commit_s", commit_s)):
        require(
            is_finite_number(seconds, least=0),
            f"{name} must be a number of at least 0, not {seconds!r}",
        )
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
    naming = Naming(trial=tune.trial_name_creator, directory=tune.trial_dirname_creator)
    known = _nodes(nodes, node_resources, capacity, faults, for_each)
    scene = Scene(
        begun=Begun(
            spec=spec,
            capacity={} if known else _capacity(capacity, workers, for_each),
            offer=() if known is None else (known.kind,),
        ),
        proposer=Proposer(
            spec, space, asked.search, for_each, naming, root=Path(), stamp=lambda: ""
        ),
        training=training,
        config_of=lambda trial: users_config(trial.config, space),
        places=workers if known is None else _places_of(known, for_each),
        nodes=known,
        stopper=asked.stopper,
        faults=faults,
        commit_s=commit_s,
    )
    return play(scene, policy_of(tune.scheduler, training), trace)


def play(scene: Scene, policy: TrialScheduler, sink: Sink) -> Simulation:
    """Simulate a scene to its end. Raises CurveFailed, and the search algorithm's exceptions."""
    spec = scene.begun.spec
    tally = Tally(spec.metric, spec.mode)
    with tracing(sink) as trace:
        world = World(Machine(policy), scene, trace, tally)
        outcome = world.run()
    trials = [_ended(scene, trial, tally) for trial in world.machine.trials.values()]
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
        failures=dict(tally.faults),
        warnings=tuple(world.warnings),
        reason=outcome.reason,
        message=outcome.message,
        digest=trace.digest,
    )


def policy_of(scheduler: Any, training: Training) -> TrialScheduler:
    """The user's scheduler; the machine makes a copy of it. Raises InvalidConfig."""
    policy = scheduler_of(scheduler)
    if isinstance(policy, RayStyleScheduler):
        raise InvalidConfig(
            f"{policy.name} has methods that Ray calls, and a simulation calls none: define "
            "decide(view, event) in it"
        )
    if policy.needs_checkpoints and not (training.saves_when_told or training.checkpoint_every):
        raise InvalidConfig(
            f"{type(policy).__name__} resumes trials from checkpoints, and these make none: "
            f"pass checkpoint_every=1, or saves_when_told=True"
        )
    return policy


def keeping_little(config: CheckpointConfig) -> CheckpointConfig:
    """Keep only the newest checkpoint if the config keeps all, so that memory does not grow with
    the reports. No decision depends on the older ones.
    """
    return replace(
        config,
        num_to_keep=config.num_to_keep or 1,
        checkpoint_frequency=0,
        checkpoint_at_end=None,
    )


def run_of(seed: int) -> str:
    """The first five hexadecimal digits of each trial's id."""
    return blake2b(f"{seed}".encode(), digest_size=3).hexdigest()[:5]


def _check(workers: int, checkpoint_every: int, iterations: int | None) -> None:
    counts = {"workers": (workers, 1), "checkpoint_every": (checkpoint_every, 0)}
    if iterations is not None:
        counts["iterations"] = (iterations, 1)
    for name, (count, least) in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise InvalidConfig(
                f"{name} must be a whole number of at least {least}, not {count!r}"
            )


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
        fits_budget=tune.budget is not None,
        confirm=tune.confirm,
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
        raise InvalidConfig("resources as a function of the config need capacity={...}")
    return {key: workers * amount for key, amount in resources.required_resources.items()}


def _nodes(
    count: int | None,
    resources: Mapping[str, float] | None,
    capacity: Mapping[str, float] | None,
    faults: Faults,
    for_each: PlacementGroupFactory | Callable[..., Any],
) -> NodesSpec | None:
    if count is None:
        require(resources is None, "node_resources needs nodes=...")
        return None
    require(capacity is None, "a cluster has node_resources={...}, and no capacity")
    require(
        isinstance(count, int) and not isinstance(count, bool) and count >= 1,
        f"nodes must be a whole number of at least 1, not {count!r}",
    )
    if resources is not None:
        return NodesSpec(count=count, resources=validated(resources, where="node_resources"))
    if not isinstance(for_each, PlacementGroupFactory):
        raise InvalidConfig("resources as a function of the config need node_resources={...}")
    amounts = for_each.required_resources.items()
    each = {key: faults.workers_per_node * amount for key, amount in amounts}
    return NodesSpec(count=count, resources=each)


def _places_of(nodes: NodesSpec, for_each: PlacementGroupFactory | Callable[..., Any]) -> int:
    """How many trials could run at once; one per node if that depends on their configs."""
    if not isinstance(for_each, PlacementGroupFactory):
        return nodes.count
    one = Capacity(nodes.resources).room(for_each.required_resources, 1_000_000)
    return max(1, nodes.count * one)


def _ended(scene: Scene, trial: Trial, tally: Tally) -> SimulatedTrial:
    return SimulatedTrial(
        trial_id=trial.trial_id,
        config=scene.config_of(trial),
        status=trial.status,
        stop_reason=stop_reason(trial, is_live=True),
        iteration=trial.iteration,
        attempts=trial.attempt,
        metrics=trial.row,
        best=tally.best.get(trial.trial_id),
        error=trial.error,
    )
