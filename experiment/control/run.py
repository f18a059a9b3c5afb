"""One incarnation of an experiment on its event loop, from its first process to its last.

The loop has its own thread, which lives as long as the run. Only this thread starts processes,
because the kernel kills them when the thread that started them ends.
"""

from __future__ import annotations

import asyncio
import pickle
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.control.controller import Controller, ControllerParts
from holdfast.experiment.control.machine_use import machine_use
from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.person_orders import PersonOrders
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.services import (
    RunServices,
    open_callbacks,
    open_journal_writer,
    tracker_processes_of,
)
from holdfast.experiment.control.user_threads import history
from holdfast.experiment.machine.fair_share import CapacityShare
from holdfast.experiment.records.recovery import lost_checkpoints, lost_notice
from holdfast.experiment.steering.socket import keep_socket
from holdfast.experiment.uploads.unrecorded_checkpoints import found_again, found_notice
from holdfast.experiment.user_objects.pickling import dumps
from holdfast.experiment.worker.objects import ObjectRef, check_exist, collecting_references
from holdfast.experiment.worker.script import Script
from holdfast.runtime.launcher import Launcher
from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.process_exits import StoppedWatch
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.effects import Finish
from holdfast.scheduler.events import Begun, Event, StopperAnswered
from holdfast.syncer.journal.journal import Journal, Position
from holdfast.trial.errors import TuneError

if TYPE_CHECKING:
    from holdfast.experiment.control.inline_launcher import InlineLauncher
    from holdfast.experiment.control.page_server import RunPage
    from holdfast.experiment.control.run_cluster import RunCluster
    from holdfast.experiment.uploads.uploads import Uploads

ENTRY = "holdfast.experiment.worker.host:HOST"


@dataclass(slots=True, kw_only=True)
class RunResult:
    """The end of a run: a `fault`, or the `outcome` of the machine. `unsaved` are the files that
    are not in storage, `unwritten` names what the projector could not write."""

    fault: BaseException | None = None
    outcome: Finish | None = None
    unsaved: tuple[str, ...] = ()
    unwritten: str = ""


class RunLoop:
    """Starts and ends everything of a run.

    It belongs to the loop's thread, with all its attributes. The thread of `fit()` has the
    `RunHandle`: it lets the loop call `interrupt` and `abort`, reads `controller`, `waiting` and
    `stopped_by` while the run works, and `result` once that has ended.
    """

    def __init__(
        self, plan: RunPlan, output: RunOutput, inline: InlineLauncher | None = None
    ) -> None:
        self.tell = output.tell
        self.result = RunResult()
        # The controller once trials may start.
        self.controller: Controller | None = None
        # The person that has stopped the experiment from outside: `fit()` ends as after a Ctrl-C.
        self.stopped_by = ""
        self._plan, self._output, self._inline = plan, output, inline
        self._cluster: RunCluster | None = None
        # The objects of `put` that trials get.
        self._references: tuple[ObjectRef, ...] = ()
        # The scope of the work, later that of the end: `abort` cancels the current one.
        self._scope: asyncio.Timeout | None = None
        self._is_aborted = False

    # -- orders ---------------------------------------------------------------------------------

    def interrupt(self, *, preempted: bool = False, why: str = "interrupted") -> None:
        """Stop all trials, to be resumed later. If `preempted`, they may save first."""
        if self.controller is None:
            self._cut_short()
        else:
            self.controller.interrupt(preempted=preempted, why=why)
            # The end may have begun already, with longer deadlines.
            self.controller.journal_writer.hurry(self._plan.settings.flush_deadline_s)

    def end_for(self, by: str) -> None:
        """Stop all trials, to be resumed later, for a person."""
        self.stopped_by = by
        self._output.ring()
        self.interrupt(why=f"stopped by {by}")

    def abort(self) -> None:
        """Kill everything now. The journal keeps its records."""
        self._is_aborted = True
        self._cut_short()

    def _cut_short(self) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())

    @property
    def _is_cut_short(self) -> bool:
        return self._scope is not None and self._scope.expired()

    @property
    def waiting(self) -> str:
        """The reason why the cluster waits; "" if it does not."""
        return "" if self._cluster is None else self._cluster.waiting

    # -- the run ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises the run's fault, unless it is in `result`."""
        plan, result = self._plan, self.result
        # Call the user's code first: if it raises, nothing has to be ended yet.
        with collecting_references() as references:
            job = dumps(plan.job, "the trainable") if plan.job.capture else b""
        job = pickle.dumps(Script.here(plan.environment.working_dir)) + job
        if plan.runs_trials:
            self._references = tuple(dict.fromkeys(plan.references_used(references)))
            check_exist(self._references, plan.job.param_space)
        async with RunTasks() as tasks, AsyncExitStack() as closing:
            services = self._start_services(tasks, closing)
            page = self._open_page(tasks)
            stopped_s = plan.settings.stopped_deadline_s
            tasks.start(StoppedWatch(stopped_s, services.processes, self.tell).run())
            keep_socket(plan.layout.root, PersonOrders(self).perform, tasks, self.tell)
            try:
                async with asyncio.timeout(None) as self._scope:
                    await self._work(services, job)
            except TimeoutError:
                if not self._is_cut_short:
                    raise
                result.fault = KeyboardInterrupt()
            finally:
                result.unsaved = tuple(await self._end(services))
                result.unwritten = services.unwritten
                if page is not None:
                    await page.close(at_once=self._is_aborted)
        # A fault may also occur at the end, for example if another incarnation owns the
        # experiment.
        if tasks.fault is not None and result.fault is None:
            raise tasks.fault

    def _open_page(self, tasks: RunTasks) -> RunPage | None:
        plan = self._plan
        if not plan.has_page:
            return None
        from holdfast.experiment.control.page_server import open_page

        says_little = plan.run_config is not None and plan.run_config.verbose == 0
        return open_page(
            plan.layout, plan.environ, tell=self.tell, says_little=says_little, tasks=tasks
        )

    def _start_services(self, tasks: RunTasks, closing: AsyncExitStack) -> RunServices:
        plan = self._plan
        callbacks = open_callbacks(plan, self.tell)
        try:
            journal_writer = open_journal_writer(plan, self._open_journal(), self.tell, tasks)
        except BaseException:
            callbacks.close(plan.settings.callback_deadline_s)
            raise
        launcher, capacity = self._open_machines(tasks, closing)
        parts = ControllerParts(
            tasks=tasks,
            launcher=launcher,
            capacity=capacity,
            journal_writer=journal_writer,
            callbacks=callbacks,
            open_uploads=partial(self._start_uploads, tasks),
            output=self._output,
        )
        if self._cluster is None:
            controller = Controller(plan, parts)
        else:
            controller = Controller(plan, parts, self._cluster.facts)
            self._cluster.controller = controller
        trackers = tracker_processes_of(plan, controller, self.tell, tasks)
        return RunServices(plan, parts, controller, trackers)

    def _open_machines(
        self, tasks: RunTasks, closing: AsyncExitStack
    ) -> tuple[Launcher, CapacityShare]:
        """The launcher of trials, and the resources that they take from."""
        plan = self._plan
        if plan.engine is not None:
            # Only here: a run on one machine starts without it.
            from holdfast.experiment.control.run_cluster import RunCluster

            cluster = self._cluster = RunCluster(plan, plan.engine, self.tell, tasks)
            closing.callback(cluster.close)
            return cluster.fleet, cluster.machines
        capacity, held = machine_use(plan, tasks, self.tell, closing)
        launcher = self._inline or LocalLauncher(
            tasks=tasks,
            environ=plan.environ,
            held=[plan.lock.workers, *held],
            left=[str(plan.layout.control)],
            directory=plan.environment.working_dir,
            learns=plan.settings.preload,
            workers_move=plan.job.chdir,
        )
        return launcher, capacity

    async def _work(self, services: RunServices, job: bytes) -> None:
        """Start the processes and run the trials. Returns when none is left to run."""
        plan, controller, cluster = self._plan, services.controller, self._cluster
        tasks = services.tasks
        if cluster is not None:
            # The nodes start meanwhile.
            loading = tasks.start(cluster.fleet.open(ENTRY, job, waits=True))
        elif plan.runs_trials:
            loading = tasks.start(controller.launcher.open(ENTRY, job))
        else:  # a finished run needs no process that imports the user's code
            loading = None
        services.trackers.open()
        if cluster is not None or plan.remote is not None:
            await self._open_uploads(controller, tasks)
        if loading is not None and (notice := await tasks.until(loading)):
            self.tell(notice, "info")
        events, overdue = first_events(plan, self.tell), await overdue_answers(plan, controller)
        self.controller, self._output.phase = controller, ""
        controller.begin(events, overdue)
        if cluster is not None:
            cluster.begin()
        if plan.remote is not None and controller.uploads is not None:
            controller.uploads.publish()
        await asyncio.wait([tasks.ended])
        self.result.outcome = controller.outcome

    async def _open_uploads(self, controller: Controller, tasks: RunTasks) -> None:
        """Own the storage. The uploaders of a cluster's nodes get the claim before they start."""
        output, cluster = self._output, self._cluster
        phase, output.phase = output.phase, f"opening {self._plan.location.public}"
        uploads = controller.uploads = self._start_uploads(tasks, controller)
        claim = await tasks.until(uploads.opened)
        if cluster is not None:
            output.phase = "packing what the nodes need"
            await cluster.complete(claim, self._references, self._raise_if_cut_short)
        output.phase = phase

    def _start_uploads(self, tasks: RunTasks, controller: Controller) -> Uploads:
        # Here, because most runs begin without: all that uploads is imported with it.
        from holdfast.experiment.control.uploader import open_uploads

        transport = None if self._cluster is None else self._cluster.fleet
        return open_uploads(self._plan, controller, self.tell, tasks, transport)

    def _raise_if_cut_short(self) -> None:
        """End the thread that packs files, which calls this."""
        if self._is_cut_short:
            raise TuneError("the run was interrupted")

    async def _end(self, services: RunServices) -> list[str]:
        """End everything in order, or by SIGKILL if that is interrupted or fails. Returns the
        files that are not in storage."""
        unsaved = None
        try:
            if not self._is_aborted:
                async with asyncio.timeout(None) as self._scope:
                    unsaved = await services.finish()
        except TimeoutError:
            if not self._is_cut_short:
                raise
        finally:
            self._scope = None
            if unsaved is None:
                unsaved = await services.kill()
        return unsaved

    def _open_journal(self) -> Journal:
        plan = self._plan
        # In storage each segment has one author. So what another machine uploads late, to its last
        # segment, does not mix with the records of this run.
        fresh = plan.fresh or plan.remote is not None
        journal = Journal(
            plan.layout.journal, fresh=fresh, begins=plan.begins, read_until=plan.read_until
        )
        for cut in journal.cuts:
            self.tell(str(cut), "loss")
        return journal


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
