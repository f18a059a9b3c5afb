"""A machine without a shell: a test plays the workers, with its own clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

import msgpack

from holdfast.scheduler.codec import Record, decode, encode
from holdfast.scheduler.effects import (
    AskScheduler,
    Effect,
    Finish,
    Halt,
    Launch,
    Reply,
    Suggest,
    Verdict,
    Warn,
)
from holdfast.scheduler.events import (
    Begun,
    Event,
    Exited,
    ExperimentSpec,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
    Raised,
    Resumed,
    SchedulerAnswered,
    SearchEnded,
    StopperAnswered,
    Suggested,
    WaitEnded,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.policy import Answers, TrialScheduler
from holdfast.testing.invariants import check
from holdfast.trial.config import ResumeType
from holdfast.trial.errors import Failure, FailureKind, ProcessFailureKind
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Saved, Started
from holdfast.trial.resources import ONE_CPU, NodeKind, PlacementGroupFactory
from holdfast.trial.trial import CheckpointRecord, Trial, TrialSpec, evolve_record

BEGINS_AT = 1000.0


class Rehearsal:
    """Feeds a machine one event per second, and checks its invariants after each.

    Trials are called `t0`, `t1`, ... A worker's messages belong to its current attempt unless
    `attempt` names another. Each event is encoded and decoded first, as in the journal. `write`
    gets one line for each event, before the machine gets the event.
    """

    def __init__(
        self,
        *,
        capacity: Mapping[str, float] | None = None,
        offer: Sequence[NodeKind] = (),
        policy: TrialScheduler | None = None,
        write: Callable[[str], object] = lambda line: None,
        **spec: Any,
    ) -> None:
        """With an `offer`, nodes must join. `spec` has fields of ExperimentSpec. `began` has the
        first effects."""
        self.policy = policy
        self._write = write
        self.machine = Machine(policy)
        self.now = BEGINS_AT
        self.events: list[Record] = []
        self._capacity = {"CPU": 2.0} if capacity is None else dict(capacity)
        self._offer = offer
        begun = Begun(spec=experiment_spec(**spec), capacity=self._capacity, offer=offer)
        self.began = self.handle(begun, after_s=0)

    def handle(self, event: Event, *, after_s: float = 1.0) -> list[Effect]:
        self.now += after_s
        self._write(f"{len(self.events):4} {in_short(event)}")
        event = through_journal(event, self.now).event
        effects = self.machine.handle(event, now=self.now)
        self.events.append(through_journal(event, self.now, self.machine.answers))
        check(self.machine)
        return effects

    def trial(self, trial_id: str) -> Trial:
        return self.machine.trials[trial_id]

    # -- the search -----------------------------------------------------------------------------

    def suggest(
        self,
        resources: PlacementGroupFactory | Mapping[str, float] = ONE_CPU,
        *,
        is_added: bool = False,
    ) -> list[Effect]:
        """The search answers with the next trial, or with that of a config that a person has
        added."""
        if not isinstance(resources, PlacementGroupFactory):
            resources = PlacementGroupFactory([resources])
        index = len(self.machine.trials)
        added = is_added + sum(trial.spec.is_added for trial in self.machine.trials.values())
        is_last = not is_added and index + 1 - added == self.machine.spec.num_samples
        spec = replace(trial_spec(index, resources), is_added=is_added)
        return self.handle(Suggested(spec=spec, is_last=is_last))

    # -- a worker -------------------------------------------------------------------------------

    def start(self, *trial_ids: str) -> list[Effect]:
        effects: list[Effect] = []
        for trial_id in trial_ids:
            held = self.machine.placement.holds.get(trial_id)
            effects += self.handle(
                Started(
                    trial_id=trial_id,
                    attempt=self.trial(trial_id).attempt,
                    pid=1000 + self.trial(trial_id).spec.index,
                    hostname="host",
                    node_ip="127.0.0.1",
                    nodes=held.nodes if held else (),
                )
            )
        return effects

    def adopt(self, trial_id: str) -> list[Effect]:
        """A clone gets its copy of the checkpoint that it starts from."""
        trial = self.trial(trial_id)
        assert trial.origin is not None
        record = evolve_record(
            trial.origin.checkpoint,
            index=trial.next_checkpoint,
            attempt=trial.attempt,
            committed=False,
            node=self.node_of(trial_id),
        )
        return self.handle(Adopted(trial_id=trial_id, attempt=trial.attempt, checkpoint=record))

    def repeat(self, again: TrialSpec) -> list[Effect]:
        """A trial that runs the settings of an earlier one again."""
        new = trial_spec(len(self.machine.trials))
        spec = replace(again, trial_id=new.trial_id, index=new.index)
        return self.handle(Suggested(spec=replace(spec, name=new.name, dirname=new.dirname)))

    def report(
        self,
        trial_id: str,
        metrics: Mapping[str, Any] | None = None,
        *,
        checkpoint: bool = False,
        has_room: bool = False,
        attempt: int | None = None,
    ) -> list[Effect]:
        """Report the next iteration, after half a second of training. A checkpoint is on the node
        of the trial's first bundle."""
        trial = self.trial(trial_id)
        attempt = trial.attempt if attempt is None else attempt
        record = self._checkpoint(trial, attempt) if checkpoint else None
        return self.handle(
            Reported(
                trial_id=trial_id,
                attempt=attempt,
                iteration=trial.iteration + 1,
                metrics=metrics or {},
                timestamp=self.now,
                time_this_iter_s=0.5,
                time_total_s=trial.time_total_s + 0.5,
                checkpoint=record,
                has_room=has_room,
            )
        )

    def save(self, trial_id: str, *, attempt: int | None = None) -> list[Effect]:
        trial = self.trial(trial_id)
        attempt = trial.attempt if attempt is None else attempt
        record = self._checkpoint(trial, attempt, further=0)
        return self.handle(Saved(trial_id=trial_id, attempt=attempt, checkpoint=record))

    def returns(self, trial_id: str, *, attempt: int | None = None) -> list[Effect]:
        attempt = self.trial(trial_id).attempt if attempt is None else attempt
        return self.handle(Returned(trial_id=trial_id, attempt=attempt))

    def fails(
        self, trial_id: str, *, kind: FailureKind = "user", attempt: int | None = None
    ) -> list[Effect]:
        attempt = self.trial(trial_id).attempt if attempt is None else attempt
        return self.handle(Raised(trial_id=trial_id, attempt=attempt, failure=failure(kind)))

    def exits(
        self,
        trial_id: str,
        cause: str = "exited with status 0",
        *,
        kind: ProcessFailureKind = "lost",
        attempt: int | None = None,
    ) -> list[Effect]:
        attempt = self.trial(trial_id).attempt if attempt is None else attempt
        return self.handle(Exited(trial_id=trial_id, attempt=attempt, cause=cause, kind=kind))

    def waited(self, trial_id: str, *, attempt: int | None = None) -> list[Effect]:
        """The wait before the trial's retry is over."""
        attempt = self.trial(trial_id).attempt if attempt is None else attempt
        return self.handle(WaitEnded(trial_id=trial_id, attempt=attempt))

    def ends(self, trial_id: str) -> list[Effect]:
        """The function returns, and the worker exits."""
        return [*self.returns(trial_id), *self.exits(trial_id)]

    def answer(
        self,
        trial_id: str,
        *,
        stop: bool = False,
        stop_all: bool = False,
        failed: Failure | None = None,
    ) -> list[Effect]:
        """What the user's stop function says of the newest report."""
        trial = self.trial(trial_id)
        return self.handle(
            StopperAnswered(
                trial_id=trial_id,
                attempt=trial.attempt,
                iteration=trial.iteration,
                stop=stop,
                stop_all=stop_all,
                failure=failed,
            )
        )

    def node_of(self, trial_id: str) -> str:
        """The node of the trial's first bundle; "" if it runs on no node."""
        placement = self.machine.placement
        held = placement.holds.get(trial_id) or placement.idle.get(trial_id)
        return held.places[0].node if held and held.places else ""

    def _checkpoint(self, trial: Trial, attempt: int, *, further: int = 1) -> CheckpointRecord:
        record = next_checkpoint(trial, attempt, further=further)
        return evolve_record(record, node=self.node_of(trial.trial_id))

    # -- nodes ----------------------------------------------------------------------------------

    def joins(
        self, node: str, resources: Mapping[str, float] | None = None, *, kind: str = ""
    ) -> list[Effect]:
        """A node joins, with two CPUs unless it has other `resources`."""
        amounts = {"CPU": 2.0} if resources is None else resources
        return self.handle(NodeJoined(node=node, resources=amounts, hostname=node, kind=kind))

    def is_leaving(self, node: str) -> list[Effect]:
        return self.handle(NodeLeaving(node=node, seconds=30.0, why="its time is over"))

    def settles(self, missing: str = "") -> list[Effect]:
        return self.handle(NodesSettled(missing=missing))

    def leaves(self, node: str) -> list[Effect]:
        return self.handle(NodeLeft(node=node, cause="no beat for 10 s"))

    # -- storage and restore --------------------------------------------------------------------

    def commit(self, trial_id: str, index: int) -> list[Effect]:
        return self.handle(Committed(trial_id=trial_id, index=index))

    def crash(self) -> None:
        """Crash: fold the journal into a new machine, and check that it equals the old one."""
        folded = self.folded()
        assert facts(folded) == facts(self.machine)
        self.machine = folded

    def folded(self) -> Machine:
        """A new machine with all events so far."""
        machine = Machine(self.policy)
        for event, now, answers in self.events:
            machine.replay(event, now=now, answers=answers)
        return machine

    def resume(
        self,
        *,
        capacity: Mapping[str, float] | None = None,
        offer: Sequence[NodeKind] | None = None,
        resources: PlacementGroupFactory | None = None,
        strict: bool = True,
        changed: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        **wishes: str,
    ) -> list[Effect]:
        """`wishes` for finished, unfinished and errored trials, as in Resumed; `changed` has the
        fields of the experiment's spec that change."""
        epoch = self.machine.epoch + 1
        total = self._capacity if capacity is None else dict(capacity)
        resumed = Resumed(
            epoch=epoch,
            capacity=total,
            offer=self._offer if offer is None else offer,
            strict=strict,
            resources=resources,
            spec=replace(self.machine.spec, **changed) if changed else None,
            config=config,
            **{status: ResumeType(wish) for status, wish in wishes.items()},
        )
        return self.handle(resumed, after_s=3600)


# Not in a snapshot: traces of the newest event, and attributes from other sources (the policy
# from the script, the version from the journal's first record).
NOT_IN_SNAPSHOTS = frozenset({"policy", "moved", "answers", "_recorded"})
# Made at the first request that needs it.
_DERIVED = frozenset({(Cluster, "_free"), (Cluster, "fitted")})


def facts(machine: Machine) -> dict[str, Any]:
    """All facts of the machine, by the names of its attributes and of those of its parts.

    They are read from the objects, so that new attributes are compared, too.
    """
    known = {name: value for name, value in vars(machine).items() if name not in NOT_IN_SNAPSHOTS}
    return {
        f"{name}{inner}": _comparable(value)
        for name, whole in known.items()
        for inner, value in _attributes(whole)
    }


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of one of holdfast's objects, recursively; any other value itself."""
    if is_dataclass(value) or not type(value).__module__.startswith("holdfast."):
        yield "", value
        return
    for name, part in vars(value).items():
        if (type(value), name) in _DERIVED:
            continue
        for inner, leaf in _attributes(part):
            yield f".{name}{inner}", leaf


def _comparable(value: Any) -> str:
    """The value as text, because NaN is not equal to itself; sets are sorted."""
    if isinstance(value, set | frozenset):
        return repr(sorted(value))
    return repr({**value} if isinstance(value, Mapping) else value)


def through_journal(event: Event, now: float, answers: Answers = ()) -> Record:
    """The record after encoding and decoding. Raises AssertionError if it changes."""
    written: bytes = msgpack.packb(encode(event, now, answers))
    read = decode(msgpack.unpackb(written, strict_map_key=False))
    assert type(read.event) is type(event)
    # As bytes, because NaN is not equal to itself.
    assert msgpack.packb(encode(*read)) == written
    return read


_DULL = frozenset({"timestamp", "time_this_iter_s", "time_total_s", "pid", "hostname", "node_ip"})


def in_short(event: Event) -> str:
    """An event as one line, with the fields that differ from their defaults."""
    parts = []
    for part in fields(event):
        value = getattr(event, part.name)
        if part.name in _DULL or value == part.default:
            continue
        parts.append(f"{part.name}={_value_in_short(value)}")
    return f"{type(event).__name__}({', '.join(parts)})"


def _value_in_short(value: Any) -> str:
    match value:
        case TrialSpec():
            return f"{value.trial_id} {value.resources.required_resources}"
        case CheckpointRecord():
            return f"number {value.index} of iteration {value.iteration}"
        case ExperimentSpec():
            plain = experiment_spec()
            changed = [p.name for p in fields(value) if _differs(value, plain, p.name)]
            return " ".join(f"{name}={getattr(value, name)}" for name in changed)
        case _:
            return f"{value!r:.100}"


def _differs(one: object, other: object, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def experiment_spec(**given: Any) -> ExperimentSpec:
    known = {"experiment_id": "e", "run": "d2a66", "trainable": "train", "seed": 0}
    return ExperimentSpec(**{**known, "resources": ONE_CPU, **given})


def trial_spec(index: int, resources: PlacementGroupFactory = ONE_CPU) -> TrialSpec:
    return TrialSpec(
        trial_id=f"t{index}",
        index=index,
        name=f"train_t{index}",
        dirname=f"train_t{index}_{index}",
        config={"lr": 0.5**index},
        tag=f"{index}_lr={0.5**index:.4g}",
        resources=resources,
    )


def failure(kind: FailureKind = "user") -> Failure:
    return Failure(kind=kind, type_name="ValueError", message="oh no")


def next_checkpoint(trial: Trial, attempt: int, *, further: int = 1) -> CheckpointRecord:
    """The trial's next checkpoint, `further` iterations after its newest report."""
    return CheckpointRecord(
        index=trial.next_checkpoint,
        iteration=trial.iteration + further,
        attempt=attempt,
        files=1,
        size_bytes=10,
        time_total_s=trial.time_total_s + 0.5 * further,
    )


_MOST_EVENTS = 20_000


class Lockstep:
    """Plays a study in which the next event depends only on the trials, so crashes change nothing.

    `life(index, iteration)` returns a trial's report, or None when the trial returns. Each report
    has a checkpoint. After each number of events in `crashes` the run crashes and is resumed.
    `running` has the trials with a worker, `warnings` the texts of Warn. A subclass may choose
    other events in `go_on`, and delay answers to effects in `perform`.
    """

    def __init__(
        self,
        policy: TrialScheduler,
        life: Callable[[int, int], Any],
        *,
        trials: int,
        capacity: Mapping[str, float] | None = None,
        crashes: Container[int] = (),
        **spec: Any,
    ) -> None:
        self.run = Rehearsal(
            capacity=capacity or {"CPU": float(trials)},
            policy=policy,
            scheduler=type(policy).__name__,
            **spec,
        )
        self.life = life
        self.finished: Finish | None = None
        self.warnings: list[str] = []
        self.running: set[str] = set()
        self._count, self._crashes = trials, crashes
        self._to_do = deque(self.run.began)

    def to_the_end(self) -> Self:
        """Run to the end. Raises AssertionError if the run has none."""
        while self.finished is None:
            assert len(self.run.events) < _MOST_EVENTS, (
                f"the run has not ended after {_MOST_EVENTS:,} events"
            )
            if len(self.run.events) in self._crashes:
                self.crash()
            elif self._to_do:
                self._to_do += self.perform(self._to_do.popleft())
            else:
                self._to_do += self.go_on()
        return self

    @property
    def trials(self) -> list[Trial]:
        """The trials, in the order in which they were added."""
        return list(self.run.machine.trials.values())

    @property
    def ends(self) -> list[tuple[str, int]]:
        """The status and the last iteration of each trial."""
        return [(trial.status.value, trial.iteration) for trial in self.trials]

    def crash(self) -> None:
        """Crash before the effects of the last event, and resume."""
        self.run.crash()
        self.running.clear()
        self._to_do.clear()  # the same queue: a subclass may crash in `go_on`
        self._to_do += self.run.resume()

    def go_on(self) -> list[Effect]:
        """The next event: the trial that has come least far reports, or returns."""
        assert self.running, "the run hangs: no trial runs, and it has not ended"
        running = map(self.run.trial, self.running)
        trial = min(running, key=lambda one: (one.iteration, one.spec.index))
        row = self.life(trial.spec.index, trial.iteration + 1)
        if row is None:
            return self.end(trial.trial_id)
        return self.run.report(trial.trial_id, row, checkpoint=True)

    def end(self, trial_id: str) -> list[Effect]:
        """The trial's function returns, and its worker exits."""
        self.running.discard(trial_id)
        return self.run.ends(trial_id)

    def suggest(self) -> list[Effect]:
        """The search's next trial, or its end."""
        is_over = len(self.trials) == self._count
        return self.run.handle(SearchEnded()) if is_over else self.run.suggest()

    def perform(self, effect: Effect) -> list[Effect]:
        """Answer an effect at once; returns the effects of the answer."""
        match effect:
            case Suggest(again=TrialSpec() as again):
                return self.run.repeat(again)
            case Suggest():
                return self.suggest()
            case Launch():
                self.running.add(effect.trial_id)
                return self.run.start(effect.trial_id)
            case Reply(verdict=Verdict.PAUSE | Verdict.STOP) | Halt():
                return self.end(effect.trial_id)
            case AskScheduler():
                assert self.run.machine.policy is not None
                answer = self.run.machine.policy.answer(effect.question)
                return self.run.handle(SchedulerAnswered(trial_id=effect.trial_id, answer=answer))
            case Finish():
                self.finished = effect
            case Warn():
                self.warnings.append(effect.text)
            case _:
                pass
        return []
