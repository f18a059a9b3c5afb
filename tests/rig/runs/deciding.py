"""Experiments on the disk in which a scheduler has decided something, without a worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.experiment.control.controller import SchedulerNews
from holdfast.scheduler.events import Event, Exited, SearchEnded
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import TrialScheduler
from holdfast.trial.events import Adopted
from holdfast.trial.search_space.description import describe
from holdfast.trial.trial import Status
from holdfast.tune import uniform
from tests.rig.runs.recorded import RecordedExperiment

SPACE = {"lr": uniform(0, 1)}


class FollowedExperiment(RecordedExperiment):
    """Keeps the messages about what its scheduler decides."""

    def __init__(self, root: Path, **given: Any) -> None:
        self.news, self.told = SchedulerNews(), list[str]()
        super().__init__(root, **given)

    def add(self, event: Event) -> None:
        super().add(event)
        self.told += self.news.after(self.machine)


def recorded(
    root: Path, policy: TrialScheduler, losses: tuple[float, ...], *, last: int = 4
) -> FollowedExperiment:
    """Trials that report their own loss, divided by the iteration, to iteration `last` or until
    the scheduler stops them."""
    run = FollowedExperiment(
        root,
        policy=policy,
        scheduler=type(policy).__name__,
        metric="loss",
        mode="min",
        num_samples=len(losses),
        stop={"training_iteration": last},
        space=describe(SPACE),
    )
    trials = {run.begin({"lr": loss}): loss for loss in losses}
    run.add(SearchEnded())
    while not run.machine.finished:
        for trial_id, loss in trials.items():
            _step(run, trial_id, loss)
    return run


def _step(run: RecordedExperiment, trial_id: str, loss: float) -> None:
    trial = run.trial(trial_id)
    match trial.status:
        case Status.STARTING:
            if (origin := trial.origin) is not None:
                copied: Any = origin.checkpoint
                run.add(Adopted(trial_id=trial_id, attempt=trial.attempt, checkpoint=copied))
            run.start(trial_id)
        case Status.RUNNING:
            value = loss / (trial.iteration + 1)
            run.report(trial_id, {"loss": value}, checkpoint="committed")
        case Status.STOPPING:
            run.finish(trial_id)
        case _ if trial_id in run.machine.placement.holds:
            run.add(Exited(trial_id=trial_id, attempt=trial.attempt, cause="ended"))
        case _:
            pass


def asha(root: Path) -> FollowedExperiment:
    """Of four trials, the first and the third continue at rung 1; both train to the end."""
    return recorded(root, ASHAScheduler(max_t=4, reduction_factor=2), (0.5, 0.75, 0.25, 1.0))


def hyperband(root: Path) -> FollowedExperiment:
    """Two brackets: of the first's two trials one continues, the third is alone."""
    return recorded(root, HyperBandScheduler(max_t=2, reduction_factor=2), (0.5, 0.25, 1.0))


def population(root: Path) -> FollowedExperiment:
    """The second of two trials is worse at iteration 2, and continues from the first."""
    policy = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [0.125, 0.25, 0.5]},
        quantile_fraction=0.5,
        resample_probability=0,
    )
    return recorded(root, policy, (0.25, 0.75))
