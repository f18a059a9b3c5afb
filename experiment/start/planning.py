"""Makes the plan of a run from a request and the records of its experiment.

It also decides where trials may run: on this machine, or on the nodes that a cluster offers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.compat import ray_path
from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.control.user_threads import SchedulerCalls
from holdfast.experiment.folder.contents import check_enclosed_trials
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import resume_command
from holdfast.experiment.progress.summary import ProgressView
from holdfast.experiment.progress.views import in_notebook
from holdfast.experiment.progress.wording import retry_options, retry_way, room_notice
from holdfast.experiment.projector.logger_callbacks import is_written_anyway
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.start.extension import (
    change_notice,
    check_enough,
    code_field,
    extended,
    extension_notice,
    has_changed,
    name_for_shell,
    retried,
    store,
    trained_further,
)
from holdfast.experiment.start.request import Request, job_of, seed_of, spec_of
from holdfast.experiment.start.restoring import check_recorded
from holdfast.experiment.trackers.delivery import TrackerJob
from holdfast.experiment.trackers.supervisor import jobs_of
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.experiment.user_objects.pickling import parts_of, pickled_size
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.experiment.user_objects.tuner_file import RAY_NAMES
from holdfast.experiment.user_objects.tuner_file import write as write_tuner_file
from holdfast.experiment.worker import trainables
from holdfast.experiment.worker.objects import LARGE_BYTES
from holdfast.experiment.worker.script import check_given_again
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.forked import children_end_here
from holdfast.runtime.warm.memory_groups import CannotEnforce, prepare
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import Begun, ExperimentSpec, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import Cluster, may_fit, offer_text
from holdfast.scheduler.policies.ray_style import RayStyleScheduler, scheduler_of
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.resuming import has_work, kept_ahead, written
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import Position, segments
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.text.values import size
from holdfast.trial.config import ENFORCED, PERIOD_ON_NODES_S, ResumeConfig, ResumeType, SyncConfig
from holdfast.trial.errors import ImpossibleResources, InvalidConfig
from holdfast.trial.resources import NodeKind, PlacementGroupFactory, comparable, misnamed
from holdfast.trial.space import is_searched
from holdfast.trial.trial import Status

if TYPE_CHECKING:
    from holdfast.experiment.nodes.engines import PlannedEngine


def check_resources(
    trainable: object,
    resources: object,
    host_resources: MachineResources,
    offer: Sequence[NodeKind],
) -> None:
    """Refuse resources that this machine, or the cluster, does not have: no trial would ever
    start.

    Raises ImpossibleResources.
    """
    if not isinstance(resources, PlacementGroupFactory):
        return
    wanted, total = resources.least_resources, dict(host_resources.total)
    if offer:
        _check_offer(resources, offer)
        return
    if Capacity(total).ever_fits(wanted):
        return
    who, where = "each trial asks", "tune.with_resources()"
    if isinstance(trainable, TrainLoop):
        workers = resources.least_bundles - 1
        who, where = f"{workers} workers ask", f"ScalingConfig(num_workers={workers}, ...)"
    has = comparable(total, wanted)
    raise ImpossibleResources(
        f"{who} for {wanted}, this machine has {has}: no trial could ever start."
        f"{misnamed(wanted, total)} "
        f"Ask for less in {where}, or declare what the machine has in holdfast.init()",
        wanted,
        has,
    )


def check_limits(offer: Sequence[NodeKind], *, enforces_memory: bool) -> None:
    """Refuse to enforce the resource memory where this machine does not allow it; on a cluster
    each node finds out. Raises InvalidConfig."""
    if enforces_memory and not offer:
        try:
            prepare()
        except CannotEnforce as error:
            raise InvalidConfig(str(error)) from error


def with_recorded_limits(
    settings: Settings, spec: ExperimentSpec, offer: Sequence[NodeKind]
) -> tuple[Settings, str]:
    """The settings of a resumed run: it enforces the resource memory if the run has done so and
    this process has not said anything else. With a notice if it does not; "" otherwise."""
    if settings.enforce_memory or not spec.options.get(ENFORCED):
        return settings, ""
    notice = "So far, trials could not use more memory than they request; from now on they can: "
    if settings.enforce_memory is False:
        return settings, f"{notice}holdfast.init() has no enforce_memory=True here"
    try:
        check_limits(offer, enforces_memory=True)
    except InvalidConfig as error:
        return settings, f"{notice}{error}"
    return replace(settings, enforce_memory=True), ""


def _check_offer(resources: PlacementGroupFactory, offer: Sequence[NodeKind]) -> None:
    cluster = Cluster(offer)
    if may_fit(cluster, resources.first(resources.least_bundles)):
        return
    bundles = [dict(bundle) for bundle in resources.bundles[: resources.least_bundles]]
    wanted = bundles[0] if len(bundles) == 1 else f"{bundles} ({resources.strategy})"
    raise ImpossibleResources(
        f"each trial asks for {wanted}, and the cluster offers {offer_text(cluster, resources)}: "
        f"no trial could ever start.{misnamed(resources.least_resources, ())} "
        f"Each bundle must fit on one node. Ask for less in "
        f"tune.with_resources() or ScalingConfig(...), or offer larger nodes",
        resources.least_resources,
        {},
    )


def engine_for(host_resources: MachineResources) -> PlannedEngine | None:
    """The engine of the cluster; None if trials run on this machine. Raises InvalidConfig."""
    if host_resources.cluster is None:
        return None
    from holdfast.experiment.nodes.engines import engine_of

    return engine_of(
        host_resources.cluster,
        machine=host_resources.total,
        gpu_names=host_resources.gpu_names,
        environ=os.environ,
    )


def offer_of(engine: PlannedEngine | None) -> list[NodeKind]:
    """The nodes that the engine could supply, as the machine knows them."""
    if engine is None:
        return []
    return [
        NodeKind(
            name=kind.name,
            resources=kind.resources or {},
            most=engine.most_of(kind),
            detects=[name for name in engine.detects if name not in (kind.resources or {})],
        )
        for kind in engine.offer.kinds
    ]


def capacity_of(host_resources: MachineResources, offer: Sequence[NodeKind]) -> dict[str, float]:
    """The resources of this machine; none if trials run on nodes."""
    return {} if offer else dict(host_resources.total)


def sync_of(sync: SyncConfig, engine: PlannedEngine | None) -> SyncConfig:
    """The sync settings, with a shorter default period on a cluster: there the output of trials,
    and what a loss of this machine costs, wait for the next publication."""
    is_default = sync.sync_period == SyncConfig().sync_period
    on_nodes = engine is not None and is_default
    return replace(sync, sync_period=PERIOD_ON_NODES_S) if on_nodes else sync


_DEPTH: Final = 4
# They vary the configs of running trials.
_MUTATING = frozenset({"PopulationBasedTraining", "PB2", "PopulationBasedTrainingReplay"})
_SHOWN_CHARS = 60
# XGBoost and LightGBM compute each of the list.
_OF_LIBRARIES = frozenset({"eval_metric", "metric"})


def resumed_by(location: Location, settings: Settings, trainable: Any) -> str:
    """What resumes the run in a shell; "" in a notebook, and where a shell cannot pass what it
    needs: a filesystem object, or a trainable that may not be in tuner.pkl as a whole."""
    is_partly_here = location.kind == "given" or trainables.is_in_memory(trainable)
    cannot = in_notebook() or settings.debug or is_partly_here
    return "" if cannot else resume_command(location.public)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The state that a run starts from, and the event that the journal continues with.

    `begins` is the journal's segment that the experiment starts in, `read_until` the end of its
    last readable record; None for a new one.
    """

    machine: Machine
    first: Begun | Resumed
    begins: int
    read_until: Position | None = None

    @property
    def spec(self) -> ExperimentSpec:
        return self.first.spec or self.machine.spec


def plan_run(
    request: Request,
    settings: Settings,
    host_resources: MachineResources,
    opened: OpenedExperiment,
    lock: ExperimentLock,
    view: ProgressView,
) -> RunPlan:
    """Decide everything before the first process starts. The caller holds `lock`.

    Raises what `Tuner.fit` documents.
    """
    return _Planning(request, settings, host_resources, opened, view).plan(lock)


class _Planning:
    """The way from a request to a plan. A restore is a `fit` whose journal exists: only the start
    differs."""

    def __init__(
        self,
        request: Request,
        settings: Settings,
        host_resources: MachineResources,
        opened: OpenedExperiment,
        view: ProgressView,
    ) -> None:
        self._request = request
        self._settings = settings
        self._host_resources = host_resources
        self._opened = opened
        self._place = opened.place
        self._view = view
        self._resources = trainables.resources_of(request.trainable)
        self._engine = engine_for(host_resources)
        self._offer = offer_of(self._engine)
        self._capacity = capacity_of(host_resources, self._offer)
        check_resources(request.trainable, self._resources, host_resources, self._offer)
        check_limits(self._offer, enforces_memory=bool(settings.enforce_memory))
        self._environment = request.environment(host_resources)
        self._policy = _policy(request)

    def plan(self, lock: ExperimentLock) -> RunPlan:
        request, place = self._request, self._place
        # A restore needs no seed, but takes as many of the script's random numbers as the first
        # start did: what the script draws afterwards stays the same.
        seed = seed_of(request.search)
        start = self._new(seed) if request.resume is None else self._resumed(request.resume)
        proposer = self._proposer(start)
        start = _planned(start, proposer)
        self._apply_extension(start, proposer.total)
        self._print_notices(start, proposer)
        settings, spec = self._settings, start.spec
        plan = RunPlan(
            settings=settings,
            host_resources=self._host_resources,
            layout=place.layout,
            location=place.location,
            remote=place.remote,
            job=job_of(request, settings, place, spec, self._environment),
            machine=start.machine,
            first=start.first,
            begins=start.begins,
            read_until=start.read_until,
            fresh=isinstance(start.first, Begun),
            proposer=proposer,
            lock=lock,
            sync=sync_of(request.run.sync_config, self._engine),
            stopper=request.stopper,
            callbacks=_callbacks(request, self._view),
            tracker_jobs=jobs_of(
                given_callbacks(request),
                TrackerJob(
                    root=str(place.layout.root),
                    experiment_id=spec.experiment_id,
                    trainable=spec.trainable,
                    experiment_path=place.location.path,
                    begins=start.begins,
                    samples=request.tune.num_samples,
                    total_samples=proposer.total,
                    tags=spec.options.get("tags", {}),
                    space=spec.space,
                    resume_command=resumed_by(place.location, settings, request.trainable),
                ),
            ),
            callback_setup={
                "stop": request.run.stop,
                "num_samples": request.tune.num_samples,
                "total_num_samples": proposer.total,
            },
            engine=self._engine,
            environment=self._environment,
            run_config=replace(request.run, name=place.name),
        )
        if request.resume is not None and plan.runs_trials:
            check_given_again(spec.options, self._environment)
        return replace(plan, scheduler_calls=_scheduler_calls(self._policy, plan))

    def _new(self, seed: int) -> Start:
        """The start of a new experiment. Raises InvalidConfig for settings of its scheduler."""
        request, layout = self._request, self._place.layout
        self._opened.refuse_unfinished(lambda text: self._view.message(text, "info"))
        spec = spec_of(request, self._settings, self._resources, self._environment, seed)
        self._policy.begun(spec)  # which checks its settings, before anything is written
        first = Begun(spec=spec, capacity=self._capacity, boot_id=boot_id(), offer=self._offer)
        # Its own segment, even after a run that died at once and left one without a beginning.
        begins = (segments(layout.journal) or [-1])[-1] + 1
        self._write_objects()
        return Start(machine=Machine(self._policy), first=first, begins=begins)

    def _resumed(self, resume: ResumeConfig) -> Start:
        """The start of a run that resumes the experiment; prints what the user should know of its
        records and of changed code. Keeps the new code for later restores.

        Raises what `recovery.recover` raises, LeadsElsewhere, InvalidConfig.
        """
        request, opened, view = self._request, self._opened, self._view
        opened.bring()
        recovered = opened.recover(self._policy)
        machine = recovered.machine
        if machine.finished:
            opened.check_nothing_hidden(recovered)
        for notice in recovered.notices:
            view.message(notice, "loss")
        if notice := opened.artifacts_left_in_storage(machine, request.run.sync_config):
            view.message(notice, "warning")
        strict = self._settings.strict_metric
        file = opened.tuner_file(trusted=False)
        changed = has_changed(request.trainable, file)
        if changed and request.retries:
            resume = retried(resume, machine)
        spec = extended(request.changes, machine, strict=strict, resources=self._resources)
        if spec is not None and spec.options.get("trainer"):
            resume = trained_further(resume, machine, spec)
        first = Resumed(
            epoch=machine.epoch + 1,
            capacity=self._capacity,
            offer=self._offer,
            unfinished=ResumeType(resume.unfinished),
            errored=ResumeType(resume.errored),
            finished=ResumeType(resume.finished),
            boot_id=boot_id(),
            strict=strict,
            resources=request.resources,
            spec=spec,
        )
        check_enclosed_trials(self._place.layout, machine, written(machine, first))
        works = has_work(machine, first)
        if not request.trusted and works:
            check_recorded(machine)
        if changed and machine.trials:
            name, path = self._place.name, self._place.location.public
            view.message(change_notice(request.trainable, name, path, machine, resume), "warning")
        if changed and works:
            store(request.trainable, file)
        start = Start(
            machine=machine, first=first, begins=recovered.begins, read_until=recovered.end
        )
        if works:
            self._keep_limits(start.spec)
        return start

    def _keep_limits(self, spec: ExperimentSpec) -> None:
        """Enforce the limits that the run had so far; prints why one cannot be kept."""
        self._settings, notice = with_recorded_limits(self._settings, spec, self._offer)
        if notice:
            self._view.message(notice, "warning")

    def _proposer(self, start: Start) -> Proposer:
        request, spec, first = self._request, start.spec, start.first
        kept = kept_ahead(start.machine, first) if isinstance(first, Resumed) else ()
        ahead = [one.spec for one in kept]
        return Proposer(
            spec,
            request.param_space,
            request.search,
            self._resources,
            Naming(
                trial=request.tune.trial_name_creator,
                directory=request.tune.trial_dirname_creator,
            ),
            root=self._place.layout.root,
            made=[*(trial.spec for trial in start.machine.trials.values()), *ahead],
            values=request.values(spec.space_number),
            trusted=request.trusted,
        )

    def _apply_extension(self, start: Start, total: int | None) -> None:
        """Keep the objects of an extension where later restores find them, and print what
        changes."""
        first, changes = start.first, self._request.changes
        if isinstance(first, Resumed) and first.spec is not None and changes is not None:
            check_enough(start.machine, changes, total)
            changes.keep(self._opened.tuner_file(), first.spec)
            notice = extension_notice(start.machine, first, changes, total)
            self._view.message(notice, "info")

    def _print_notices(self, start: Start, proposer: Proposer) -> None:
        """Print that nothing is left to do, and what the search does not do as written."""
        request, first = self._request, start.first
        if isinstance(first, Resumed) and not has_work(start.machine, first):
            self._view.message(self._was_finished(start.machine), "info")
        if isinstance(first, Begun) and request.choice:
            self._view.message(request.choice, "info")
        room = room_notice(start.spec, first.capacity, first.offer, proposer.total)
        same = same_configs_notice(request, proposer.total) if isinstance(first, Begun) else ""
        goal = goal_notice(start.spec)
        for notice in filter(None, (*request.notices, *proposer.notices, room, goal, same)):
            self._view.message(notice, "warning")

    def _was_finished(self, machine: Machine) -> str:
        request, place = self._request, self._place
        call = "resume='auto', {}" if request.resumes else "restore(..., {})"
        why = ""
        is_training = bool(machine.spec.options.get("trainer"))
        if machine.ending is not None and machine.ending.reason in ("stopper", "budget"):
            how = f"to continue, {call.format('extend=True')} with a larger one or another stop"
            why = f" ({machine.ending.message}; {how})"
        elif is_training:
            why = " (another train_loop_config or stop trains further)"
        elif any(
            trial.status is Status.TERMINATED and trial.checkpoints
            for trial in machine.trials.values()
        ):
            how = call.format("resume_config=ResumeConfig(finished='resume')")
            why = f" ({how} trains finished trials further, if the function now trains longer)"
        failed = [trial for trial in machine.trials.values() if trial.status is Status.ERROR]
        if failed and not is_training:
            trials = f"{len(failed)} trial{'s' * (len(failed) > 1)}"
            way = retry_way(failed)
            config = f"resume_config=ResumeConfig(errored='{way}')"
            errored = config if request.resumes else f"{way}_errored=True"
            options = retry_options(failed, name_for_shell(request.trainable))
            can = resumed_by(place.location, self._settings, request.trainable)
            shell = f" or {resume_command(place.location.public, *options)}" if can else ""
            why += f" ({trials} failed; {call.format(errored)}{shell} retries)"
        return f"{place.name} was finished{why}: its results are returned as they are"

    def _write_objects(self) -> None:
        request, layout = self._request, self._place.layout
        fields = request.objects(travels=not self._settings.debug)
        values = {"trainable": request.trainable, "param_space": dict(request.param_space)}
        for text in large_parts(fields, values):
            self._view.message(text, "warning")
        fields |= code_field(request.trainable)
        if ray_path.is_active():
            fields[RAY_NAMES] = StoredField(plain=True)
        if isinstance(request.trainable, TrainLoop) and "trainable" in fields:
            write_tuner_file(layout.trainer, {"trainable": fields.pop("trainable")})
        write_tuner_file(layout.tuner, fields)


def _scheduler_calls(policy: TrialScheduler, plan: RunPlan) -> SchedulerCalls | None:
    """The calls of a scheduler in Ray's style, which knows its goal. Raises InvalidConfig, and
    what the user's code raises."""
    if not isinstance(policy, RayStyleScheduler) or not plan.runs_trials:
        return None
    calls = SchedulerCalls(policy.users, plan.surroundings)
    with children_end_here():
        calls.set_goal(plan.spec)
    return calls


def given_callbacks(request: Request) -> tuple[Callback, ...]:
    """The callbacks of the RunConfig. Raises InvalidConfig for anything else among them."""
    given = tuple(request.run.callbacks or ())
    for callback in given:
        if not isinstance(callback, Callback):
            raise InvalidConfig(f"callbacks must be tune.Callback objects, not {callback!r:.100}")
    return given


def _planned(start: Start, proposer: Proposer) -> Start:
    """Record in the spec how many trials the search plans, and the new config of a training."""
    first = start.first
    if first.spec is None:
        return start
    first = replace(first, spec=first.spec.planned(proposer.total))
    if isinstance(first, Resumed) and start.spec.options.get("trainer"):
        first = replace(first, config=proposer.fixed_config)
    return replace(start, first=first)


def _policy(request: Request) -> TrialScheduler:
    """The scheduler of a request. Raises InvalidConfig for anything else, and for one that cannot
    work with the trainable."""
    policy = scheduler_of(request.tune.scheduler)
    is_class = isinstance(request.trainable, type)
    if policy.needs_checkpoints and is_class and not trainables.can_save(request.trainable):
        raise InvalidConfig(
            f"{type(policy).__name__} resumes trials from checkpoints, and "
            f"{request.trainable.__qualname__} makes none: define save_checkpoint() and "
            f"load_checkpoint() in it"
        )
    return policy


def _callbacks(request: Request, view: ProgressView) -> tuple[Callback, ...]:
    """The callbacks that this process calls itself."""
    given = tuple(
        one
        for one in given_callbacks(request)
        if not is_written_anyway(one) and (not isinstance(one, Tracker) or one.is_here)
    )
    verbose = request.run.verbose or 0
    if verbose < 2:
        return given
    from holdfast.experiment.progress.reporters import ResultLines  # few runs are so verbose

    return (*given, ResultLines(verbose, view.message))


def large_parts(fields: Mapping[str, StoredField], values: Mapping[str, Any]) -> list[str]:
    """A message for each field that is large, which names the part of its value that is.

    `values` are the objects that `fields` store.
    """
    found = []
    for name, field in fields.items():
        amount = len(field.objects or b"") + len(field.pickled or b"")
        if amount >= LARGE_BYTES and name in values:
            what = "the trainable" if name == "trainable" else name
            path = _largest(values[name], what, amount)
            found.append(
                f"{path} is large: tuner.pkl holds {size(amount)} for it, is written before the "
                f"first trial, and is read by each restore. Load the data in the trainable, or "
                f"pass holdfast.put(data) and call holdfast.get() there"
            )
    return found


def _largest(value: object, path: str, amount: int, depth: int = _DEPTH) -> str:
    """The path to the innermost part that takes most of the `amount` bytes."""
    if depth:
        for name, part in parts_of(value):
            if (of_part := pickled_size(part)) > amount / 2:
                return _largest(part, f"{path}{name}", of_part, depth - 1)
    return path


def goal_notice(spec: ExperimentSpec) -> str:
    """A warning about a metric without a mode, or a mode without a metric; "" otherwise."""
    if spec.metric and not spec.mode:
        return (
            f"TuneConfig(metric={spec.metric!r}) has no mode, so nothing tells which trial is the "
            f"best. Add mode='min' or mode='max'; a restore accepts it, too"
        )
    if spec.mode and not spec.metric:
        return (
            f"TuneConfig(mode={spec.mode!r}) has no metric: add metric='NAME' of what is reported"
        )
    return ""


def same_configs_notice(request: Request, total: int | None) -> str:
    """A warning if all trials get one config, or there is one trial, because a list stands where a
    domain is meant."""
    space = dict(request.param_space)
    own_search = request.tune.search_alg is not None
    if total in (None, 0) or own_search or request.scheduler_name in _MUTATING:
        return ""
    lists = list(_lists(space))
    if not lists or is_searched(space):
        return ""
    if total == 1:
        return _one_trial_notice(lists)
    name, value = lists[0]
    meant = f"tune.choice({list(value)!r}) or tune.grid_search({list(value)!r})"
    if len(meant) > 2 * _SHOWN_CHARS:
        meant = "tune.choice([...]) or tune.grid_search([...])"
    is_range = len(value) == 2 and all(type(part) in (int, float) for part in value)
    if is_range and value[0] < value[1]:
        meant = f"tune.uniform({value[0]!r}, {value[1]!r}), {meant}"
    kind = type(value).__name__
    return (
        f"nothing varies: all {total} trials get the same config. {name} is a {kind}, which is "
        f"one value: did you mean {meant}?"
    )


def _one_trial_notice(lists: list[tuple[str, Any]]) -> str:
    """A list may well be one value, such as the sizes of layers: only one of different numbers or
    words is mentioned."""
    for name, value in lists:
        if len(set(map(repr, value))) == len(value) and all(map(_is_scalar, value)):
            shown = repr(list(value))
            shown = shown if len(shown) <= _SHOWN_CHARS else "[...]"
            return (
                f"{name} is one value, a {type(value).__name__} of {len(value)}. For a trial per "
                f"value write tune.grid_search({shown})"
            )
    return ""


def _is_scalar(value: object) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _lists(space: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in space.items():
        if isinstance(value, Mapping):
            yield from _lists(value, f"{prefix}{key}/")
        elif isinstance(value, (list, tuple)) and len(value) > 1 and key not in _OF_LIBRARIES:
            yield f"{prefix}{key}", value
