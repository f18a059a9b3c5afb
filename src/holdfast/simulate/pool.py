"""The simulated workers: each trains one attempt on a place of the cluster, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.scheduler.effects import Discard, Halt, Launch, Preempt, Release, Reply
from holdfast.scheduler.events import Event, Exited, Raised
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.verdict import Verdict
from holdfast.simulate.agenda import Agenda
from holdfast.simulate.cluster import Cluster
from holdfast.simulate.curves import CurveFailed, metrics_of
from holdfast.simulate.faults import Luck
from holdfast.simulate.tally import Tally
from holdfast.simulate.worker import Scene, SimulatedWorker, curve_failed
from holdfast.trial.checkpoint import CheckpointRecord, evolve_record
from holdfast.trial.errors import Failure, FailureKind, ProcessFailureKind
from holdfast.trial.events import Adopted, Reported, Returned, Saved, Started
from holdfast.trial.trial import Origin

# A training without an end would simulate forever.
MOST_ITERATIONS = 1_000_000


class SimulatedPool:
    """Performs Launch, Reply, Halt, Preempt and Release, and keeps the checkpoints' states."""

    def __init__(
        self,
        machine: Machine,
        scene: Scene,
        agenda: Agenda,
        tally: Tally,
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
        self._luck = Luck(spec.seed)
        self._cluster = Cluster(scene.places, scene.faults, self._luck)
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
            place = self._cluster.take()
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
        """End it without another checkpoint."""
        worker = self._trainer(effect)
        if worker is not None:
            self._fail_attempt(worker, "preempted", "Preempted", "it was asked to end")

    def release(self, effect: Release) -> None:
        """End an idle worker."""
        idle = self._workers.get(effect.trial_id)
        if idle is not None:
            self._agenda.after(self._training.stop_s, self._exit, idle)

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
        if effect.origin is not None:
            worker.state = self._adopted(worker, effect.origin)
        elif effect.checkpoint is not None:
            worker.state = self._states[effect.trial_id][effect.checkpoint.index]
        else:
            worker.is_new = True
        self._workers[effect.trial_id] = self._at[place] = worker
        self._agenda.after(self._training.start_s, self._start, worker)

    def _adopted(self, worker: SimulatedWorker, origin: Origin) -> Any:
        """Make another trial's checkpoint one of the clone's own."""
        state = self._states[origin.trial_id][origin.checkpoint.index]
        index = self._machine.trials[worker.trial_id].next_checkpoint
        self._states.setdefault(worker.trial_id, {})[index] = state
        record = evolve_record(
            origin.checkpoint, index=index, attempt=worker.attempt, committed=False
        )
        self._post(Adopted(trial_id=worker.trial_id, attempt=worker.attempt, checkpoint=record))
        return state

    def _start(self, worker: SimulatedWorker) -> None:
        if not worker.trains:
            return
        trial = self._machine.trials[worker.trial_id]
        worker.config = self._config_of(trial)
        if worker.is_new:
            worker.state = self._begun(worker)
        worker.has_started = True
        node = self._cluster.node_of(worker.place)
        self._post(
            Started(
                trial_id=worker.trial_id,
                attempt=worker.attempt,
                pid=1 + worker.place,
                hostname=f"node-{node}",
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
        worker.seconds = seconds * self._cluster.slowness(worker.place)
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
        )

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
        self._cluster.give_back(worker.place)
        self._tally.busy_s += self._agenda.elapsed_s - worker.since_s
        self._post_exit(worker.trial_id, worker.attempt, cause, kind)
        self._serve_waiting()

    def _post_exit(
        self, trial_id: str, attempt: int, cause: str, kind: ProcessFailureKind = "lost"
    ) -> None:
        self._post(Exited(trial_id=trial_id, attempt=attempt, cause=cause, kind=kind))

    def _serve_waiting(self) -> None:
        while self._waiting and (place := self._cluster.take()) is not None:
            self._begin(self._waiting.popleft(), place)

    # -- lost nodes -----------------------------------------------------------------------------

    def expect_losses(self) -> None:
        """Let nodes go away from now on, each at random times."""
        if self._faults.node_life_s is not None:
            for node in range(self._cluster.nodes):
                self._expect_loss((node, 0))

    def _expect_loss(self, which: tuple[int, int]) -> None:
        assert self._faults.node_life_s is not None
        seconds = self._luck.wait_s(self._faults.node_life_s, "node", *which)
        self._agenda.after(seconds, self._lose, which, awaited=False)

    def _lose(self, which: tuple[int, int]) -> None:
        node, _ = which
        self._cluster.lose(node)
        self._tally.faults["node"] += 1
        kind: ProcessFailureKind = "preempted" if self._faults.preempts else "lost"
        for place in self._cluster.places_of(node):
            worker = self._at.get(place)
            if worker is not None:
                self._exit(worker, cause=f"was lost with node-{node}", kind=kind)
        self._agenda.after(self._faults.node_absence_s, self._restore, which)

    def _restore(self, which: tuple[int, int]) -> None:
        node, times = which
        self._cluster.restore(node)
        self._serve_waiting()
        self._expect_loss((node, times + 1))

    def _begun(self, worker: SimulatedWorker) -> Any:
        try:
            return self._training.curve.begin(worker.config)
        except Exception as error:
            raise curve_failed(worker, error) from error
