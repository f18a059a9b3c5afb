"""Trains one trial of a population again: a scheduler that reads its schedule from a file."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.described import Construction
from holdfast.scheduler.policies.pbt import ScheduleReplay, schedule_of
from holdfast.trial.errors import InvalidConfig


class PopulationBasedTrainingReplay(ScheduleReplay):
    """Trains one trial with the configs that a trial of a PopulationBasedTraining had, including
    those of the trials it was cloned from: as if it had been trained in one piece.

    `policy_file` is `pbt_policy_<trial_id>.txt` of that experiment. It is read at once, unless
    `policy` has its content. At each change the trial resumes from its own checkpoint: a class
    saves one then, a function goes back to the newest that it reported. Values that the file
    cannot hold (the user's objects) come from `param_space`.

    Raises InvalidConfig if the file cannot be read or is not such a file.
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

    def construction(self) -> Construction:
        """Without the path: a restore does not need the file, and a moved folder contains no
        paths."""
        construction = super().construction()
        name = Path(construction.argument("policy_file")).name
        return construction.with_arguments(policy_file=name, policy=self._policy)
