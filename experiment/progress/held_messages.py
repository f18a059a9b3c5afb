"""Messages about trials that a person has paused. Pure: no I/O."""

from __future__ import annotations

from holdfast.dataclass import dataclass
from holdfast.scheduler.machine import Machine
from holdfast.trial.trial import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldNews:
    """Says that a trial is paused now which has run on, and that the run waits for a person.

    `resume` and `stop` are the commands for the experiment, without the names of trials.
    """

    resume: str
    stop: str

    def after(self, machine: Machine) -> list[str]:
        """The messages about the event that the machine has just handled."""
        held = machine.placement.held
        if not held:
            return []
        return [
            f"trial {trial_id} is paused at iteration {machine.trials[trial_id].iteration}"
            for trial_id, before in machine.moved.items()
            if trial_id in held and before.status is not Status.PENDING
        ]

    def waiting(self, machine: Machine) -> str:
        """`2 trials are paused: holdfast resume PATH TRIAL, or holdfast stop PATH`; "" unless only
        such trials are left."""
        if not machine.waits_for_person:
            return ""
        count = len(machine.placement.held)
        trials = "1 trial is" if count == 1 else f"{count:,} trials are"
        return f"{trials} paused: {self.resume} TRIAL, or {self.stop}"
