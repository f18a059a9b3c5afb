"""The scheduler of DEHB: each trial trains as long as its config says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.scheduler.policies.goal import Judging
from holdfast.scheduler.policy import Abort, Decision, StopTrial, TrialReported, View

KEY: Final = "dehb"
"""The key in a config that holds the trial's job of DEHB."""


class DEHBScheduler(Judging):
    """Stops each trial at the budget that DEHBSearch gave it: `config["dehb"]["budget"]`.

    The budget is measured in `time_attr`; the first report at or after it that has the metric is
    the last one. A function may also read its budget and return by itself.

    Awad, Mallik, Hutter, "DEHB: Evolutionary Hyberband for Scalable, Robust and Efficient
    Hyperparameter Optimization" (2021).

    Raises InvalidConfig.
    """

    def judge(
        self, view: View, event: TrialReported, time: float, value: float
    ) -> Sequence[Decision]:
        budget = _budget_of(view.trials[event.trial_id].config)
        if budget is None:
            message = (
                f"DEHBScheduler: the config of trial {event.trial_id} has no budget. Set "
                "TuneConfig(search_alg=DEHBSearch(...)), which gives each trial one"
            )
            return [Abort(message=message)]
        if time < budget:
            return ()
        why = f"{self.goal.time_attr} reached its budget, {budget:g}"
        return [StopTrial(trial_id=event.trial_id, why=why, is_early=False)]


def _budget_of(config: Mapping[str, Any]) -> float | None:
    job = config.get(KEY)
    budget = job.get("budget") if isinstance(job, Mapping) else None
    return budget if isinstance(budget, (int, float)) else None
