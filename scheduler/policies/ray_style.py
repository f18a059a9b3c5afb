"""The scheduler that a user gives: ready-made, pure, or in Ray's style.

One in Ray's style is called: `on_trial_result` returns CONTINUE, PAUSE or STOP. Each call is a
question of the machine, so it runs off the control loop, and its answer is in the journal. A
restore takes the decisions from there. The user's object stays in the shell, which makes the
answered calls again to rebuild its state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from holdfast.compat.advice import instead_of_scheduler
from holdfast.described import is_holdfast_class
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.policy import (
    ENDS,
    AskUser,
    Decision,
    FIFOScheduler,
    NoMoreTrials,
    Observation,
    PauseTrial,
    Stalled,
    StopTrial,
    TrialAdded,
    TrialEnded,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    UserAnswered,
    View,
    hooks_of,
    is_own,
)
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.trial import Status

CALL, SAID, CHOSEN, ORDERS = "call", "said", "chosen", "orders"
_CHOOSE = "choose_trial_to_run"


class RayStyleScheduler(TrialScheduler):
    """Calls the hooks that the class of `users` defines, and carries out what they return.

    A trial that has reported waits for the answer, and one that was added starts after it. Without
    a `choose_trial_to_run` of its own, paused trials resume when no other trial waits and the
    search has no more. Otherwise the user chooses among the paused ones: whenever a call has
    returned and the search has no more trials, and when all are paused.
    """

    def __init__(self, users: TrialScheduler) -> None:
        self.users = users
        self.metric = users.metric or users._metric
        self.mode = users.mode or users._mode
        kind = type(users)
        # `debug_string` is asked for with the last call about a trial.
        last = ENDS if is_own(kind, "debug_string") else ()
        self._hooks = frozenset((*hooks_of(kind), *last))
        self._due: dict[str, deque[str]] = {}
        self._paused: dict[str, None] = {}
        self._stalled = False

    @property
    def name(self) -> str:
        return type(self.users).__name__

    def begun(self, spec: ExperimentSpec) -> Self:
        return type(self)(self.users)  # the machine gets no copy of it, and never calls it

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        trial_id = event.trial_id
        match event:
            case TrialAdded():
                return self._call(view, trial_id, "on_trial_add")
            case TrialReported():
                self._paused.pop(trial_id, None)
                return self._call(view, trial_id, "on_trial_result") or self._resume(view, "")
            case TrialEnded():
                hook = self._last_hook(view, trial_id)
                self._paused.pop(trial_id, None)
                return self._call(view, trial_id, hook) or self._resume(view, "")
            case UserAnswered(answer=answer):
                return self._answered(view, trial_id, answer)
            case NoMoreTrials():
                return self._resume(view, "")
            case Stalled():
                return self._resume_stalled(view)

    def _call(self, view: View, trial_id: str, hook: str) -> list[Decision]:
        """Call the hook, after the call about the same trial that has not returned yet."""
        if hook not in self._hooks:
            return []
        if trial_id in view.questions:
            self._due.setdefault(trial_id, deque()).append(hook)
            return []
        return [AskUser(trial_id=trial_id, question={CALL: hook})]

    def _last_hook(self, view: View, trial_id: str) -> str:
        trial = view.trials[trial_id]
        if trial.status is Status.ERROR:
            return "on_trial_error"
        has_run = trial.attempt > 0 and trial_id not in self._paused
        return "on_trial_complete" if has_run else "on_trial_remove"

    def _answered(self, view: View, trial_id: str, answer: Mapping[str, Any]) -> list[Decision]:
        decided: list[Decision] = []
        for order, about in (*answer.get(ORDERS, ()), (answer.get(SAID), trial_id)):
            decided += self._ordered(view, order, about)
        is_answer_to_stall, chosen = self._stalled, answer.get(CHOSEN)
        self._stalled = False
        if chosen in self._paused:
            decided.append(self._unpause(chosen))
        elif answer.get(CALL) == _CHOOSE:
            return decided + (self._unpause_all() if is_answer_to_stall else [])
        if due := self._due.get(trial_id):
            hook = due.popleft()
            if not due:
                del self._due[trial_id]
            return [*decided, AskUser(trial_id=trial_id, question={CALL: hook})]
        return decided + self._resume(view, trial_id)

    def _ordered(self, view: View, order: str | None, trial_id: str) -> list[Decision]:
        if order == self.STOP:
            return [StopTrial(trial_id=trial_id, by=self.name)]
        if order == self.PAUSE and view.trials[trial_id].status is Status.RUNNING:
            self._paused[trial_id] = None
            return [PauseTrial(trial_id=trial_id, may_restart=True)]
        return []

    def _resume(self, view: View, about: str) -> list[Decision]:
        """Resume paused trials, or ask which: with a question about the trial `about`, which has
        no other one."""
        if not self._paused or not view.is_complete:
            return []
        if _CHOOSE in self._hooks:
            return [AskUser(trial_id=about, question={CALL: _CHOOSE})] if about else []
        waits = any(trial.waits_for_worker for trial in view.trials.values())
        return [] if waits else self._unpause_all()

    def _resume_stalled(self, view: View) -> list[Decision]:
        if _CHOOSE not in self._hooks or not self._paused:
            return self._unpause_all()
        self._stalled = True
        return [AskUser(trial_id=next(iter(self._paused)), question={CALL: _CHOOSE})]

    def _unpause(self, trial_id: str) -> UnpauseTrial:
        del self._paused[trial_id]
        return UnpauseTrial(trial_id=trial_id)

    def _unpause_all(self) -> list[Decision]:
        return [self._unpause(trial_id) for trial_id in sorted(self._paused)]


_UNDECIDED = (TrialScheduler.decide, FIFOScheduler.decide)


def is_ray_style(scheduler: TrialScheduler) -> bool:
    """True if its class defines hooks of Ray's, and leaves `decide` alone."""
    kind = type(scheduler)
    return bool(hooks_of(kind)) and kind.decide in _UNDECIDED


# Methods that classes of Ray have and holdfast's have not, by the name of holdfast's class.
_RAYS_OWN = {
    "Population": (
        "_checkpoint_or_exploit",
        "_exploit",
        "_get_new_config",
        "_log_config_on_step",
        "_quantiles",
        "_save_trial_state",
        "_summarize_hyperparam_changes",
        "last_scores",
        "reset_stats",
    ),
    "HyperBandScheduler": (
        "_create_bracket",
        "_cur_band_filled",
        "_process_bracket",
        "_unpause_trial",
    ),
    "MedianStoppingRule": (
        "_best_result",
        "_on_insufficient_samples",
        "_running_mean",
        "_trials_beyond_time",
    ),
    "ResourceChangingScheduler": (
        "reallocate_trial_resources_if_needed",
        "set_trial_resources",
    ),
}
_INSTEAD = {
    "Population": "pass custom_explore_fn, or override decide(view, event)",
    "ResourceChangingScheduler": "pass resources_allocation_function",
}


def scheduler_of(given: Any) -> TrialScheduler:
    """The scheduler of a TuneConfig, FIFO by default. Raises InvalidConfig if it is not a
    scheduler, or defines methods that would have no effect."""
    policy = FIFOScheduler() if given is None else given
    if not isinstance(policy, TrialScheduler):
        if instead := instead_of_scheduler(policy):
            raise InvalidConfig(
                f"scheduler={type(policy).__name__}(...) is a pruner of Optuna: write {instead}"
            )
        raise InvalidConfig(
            "scheduler must be a TrialScheduler, such as ASHAScheduler() or "
            f"create_scheduler('asha'), not {policy!r:.100}"
        )
    check_overrides(policy)
    if is_ray_style(policy):
        return RayStyleScheduler(policy)
    require(
        type(policy).decide is not TrialScheduler.decide,
        f"{type(policy).__name__} must define decide(view, event), or methods that Ray calls, "
        "such as on_trial_result",
    )
    return policy


def check_base(base: TrialScheduler, wrapper: str) -> None:
    """Check a scheduler that another one wraps. Raises InvalidConfig."""
    check_overrides(base)
    require(
        not is_ray_style(base),
        f"{wrapper} cannot wrap {type(base).__name__}, whose {', '.join(hooks_of(type(base)))} "
        "holdfast calls in a thread: use it by itself, or define decide(view, event) in it",
    )


def check_overrides(policy: TrialScheduler) -> None:
    """Refuse methods that Ray calls and holdfast does not: they would have no effect.

    Raises InvalidConfig.
    """
    kind = type(policy)
    found = [] if is_ray_style(policy) else list(hooks_of(kind))
    base = next(one for one in kind.__mro__ if is_holdfast_class(one))
    found += [name for name in _rays_own(base) if _is_users(kind, name)]
    if not found:
        return
    names = ", ".join(found)
    if base in (TrialScheduler, FIFOScheduler):
        raise InvalidConfig(
            f"{kind.__name__} defines decide and {names}: define either decide(view, event) or "
            "the methods that Ray calls, not both"
        )
    raise InvalidConfig(
        f"{kind.__name__} overrides {names} of {base.__name__}, which holdfast never calls: "
        f"{_instead(base)}; or define on_trial_result in a class of FIFOScheduler"
    )


def _instead(base: type[Any]) -> str:
    found = (text for name, text in _INSTEAD.items() if _is_kind(base, name))
    return next(found, "override decide(view, event), and change what super().decide() returns")


def _rays_own(base: type[Any]) -> list[str]:
    return [m for name, methods in _RAYS_OWN.items() if _is_kind(base, name) for m in methods]


def _is_kind(kind: type[Any], name: str) -> bool:
    return any(one.__name__ == name and is_holdfast_class(one) for one in kind.__mro__)


def _is_users(kind: type[Any], name: str) -> bool:
    """True if a class of the user's defines the method."""
    return any(name in vars(one) for one in kind.__mro__ if not is_holdfast_class(one))
