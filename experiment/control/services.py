"""Starts the processes and threads around the control loop: journal writer with projector,
uploader, tracker processes, callbacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.experiment.callbacks import callback_states
from holdfast.experiment.callbacks.messages import Tell
from holdfast.experiment.callbacks.thread import CallbackThread
from holdfast.experiment.callbacks.trial_view import Views
from holdfast.experiment.control.controller import Controller
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.folder import layout as names
from holdfast.experiment.folder.persisted_files import uploader_settings
from holdfast.experiment.nodes.keeper import packed
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.trackers.supervisor import TrackerProcesses
from holdfast.experiment.uploads.node_keepers import NodeTransport
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.experiment.user_objects.pickling import NotPicklable, dumps
from holdfast.runtime.process_control import Title
from holdfast.runtime.restarting_service import RestartingService
from holdfast.runtime.service import BackgroundService, Service, ThreadService
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.events import Begun
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.stores.claim import Claim
from holdfast.syncer.uploader.process import main as keep

TRACKER_PROCESS = "holdfast.experiment.trackers.process:main"
PROJECTOR = "holdfast.experiment.projector.process:main"
UPLOADER = "holdfast.syncer.uploader.process:main"


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
        lambda: _start(plan, PROJECTOR, on_projector, "projector", "files"),
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


def open_uploads(
    plan: RunPlan,
    controller: Controller,
    tell: Tell,
    tasks: TaskScope,
    transport: NodeTransport | None = None,
) -> Uploads:
    """Start the uploader. Returns the controller's side of it; `transport` reaches the nodes."""
    settings = replace(_uploader_settings(plan), on_nodes=transport is not None)
    # Once nodes have written to this folder, each run claims it: one of them may come back late.
    is_shared = transport is not None or (plan.layout.root / CLAIMS).is_dir()
    if is_shared and settings.storage is None:
        settings = replace(settings, shared=plan.location)
    claimed: Claim | None = None

    def start() -> BackgroundService:
        return _start_uploader(plan, replace(settings, claimed=claimed), on_uploader)

    def on_uploader(message: list[Any]) -> None:
        nonlocal claimed
        if message[0] == "opened":
            # A replacement keeps this claim: another one could take the experiment away from a
            # restore elsewhere.
            claimed = Claim.parse(message[1])
        uploads.on_uploader(message)

    def resend_state() -> None:
        uploads.resend_state()
        controller.remove_superseded()

    uploader = RestartingService(
        "uploader (it commits and uploads checkpoints)",
        start,
        tasks=tasks,
        first=[],
        again=resend_state,
        tell=lambda text: tell(text, "warning"),
        given_up=lambda text: controller.end_with(
            f"{text}. Nothing local is deleted: restore the experiment to continue"
        ),
    )
    uploads = Uploads(
        uploader,
        controller.journal_writer,
        host=controller,
        begins=plan.begins,
        is_remote=plan.remote is not None,
        sync=plan.sync,
        transport=transport,
        where=plan.location.public,
        machine=controller.machine,
    )
    return uploads


def keeper_settings(plan: RunPlan, claim: str) -> bytes:
    """The settings of the nodes' keepers, which use the `claim` of the uploader here. Raises
    NotPicklable."""
    settings = replace(
        _uploader_settings(plan),
        storage=plan.remote or plan.location,
        claimed=Claim.parse(claim),
    )
    return packed(dumps(settings, "the storage_filesystem"), os.environ)


def _uploader_settings(plan: RunPlan) -> UploaderSettings:
    return uploader_settings(
        plan.layout,
        plan.remote,
        experiment_id=plan.spec.experiment_id,
        log_names=plan.job.log_names,
        artifacts=plan.sync.sync_artifacts,
        timeout_s=plan.sync.sync_timeout,
        disk_deadline_s=plan.settings.disk_deadline_s,
    )


def open_callbacks(plan: RunPlan, tell: Tell) -> CallbackThread:
    """Start the thread of the callbacks. Raises TuneError if a `setup` fails."""

    def keep_states(states: Mapping[str, Any]) -> None:
        try:
            callback_states.write(plan.layout.callbacks, states)
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
        lambda on_message: _start(plan, TRACKER_PROCESS, on_message, "tracker", "track"),
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
        return callback_states.read(plan.layout.callbacks)
    except (OSError, ValueError, KeyError) as error:
        tell(f"callbacks start without their states: {names.CALLBACKS}: {error}", "loss")
        return {}


def _start(
    plan: RunPlan, entry: str, on_message: Callable[[list[Any]], None], kind: str, short: str = ""
) -> Service:
    return Service(
        entry,
        on_message,
        environ=plan.environ,
        inherited_fds=[plan.lock.fileno()],
        title=Title(kind, plan.layout.root.name, short),
    )


def _start_uploader(
    plan: RunPlan, settings: UploaderSettings, on_message: Callable[[list[Any]], None]
) -> BackgroundService:
    """Start the uploader in a process, or in a thread if the given filesystem cannot be
    pickled."""
    if settings.storage is not None and not settings.storage.is_picklable:
        return ThreadService(
            partial(keep, settings=settings), on_message, name="holdfast-uploader"
        )
    uploader = _start(plan, UPLOADER, on_message, "uploader", "upload")
    uploader.send(["open", dumps(settings, "the storage_filesystem")])
    return uploader
