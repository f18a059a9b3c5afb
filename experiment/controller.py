"""The shell around the machine: one loop that turns what happens into events and performs effects.

Each turn takes everything that has arrived, hands it to the machine, writes it to the journal with
one call, and only then performs the effects: `report()` returns after its row is in the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from holdfast.experiment.actor import TrialActor
from holdfast.experiment.advisors import Advisor, failure_of
from holdfast.experiment.archive import Archive
from holdfast.experiment.callback_thread import CallbackThread
from holdfast.experiment.job import Assignment
from holdfast.experiment.layout import Layout
from holdfast.experiment.ledger import Ledger
from holdfast.experiment.proposer import Proposer
from holdfast.experiment.records import pack
from holdfast.experiment.recovery import changed_checkpoint, lost_notice
from holdfast.experiment.searching import SearchThread
from holdfast.experiment.settings import Settings
from holdfast.runtime.launcher import Launcher
from holdfast.scheduler.effects import (
    AskStopper,
    Commit,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Release,
    Reply,
    Suggest,
)
from holdfast.scheduler.events import (
    CheckpointLost,
    EndOrdered,
    Event,
    Exited,
    Raised,
    Resumed,
    StopperAnswered,
)
from holdfast.scheduler.machine import Machine, budget_spent
from holdfast.scheduler.verdict import Verdict
from holdfast.syncer.journal import JournalFull
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.errors import Failure, TuneError
from holdfast.trial.lifecycle import Reported
from holdfast.trial.stopper import Stopper
from holdfast.trial.trial import Trial, TrialSpec
from holdfast.trial.values import to_plain

StopFunction = Stopper | Callable[[str, dict[str, Any]], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controller works with; each part has been made and opened."""

    machine: Machine
    layout: Layout
    settings: Settings
    launcher: Launcher
    ledger: Ledger
    proposer: Proposer
    callbacks: CallbackThread
    stopper: StopFunction | None
    open_archive: Callable[[Controller], Archive]
    gpu_names: tuple[str, ...]
    full_row_of: Callable[[Trial], dict[str, Any]]
    show_line: Callable[[str, int, str, str], None]
    warn: Callable[[str], None]


# What a trial was before and is after an event: its own, or (None) one of something else.
_Change = tuple[Event | None, Trial | None, Trial | None]


class Controller:
    def __init__(self, parts: Parts) -> None:
        self.machine = parts.machine
        self.launcher = parts.launcher
        self.show_line = parts.show_line
        self.archive: Archive | None = None
        self.ledger = parts.ledger
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._inbox: list[tuple[Event, float]] = []
        self._turning = False
        self._actors: dict[str, TrialActor] = {}
        self._search = SearchThread(
            parts.proposer,
            post=self.post,
            fail=self._search_failed,
            row_of=parts.full_row_of,
            is_under_way=lambda: bool(
                self.machine.holds or self.machine.queue or self.machine.paused
            ),
        )
        self._stopper = Advisor("stopper")
        self._tasks: set[asyncio.Task[None]] = set()
        self._verifying: dict[str, tuple[asyncio.Task[None], TrialActor | None]] = {}
        self._budget: asyncio.TimerHandle | None = None
        self._inherited: dict[str, int] = {}
        self.fault: BaseException | None = None
        self.is_usurped = False
        self.outcome: Finish | None = None
        self.finished = asyncio.Event()

    # -- events in ----------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Take in a fact, now; what it leads to in this turn is dealt with before it returns.

        Gathering the facts of all sockets in one later callback was tried: it saves a write where
        many workers report in one moment, and costs each lock-step report 15% of its rate.
        """
        self._inbox.append((event, time.time()))
        if not self._turning:
            self._turn()

    def begin(self, events: Sequence[Event]) -> None:
        """Start with these events, and watch the time budget."""
        resumed = next((event for event in events if isinstance(event, Resumed)), None)
        self._search.begin(self.machine.trials.values(), resumed)
        # What an earlier incarnation left may have changed since: it is read before it is used.
        trials = self.machine.trials.values()
        self._inherited = {trial.trial_id: trial.next_checkpoint for trial in trials}
        for event in events:
            self.post(event)
            if isinstance(event, Resumed):
                self.sweep()
        budget_s = self.machine.spec.time_budget_s
        if budget_s is not None:
            left_s = max(0.0, budget_s - self.machine.active_s)
            self._budget = self._loop.call_later(left_s, self.post, budget_spent(budget_s))

    def sweep(self) -> None:
        """Have files removed that the incarnation, or the keeper, before had no time to remove."""
        for trial in self.machine.trials.values():
            if len(trial.checkpoints) < trial.next_checkpoint:
                self._archive().sweep(trial)

    def _turn(self) -> None:
        self._turning = True
        try:
            while self._inbox and self.fault is None:
                batch, self._inbox = self._inbox, []
                for effect in self._record(batch):
                    self._perform(effect)
        except JournalFull as error:
            self._refuse(batch, error)
        except Exception as error:  # a fault of ours: fit() raises it, with what was kept
            self._fail(error)
        finally:
            self._turning = False

    def _record(self, batch: list[tuple[Event, float]]) -> list[Effect]:
        """Decide, then write: nothing is performed that is not in the journal."""
        machine = self.machine
        effects: list[Effect] = []
        changes: list[_Change] = []
        for event, now in batch:
            trial_id = getattr(event, "trial_id", "")
            before = machine.trials.get(trial_id)
            effects += machine.handle(event, now=now)
            after = machine.trials.get(trial_id)
            if isinstance(event, Reported) and after is before:
                self._dismiss(event)
            changes.append((event, before, after))
            changes += self._brought_to_an_end(trial_id)
        self.ledger.append([pack(event, now) for event, now in batch])
        for event_or_none, before, after in changes:
            iteration = after.iteration if after else 0
            self._parts.callbacks.observe(event_or_none, before, after, iteration)
            self._search.saw(event_or_none, before, after)
        return effects

    def _brought_to_an_end(self, by: str) -> list[_Change]:
        """Other trials that the event of trial `by` has ended: they have no event of their own."""
        ended: list[_Change] = []
        for trial_id, before in self.machine.moved.items():
            after = self.machine.trials[trial_id]
            if trial_id != by and after.status.is_final and not before.status.is_final:
                ended.append((None, before, after))
        return ended

    def _dismiss(self, event: Reported) -> None:
        """A report that counts no more: its worker has not heard the order to stop, and waits."""
        actor = self._actors.get(event.trial_id)
        if actor is not None and actor.assignment.attempt == event.attempt:
            actor.reply(Verdict.STOP)

    def _refuse(self, batch: list[tuple[Event, float]], error: JournalFull) -> None:
        """A full disk: nobody is told that a row was kept which was not."""
        for event, _ in batch:
            if isinstance(event, Reported) and event.trial_id in self._actors:
                self._actors[event.trial_id].refuse(str(error))
        self._fail(TuneError(str(error)))

    def _fail(self, error: BaseException) -> None:
        if self.fault is None:
            self.fault = error
            self.finished.set()

    # -- effects out --------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._reply(effect)
            case Launch():
                self._launch(effect)
            case Suggest():
                self._search.ask(effect.index)
            case Commit():
                self._archive().commit(self._spec(effect.trial_id), effect.checkpoint)
            case Discard():
                self._archive().discard(self._spec(effect.trial_id), effect.checkpoint)
            case AskStopper():
                self._spawn(self._ask_stopper(effect))
            case Halt():
                self._halt(effect)
            case Release():
                if effect.trial_id in self._actors:
                    self._actors[effect.trial_id].release()
            case Finish():
                self.outcome = effect
                if effect.message and effect.reason not in ("interrupt", "abort"):
                    self._parts.warn(f"The run has ended: {effect.message}")
                self.finished.set()
            case _:
                assert_never(effect)

    def _archive(self) -> Archive:
        """Where nothing is kept elsewhere, the keeper starts with the first checkpoint."""
        if self.archive is None:
            self.archive = self._parts.open_archive(self)
        return self.archive

    def _spec(self, trial_id: str) -> TrialSpec:
        return self.machine.trials[trial_id].spec

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)
        return task

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _reply(self, effect: Reply) -> None:
        if self.archive is not None and self.archive.has_backlog:
            self.archive.hold(lambda: self._answer(effect))
        else:
            self._answer(effect)

    def _answer(self, effect: Reply) -> None:
        actor = self._actors.get(effect.trial_id)
        if actor is not None and actor.assignment.attempt == effect.attempt:
            actor.reply(effect.verdict)

    def _launch(self, effect: Launch) -> None:
        trial = self.machine.trials[effect.trial_id]
        checkpoint = effect.checkpoint
        inherited = self._inherited.get(effect.trial_id, 0)
        reused = None if effect.reuse is None else self._actors.pop(effect.reuse)
        if checkpoint is not None and checkpoint.index < inherited:
            work = self._verify_and_launch(effect, trial, checkpoint, reused)
            self._verifying[effect.trial_id] = (self._spawn(work), reused)
        else:
            self._start(effect, trial, reused)

    def _halt(self, effect: Halt) -> None:
        """End an attempt; one whose checkpoint is still looked at has not begun."""
        verifying = self._verifying.pop(effect.trial_id, None)
        if verifying is None:
            if effect.trial_id in self._actors:
                self._actors[effect.trial_id].halt(after_step=effect.after_step)
            return
        task, reused = verifying
        task.cancel()
        self._give_up(effect.trial_id, effect.attempt, reused)

    def _give_up(self, trial_id: str, attempt: int, reused: TrialActor | None) -> None:
        """An attempt that was never given to a worker: it exits, with the one it would reuse."""
        if reused is None:
            self.post(Exited(trial_id=trial_id, attempt=attempt, cause="never started"))
        else:
            self._actors[trial_id] = reused
            reused.dismiss(trial_id, attempt)

    async def _problem_with(self, spec: TrialSpec, checkpoint: CheckpointRecord) -> str:
        """Why an earlier incarnation's checkpoint cannot be resumed from; "" if it can.

        Every byte is read, which the trial is about to do too.
        """
        problem = await self._loop.run_in_executor(
            None, changed_checkpoint, self._parts.layout.checkpoint(spec, checkpoint), checkpoint
        )
        if problem and self.archive is not None and self.archive.is_remote:
            return await self.archive.fetch(spec, checkpoint)
        return problem

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        """A checkpoint that was reported is nowhere, or broken: no record may name it any more."""
        trial = self.machine.trials[trial_id]
        record = next((known for known in trial.checkpoints if known.index == index), None)
        if record is not None:  # else it is superseded, and was not to be kept
            self._parts.warn(lost_notice(trial_id, index, reason))
            self.post(CheckpointLost(trial_id=trial_id, index=index, reason=reason))
            self._archive().discard(trial.spec, record)

    async def _verify_and_launch(
        self,
        effect: Launch,
        trial: Trial,
        checkpoint: CheckpointRecord,
        reused: TrialActor | None,
    ) -> None:
        """A checkpoint that cannot be had is dropped; the trial goes on from the one before."""
        problem = await self._problem_with(trial.spec, checkpoint)
        del self._verifying[trial.trial_id]
        if not problem:
            self._start(effect, trial, reused)
            return
        self.lose(trial.trial_id, checkpoint.index, problem)
        failure = Failure(kind="checkpoint", type_name="CheckpointLost", message=problem)
        self.post(Raised(trial_id=trial.trial_id, attempt=effect.attempt, failure=failure))
        self._give_up(trial.trial_id, effect.attempt, reused)

    def _start(self, effect: Launch, trial: Trial, reused: TrialActor | None) -> None:
        resources = trial.spec.resources
        assignment = Assignment(
            trial_id=trial.trial_id,
            trial_name=trial.spec.name,
            dirname=trial.spec.dirname,
            attempt=effect.attempt,
            config=to_plain(trial.spec.config),
            tag=trial.spec.tag,
            iteration=trial.iteration,
            time_total_s=trial.time_total_s,
            next_checkpoint=trial.next_checkpoint,
            checkpoint=effect.checkpoint.dirname if effect.checkpoint else None,
            bundles=resources.bundles,
            strategy=resources.strategy,
            cpus=resources.required_resources.get("CPU", 1),
            gpus=tuple(self._parts.gpu_names[gpu] for gpu in effect.allocation.gpus),
            sets_gpus="GPU" in self.machine.capacity.total,
        )
        if reused is not None:
            self._actors[trial.trial_id] = reused
            reused.assign(assignment)
            return
        self._actors[trial.trial_id] = TrialActor(
            self,
            assignment,
            grace_s=self._parts.settings.stop_grace_s,
            reusable=self.machine.spec.reuse_actors,
        )

    # -- the user's code ----------------------------------------------------------------------

    def _search_failed(self, error: BaseException) -> None:
        """The run cannot go on as it was meant; at its end, what it has come to counts more."""
        if self.finished.is_set():
            self._parts.warn(f"the search algorithm raised {type(error).__name__}: {error}")
        else:
            self._fail(error)

    async def search_told(self, deadline_s: float) -> str | None:
        """Wait until the search algorithm has heard of everything."""
        return await self._search.finish(deadline_s)

    async def _ask_stopper(self, effect: AskStopper) -> None:
        trial = self.machine.trials[effect.trial_id]
        stopper = self._parts.stopper
        assert stopper is not None
        row = self._parts.full_row_of(trial)
        stop = stop_all = False
        failure = None
        try:
            stop = bool(await self._stopper.ask(lambda: stopper(trial.trial_id, row)))
            if isinstance(stopper, Stopper):
                stop_all = bool(await self._stopper.ask(stopper.stop_all))
        except Exception as error:  # told as the failure of the trial that reported
            failure = failure_of(error, "stopper")
        self.post(
            StopperAnswered(
                trial_id=effect.trial_id,
                attempt=effect.attempt,
                iteration=effect.iteration,
                stop=stop,
                stop_all=stop_all,
                failure=failure,
            )
        )

    # -- the end ------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Stop every trial so that it can be resumed."""
        self.post(EndOrdered(reason="interrupt", message="interrupted"))

    def usurped(self, text: str) -> None:
        """Another incarnation owns the experiment: write nothing more there."""
        self.is_usurped = True
        self._fail(TuneError(text))

    def forsaken(self, text: str) -> None:
        """Nobody keeps checkpoints any more, so that reports would wait for ever."""
        self._fail(TuneError(text))

    def close(self) -> None:
        if self._budget is not None:
            self._budget.cancel()
        for task in self._tasks:
            task.cancel()
        self._search.close()
        self._stopper.close()
