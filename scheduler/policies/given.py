"""The scheduler that a user gives: ready-made, pure, or in Ray's style. Refuses methods that would
never be called."""

from __future__ import annotations

from typing import Any

from holdfast.described import is_holdfast_class
from holdfast.foreign import instead_of_scheduler
from holdfast.scheduler.hooks import hooks_of
from holdfast.scheduler.policies.ray_style import RayStyleScheduler, is_ray_style
from holdfast.scheduler.policy import FIFOScheduler, TrialScheduler
from holdfast.trial.errors import InvalidConfig, require

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
    """Whether a class of the user's defines the method."""
    return any(name in vars(one) for one in kind.__mro__ if not is_holdfast_class(one))
