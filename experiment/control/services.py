"""Starts and ends the processes and threads around the control loop: journal writer with
projector, uploader, tracker processes, callbacks. At the end of a run each step has a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.experiment.callbacks.thread import CallbackThread, Tell, read_states, write_states
from holdfast.experiment.callbacks.trial_view import Views
from holdfast.experiment.control.controller import Controller, ControllerParts
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.folder import layout as names
from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.trackers.supervisor import TrackerProcesses
from holdfast.experiment.user_objects.pickling import NotPicklable
from holdfast.names import listed
from holdfast.runtime.process_control import Title
from holdfast.runtime.process_exits import Watched, still_there, survives
from holdfast.runtime.service import RestartingService, Service
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.events import Begun
from holdfast.syncer.files import threads
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.stores.location import Location
from holdfast.text.values import counted
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Trial

if TYPE_CHECKING:
    from holdfast.experiment.uploads.uploads import Uploads

_FLUSH_AFTER_FAULT_S = 5.0
# How long processes may take to exit after SIGKILL to all, and the disk to answer.
_KILLED_WITHIN_S = 1.0
_DISK_S = 0.4
# The time that the search has for its last results after an interrupt: a restore shows them again.
_SEARCH_S = 1.0


class RunServices:
    """The parts of a run that must be ended: call `finish`, or `kill`, which may also interrupt
    `finish`. Its uploads are the controller's."""

    def __init__(
        self,
        plan: RunPlan,
        parts: ControllerParts,
        controller: Controller,
        trackers: TrackerProcesses,
    ) -> None:
        self.tasks, self.controller, self.trackers = parts.tasks, controller, trackers
        # What the projector could not write.
        self.unwritten = ""
        self._plan, self._parts = plan, parts
        self._tell, self._show_phase = parts.output.tell, parts.output.show_phase
        self._steps = self.tasks.scope()
        self._flush_s = plan.settings.flush_deadline_s
        self._tracker_s = plan.settings.tracker_deadline_s

    def processes(self) -> list[Watched]:
        """The known processes that are alive."""
        uploads = self.controller.uploads
        return [
            *self._parts.launcher.processes(),
            *self._parts.journal_writer.processes(),
            *self.trackers.processes(),
            *([] if uploads is None else uploads.processes()),
        ]

    async def finish(self) -> list[str]:
        """End every process, then flush. Returns the files that are not in storage."""
        parts, controller, settings = self._parts, self.controller, self._plan.settings
        journal_writer, ending = parts.journal_writer, controller.machine.ending
        # After Ctrl-C, `fit()` has already printed how long the end may take.
        is_interrupted = ending is not None and ending.reason in ("interrupt", "preempted")
        self._is_patient = controller.fault is None and not is_interrupted
        if controller.fault is not None:
            # Do not wait for storage: everything is on this disk, and a restore uploads it.
            self._flush_s = min(self._flush_s, _FLUSH_AFTER_FAULT_S)
            self._tracker_s = min(self._tracker_s, _FLUSH_AFTER_FAULT_S)
        if not self._is_patient:
            journal_writer.hurry(self._flush_s)
        self._show_phase("ending the worker processes")
        controller.close()
        await self._flush_nodes()
        if left := await parts.launcher.close():
            self._tell(left, "warning")
        controller.pool.close()
        self._show_phase("writing the remaining files")
        deadline_s = settings.callback_deadline_s
        # First, since what the search says of its last trials is recorded.
        search_s = deadline_s if self._is_patient else min(deadline_s, _SEARCH_S)
        if warning := await controller.user_code.finish(search_s):
            self._tell(warning, "warning")
        called = self._steps.start(threads.call(lambda: parts.callbacks.close(deadline_s)))
        trials = controller.machine.trials.values()
        position = journal_writer.position
        tracked = self._steps.start(
            self.trackers.close(position, self._tracker_s, trials, is_patient=self._is_patient)
        )
        unsaved = await self._flush(tracked)
        self._show_tracking(tracked)
        await asyncio.wait([called, tracked])
        return unsaved

    async def kill(self) -> list[str]:
        """Send SIGKILL to every process. Returns the files that are not in storage.

        The journal keeps its records, and a restore uploads the rest.
        """
        parts, controller = self._parts, self.controller
        uploads = controller.uploads
        unsaved = [] if uploads is None else uploads.waiting()
        self._show_phase("killing all processes")
        self._steps.cancel()
        controller.close()
        parts.launcher.kill()
        parts.journal_writer.hurry(_DISK_S)
        last = parts.tasks.scope()
        steps = [
            parts.journal_writer.close(),
            parts.journal_writer.abandon_projector(),
            self.trackers.abandon(),
            parts.launcher.close(),
            controller.user_code.finish(0.0),
            threads.call(lambda: parts.callbacks.close(0.0)),
            *([] if uploads is None else [uploads.abandon()]),
        ]
        await asyncio.wait([last.start(step) for step in steps], timeout=_KILLED_WITHIN_S)
        last.cancel()
        for one in self.processes():
            if survives(one.pid):
                self._tell(f"{one.name} {still_there(one.pid)}", "warning")
        controller.pool.close()
        return unsaved

    async def _flush_nodes(self) -> None:
        """Let the nodes bring what they have to storage, before their agents end."""
        uploads = self.controller.uploads
        if uploads is None or not uploads.nodes.has_nodes or self.controller.has_lost_ownership:
            return
        self._show_phase(f"waiting for uploads from the nodes, {self._flush_s:g} s at most")
        await uploads.drain(self._flush_s, is_patient=self._is_patient)
        await self._parts.journal_writer.sync()  # what is superseded is removed after this fsync
        await uploads.close_nodes(self._flush_s, is_patient=self._is_patient)
        if text := gone_with_nodes(self.controller.machine.trials.values()):
            self._tell(text, "warning")

    async def _flush(self, tracked: asyncio.Task[Any]) -> list[str]:
        """Complete storage, the trials' files and the journal, in this order.

        So none of them names something that another one lacks.
        """
        journal_writer, uploads = self._parts.journal_writer, await self._own_uploads()
        is_remote, loop = self._plan.remote is not None, asyncio.get_running_loop()
        flush_by = loop.time() + self._flush_s
        if uploads is not None:
            if is_remote:
                self._show_phase(f"waiting for storage, {self._flush_s:g} s at most")
            await uploads.drain(self._flush_s, is_patient=self._is_patient)
            # The last commits may have superseded checkpoints: they are removed after this fsync.
            await journal_writer.sync()
        is_written = await journal_writer.finish(
            self._flush_s, self._show_written, is_patient=self._is_patient
        )
        trials = self.controller.machine.trials.values()
        if not is_written and (missing := lacking(self._plan.layout, trials)):
            self.unwritten = missing
            if not self._is_patient:  # else it is the error of `fit()`
                self._tell(missing, "loss")
        unsaved: list[str] = []
        if uploads is not None:
            # Each progress restarts the deadline: 20,000 small files take longer than a minute.
            # After Ctrl-C it is one for all uploads. The wait for the trackers does not count
            # against it, because trackers have a deadline of their own.
            left_s = self._flush_s if self._is_patient else max(1.0, flush_by - loop.time())
            self._show_tracking(tracked)
            await tracked  # it lists undelivered reports in files, which are persisted too
            if is_remote:
                uploads.publish()
            unsaved = await uploads.close(left_s, is_patient=self._is_patient)
        await journal_writer.close()
        return unsaved

    async def _own_uploads(self) -> Uploads | None:
        """The uploads; None if there are none, or if another run owns the storage by now."""
        controller = self.controller
        if controller.uploads is not None and controller.has_lost_ownership:
            await controller.uploads.abandon()
            return None
        return controller.uploads

    def _show_tracking(self, tracked: asyncio.Task[Any]) -> None:
        """Show which tracker is waited for, and how long."""
        if not tracked.done() and (names := self.trackers.waiting()):
            self._show_phase(
                f"waiting for {', '.join(names)} to take the last reports, {self._tracker_s:g} s "
                f"at most once it answers (HOLDFAST_TRACKER_DEADLINE_S)"
            )

    def _show_written(self, done: int, total: int) -> None:
        share = 100 * done // max(1, total)
        self._show_phase(f"writing result.json and similar files: {share}% of the journal")


def gone_with_nodes(trials: Iterable[Trial]) -> str:
    """A message about checkpoints that stay on nodes, whose folders are removed at the end; "" if
    there are none."""
    kept = [(t, c) for t in trials for c in t.checkpoints if c.stays_here and c.node]
    if not kept:
        return ""
    nodes = ", ".join(dict.fromkeys(checkpoint.node for _, checkpoint in kept))
    checkpoints = counted(len(kept), "checkpoint", "checkpoints")
    trials_text = counted(len({trial.trial_id for trial, _ in kept}), "trial", "trials")
    return (
        f"Reported with NO_UPLOAD: {checkpoints} of {trials_text} on {nodes}. Nodes remove their "
        f"folders at the end of the run, so no result or restore has them"
    )


# -- trials whose files the projector could not write completely ----------------------------------

_SHOWN = 5


def lacking(layout: Layout, trials: Iterable[Trial]) -> str:
    """A warning about trials whose newest row is not in result.json; "" if there are none."""
    folders = [trial.spec.dirname for trial in trials if not _has_newest_row(layout, trial)]
    if not folders:
        return ""
    trials_text = counted(len(folders), "trial", "trials")
    return (
        f"{RESULTS} and the other files of {trials_text} are missing or incomplete: "
        f"{listed(folders, _SHOWN)}. The journal has every row. To write the files from "
        f"it, restore the experiment or run "
        f"{holdfast_command('doctor', 'repair', str(layout.root))}"
    )


def _has_newest_row(layout: Layout, trial: Trial) -> bool:
    if trial.row is None:
        return True
    location = Location.resolve(layout.trial(trial.spec), None, {})
    try:
        row = TrialFolder.at(location).last_row()
    except (OSError, TuneError):
        return False
    return row is not None and row.get("training_iteration") == trial.iteration


TRACKER_PROCESS = "holdfast.experiment.trackers.process:main"
PROJECTOR = "holdfast.experiment.projector.process:main"


def open_journal_writer(
    plan: RunPlan, journal: Journal, tell: Tell, tasks: TaskScope
) -> JournalWriter:
    """Open the journal writer and start its projector."""

    def on_projector(message: list[Any]) -> None:
        text = journal_writer.on_projector(message)
        if text:
            tell(text, "loss")

    opening = [
        "open",
        str(plan.layout.root),
        {
            "tensorboard": plan.settings.tensorboard,
            "config_in_rows": plan.settings.config_in_rows,
            "snapshot_period_s": plan.settings.snapshot_period_s,
            "remembers_clean": plan.engine is None,
            "tells_written": plan.remote is not None,
        },
        list(plan.lock.claim),
        plan.settings.disk_deadline_s,
    ]
    projector = RestartingService(
        "projector (it writes result.json and similar files)",
        lambda: start_service(plan, PROJECTOR, on_projector, "projector", "files"),
        tasks=tasks,
        first=[opening],
        again=lambda: journal_writer.resend_state(),
        tell=lambda text: tell(text, "warning"),
        given_up=lambda text: tell(
            f"{text}: result.json, progress.csv and snapshots stay behind. The journal is "
            f"complete, and a restore writes them from it",
            "loss",
        ),
    )
    journal_writer = JournalWriter(
        journal,
        projector,
        tasks=tasks,
        fsync_period_s=plan.settings.fsync_period_s,
        disk_deadline_s=plan.settings.disk_deadline_s,
        warn=lambda text: tell(text, "warning"),
        check_ownership=plan.lock.check_ownership,
    )
    return journal_writer


def open_callbacks(plan: RunPlan, tell: Tell) -> CallbackThread:
    """Start the thread of the callbacks. Raises TuneError if a `setup` fails."""

    def keep_states(states: Mapping[str, Any]) -> None:
        try:
            write_states(plan.layout.callbacks, states)
        except (OSError, NotPicklable) as error:
            tell(f"the states of callbacks are not kept: {error}", "loss")

    thread = CallbackThread(
        plan.callbacks,
        Views(plan.surroundings),
        tell=tell,
        setup=plan.callback_setup,
        keep=keep_states,
        states_period_s=plan.settings.snapshot_period_s,
    )
    thread.start(plan.machine.trials.values(), _kept_states(plan, tell))
    return thread


def tracker_processes_of(
    plan: RunPlan, controller: Controller, tell: Tell, tasks: TaskScope
) -> TrackerProcesses:
    """One tracker process for each tracker, not started yet. A tracker that cannot be set up ends
    the run."""

    tracker_processes = TrackerProcesses(
        plan.tracker_jobs,
        lambda on_message: start_service(plan, TRACKER_PROCESS, on_message, "tracker", "track"),
        tell,
        controller.end_with,
        tasks,
    )
    controller.journal_writer.follow(tracker_processes.follow)
    return tracker_processes


def _kept_states(plan: RunPlan, tell: Tell) -> dict[str, bytes]:
    if isinstance(plan.first, Begun):
        return {}
    if not plan.job.trusted:
        if plan.callbacks and plan.layout.callbacks.exists():
            tell("callbacks start without their states, which are pickled: trusted=False", "info")
        return {}
    try:
        return read_states(plan.layout.callbacks)
    except (OSError, ValueError, KeyError) as error:
        tell(f"callbacks start without their states: {names.CALLBACKS}: {error}", "loss")
        return {}


def start_service(
    plan: RunPlan, entry: str, on_message: Callable[[list[Any]], None], kind: str, short: str = ""
) -> Service:
    return Service(
        entry,
        on_message,
        environ=plan.environ,
        inherited_fds=[plan.lock.fileno()],
        title=Title(kind, plan.layout.root.name, short),
    )
