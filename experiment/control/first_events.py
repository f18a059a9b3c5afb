"""The first events of a run. A restore begins with the checkpoints that are lost or were found."""

from __future__ import annotations

from holdfast.experiment.callbacks.messages import Tell
from holdfast.experiment.control.controller import Controller
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.replay import history
from holdfast.experiment.records.recovery import lost_checkpoints, lost_notice
from holdfast.experiment.uploads.unrecorded_checkpoints import found_again, found_notice
from holdfast.scheduler.events import Begun, Event, StopperAnswered
from holdfast.syncer.journal.journal import Position


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
