"""The shell around the machine: turns occurrences into events, and performs the effects.

`run.py` builds it, with the parts that `services.py` starts. Its effects go to `workers/pool.py`
and `uploads/uploads.py`, which post the next events.

Each event has a turn of its own: the machine handles it, the journal gets it, and only then its
effects are performed, so `report()` returns after its row is in the journal. Events that come
during a turn share the next one, with one write to the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from holdfast.dataclass import dataclass
from holdfast.errors import Remedy
from holdfast.experiment.callbacks.thread import CallbackThread, Level
from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.user_code import UserCode
from holdfast.experiment.control.user_threads import Change, history, others_moved
from holdfast.experiment.folder.shell import holdfast_command, resume_command
from holdfast.experiment.machine.fair_share import CapacityShare
from holdfast.experiment.progress.scheduler_facts import takeover_fact
from holdfast.experiment.progress.wording import (
    HeldNews,
    Retries,
    Retry,
    is_shown,
    retry_of,
    retry_text,
)
from holdfast.experiment.records.journal import pack, wall_time
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.records.recovery import lost_notice
from holdfast.experiment.workers.pool import WorkerPool
from holdfast.runtime.fleet.facts import NodeFacts
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.tasks import RunTasks
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
    EndReason,
    Event,
    Resumed,
    StopperAnswered,
    WaitEnded,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import Decision, NoteRung
from holdfast.scheduler.stopping import budget_spent
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.journal import JournalFull
from holdfast.syncer.journal.segment import Position
from holdfast.syncer.uploader.lock import LockLost
from holdfast.text.trials import changes_text, number, short_name, start_text
from holdfast.trial.best import value_of
from holdfast.trial.errors import TuneError
from holdfast.trial.events import Reported
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import spread

if TYPE_CHECKING:
    from holdfast.experiment.uploads.uploads import Uploads


class SchedulerNews:
    """Decides which takeovers and halvings are shown."""

    def __init__(self) -> None:
        self._takeovers = self._halvings = 0

    def after(self, machine: Machine) -> list[str]:
        """The messages about the event that the machine has just handled."""
        if not any(machine.answers):
            return []
        lines = []
        for before in machine.moved.values():
            after = machine.trials[before.trial_id]
            if len(after.takeovers) > len(before.takeovers):
                self._takeovers += 1
                if is_shown(self._takeovers):
                    lines.append(takeover_text(machine, before, after))
        for decided in machine.answers:
            for text in _halvings(machine, decided):
                self._halvings += 1
                if is_shown(self._halvings):
                    lines.append(text)
        return lines


def takeover_text(machine: Machine, before: Trial, after: Trial) -> str:
    """`PBT: 00003 (loss=0.5) continues from 00001 (loss=0.25) at iteration 4: lr 0.1 → 0.02`."""
    fact = takeover_fact(after.trial_id, after.takeovers[-1], spread(before.config))
    metric = machine.spec.metric

    def shown(trial: Trial) -> str:
        value = value_of(trial, metric)
        return number(trial.trial_id) + (f" ({metric}={value:.4g})" if value is not None else "")

    # The newest row of its own; it has none any more if it was launched at once.
    own = after if after.row is not None else before
    changes = changes_text(fact.changes)
    return (
        f"{short_name(machine.spec.scheduler)}: at iteration {fact.iteration}, {shown(own)} "
        f"continues from {shown(machine.trials[fact.source])} at iteration "
        f"{fact.source_iteration}" + (f": {changes}" if changes else "")
    )


def _halvings(machine: Machine, decided: Sequence[Decision]) -> Iterator[str]:
    """A line for each rung at which some trials continue and others stop, all at once."""
    notes = [one for one in decided if isinstance(one, NoteRung) and one.promoted is not None]
    reached = Counter((one.bracket, one.milestone) for one in notes)
    promoted = Counter((one.bracket, one.milestone) for one in notes if one.promoted)
    cutoffs = {(one.bracket, one.milestone): one.cutoff for one in notes}
    for key, count in reached.items():
        if not 0 < promoted[key] < count:
            continue
        bracket, milestone = key
        cutoff = cutoffs[key]
        at_least = "" if cutoff is None else f"; the cutoff is {machine.spec.metric}={cutoff:.4g}"
        yield (
            f"{short_name(machine.spec.scheduler)}: {promoted[key]} of the {count} trials at rung "
            f"{milestone:g} of bracket {bracket} continue{at_least}"
        )


_BEFORE_IT_RUNS = (Status.PENDING, Status.STARTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts:
    """The running parts that the controller works with."""

    tasks: RunTasks
    launcher: Launcher
    capacity: CapacityShare
    journal_writer: JournalWriter
    callbacks: CallbackThread
    open_uploads: Callable[[Controller], Uploads]
    output: RunOutput


class Controller:
    """Runs the machine of one run: every event goes through `post`."""

    def __init__(
        self,
        plan: RunPlan,
        parts: ControllerParts,
        nodes: Mapping[str, NodeFacts] = MappingProxyType({}),
    ) -> None:
        """`nodes` are those of a cluster that have joined, by their names."""
        self.machine = plan.machine
        self.launcher = parts.launcher
        self.show_line = parts.output.show_line
        self.retries = Retries()
        self._news = SchedulerNews()
        root = str(plan.layout.root)
        self.held_news = HeldNews(resume=resume_command(root), stop=holdfast_command("stop", root))
        self.uploads: Uploads | None = None
        self.journal_writer = parts.journal_writer
        self._plan, self._parts = plan, parts
        self._run_tasks = parts.tasks
        # The tasks that work for trials: cancelled before the processes end.
        self.tasks = parts.tasks.scope()
        self._inbox: list[tuple[Event, float]] = []
        # Until `begin`, events wait: nodes may join before the journal has its first record.
        self._is_turning = True
        self.pool = WorkerPool(
            self,
            layout=plan.layout,
            settings=plan.settings,
            resources=parts.capacity,
            gpu_names=plan.host_resources.gpu_names,
            has_gpus="GPU" in plan.host_resources.total,
            group=plan.job.group,
            nodes=nodes,
        )
        self.user_code = UserCode(
            plan,
            run_tasks=parts.tasks,
            tasks=self.tasks,
            post=self.post,
            warn=self.warn,
            inform=lambda text: self.warn(text, "info"),
        )
        self.has_lost_ownership = False
        self.outcome: Finish | None = None
        self.journal_writer.report_to(self._on_journal_error)

    @property
    def fault(self) -> BaseException | None:
        """The error that ended the run early."""
        return self._run_tasks.fault

    def warn(self, text: str, level: Level = "warning") -> None:
        """Show the user a text."""
        self._parts.output.tell(text, level)

    # -- events in ----------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Handle an event now, with all events that follow from it.

        Collecting the events of all sockets would cost a single report 15% of its rate.
        """
        self._inbox.append((event, wall_time()))
        if not self._is_turning:
            self._turn()

    def post_all(self, several: Sequence[Event]) -> None:
        """Handle these events as `post` does, with one write to the journal."""
        now = wall_time()
        self._inbox += [(event, now) for event in several]
        if not self._is_turning:
            self._turn()

    def begin(self, events: Sequence[Event], overdue: Sequence[StopperAnswered] = ()) -> None:
        """Start with these events, and watch the time budget.

        `overdue` are answers of the stopper that the previous incarnation did not get. They are
        recorded with the earlier run's last timestamp. Their effects are not performed: a restore
        performs its own.
        """
        plan, journal_writer = self._plan, self.journal_writer
        resumed = next((event for event in events if isinstance(event, Resumed)), None)
        until = journal_writer.position
        changes = partial(history, plan.layout.journal, Position(plan.begins), until)
        self.user_code.begin(resumed, changes)
        self.pool.inherit(self.machine.trials.values(), resumed)
        early = [event for event, _ in self._inbox]
        self._inbox = [(answer, self.machine.now) for answer in overdue]
        self._turn(performs=False)
        for event in (*events, *early):
            self.post(event)
            if isinstance(event, Resumed):
                self.remove_superseded()
        budget_s = self.machine.spec.budget_s
        if budget_s is not None:
            left_s = max(0.0, budget_s - self.machine.active_s)
            self.tasks.later(left_s, self.post, budget_spent(budget_s))

    def remove_superseded(self) -> None:
        """Remove superseded checkpoints that the previous incarnation or uploader left behind."""
        try:
            self._plan.lock.check_ownership()
        except LockLost as error:
            self.lose_ownership(str(error))
            return
        for trial in self.machine.trials.values():
            kept = self.machine.kept_of(trial.trial_id)
            if len(kept) < trial.next_checkpoint:
                self._uploads().discard_superseded(trial, kept)

    def _turn(self, *, performs: bool = True) -> None:
        self._is_turning = True
        try:
            while self._inbox and self._run_tasks.fault is None:
                batch, self._inbox = self._inbox, []
                effects = self._record(batch)
                for effect in self._in_order(effects) if performs else ():
                    self._perform(effect)
        except JournalFull as error:
            self._refuse(batch, error)
        except Exception as error:  # a bug in holdfast: fit() raises it
            self._run_tasks.fail(error)
        finally:
            self._is_turning = False

    def _record(self, batch: list[tuple[Event, float]]) -> list[Effect]:
        """Decide, then write. Returns the effects, which the caller may perform from then on."""
        machine = self.machine
        effects: list[Effect] = []
        changes: list[Change] = []
        records: list[bytes] = []
        news: list[str] = []
        for event, now in batch:
            trial_id = getattr(event, "trial_id", "")
            before = machine.trials.get(trial_id)
            effects += machine.handle(event, now=now)
            records.append(pack(event, now, machine.answers))
            after = machine.trials.get(trial_id)
            if machine.answers:
                news += self._news.after(machine)
            if machine.placement.waits:
                news += self.held_news.after(machine)
            changes.append((event, before, after))
            if len(machine.moved) > (trial_id in machine.moved):
                changes += others_moved(machine, trial_id)
        self.journal_writer.append(records)
        for text in news:
            self.warn(text, "info")
        is_of_status = False
        for change in changes:
            event_or_none, before, after = change
            if after is before and isinstance(event_or_none, Reported):
                # Its attempt is over, but its worker does not know yet and waits for an answer.
                self.pool.reply(event_or_none.trial_id, event_or_none.attempt, Verdict.STOP)
            if before is None or after is None or before.status is not after.status:
                is_of_status = True
            if event_or_none is not None or (after and after.status.is_final):
                self._parts.callbacks.observe(event_or_none, before, after)
            self.user_code.observe(change)
            if retry := retry_of(event_or_none, before, after, machine.spec):
                self._show_retry(retry)
            if self.uploads is not None and after is not None and machine.has_left(after):
                self.uploads.nodes.trial_ended(after.spec.dirname)
        output = self._parts.output
        if is_of_status or output.rings_at_events:
            output.ring()
        return effects

    def _show_retry(self, retry: Retry) -> None:
        number, shows = self.retries.count(retry)
        if shows:
            plan = self._plan
            self.warn(retry_text(retry, number, str(plan.layout.root), plan.location.public))

    def _refuse(self, batch: list[tuple[Event, float]], error: JournalFull) -> None:
        """The disk is full: the reports of this batch raise, because their rows are not kept."""
        for event, _ in batch:
            if isinstance(event, Reported):
                self.pool.refuse(event.trial_id, str(error))
        self.end_with(str(error), error.remedy)

    # -- effects out --------------------------------------------------------------------------

    def _in_order(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """The effects in the order to perform them. The first `Commit` starts the uploader, which
        takes 5 to 25 ms: a report that does not wait for its checkpoint is answered before it."""
        if self.uploads is not None or len(effects) < 2:
            return effects
        if not all(isinstance(one, Commit | Reply) for one in effects):
            return effects
        trials = [self.machine.trials[one.trial_id] for one in effects if isinstance(one, Reply)]
        if any(trial.awaited_checkpoint is not None for trial in trials):
            return effects
        return sorted(effects, key=lambda effect: isinstance(effect, Commit))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self._reply(effect)
            case Launch():
                self.pool.launch(effect)
            case Suggest():
                self.user_code.suggest(effect)
            case Commit(trial_id=trial_id, checkpoint=record):
                self._uploads().commit(self.machine.trials[trial_id].spec, record)
            case Discard(trial_id=trial_id, checkpoint=record):
                self._uploads().discard(self.machine.trials[trial_id].spec, record)
            case AskStopper():
                self.user_code.ask_stopper(effect)
            case AskScheduler():
                self.user_code.ask_scheduler(effect)
            case Wait():
                ended = WaitEnded(trial_id=effect.trial_id, attempt=effect.attempt)
                self.tasks.later(effect.seconds, self.post, ended)
            case Preempt():
                self.pool.preempt(effect)
            case Halt():
                self.pool.halt(effect)
            case Release():
                self.pool.release(effect.trial_id)
            case Warn():
                self.warn(effect.text)
            case Finish():
                self.outcome = effect
                if effect.message and effect.reason not in ("interrupt", "preempted", "abort"):
                    is_asked = effect.reason in ("budget", "stopper")
                    level: Level = "info" if is_asked else "warning"
                    self.warn(f"The run has ended: {effect.message}", level)
                self._run_tasks.finish()
            case _:
                assert_never(effect)

    def _uploads(self) -> Uploads:
        """The uploads, opened now if there are none: with local storage, at the first
        checkpoint."""
        if self.uploads is None:
            self.uploads = self._parts.open_uploads(self)
        return self.uploads

    def _reply(self, effect: Reply) -> None:
        trial_id, attempt, verdict = effect.trial_id, effect.attempt, effect.verdict
        record = self.machine.trials[trial_id].awaited_checkpoint
        is_backlog = self.uploads is not None and self.uploads.has_backlog
        if record is None and not is_backlog:
            self.pool.reply(trial_id, attempt, verdict)
            return

        def answer(problem: str) -> None:
            if problem:
                self.pool.refuse(trial_id, problem)
            else:
                self.pool.reply(trial_id, attempt, verdict)

        if record is None:
            self._uploads().hold(answer)
        else:
            self._uploads().hold_until_kept(trial_id, record.index, answer)

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        """Drop a reported checkpoint that is gone or broken: from now on no record names it."""
        trial = self.machine.trials[trial_id]
        record = next((known for known in trial.checkpoints if known.index == index), None)
        if record is not None:  # otherwise it is superseded already
            text = lost_notice(trial_id, index, reason)
            if record == trial.newest_checkpoint and trial.status in _BEFORE_IT_RUNS:
                text = f"{text}. The trial resumes from {start_text(*trial.checkpoints[-2:-1])}"
            self.warn(text, "loss")
            self.post(CheckpointLost(trial_id=trial_id, index=index, reason=reason, in_run=True))
            self._uploads().discard(trial.spec, record)

    # -- the end ------------------------------------------------------------------------------

    def interrupt(self, *, preempted: bool = False, why: str = "interrupted") -> None:
        """Stop every trial, to be resumed later. If `preempted`, trials may save first."""
        reason: EndReason = "preempted" if preempted else "interrupt"
        self.post(EndOrdered(reason=reason, message=why))

    def lose_ownership(self, text: str) -> None:
        """Another incarnation owns the experiment: end, and write nothing more there."""
        self.has_lost_ownership = True
        self.end_with(text)

    def end_with(self, text: str, remedy: Remedy | None = None) -> None:
        """End the run with an error."""
        self._run_tasks.fail(TuneError(text).with_remedy(remedy))

    def _on_journal_error(self, error: BaseException) -> None:
        """The journal cannot be forced to the disk, or an action that waited for that failed."""
        if isinstance(error, LockLost):
            self.lose_ownership(str(error))
        elif isinstance(error, StorageError):
            self.end_with(str(error), error.remedy)
        else:
            self._run_tasks.fail(error)

    def close(self) -> None:
        """Ask nothing more of user code, and cancel the tasks: the processes end next."""
        self.tasks.cancel()
        self.user_code.close()
