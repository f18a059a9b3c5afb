"""The shell of a simulation: a virtual clock, simulated workers, and the answers of a real shell
to every effect.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, assert_never

from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.user_code import calls_for
from holdfast.experiment.control.user_threads import Change, answer_of, others_moved
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import pack
from holdfast.scheduler.effects import (
    AskScheduler,
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Preempt,
    Release,
    Reply,
    Suggest,
    Verdict,
    Wait,
    Warn,
)
from holdfast.scheduler.events import (
    CheckpointLost,
    EndOrdered,
    Event,
    Exited,
    Raised,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    WaitEnded,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import Answers
from holdfast.scheduler.stopping import budget_spent
from holdfast.simulate.scene import (
    CurveFailed,
    Faults,
    KnownNodes,
    Luck,
    Scene,
    SimulatedWorker,
    Stragglers,
    curve_failed,
    metrics_of,
)
from holdfast.simulate.simulation import Tally
from holdfast.syncer.journal.journal import Journal
from holdfast.trial.errors import Failure, FailureKind, ProcessFailureKind, TuneError
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Saved, Started
from holdfast.trial.resources import Allocation
from holdfast.trial.trial import CheckpointRecord, Origin, Trial, TrialSpec, evolve_record

Action = Callable[[Any], None]
# The clock of a simulation starts at this time: seconds since 1970, in September 2001.
BEGAN_AT = 1_000_000_000.0


class Agenda:
    """`elapsed_s` is the virtual clock: seconds since the simulation began."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.awaited = 0
        """The number of pending events that the run waits for."""
        self._entries: list[tuple[float, int, bool, Action, Any]] = []
        self._count = 0

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return BEGAN_AT + self.elapsed_s

    def after(self, seconds: float, action: Action, subject: Any, *, awaited: bool = True) -> None:
        """Call `action(subject)` after `seconds`.

        Events that recur by themselves, like the loss of nodes, are not `awaited`: a run that
        waits only for them would never end.
        """
        self._count += 1
        self.awaited += awaited
        entry = (self.elapsed_s + seconds, self._count, awaited, action, subject)
        heappush(self._entries, entry)

    def advance(self) -> None:
        """Perform the next event."""
        self.elapsed_s, _, awaited, action, subject = heappop(self._entries)
        self.awaited -= awaited
        action(subject)


Sink = str | os.PathLike[str] | Callable[[bytes], object] | None
# One write for each record would take longer than all the rest.
_AT_ONCE = 1000


class Trace:
    """Passes each record to `write`; `digest` is the SHA-256 of all, each with its size."""

    def __init__(self, write: Callable[[bytes], object] | None) -> None:
        self._write = write
        self.records = 0
        self._hash = sha256()

    def add(self, event: Event, now: float, answers: Answers) -> None:
        record = pack(event, now, answers)
        self.records += 1
        self._hash.update(b"%d:" % len(record))
        self._hash.update(record)
        if self._write is not None:
            self._write(record)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def tracing(sink: Sink) -> Iterator[Trace]:
    """A trace into a function, or into the journal of an experiment's directory.

    Raises JournalFull, OSError.
    """
    if sink is None or callable(sink):
        yield Trace(sink)
        return
    journal = Journal(Layout(Path(sink)).journal, fresh=True)
    batch: list[bytes] = []

    def write(record: bytes) -> None:
        batch.append(record)
        if len(batch) == _AT_ONCE:
            journal.append(batch)
            batch.clear()

    try:
        yield Trace(write)
    finally:
        journal.append(batch)
        journal.close()


# A training without an end would simulate forever.
MOST_ITERATIONS = 1_000_000


class SimulatedPool:
    """Performs Launch, Reply, Halt, Preempt and Release, and keeps the checkpoints' states. The
    workers are in `places`."""

    def __init__(
        self,
        machine: Machine,
        scene: Scene,
        agenda: Agenda,
        tally: Tally,
        luck: Luck,
        post: Callable[[Event], None],
    ) -> None:
        spec = scene.begun.spec
        self._machine = machine
        self._config_of = scene.config_of
        self._agenda = agenda
        self._tally = tally
        self._post = post
        self._training = scene.training
        self._faults = scene.faults
        self._luck = luck
        self._stragglers = Stragglers(scene.faults, self._luck)
        self.places: Places = Cluster(scene.places, scene.faults)
        if scene.nodes is not None:
            self.places = KnownNodes(scene.nodes, scene.faults, post)
        self._reuses = spec.reuse_actors
        self._workers: dict[str, SimulatedWorker] = {}
        self._at: dict[int, SimulatedWorker] = {}
        self._waiting: deque[Launch] = deque()
        self._states: dict[str, dict[int, Any]] = {}
        self._fault_counts: dict[str, int] = {}

    # -- orders of the machine ------------------------------------------------------------------

    def launch(self, effect: Launch) -> None:
        """Start an attempt in the idle worker's place, or in the next free place."""
        idle = self._workers.pop(effect.reuse, None) if effect.reuse else None
        if idle is None:  # or it has just gone
            place = self.places.take(effect.allocation)
        else:
            idle.is_gone, place = True, idle.place
            self._tally.busy_s += self._agenda.elapsed_s - idle.since_s
        if place is None:
            self._waiting.append(effect)
        else:
            self._begin(effect, place)

    def reply(self, effect: Reply) -> None:
        """Let `report()` return, if its worker is still there."""
        worker = self._trainer(effect)
        if worker is None:
            return
        if effect.verdict in (Verdict.SAVE, Verdict.PAUSE):
            self._save(worker)
        if effect.verdict in (Verdict.SAVE, Verdict.CONTINUE):
            self._train(worker)
        else:
            self._end(worker)

    def halt(self, effect: Halt) -> None:
        """End an attempt in the middle of an iteration, or after it if it may finish its step."""
        waiting = next((one for one in self._waiting if one.trial_id == effect.trial_id), None)
        if waiting is not None:
            self._waiting.remove(waiting)
            self._post_exit(effect.trial_id, effect.attempt, "never started")
        elif (worker := self._trainer(effect)) is not None and not effect.after_step:
            self._end(worker)

    def preempt(self, effect: Preempt) -> None:
        """Let it save, as class trainables do, and end it."""
        worker = self._trainer(effect)
        if worker is not None:
            if worker.has_started and worker.iteration:
                self._save(worker)
            self._fail_attempt(worker, "preempted", "Preempted", "it was asked to end")

    def release(self, effect: Release) -> None:
        """End an idle worker."""
        idle = self._workers.get(effect.trial_id)
        if idle is not None:
            self._agenda.after(self._training.stop_s, self._exit, idle)

    def committed(self, which: tuple[str, CheckpointRecord]) -> None:
        """A checkpoint has reached storage, unless it was lost with its node before."""
        trial_id, record = which
        index = record.index
        if record.node not in self._machine.cluster.former:
            self._post(Committed(trial_id=trial_id, index=index))
            return
        self._states[trial_id].pop(index, None)
        reason = f"it was lost with {record.node} before it reached storage"
        self._post(CheckpointLost(trial_id=trial_id, index=index, reason=reason, in_run=True))

    def discard(self, effect: Discard) -> None:
        """Drop a checkpoint that is not needed any more."""
        self._states[effect.trial_id].pop(effect.checkpoint.index, None)

    def _trainer(self, effect: Reply | Halt | Preempt) -> SimulatedWorker | None:
        """The worker that trains in an order's attempt; None if it has ended."""
        worker = self._workers.get(effect.trial_id)
        if worker is None or worker.attempt != effect.attempt or not worker.trains:
            return None
        return worker

    # -- an attempt -----------------------------------------------------------------------------

    def _begin(self, effect: Launch, place: int) -> None:
        trial = self._machine.trials[effect.trial_id]
        worker = SimulatedWorker(
            trial_id=effect.trial_id,
            attempt=effect.attempt,
            index=trial.spec.index,
            held=effect.allocation.amounts,
            iteration=trial.iteration,
            total_s=trial.time_total_s,
            place=place,
            since_s=self._agenda.elapsed_s,
        )
        if effect.origin is not None and not self._has(effect.origin):
            worker.is_new = worker.lacks_origin = True
        elif effect.origin is not None:
            worker.state = self._adopted(worker, effect.origin)
        elif effect.checkpoint is not None:
            worker.state = self._states[effect.trial_id][effect.checkpoint.index]
        else:
            worker.is_new = True
        self._workers[effect.trial_id] = self._at[place] = worker
        self._agenda.after(self._training.start_s, self._start, worker)

    def _has(self, origin: Origin) -> bool:
        return origin.checkpoint.index in self._states.get(origin.trial_id, {})

    def _adopted(self, worker: SimulatedWorker, origin: Origin) -> Any:
        """Make another trial's checkpoint one of the clone's own."""
        state = self._states[origin.trial_id][origin.checkpoint.index]
        index = self._machine.trials[worker.trial_id].next_checkpoint
        self._states.setdefault(worker.trial_id, {})[index] = state
        record = evolve_record(
            origin.checkpoint,
            index=index,
            attempt=worker.attempt,
            committed=False,
            node=self._node_of(worker),
        )
        self._post(Adopted(trial_id=worker.trial_id, attempt=worker.attempt, checkpoint=record))
        return state

    def _begun(self, worker: SimulatedWorker) -> Any:
        try:
            return self._training.curve.begin(worker.config)
        except Exception as error:
            raise curve_failed(worker, error) from error

    def _start(self, worker: SimulatedWorker) -> None:
        if not worker.trains:
            return
        if worker.lacks_origin:
            self._fail_attempt(worker, "checkpoint", "CheckpointLost", "it was lost with its node")
            return
        trial = self._machine.trials[worker.trial_id]
        worker.config = self._config_of(trial)
        if worker.is_new:
            worker.state = self._begun(worker)
        worker.has_started = True
        self._post(
            Started(
                trial_id=worker.trial_id,
                attempt=worker.attempt,
                pid=1 + worker.place,
                hostname=self.places.name_of(worker.place),
                node_ip="",
            )
        )
        self._train(worker)

    def _train(self, worker: SimulatedWorker) -> None:
        training = self._training
        if worker.iteration == training.iterations:
            self._end(worker)
            return
        if worker.iteration >= MOST_ITERATIONS:
            raise CurveFailed(
                f"trial {worker.trial_id} has reached {worker.iteration:,} iterations and nothing "
                f"ends it: pass RunConfig(stop=...), iterations=..., or a scheduler with a max_t"
            )
        seconds = training.cost(worker.config, worker.iteration + 1, worker.held)
        worker.seconds = seconds * self._stragglers.slowness(worker.place)
        if self._faults.has_bad_iterations:
            self._agenda.after(*self._fate(worker), worker)
        else:
            self._agenda.after(worker.seconds, self._report, worker)

    def _fate(self, worker: SimulatedWorker) -> tuple[float, Callable[[SimulatedWorker], None]]:
        """The time and kind of the iteration's end."""
        what = (worker.index, worker.iteration + 1, self._fault_counts.get(worker.trial_id, 0))
        drawn = self._luck.draw("iteration", *what)
        faults = self._faults
        if drawn >= faults.failure_rate + faults.crash_rate:
            return worker.seconds, self._report
        seconds = worker.seconds * self._luck.draw("moment", *what)
        return seconds, self._fail if drawn < faults.failure_rate else self._crash

    def _report(self, worker: SimulatedWorker) -> None:
        if not worker.trains:
            return
        training = self._training
        try:
            worker.state, report = training.curve.step(worker.state, worker.config)
            metrics = None if report is None else metrics_of(report, training.metric)
        except Exception as error:
            raise curve_failed(worker, error) from error
        if metrics is None:
            self._end(worker)
            return
        worker.iteration += 1
        worker.total_s += worker.seconds
        every = training.checkpoint_every
        saves = every > 0 and worker.iteration % every == 0
        self._post(
            Reported(
                trial_id=worker.trial_id,
                attempt=worker.attempt,
                iteration=worker.iteration,
                metrics=metrics,
                timestamp=self._agenda.now,
                time_this_iter_s=worker.seconds,
                time_total_s=worker.total_s,
                checkpoint=self._saved(worker) if saves else None,
            )
        )

    def _save(self, worker: SimulatedWorker) -> None:
        """Save a checkpoint, as a class trainable does when asked, unless there is a new one."""
        if self._training.saves_when_told and worker.saved_at != worker.iteration:
            saved = Saved(
                trial_id=worker.trial_id, attempt=worker.attempt, checkpoint=self._saved(worker)
            )
            self._post(saved)

    def _saved(self, worker: SimulatedWorker) -> CheckpointRecord:
        worker.saved_at = worker.iteration
        index = self._machine.trials[worker.trial_id].next_checkpoint
        self._states.setdefault(worker.trial_id, {})[index] = worker.state
        return CheckpointRecord(
            index=index,
            iteration=worker.iteration,
            attempt=worker.attempt,
            files=1,
            size_bytes=0,
            time_total_s=worker.total_s,
            node=self._node_of(worker),
        )

    def _node_of(self, worker: SimulatedWorker) -> str:
        return self.places.name_of(worker.place) if self._machine.cluster else ""

    # -- its end --------------------------------------------------------------------------------

    def _end(self, worker: SimulatedWorker) -> None:
        """The function returns; the process exits or becomes idle."""
        worker.trains = False
        if worker.has_started:
            self._post(Returned(trial_id=worker.trial_id, attempt=worker.attempt))
        if not self._reuses or not worker.has_started:
            self._agenda.after(self._training.stop_s, self._exit, worker)

    def _fail(self, worker: SimulatedWorker) -> None:
        if worker.trains:
            self._count_fault(worker, "user")
            self._fail_attempt(
                worker, "user", "SimulatedError", f"in iteration {worker.iteration + 1}"
            )

    def _crash(self, worker: SimulatedWorker) -> None:
        if worker.trains:
            self._count_fault(worker, "lost")
            self._exit(worker, cause="was killed by the simulation")

    def _fail_attempt(
        self, worker: SimulatedWorker, kind: FailureKind, type_name: str, message: str
    ) -> None:
        worker.trains = False
        failure = Failure(kind=kind, type_name=type_name, message=message)
        self._post(Raised(trial_id=worker.trial_id, attempt=worker.attempt, failure=failure))
        self._agenda.after(self._training.stop_s, self._exit, worker)

    def _count_fault(self, worker: SimulatedWorker, kind: str) -> None:
        self._fault_counts[worker.trial_id] = self._fault_counts.get(worker.trial_id, 0) + 1
        self._tally.faults[kind] += 1

    def _exit(
        self,
        worker: SimulatedWorker,
        cause: str = "exited with status 0",
        kind: ProcessFailureKind = "lost",
    ) -> None:
        if worker.is_gone:
            return
        worker.trains, worker.is_gone = False, True
        del self._workers[worker.trial_id], self._at[worker.place]
        self.places.give_back(worker.place)
        self._tally.busy_s += self._agenda.elapsed_s - worker.since_s
        self._post_exit(worker.trial_id, worker.attempt, cause, kind)
        self.serve_waiting()

    def _post_exit(
        self, trial_id: str, attempt: int, cause: str, kind: ProcessFailureKind = "lost"
    ) -> None:
        self._post(Exited(trial_id=trial_id, attempt=attempt, cause=cause, kind=kind))

    def lose(self, node: int) -> None:
        """End the workers of a node, which has just gone away."""
        for place in self.places.lose(node):
            worker = self._at.get(place)
            if worker is not None:
                kind = self.places.exit_kind
                self._exit(worker, cause=f"was lost with node-{node}", kind=kind)

    def serve_waiting(self) -> None:
        """Start what waits for a free place."""
        while self._waiting:
            place = self.places.take(self._waiting[0].allocation)
            if place is None:
                break
            self._begin(self._waiting.popleft(), place)


class Cluster:
    """A number of places, `per_node` on each node. The lowest free one is taken first. A node is a
    number from 0 to `nodes`; `exit_kind` is how workers end that are lost with theirs.

    The machine knows nothing of these nodes: it sees only that workers are lost, and that new ones
    take longer to start. It knows those of `holdfast.simulate.scene`.
    """

    def __init__(self, places: int, faults: Faults) -> None:
        self.per_node = faults.workers_per_node
        self.nodes = -(-places // self.per_node)
        self.exit_kind: ProcessFailureKind = "preempted" if faults.preempts else "lost"
        self._places = places
        self._free = list(range(places))
        self._down: set[int] = set()

    def take(self, allocation: Allocation) -> int | None:
        """Take a free place; None if there is none."""
        return heappop(self._free) if self._free else None

    def give_back(self, place: int) -> None:
        """Free the place, at once or when its node is back."""
        if place // self.per_node not in self._down:
            heappush(self._free, place)

    def name_of(self, place: int) -> str:
        """The name of the place's node."""
        return f"node-{place // self.per_node}"

    def open(self) -> None:
        """Nothing needs to be known."""

    def announce(self, node: int) -> float:
        """Nobody is told."""
        return 0.0

    def lose(self, node: int) -> Sequence[int]:
        """Take the node away, with all its places, until `restore`."""
        self._down.add(node)
        self._free = [place for place in self._free if place // self.per_node != node]
        heapify(self._free)
        return self._places_of(node)

    def restore(self, node: int) -> None:
        """Free all places of the node."""
        self._down.discard(node)
        for place in self._places_of(node):
            heappush(self._free, place)

    def _places_of(self, node: int) -> range:
        first = node * self.per_node
        return range(first, min(first + self.per_node, self._places))


# The places of workers, whose nodes the machine knows or not.
Places = Cluster | KnownNodes
# A node's number, and how often it was lost before.
Which = tuple[int, int]


class World:
    """The machine with simulated workers. `tally` counts events, `trace` records them."""

    def __init__(self, machine: Machine, scene: Scene, trace: Trace, tally: Tally) -> None:
        self.machine = machine
        self.agenda = Agenda()
        self.warnings: list[str] = []
        self.outcome: Finish | None = None
        self._scene = scene
        self._trace = trace
        self._tally = tally
        self._inbox: deque[Event] = deque()
        self._search = Search(scene.proposer, machine, post=self.post, warn=self.warnings.append)
        luck = Luck(scene.begun.spec.seed)
        self._pool = SimulatedPool(machine, scene, self.agenda, tally, luck, self.post)
        self._nodes = NodeLosses(self._pool, scene.faults, self.agenda, tally, luck)

    def run(self) -> Finish:
        """Simulate from the first event to the last effect.

        Raises CurveFailed, and the exceptions of the user's search and scheduler.
        """
        self.post(self._scene.begun)
        self._nodes.begin()
        budget_s = self._scene.begun.spec.budget_s
        if budget_s is not None:
            self.agenda.after(budget_s, self.post, budget_spent(budget_s), awaited=False)
        while True:
            while self._inbox:
                self._turn(self._inbox.popleft())
            if self.outcome is not None:
                return self.outcome
            if not self.agenda.awaited:
                raise TuneError(f"the simulation hangs (a bug in holdfast): {self._story()}")
            self.agenda.advance()

    def _turn(self, event: Event) -> None:
        """Decide, record, pass on, perform: like a turn of the controller."""
        machine, now = self.machine, self.agenda.now
        trial_id = getattr(event, "trial_id", "")
        before = machine.trials.get(trial_id)
        effects = machine.handle(event, now=now)
        after = machine.trials.get(trial_id)
        self._trace.add(event, now, machine.answers)
        if isinstance(event, Reported) and after is before:
            # Its worker has not seen the order to stop, and waits for an answer.
            self._pool.reply(Reply(trial_id=trial_id, attempt=event.attempt, verdict=Verdict.STOP))
        self._tally.count(event, before, after, self.agenda.elapsed_s)
        self._pass_on(event, before, after)
        for effect in effects:
            self._perform(effect)

    def _pass_on(self, event: Event, before: Trial | None, after: Trial | None) -> None:
        """Pass the event to the search, and the other trials that it has changed."""
        if self._search.learns:
            others = others_moved(self.machine, after.trial_id if after else "")
            self._search.observe([(event, before, after), *others])

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._pool.reply(effect)
            case Commit():
                self._commit(effect)
            case Discard():
                self._pool.discard(effect)
            case Launch():
                self._pool.launch(effect)
            case Suggest(again=TrialSpec() as again):
                self.post(self._scene.proposer.propose_again(effect.index, again))
            case Suggest():
                self._search.ask(effect.index)
            case AskStopper():
                trial = self.machine.trials[effect.trial_id]
                self.post(answer_of(self._scene.stopper, effect, trial))
            case AskScheduler():
                self.post(self._asked(effect))
            case Wait():
                ended = WaitEnded(trial_id=effect.trial_id, attempt=effect.attempt)
                self._later(effect.seconds, ended)
            case Halt():
                self._pool.halt(effect)
            case Preempt():
                self._pool.preempt(effect)
            case Release():
                self._pool.release(effect)
            case Warn():
                self.warnings.append(effect.text)
            case Finish():
                self.outcome = effect
            case _:
                assert_never(effect)

    def _commit(self, effect: Commit) -> None:
        which = effect.trial_id, effect.checkpoint
        if self._scene.commit_s:
            self.agenda.after(self._scene.commit_s, self._pool.committed, which)
        else:
            self._pool.committed(which)

    def _asked(self, effect: AskScheduler) -> SchedulerAnswered:
        policy, proposer = self.machine.policy, self._scene.proposer
        assert policy is not None
        answer = proposer.with_users_config(effect.question, policy.answer)
        return SchedulerAnswered(trial_id=effect.trial_id, answer=answer)

    def _later(self, seconds: float, event: Event) -> None:
        if seconds:
            self.agenda.after(seconds, self.post, event)
        else:
            self.post(event)

    def _story(self) -> str:
        trials = self.machine.trials.values()
        return "; ".join(t.story() for t in trials if not t.status.is_final)[:1000]

    def post(self, event: Event) -> None:
        """Add an event that happens now."""
        self._inbox.append(event)


class Search:
    """Passes each event on to the search, then asks it again, as the search thread does."""

    def __init__(
        self,
        proposer: Proposer,
        machine: Machine,
        *,
        post: Callable[[Event], None],
        warn: Callable[[str], None],
    ) -> None:
        self._proposer = proposer
        self._machine = machine
        self._post = post
        self._warn = warn
        self._searcher = proposer.searcher
        self._postponed: int | None = None
        if self._searcher is not None:
            proposer.open()

    @property
    def learns(self) -> bool:
        """True if the search wants to know about events."""
        return self._searcher is not None

    def ask(self, index: int) -> None:
        """Post trial number `index`, or the end of the search. A search that returned None is
        asked again after the next event. Raises the exceptions of the user's code."""
        answer = self._proposer.propose(index)
        machine, placement = self._machine, self._machine.placement
        if answer is not None or self._searcher is None:
            if isinstance(answer, SearchEnded) and self._proposer.ended_because:
                self._warn(self._proposer.ended_because)
            self._post(answer or SearchEnded())
        elif placement.has_trials or machine.paused:
            self._postponed = index
            if machine.paused and not machine.search_waits:
                self._post(SearchWaits())
        else:
            self._post(EndOrdered(reason="abort", message=self._proposer.nothing_to_wait_for))

    def observe(self, changes: Iterable[Change]) -> None:
        """Pass on the effects of an event on trials, then ask again."""
        is_news = False
        for event, before, after in changes:
            for call in calls_for(self._proposer, event, before, after):
                call()
            is_news |= before is not None and before is not after
        if is_news and self._postponed is not None:
            index, self._postponed = self._postponed, None
            self.ask(index)


class NodeLosses:
    """Lets nodes with the workers of `pool` go away, each at random times, and come back."""

    def __init__(
        self, pool: SimulatedPool, faults: Faults, agenda: Agenda, tally: Tally, luck: Luck
    ) -> None:
        self._pool = pool
        self._life_s = faults.node_life_s
        self._absence_s = faults.node_absence_s
        self._agenda = agenda
        self._tally = tally
        self._luck = luck

    def begin(self) -> None:
        """Let nodes be there, and go away from now on."""
        self._pool.places.open()
        for node in range(self._pool.places.nodes):
            self._expect((node, 0))

    def _expect(self, which: Which) -> None:
        if self._life_s is not None:
            seconds = self._luck.wait_s(self._life_s, "node", *which)
            self._agenda.after(seconds, self._announce, which, awaited=False)

    def _announce(self, which: Which) -> None:
        notice_s = self._pool.places.announce(which[0])
        if notice_s:
            self._agenda.after(notice_s, self._lose, which)
        else:
            self._lose(which)

    def _lose(self, which: Which) -> None:
        self._tally.faults["node"] += 1
        self._pool.lose(which[0])
        self._agenda.after(self._absence_s, self._restore, which)

    def _restore(self, which: Which) -> None:
        node, times = which
        self._pool.places.restore(node)
        self._pool.serve_waiting()
        self._expect((node, times + 1))
