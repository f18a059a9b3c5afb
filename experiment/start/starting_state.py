"""Makes the state that a run starts from, and the event that its journal continues with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.folder.containment import check_enclosed_trials
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.progress.views import ProgressView
from holdfast.experiment.records.opened import OpenedExperiment
from holdfast.experiment.records.place import ExperimentPlace
from holdfast.experiment.start.changed_code import change_notice, has_changed, retried, store
from holdfast.experiment.start.extension import extended, trained_further
from holdfast.experiment.start.machines import capacity_of
from holdfast.experiment.start.request import Request
from holdfast.experiment.start.untrusted_restore import check_recorded
from holdfast.scheduler.events import Begun, ExperimentSpec, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.resuming import has_work, written
from holdfast.syncer.files.boot import boot_id
from holdfast.syncer.journal.journal import Position, segments
from holdfast.trial.resources import NodeKind
from holdfast.trial.tuning import ResumeConfig, ResumeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The state that a run starts from, and the event that the journal continues with.

    `begins` is the journal's segment that the experiment starts in, `read_until` the end of its
    last readable record; None for a new one.
    """

    machine: Machine
    first: Begun | Resumed
    begins: int
    read_until: Position | None = None

    @property
    def spec(self) -> ExperimentSpec:
        return self.first.spec or self.machine.spec


def new_start(
    spec: ExperimentSpec,
    policy: TrialScheduler,
    host_resources: MachineResources,
    offer: Sequence[NodeKind],
    place: ExperimentPlace,
) -> Start:
    """The start of a new experiment. Raises InvalidConfig for settings of its scheduler."""
    policy.begun(spec)  # which checks its settings, before anything is written
    first = Begun(
        spec=spec, capacity=capacity_of(host_resources, offer), boot_id=boot_id(), offer=offer
    )
    # Its own segment, even after a run that died at once and left one without a beginning.
    begins = (segments(place.layout.journal) or [-1])[-1] + 1
    return Start(machine=Machine(policy), first=first, begins=begins)


def resumed_start(
    request: Request,
    resume: ResumeConfig,
    policy: TrialScheduler,
    settings: Settings,
    resources: Any,
    host_resources: MachineResources,
    offer: Sequence[NodeKind],
    opened: OpenedExperiment,
    view: ProgressView,
) -> Start:
    """The start of a run that resumes the experiment; prints what the user should know of its
    records and of changed code. Keeps the new code for later restores.

    Raises what `recovery.recover` raises, LeadsElsewhere, InvalidConfig.
    """
    recovered = opened.recover(policy)
    machine = recovered.machine
    if machine.finished:
        opened.check_nothing_hidden(recovered)
    for notice in recovered.notices:
        view.message(notice, "loss")
    if notice := opened.artifacts_left_in_storage(machine, request.run.sync_config):
        view.message(notice, "warning")
    strict = settings.strict_metric
    file = opened.tuner_file(trusted=False)
    changed = has_changed(request.trainable, file)
    if changed and request.retries:
        resume = retried(resume, machine)
    spec = extended(request.extension, machine, strict=strict, resources=resources)
    if spec is not None and spec.options.get("trainer"):
        resume = trained_further(resume, machine, spec)
    first = Resumed(
        epoch=machine.epoch + 1,
        capacity=capacity_of(host_resources, offer),
        offer=offer,
        unfinished=ResumeType(resume.unfinished),
        errored=ResumeType(resume.errored),
        finished=ResumeType(resume.finished),
        boot_id=boot_id(),
        strict=strict,
        resources=request.resources,
        spec=spec,
        rules=2,
    )
    check_enclosed_trials(opened.place.layout, machine, written(machine, first))
    works = has_work(machine, first)
    if not request.trusted and works:
        check_recorded(machine)
    if changed and machine.trials:
        path = opened.place.location.public
        told = change_notice(request.trainable, opened.place.name, path, machine, resume)
        view.message(told, "warning")
    if changed and works:
        store(request.trainable, file)
    return Start(machine=machine, first=first, begins=recovered.begins, read_until=recovered.end)
