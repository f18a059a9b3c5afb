"""Starts the uploader. Imported when a run needs it: with remote storage, for a cluster, or at the
first checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.control.controller import Controller
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.services import start_service
from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.nodes.uploader import UPLOADER, packed
from holdfast.experiment.uploads.nodes import NodeTransport
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.experiment.user_objects.pickling import dumps
from holdfast.runtime.service import BackgroundService, RestartingService, ThreadService
from holdfast.runtime.tasks import TaskScope
from holdfast.schema import to_row
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.files.tree import CLAIMS
from holdfast.syncer.stores.owned_store import Claim
from holdfast.syncer.uploader.messages import Open


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
        uploads.on_answer(message)

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


def node_uploader_settings(plan: RunPlan, claim: str) -> bytes:
    """The settings of the nodes' uploaders, which use the `claim` of the uploader here. Raises
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


def _start_uploader(
    plan: RunPlan, settings: UploaderSettings, on_message: Callable[[list[Any]], None]
) -> BackgroundService:
    """Start the uploader in a process, or in a thread if the given filesystem cannot be
    pickled."""
    if settings.storage is not None and not settings.storage.is_picklable:
        # Imported here, because it usually runs in a process of its own.
        from holdfast.syncer.uploader.process import main as upload

        return ThreadService(
            partial(upload, settings=settings), on_message, name="holdfast-uploader"
        )
    uploader = start_service(plan, UPLOADER, on_message, "uploader", "upload")
    uploader.send(to_row(Open(settings=dumps(settings, "the storage_filesystem"))))
    return uploader
