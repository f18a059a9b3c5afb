"""The controller's side of a trial that several workers train together.

To the worker pool a group is one actor; to the actors of its ranks it is the host. It merges the
events of the ranks into those of one trial. Ranks start and end together. When one fails, the
others have a moment to report their own errors, so that the cause can be told from its
consequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.progress.summary import RankWait
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.worker.job import Assignment, GroupTerms, Machine, parts_of
from holdfast.experiment.workers import worker_messages
from holdfast.experiment.workers.actor import TrialActor
from holdfast.experiment.workers.hosts import GroupHost, WorkerTimeouts
from holdfast.experiment.workers.ranks import (
    OUT_OF_STEP,
    AllReported,
    AllReturned,
    Barrier,
    MergedRanks,
    MergedShare,
    Outcome,
    OutOfStep,
    RankFailures,
    RankMerge,
    RankTexts,
    apart,
    shared_files,
)
from holdfast.late import Timer
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.wire import Message
from holdfast.scheduler.effects import Verdict
from holdfast.scheduler.events import Event, Exited, Raised
from holdfast.trial.errors import Failure, lost_worker
from holdfast.trial.events import Measured, Reported, Returned, Started
from holdfast.trial.resources import Usage, usage_of_ranks
from holdfast.trial.trial import CheckpointRecord


class CannotMerge(Exception):
    """The parts cannot be one checkpoint. The text says why."""


class RankCheckpoints:
    """Numbers the checkpoints of one attempt, from `assignment.next_checkpoint` on."""

    def __init__(
        self, actors: Sequence[TrialActor], assignment: Assignment, *, refuses_clashes: bool
    ) -> None:
        self._actors = actors
        self._attempt = assignment.attempt
        self._refuses_clashes = refuses_clashes
        self._merge: RankMerge | None = None
        self.next = assignment.next_checkpoint

    def begin(self, reported: AllReported) -> None:
        """Order the parts of a report to be put together. Raises CannotMerge."""
        self._merge = RankMerge(reported, [actor.assignment.node.name for actor in self._actors])
        if refusal := self._merge.refusal:
            self._merge = None
            raise CannotMerge(refusal)
        for rank, order in self._merge.orders(self.next).items():
            self._actors[rank].send(order)

    @property
    def missing(self) -> Sequence[int]:
        """The ranks that have not put their part together yet."""
        return () if self._merge is None else self._merge.missing

    def add_validation(self, status: object, found: object) -> None:
        """The rank that merges has validated the checkpoint. Raises ValueError."""
        if self._merge is None:
            raise ValueError("nobody asked for it")
        self._merge.validated(*worker_messages.validated(status, found))

    def add_merged(self, rank: int, message: Message, iteration: int) -> MergedRanks | None:
        """A rank has put the parts on its node together. Returns the checkpoint after the last
        one.

        Raises CannotMerge, and ValueError if it is not a checkpoint of this report.
        """
        _, plain, clashes, *files = message
        merge, count = self._merge, len(self._actors)
        if merge is None:
            raise ValueError("nobody asked for it")
        record = worker_messages.record(
            worker_messages.checkpoint(plain),
            attempt=self._attempt,
            iteration=iteration,
            least_index=self.next,
            is_part=merge.is_shared,
        )
        share = MergedShare(
            record=record,
            clashes=worker_messages.clashes(clashes, count),
            files=shared_files(files[0], count) if files else {},
        )
        merge.add(rank, share)
        if merge.missing:
            return None
        if self._refuses_clashes and (clash := merge.clash()):
            raise CannotMerge(clash)
        whole = merge.whole()
        self.next = whole.record.index + 1
        self._tell_of(whole)
        return whole

    def _tell_of(self, whole: MergedRanks) -> None:
        """Tell the ranks of the new checkpoint: those on its node can read it."""
        for actor in self._actors:
            is_here = not whole.left_out and actor.assignment.node.name == whole.record.node
            actor.send(["newest" if is_here else "saved", whole.record.dirname])


# From the start of the first rank to that of the last: they are forked one after the other.
START_TIMEOUT_S = 60.0
# How long the other ranks may report their errors after the first failure.
AFTERMATH_S = 0.3


@dataclass(frozen=True, slots=True)
class _RankHost:
    """The host of one rank."""

    group: WorkerGroup
    rank: int

    @property
    def launcher(self) -> Launcher:
        return self.group.host.launcher

    def post(self, event: Event) -> None:
        self.group.on_event(self.rank, event)

    def show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None:
        self.group.host.show_line(f"{trial_name}, rank {self.rank}", pid, stream, text)

    def machines(self) -> list[Machine]:
        return self.group.host.machines()

    def refusal(self, node: str) -> str:
        return self.group.host.refusal(node)

    def on_rank_message(self, message: Message) -> None:
        self.group.on_message(self.rank, message)


class WorkerGroup:
    """Runs one attempt in several workers, one for each bundle after the coordinator's.

    `warn` shows the user a text.
    """

    def __init__(
        self,
        host: GroupHost,
        assignment: Assignment,
        *,
        timeouts: WorkerTimeouts,
        terms: GroupTerms,
        warn: Callable[[str], None],
        enforces_memory: bool = False,
    ) -> None:
        self.assignment = assignment
        self.host = host
        self._terms = terms
        self._warnings = RankWarnings(assignment.trial_id, warn)
        parts = parts_of(assignment)
        self._barrier = Barrier(len(parts), assignment.iteration)
        self._unanswered: AllReported | None = None  # their report that has no reply yet
        self._started: dict[int, Started] = {}
        self._ended: set[int] = set()
        self._gone: dict[int, Exited] = {}
        self._usages: dict[int, Usage] = {}
        self._texts = RankTexts(len(parts))
        self._failures = RankFailures()
        # Several may hold: a group may get the order to end while it starts or merges, and fail
        # while it ends.
        self._is_pruned = False  # a rank has raised Optuna's TrialPruned
        self._is_ending = False  # the ranks have the order to end
        self._is_preempting = False  # the ranks have the order to save and leave
        self._refused_by: int | None = None  # the last report of all ranks was refused
        self._deadlines = RankDeadlines(
            self._barrier,
            timeouts.barrier_timeout_s,
            lambda rank, text: self._actors[rank].hang(text),
        )
        self._actors: list[TrialActor] = []
        try:
            for rank, part in enumerate(parts):
                rank_host = _RankHost(self, rank)
                self._actors.append(
                    TrialActor(
                        rank_host,
                        part,
                        timeouts=timeouts,
                        reusable=False,
                        is_rank=True,
                        enforces_memory=enforces_memory,
                    )
                )
        except BaseException:
            for actor in self._actors:
                actor.disown()
            raise
        self._checkpoints = RankCheckpoints(
            self._actors, assignment, refuses_clashes=terms.refuses_clashes
        )

    # -- orders of the worker pool ----------------------------------------------------------------

    def reply(self, verdict: Verdict) -> None:
        if verdict is not Verdict.CONTINUE:
            self._is_ending = True
        self._barrier.answered()
        self._unanswered = None
        for actor in self._actors:
            if self._is_preempting:
                actor.send(["leave"])
            actor.reply(verdict)

    def refuse(self, text: str) -> None:
        self._barrier.answered()
        self._unanswered = None
        for actor in self._actors:
            actor.refuse(text)

    def halt(self, *, after_step: bool = False) -> None:
        self._is_ending = True
        self._deadlines.cancel()
        for actor in self._actors:
            actor.halt(after_step=after_step)

    def release(self) -> None:
        for actor in self._actors:
            actor.release()

    def preempt(self, why: str) -> None:
        self._preempt_others(None, why)

    # -- messages of the ranks -----------------------------------------------------------------

    def on_event(self, rank: int, event: Event) -> None:
        match event:
            case Started():
                self._on_start(rank, event)
            case Reported():
                self._on_report(rank, event)
            case Returned():
                self._on_return(rank, event)
            case Raised():
                self._fail(rank, event.failure)
            case Measured():
                self._on_usage(rank, event)
            case Exited():
                self._on_exit(rank, event)
            case _:
                raise ValueError(f"rank {rank} sent an unexpected event: {event!r:.100}")

    def _on_start(self, rank: int, event: Started) -> None:
        """No rank begins before all have started."""
        self._started[rank] = event
        if self._failures.ranks:
            return
        if len(self._started) == len(self._actors):
            self._deadlines.cancel()
            self.host.post(self._started[0])
            for actor in self._actors:
                actor.send(["go"])
        else:
            self._deadlines.expect_starts(self._unstarted)

    def _unstarted(self) -> list[int]:
        return [rank for rank in range(len(self._actors)) if rank not in self._started]

    def on_message(self, rank: int, message: Message) -> None:
        match message:
            case ["preempting"]:
                self._preempt_others(rank, f"rank {rank} got a SIGTERM, not from holdfast")
            case ["address", str(address)]:
                worker_messages.short_text(address, "the address")
                for actor in self._actors[1:]:
                    actor.send(["address", address])
            case ["gather", text]:
                longest = worker_messages.LONGEST_GATHERED
                self._gather(rank, worker_messages.short_text(text, "its text", longest))
            case ["reported"]:
                self._actors[rank].send(["reported", self._reported()])
            case ["validated", status, found] if rank in self._checkpoints.missing:
                self._checkpoints.add_validation(status, found)
            case ["merged", _, _] | ["merged", _, _, _] if rank in self._checkpoints.missing:
                self._on_merged(rank, message)
            case ["merge_failed", text] if rank in self._checkpoints.missing:
                self._on_merge_failed(rank, worker_messages.long_text(text, "the reason"))
            case _:
                raise ValueError("unknown")

    def _gather(self, rank: int, text: str) -> None:
        """Send the texts of all ranks to all ranks once each has sent its own. Raises ValueError
        if this rank has sent one."""
        self._texts.add(rank, text)
        if self._is_ending or self._failures.ranks:
            return
        if elsewhere := self._barrier.waiting:
            self._fail(rank, apart(elsewhere, "report()", rank, "a barrier"))
        elif self._ended:
            self._fail_apart(min(self._ended), "its end")
        elif (texts := self._texts.take()) is None:
            self._deadlines.expect_texts(self._texts.missing)
        else:
            self._deadlines.cancel()
            for actor in self._actors:
                actor.send(["gathered", texts])

    def _fail_apart(self, rank: int, where: str) -> None:
        """This rank cannot meet those that wait for its text."""
        self._fail(rank, apart(self._texts.waiting, "a barrier", rank, where))

    def _reported(self) -> list[list[Any]]:
        """The trial's checkpoints with their metrics."""
        found = self.host.reported(self.assignment.trial_id)
        return [[one.dirname, one.metrics or {}, one.validation.value] for one in found]

    def _preempt_others(self, rank: int | None, why: str) -> None:
        """Preempt all ranks: the one that got the SIGTERM may not be the one that saves."""
        if not self._is_preempting:
            self._is_preempting = True
            for other, actor in enumerate(self._actors):
                if other != rank:
                    actor.preempt(why)

    def _on_report(self, rank: int, event: Reported) -> None:
        if self._is_ending or self._failures.ranks:
            return
        if self._texts.waiting:
            self._fail_apart(rank, "report()")
        else:
            self._follow(self._barrier.reported(rank, event))

    def _on_return(self, rank: int, event: Returned) -> None:
        self._ended.add(rank)
        self._is_pruned = self._is_pruned or event.pruned
        if self._failures.ranks:
            return
        if self._is_ending:
            if len(self._ended) == len(self._actors):
                self._post_return()
        elif self._texts.waiting:
            self._fail_apart(rank, "its end")
        else:
            self._follow(self._barrier.returned(rank))

    def _follow(self, outcome: Outcome | None) -> None:
        match outcome:
            case None:
                self._deadlines.expect_reports()
            case AllReported():
                self._deadlines.cancel()
                self._on_all_reported(outcome)
            case AllReturned():
                self._deadlines.cancel()
                self._post_return()
            case OutOfStep():
                failure = Failure(kind="user", type_name=OUT_OF_STEP, message=outcome.text)
                self._fail(outcome.rank, failure)

    def _on_all_reported(self, reported: AllReported) -> None:
        self._unanswered = reported
        self._refused_by = None
        self._warnings.about_keys(reported)
        if not reported.parts:
            self._post_report(reported, None)
        elif not self._is_refused(reported):
            self._merge(reported)

    def _merge(self, reported: AllReported) -> None:
        try:
            self._checkpoints.begin(reported)
        except CannotMerge as error:
            self._on_merge_failed(0, str(error))
        else:
            self._deadlines.expect_merges(lambda: self._checkpoints.missing)

    def _is_refused(self, reported: AllReported) -> bool:
        """Refuse the report in all ranks if a node with a part of the checkpoint cannot store
        it."""
        for rank in reported.parts:
            node = self._actors[rank].assignment.node.name
            if node and (problem := self.host.refusal(node)):
                self._refuse_because_of(rank, problem)
                return True
        return False

    def _on_merged(self, rank: int, message: Message) -> None:
        """Raises ValueError if it is not a checkpoint of this report."""
        if (reported := self._unanswered) is None or self._failures.ranks:
            return
        try:
            whole = self._checkpoints.add_merged(rank, message, reported.reports[0].iteration)
        except CannotMerge as error:
            self._on_merge_failed(rank, str(error))
            return
        if whole is None:
            return
        self._deadlines.cancel()
        # Also if one node has all: an attempt whose report was not recorded had the same number.
        self.host.note_shares(self.assignment.trial_id, whole.record.index, whole.left_out)
        self._warnings.about_clashes(whole.clashes)
        self._post_report(reported, whole.record)

    def _on_merge_failed(self, rank: int, text: str) -> None:
        if self._unanswered is None or self._failures.ranks:
            return
        self._deadlines.cancel()
        text = f"rank {rank} could not put the checkpoint of all ranks together: {text}"
        self._refuse_because_of(rank, text)

    def _refuse_because_of(self, rank: int, text: str) -> None:
        """The report raises in all ranks; those that continue meet at the next one."""
        self._refused_by = rank
        self.refuse(text)

    def _post_report(self, reported: AllReported, record: CheckpointRecord | None) -> None:
        first = reported.reports[0]
        # With those of a validation, if there was one.
        metrics = first.metrics if record is None else record.metrics or {}
        if self._terms.keeps_all_metrics:
            every = {str(rank): report.metrics for rank, report in enumerate(reported.reports)}
            metrics = {**metrics, "ranks": every}
        has_room = record is not None and self.host.has_room(self.assignment.trial_id)
        self.host.post(replace(first, metrics=metrics, checkpoint=record, has_room=has_room))

    def _post_return(self) -> None:
        trial_id, attempt = self.assignment.trial_id, self.assignment.attempt
        self.host.post(Returned(trial_id=trial_id, attempt=attempt, pruned=self._is_pruned))

    def awaited(self, now: float) -> RankWait | None:
        """The ranks that the others wait for, and how long at `now` (seconds since 1970)."""
        return self._deadlines.awaited(self.assignment.trial_name, now)

    def _on_usage(self, rank: int, event: Measured) -> None:
        """The samples of all ranks come at about the same time, their totals when they exit."""
        self._usages[rank] = event.usage
        if rank == 0 and not self._gone:
            self._post_usage()

    def _post_usage(self) -> None:
        if self._usages:
            usage = usage_of_ranks([*self._usages.values()])
            self.host.post(Measured(trial_id=self.assignment.trial_id, usage=usage))

    # -- the end ------------------------------------------------------------------------------

    def _on_exit(self, rank: int, event: Exited) -> None:
        self._gone[rank] = event
        is_explained = rank in self._ended or rank in self._failures.ranks
        if not is_explained and not self._is_ending:
            pid = self._started[rank].pid if rank in self._started else None
            self._fail(rank, lost_worker(event.kind, event.cause, pid=pid))
        if len(self._gone) < len(self._actors):
            return
        self._deadlines.cancel()
        self._break_up()
        self._post_usage()
        # Any rank's: trial and attempt are the same, and why one was lost is posted as a failure.
        self.host.post(self._gone[0])

    def _fail(self, rank: int, failure: Failure) -> None:
        """Record the failure. After the first one, the others have a moment to report theirs."""
        is_first = not self._failures.ranks
        node = self._actors[rank].assignment.node.name
        self._failures.add(rank, replace(failure, node=node))
        if is_first:
            self._deadlines.after_failure(self._break_up)

    def _break_up(self) -> None:
        """Post the failure, if there is one, and kill the ranks that still run."""
        hosts = {rank: started.hostname for rank, started in self._started.items()}
        failure = self._failures.take(hosts, refused_by=self._refused_by)
        if failure is not None:
            trial_id, attempt = self.assignment.trial_id, self.assignment.attempt
            self.host.post(Raised(trial_id=trial_id, attempt=attempt, failure=failure))
        for rank, actor in enumerate(self._actors):
            if rank not in self._gone:
                actor.kill("its trial has ended")


class RankWarnings:
    """The warnings about one attempt of a trial."""

    def __init__(self, trial_id: str, warn: Callable[[str], None]) -> None:
        self._trial_id = trial_id
        self._warn = warn
        self._has_told_keys = self._has_told_clashes = False

    def about_keys(self, reported: AllReported) -> None:
        """Warn that ranks report different metrics."""
        if reported.other_keys and not self._has_told_keys:
            self._has_told_keys = True
            rank, keys = next(iter(reported.other_keys.items()))
            self._warn(
                f"trial {self._trial_id}: rank {rank} does not report the same metrics "
                f"as rank 0 ({', '.join(keys)}): those of rank 0 are kept"
            )

    def about_clashes(self, clashes: Mapping[str, Sequence[int]]) -> None:
        """Warn that several ranks put a file of the same name into a checkpoint."""
        if clashes and not self._has_told_clashes:
            self._has_told_clashes = True
            name, ranks = next(iter(clashes.items()))
            more = f" and {len(clashes) - 1} other files" if len(clashes) > 1 else ""
            self._warn(
                f"trial {self._trial_id}: {name}{more} in one checkpoint from ranks "
                f"{', '.join(map(str, ranks))}: that of rank {ranks[-1]} is kept. Give each "
                f"rank's files different names"
            )


class RankDeadlines:
    """The one deadline that a group has at a time. `hang` ends a rank; its second argument says
    what the rank has not done."""

    def __init__(
        self, barrier: Barrier, barrier_timeout_s: float, hang: Callable[[int, str], None]
    ) -> None:
        self._barrier = barrier
        self._timeout_s = barrier_timeout_s
        self._hang = hang
        self._timer: Timer | None = None
        # When the ranks began to wait for others in a report, None if they do not.
        self._since: float | None = None

    def cancel(self) -> None:
        """The ranks wait for no other any more."""
        self._since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def awaited(self, name: str, now: float) -> RankWait | None:
        """The ranks that the others wait for in a report, and how long at `now` (seconds since
        1970)."""
        since, ranks = self._since, self._barrier.missing
        if since is None or not ranks:
            return None
        return RankWait(name=name, ranks=ranks, waited_s=max(0.0, now - since))

    def expect_starts(self, missing: Callable[[], Sequence[int]]) -> None:
        """All ranks must start soon after the first; `missing` returns those that have not."""
        late = f"had not started {START_TIMEOUT_S:g} s after other ranks"
        self._expect(missing, late, START_TIMEOUT_S)

    def expect_reports(self) -> None:
        """All ranks must report soon after the first."""
        if self._timer is None and self._barrier.missing:
            self._since = wall_time()
            late = (
                f"has not reported for {self._timeout_s:g} s while other ranks waited with their "
                f"report {self._barrier.iteration + 1}"
            )
            self._expect(lambda: self._barrier.missing, late)

    def expect_texts(self, missing: Callable[[], Sequence[int]]) -> None:
        """All ranks must come to a barrier, or the like, soon after the first."""
        late = (
            f"has not come to the barrier, or the like, for {self._timeout_s:g} s while other "
            f"ranks waited there"
        )
        self._expect(missing, late)

    def expect_merges(self, missing: Callable[[], Sequence[int]]) -> None:
        """The ranks that merge a checkpoint must have done so soon: all others wait for them."""
        late = (
            f"has not put the checkpoint of all ranks together for {self._timeout_s:g} s, while "
            f"they waited with their report {self._barrier.iteration + 1}"
        )
        self._expect(missing, late)

    def after_failure(self, then: Callable[[], None]) -> None:
        """Call `then` when the other ranks had time to report their errors."""
        self.cancel()
        self._arm(AFTERMATH_S, then)

    def _expect(
        self, missing: Callable[[], Sequence[int]], late: str, seconds: float | None = None
    ) -> None:
        def give_up() -> None:
            for rank in missing():
                self._hang(rank, late)

        if self._timer is None:
            self._arm(self._timeout_s if seconds is None else seconds, give_up)

    def _arm(self, seconds: float, then: Callable[[], None]) -> None:
        def fire() -> None:
            self._timer = None
            then()

        self._timer = Timer(asyncio.get_running_loop(), seconds, fire)
