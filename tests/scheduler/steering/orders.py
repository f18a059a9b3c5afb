"""What a person orders, and runs to order it in."""

from typing import Any

from holdfast.scheduler.effects import Effect, Launch
from holdfast.scheduler.events import (
    ConfigAdded,
    PauseRequested,
    ResumeRequested,
    SearchEnded,
    TrialStopOrdered,
)
from holdfast.testing.rehearsal import Rehearsal

BY = "ann (page)"


def running(count: int = 1, **given: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, **given)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def pause(trial_id: str, *, now: bool = False) -> PauseRequested:
    return PauseRequested(trial_id=trial_id, by=BY, now=now)


def resume(trial_id: str) -> ResumeRequested:
    return ResumeRequested(trial_id=trial_id, by=BY)


def stop(trial_id: str) -> TrialStopOrdered:
    return TrialStopOrdered(trial_id=trial_id, by=BY)


def launched(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def paused(**given: Any) -> Rehearsal:
    """t0 has reported twice and was paused; the search has ended."""
    run = running(**given)
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.ends("t0")
    return run


def added(lr: float = 0.5) -> ConfigAdded:
    return ConfigAdded(config={"lr": lr}, by=BY)
