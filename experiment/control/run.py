"""One incarnation of an experiment, from its first process to its last.

Its loop has its own thread, which lives as long as the run. Only this thread starts processes,
because the kernel kills them when the thread that started them ends.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from holdfast.experiment.callbacks.thread import Level, Tell
from holdfast.experiment.control.controller import Controller, ControllerParts
from holdfast.experiment.control.machine_use import MachineUse, machine_use
from holdfast.experiment.control.page_server import RunPage, open_page
from holdfast.experiment.control.person_orders import PersonOrders
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run_cluster import RunCluster
from holdfast.experiment.control.services import (
    Ending,
    Working,
    open_callbacks,
    open_journal_writer,
    open_uploads,
    tracker_processes_of,
)
from holdfast.experiment.control.user_threads import history
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts, StorageAge, Summary
from holdfast.experiment.progress.terminal_view import LogBuffer
from holdfast.experiment.progress.wording import Retries, Retry, retry_text
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.recovery import lost_checkpoints, lost_notice
from holdfast.experiment.steering.socket import keep_socket
from holdfast.experiment.uploads.unrecorded_checkpoints import found_again, found_notice
from holdfast.experiment.user_objects.pickling import dumps
from holdfast.experiment.worker.objects import ObjectRef, check_exist, collecting_references
from holdfast.experiment.worker.script import Script
from holdfast.forked import end_child
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.process_exits import StoppedWatch
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.effects import Finish
from holdfast.scheduler.events import Begun, Event, StopperAnswered
from holdfast.scheduler.placing import search_text
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import wait_at_most
from holdfast.syncer.journal.journal import Journal, Position
from holdfast.trial.errors import TuneError

ENTRY = "holdfast.experiment.worker.host:HOST"
_MOST_LINES = 10_000


class Run:
    """Starts and ends everything in the run's own thread. The thread of `fit()` only watches."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.machine = plan.machine
        self.done = threading.Event()
        self.is_aborted = False
        self.is_given_up = False
        self._giving_up = threading.Lock()
        self.lines = LogBuffer(_MOST_LINES)
        self.messages: deque[tuple[str, Level]] = deque()
        # Rung for the thread of `fit()`, also by signal handlers in it: `put` is reentrant.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rings_at_events = False
        self._retries = Retries()
        self._phase = (
            "starting a process that imports your code"
            if plan.engine is None
            else "waiting for the first node to import your code"
        )
        self._cluster: RunCluster | None = None
        self._use: MachineUse | None = None
        # The objects of `put` that trials get.
        self._references: tuple[ObjectRef, ...] = ()
        self.outcome: Finish | None = None
        self.fault: BaseException | None = None
        self.unsaved: list[str] = []
        self.unwritten = ""
        # The person that has stopped the experiment from outside: `fit()` ends as after a Ctrl-C.
        self.stopped_by = ""
        self._summarizer = Summarizer(plan.machine)
        self._controller: Controller | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of the thread of `fit()`, which may come before the loop.
        self._orders: deque[Callable[[], object]] = deque()
        # The scope of the work, later that of the end: `abort` cancels the current one.
        self._scope: asyncio.Timeout | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-controller", daemon=True)
        self._pid = os.getpid()

    # -- from the thread of fit() ---------------------------------------------------------------

    def start(self) -> None:
        self.plan.lock.check_ownership()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True if it has started, and has not ended."""
        return self._thread.is_alive() and not self.done.is_set()

    @property
    def has_begun(self) -> bool:
        """True if the experiment has its first record."""
        return not self.plan.fresh or bool(self.machine.spec.experiment_id)

    def wait(self, timeout_s: float | None) -> bool:
        """True if everything has ended. Returns after `timeout_s` at the latest."""
        has_ended = self.done.wait(timeout_s)
        self._end_child()
        return has_ended

    def wait_for_news(self, seen: float, rest_s: float, quiet_s: float) -> bool:
        """True if the bell rings, upon which this returns. After `rest_s` seconds it also returns
        if the machine has had an event since the one at `seen`, and `quiet_s` later in any
        case."""
        if self._is_rung(rest_s):
            return True
        self._rings_at_events = True
        is_rung = self.machine.now == seen and self._is_rung(quiet_s)
        self._rings_at_events = False
        return is_rung

    def ring(self) -> None:
        """Let the thread of `fit()` look at once. May be called in any thread and in a signal
        handler."""
        if self._bell.empty():
            self._bell.put(None)

    def _is_rung(self, timeout_s: float) -> bool:
        with suppress(queue.Empty):
            self._bell.get(timeout=timeout_s)
            self._end_child()
            return True
        self._end_child()
        return False

    def _end_child(self) -> None:
        if os.getpid() != self._pid:  # a signal handler of the script may have forked
            end_child()

    def join(self) -> None:
        self._thread.join()

    def interrupt(self, *, preempted: bool = False) -> None:
        """Stop all trials, to be resumed later. If `preempted`, they may save first.

        Returns at once.
        """
        self._soon(lambda: self._interrupt(preempted=preempted))

    def _interrupt(self, *, preempted: bool = False, why: str = "interrupted") -> None:
        if self._controller is None:
            self._cut_short()
        else:
            self._controller.interrupt(preempted=preempted, why=why)
            # The end may have begun already, with longer deadlines.
            self._controller.journal_writer.hurry(self.plan.settings.flush_deadline_s)

    def abort(self) -> None:
        """Kill everything now. The journal keeps its records."""
        self.is_aborted = True
        self._soon(self._cut_short)

    def give_up(self) -> bool:
        """Do not wait for a run that hangs. Returns False if it has ended meanwhile.

        It may write later, so the experiment stays locked until this process ends.
        """
        with self._giving_up:
            if not (self.done.is_set() or self.is_given_up):
                self.is_given_up = True
                self.plan.lock.hold()
        return self.is_given_up

    def summary(self, facts: RunFacts) -> Summary:
        now = wall_time()
        if self._controller is None:
            # Until a restore has begun, the machine has the state of the previous incarnation.
            summary = self._summarizer.summarize(facts=facts, now=self.machine.now)
            if summary.done and self.plan.runs_trials:
                total = facts.total if self.plan.first.spec else summary.total
                summary = replace(summary, total=total, share=None, done=False)
            # Until there is a node, nothing else can be done.
            waiting = self._waiting
            phase = "" if waiting else self._phase
            elapsed_s = facts.elapsed_s(now, summary.elapsed_s)
            return replace(
                summary,
                ending="",
                phase=phase,
                waiting=waiting,
                nodes=None,
                elapsed_s=elapsed_s,
            )
        summary = self._summarizer.summarize(facts=facts, now=now, storage=self._storage_age())
        return replace(
            summary,
            retried=self._retries.total,
            waits=tuple(self._controller.pool.awaited(now)),
            waiting=self._waiting
            or self._controller.held_news.waiting(self.machine)
            or search_text(self.machine, now),
            phase=self._phase,
        )

    @property
    def _waiting(self) -> str:
        """What the cluster waits for; "" for nothing."""
        return "" if self._cluster is None else self._cluster.nodes.waiting

    def _storage_age(self) -> StorageAge | None:
        uploads = self._controller.uploads if self._controller else None
        return None if uploads is None else uploads.age(wall_time())

    def _soon(self, act: Callable[[], object]) -> None:
        self._orders.append(act)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._obey)

    def _obey(self) -> None:
        while self._orders:
            self._orders.popleft()()

    def _cut_short(self) -> None:
        if self._scope is not None and not self._is_cut_short:
            self._scope.reschedule(asyncio.get_running_loop().time())

    @property
    def _is_cut_short(self) -> bool:
        return self._scope is not None and self._scope.expired()

    def tell(self, text: str, level: Level = "warning") -> None:
        self.messages.append((text, level))
        self.ring()

    def _on_retry(self, retry: Retry) -> None:
        number, is_shown = self._retries.count(retry)
        if is_shown:
            here, stored = str(self.plan.layout.root), self.plan.location.public
            self.tell(retry_text(retry, number, here, stored))

    # -- in the thread of the loop --------------------------------------------------------------

    @property
    def controlled(self) -> Controller | None:
        """The controller once trials may start."""
        return self._controller

    def end_for(self, by: str) -> None:
        """Stop all trials, to be resumed later, for a person."""
        self.stopped_by = by
        self.ring()
        self._interrupt(why=f"stopped by {by}")

    def _run(self) -> None:
        wait_at_most(self.plan.settings.disk_deadline_s, self.tell)
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self._run_async())
        except BaseException as error:  # raised again by fit(), in the user's thread
            self.fault = error
        finally:
            with self._giving_up:
                self.done.set()
                self.ring()
                is_given_up = self.is_given_up
            if is_given_up:
                self.plan.lock.release()

    async def _run_async(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._obey)  # once the work has begun: only then it can be cut short
        plan = self.plan
        # Call the user's code first: if it raises, nothing has to be ended yet.
        with collecting_references() as references:
            job = dumps(plan.job, "the trainable") if plan.job.capture else b""
        job = pickle.dumps(Script.here(plan.environment.working_dir)) + job
        if plan.runs_trials:
            self._references = tuple(dict.fromkeys(plan.references_used(references)))
            check_exist(self._references, plan.job.param_space)
        async with RunTasks() as tasks:
            working = self._start_parts(tasks)
            page = self._open_page(tasks)
            watch = StoppedWatch(plan.settings.stopped_deadline_s, working.processes, self.tell)
            tasks.start(watch.run())
            keep_socket(plan.layout.root, PersonOrders(self).perform, tasks, self.tell)
            try:
                async with asyncio.timeout(None) as self._scope:
                    await self._work(working, job)
            except TimeoutError:
                if not self._is_cut_short:
                    raise
                self.fault = KeyboardInterrupt()
            finally:
                ending = Ending(plan, working, self.tell, self._show_phase)
                self.unsaved = await self._end(ending)
                self.unwritten = ending.unwritten
                if page is not None:
                    await page.close(at_once=self.is_aborted)
                if self._cluster is not None:
                    self._cluster.close()
                if self._use is not None:
                    await threads.call(self._use.close)
        # A fault may also occur at the end, for example if another incarnation owns the
        # experiment.
        if tasks.fault is not None and self.fault is None:
            raise tasks.fault

    def _open_page(self, tasks: RunTasks) -> RunPage | None:
        plan = self.plan
        if not plan.has_page:
            return None
        says_little = plan.run_config is not None and plan.run_config.verbose == 0
        return open_page(
            plan.layout, plan.environ, tell=self.tell, says_little=says_little, tasks=tasks
        )

    def _start_parts(self, tasks: RunTasks) -> Working:
        plan = self.plan
        callbacks = open_callbacks(plan, self.tell)
        try:
            journal_writer = open_journal_writer(plan, self._open_journal(), self.tell, tasks)
        except BaseException:
            callbacks.close(plan.settings.callback_deadline_s)
            raise
        use = self._use = machine_use(plan, tasks, self.tell)
        launcher = plan.launcher or self._launcher(tasks, use.workers)
        parts = ControllerParts(
            tasks=tasks,
            launcher=launcher,
            capacity=use.capacity,
            journal_writer=journal_writer,
            callbacks=callbacks,
            open_uploads=partial(open_uploads, plan, tell=self.tell, tasks=tasks),
            tell=self.tell,
            show_line=self._show_line,
            on_retry=self._on_retry,
            on_change=self._on_change,
        )
        nodes = {} if self._cluster is None else self._cluster.nodes.facts
        controller = Controller(plan, parts, nodes)
        trackers = tracker_processes_of(plan, controller, self.tell, tasks)
        return Working(parts=parts, controller=controller, tracker_processes=trackers)

    def _launcher(self, tasks: RunTasks, held: Sequence[str]) -> Launcher:
        plan = self.plan
        if plan.engine is not None:
            self._cluster = RunCluster(plan, plan.engine, self.tell, tasks)
            return self._cluster.fleet
        return LocalLauncher(
            tasks=tasks,
            environ=plan.environ,
            held=[plan.lock.workers, *held],
            left=[str(plan.layout.control)],
            directory=plan.environment.working_dir,
            learns=plan.settings.preload,
            workers_move=plan.job.chdir,
        )

    async def _work(self, working: Working, job: bytes) -> None:
        """Start the processes and run the trials. Returns when none is left to run."""
        plan, tasks, controller = self.plan, working.parts.tasks, working.controller
        if (cluster := self._cluster) is not None:
            # The nodes start meanwhile.
            loading = tasks.start(cluster.fleet.open(ENTRY, job, waits=True))
        elif plan.runs_trials:
            loading = tasks.start(working.parts.launcher.open(ENTRY, job))
        else:  # a finished run needs no process that imports the user's code
            loading = None
        working.tracker_processes.open()
        if cluster is not None or plan.remote is not None:
            await self._open_uploads(controller, tasks)
        if loading is not None and (notice := await tasks.until(loading)):
            self.tell(notice, "info")
        self._controller, self._phase = controller, ""
        controller.begin(first_events(plan, self.tell), await overdue_answers(plan, controller))
        if cluster is not None:
            cluster.begin(controller)
        if plan.remote is not None and controller.uploads is not None:
            controller.uploads.publish()
        await asyncio.wait([tasks.ended])
        self.outcome = controller.outcome

    async def _open_uploads(self, controller: Controller, tasks: RunTasks) -> None:
        """Own the storage. The uploaders of a cluster's nodes get the claim before they start."""
        plan, phase, cluster = self.plan, self._phase, self._cluster
        self._phase = f"opening {plan.location.public}"
        transport = None if cluster is None else cluster.fleet
        uploads = open_uploads(plan, controller, self.tell, tasks, transport)
        controller.uploads = uploads
        await tasks.until(uploads.opened)
        if cluster is not None:
            self._phase = "packing what the nodes need"
            claim = uploads.opened.result()
            await cluster.complete(claim, self._references, self._look)
        self._phase = phase

    def _look(self) -> None:
        """End the thread that packs files if the run is interrupted meanwhile."""
        if self._is_cut_short:
            raise TuneError("the run was interrupted")

    async def _end(self, ending: Ending) -> list[str]:
        """End everything in order, or by SIGKILL if that is interrupted or fails. Returns the
        files that are not in storage."""
        unsaved = None
        try:
            if not self.is_aborted:
                async with asyncio.timeout(None) as self._scope:
                    unsaved = await ending.finish()
        except TimeoutError:
            if not self._is_cut_short:
                raise
        finally:
            self._scope = None
            if unsaved is None:
                unsaved = await ending.kill()
        return unsaved

    def _open_journal(self) -> Journal:
        plan = self.plan
        # In storage each segment has one author. So what another machine uploads late, to its last
        # segment, does not mix with the records of this run.
        fresh = plan.fresh or plan.remote is not None
        journal = Journal(
            plan.layout.journal, fresh=fresh, begins=plan.begins, read_until=plan.read_until
        )
        for cut in journal.cuts:
            self.tell(str(cut), "loss")
        return journal

    def _show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None:
        self.lines.put(f"{trial_name} pid={pid}", text)
        self.ring()

    def _show_phase(self, phase: str) -> None:
        self._phase = phase
        self.ring()

    def _on_change(self, *, is_of_status: bool) -> None:
        if is_of_status or self._rings_at_events:
            self.ring()


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def first_events(plan: RunPlan, tell: Tell) -> list[Event]:
    """The events to post before all others. `tell` is called with a message about each
    checkpoint."""
    if isinstance(plan.first, Begun):
        return [plan.first]
    lost = list(
        lost_checkpoints(
            plan.machine,
            plan.layout,
            is_remote=plan.remote is not None,
            also_final=plan.first.errored == "resume" or plan.first.finished == "resume",
        )
    )
    for event in lost:
        tell(lost_notice(event.trial_id, event.index, event.reason), "loss")
    found = list(found_again(plan.machine, plan.layout, lost, begins=plan.begins))
    for one in found:
        tell(found_notice(one), "warning")
    return [*lost, *found, plan.first]


async def overdue_answers(plan: RunPlan, controller: Controller) -> list[StopperAnswered]:
    """Show the stopper the earlier reports. Returns its answers that the journal lacks."""
    first, machine = plan.first, plan.machine
    is_new = isinstance(first, Begun) or plan.spec.stop_number != machine.spec.stop_number
    if plan.stopper is None or is_new or not plan.runs_trials:
        return []
    changes = history(
        plan.layout.journal, Position(plan.begins), controller.journal_writer.position
    )
    answers = await controller.user_code.stopping.replay(changes, plan.spec.stop_number)
    return [one for one in answers if machine.is_current(one.trial_id, one.attempt)]
