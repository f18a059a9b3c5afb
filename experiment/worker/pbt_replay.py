"""Training one trial of a population again: the scheduler that reads its schedule from a file."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.described import Made, argument, without
from holdfast.scheduler.policies.pbt_replay import ScheduleReplay, schedule_of
from holdfast.trial.errors import InvalidConfig


class PopulationBasedTrainingReplay(ScheduleReplay):
    """Trains one trial with the configs that a trial of a PopulationBasedTraining, and those that
    it took over from, have had: as if it had been trained in one piece.

    `policy_file` is `pbt_policy_<trial_id>.txt` of that experiment; it is read at once, unless
    `policy` is what stands in it. At each
    change the trial goes on from a checkpoint of its own: a class saves itself then, a function
    goes back to the newest that it has reported. What the file cannot hold (an object of the
    user's) is what `param_space` says.

    Raises InvalidConfig where the file cannot be read, or is none.
    """

    def __init__(self, policy_file: str | os.PathLike[str], *, policy: str | None = None) -> None:
        path = Path(policy_file).expanduser()
        try:
            self._policy = path.read_text(encoding="utf-8") if policy is None else policy
            schedule = schedule_of(self._policy)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"PopulationBasedTrainingReplay(policy_file={str(policy_file)!r}): {error}. Give "
                f"pbt_policy_<trial_id>.txt from the directory of the experiment"
            ) from error
        super().__init__(schedule)

    def made_of(self) -> Made:
        """A restore does not need the file, and a folder that is moved names no place."""
        found = super().made_of()
        name = Path(argument(found, "policy_file")).name
        return without(found, policy_file=name, policy=self._policy)
