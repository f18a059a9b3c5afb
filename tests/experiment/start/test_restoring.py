"""A script that resumes: its arguments, its code, and the words of `tune.run(resume=...)`."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.start.extension import change_notice, retried
from holdfast.experiment.start.restoring import differing_arguments, ignored_arguments, resuming
from holdfast.trial.config import ResumeConfig
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status
from holdfast.tune.schedulers import (
    PB2,
    ASHAScheduler,
    FIFOScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PASHAScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from holdfast.tune.search import BasicVariantGenerator

DONE, FAILED, QUEUED = Status.TERMINATED, Status.ERROR, Status.PENDING
PLAIN, RETRIES = ResumeConfig(), ResumeConfig(errored="restart")


def train(config: dict[str, Any]) -> None: ...


def machine(*statuses: Status, reports: bool = True, checkpoints: int = 0) -> Any:
    row = {"loss": 1} if reports else None
    trials = {
        str(number): SimpleNamespace(status=status, row=row, checkpoints=[0] * checkpoints)
        for number, status in enumerate(statuses)
    }
    return SimpleNamespace(trials=trials, finished=QUEUED not in statuses)


@pytest.mark.parametrize(
    ("given", "resume", "said"),
    [
        (machine(DONE, DONE), PLAIN, "ran: run has results of the earlier code. For a new run"),
        (machine(DONE, QUEUED), PLAIN, "code, and 1 unfinished trial continues with the new code"),
        (machine(DONE, FAILED), RETRIES, "ran: 1 failed trial starts again with the new code, th"),
        (machine(FAILED, FAILED), RETRIES, "ran: 2 failed trials start again with the new code"),
        (machine(DONE), ResumeConfig("restart"), "ran: run has results of the earlier code"),
        (machine(DONE, reports=False), ResumeConfig("restart"), "and none reported anything: the"),
    ],
)
def test_a_warning_says_which_results_are_of_the_earlier_code(
    given: Any, resume: ResumeConfig, said: str
) -> None:
    told = change_notice(train, "run", "/results/run", given, resume)
    assert told.startswith("train() (test_restoring.py:")
    assert said in told


@pytest.mark.parametrize(
    ("given", "resume"),
    [
        (machine(DONE, FAILED), ResumeConfig(errored="restart")),
        (machine(DONE, FAILED, checkpoints=1), ResumeConfig(errored="resume")),
        (machine(DONE, reports=False), ResumeConfig("restart", "resume", "restart")),
        (machine(FAILED, QUEUED, reports=False), ResumeConfig(errored="restart")),
    ],
)
def test_failed_trials_run_again_and_all_if_none_reported(
    given: Any, resume: ResumeConfig
) -> None:
    assert retried(PLAIN, given) == resume


SKIPPED = ResumeConfig(unfinished="skip")


@pytest.mark.parametrize(
    ("resume", "how", "config"),
    [
        (None, "never", None),
        (False, "never", None),
        ("never", "never", None),
        (True, "auto", None),
        ("AUTO", "auto", None),
        ("auto", "auto", None),
        ("LOCAL", "must", None),
        ("REMOTE", "must", None),
        ("ERRORED_ONLY", "must", ResumeConfig(errored="resume", unfinished="skip")),
        ("AUTO+ERRORED", "auto", ResumeConfig(errored="resume")),
        ("LOCAL+RESTART_ERRORED", "must", ResumeConfig(errored="restart")),
        ("AUTO+ERRORED_ONLY", "auto", ResumeConfig(errored="resume", unfinished="skip")),
        ("AUTO+RESTART_ERRORED_ONLY", "auto", ResumeConfig(errored="restart", unfinished="skip")),
    ],
)
def test_each_word_says_whether_and_which_trials_resume(
    resume: Any, how: str, config: ResumeConfig | None
) -> None:
    assert resuming(resume) == (how, config)


@pytest.mark.parametrize(("resume", "how"), [(None, "auto"), (True, "auto"), ("LOCAL", "must")])
def test_a_resume_config_resumes_alone_or_beside_a_word_without_a_suffix(
    resume: Any, how: str
) -> None:
    assert resuming(resume, SKIPPED) == (how, SKIPPED)


@pytest.mark.parametrize(
    ("resume", "config", "fault"),
    [
        ("PROMPT", None, "asks nothing. Write resume='AUTO'"),
        ("AUTO+ALL", None, "followed by .*RESTART_ERRORED.*not 'AUTO.ALL'"),
        ("AUTO+ERRORED+ERRORED", None, "resume must be True, False or one of AUTO, LOCAL"),
        ("", None, "resume must be"),
        (3, None, "resume must be"),
        ("AUTO+ERRORED", SKIPPED, "both say which trials resume"),
        ("AUTO", "errored", "must be a ResumeConfig, not 'errored'"),
    ],
)
def test_what_has_no_meaning_here_is_refused(resume: Any, config: Any, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        resuming(resume, config)


def explored(config: dict[str, Any]) -> dict[str, Any]:
    return config


def pbt(**given: Any) -> PopulationBasedTraining:
    space = {"lr": tune.loguniform(1e-4, 1), "width": [8, 16], "depth": explored}
    return PopulationBasedTraining(**{"hyperparam_mutations": space, **given})


def points(*rates: float) -> BasicVariantGenerator:
    return BasicVariantGenerator(points_to_evaluate=[{"lr": rate} for rate in rates])


@pytest.mark.parametrize(
    "make",
    [
        lambda: ASHAScheduler(max_t=81, brackets=3),
        lambda: HyperBandScheduler(max_t=81),
        lambda: PASHAScheduler(max_t=81),
        lambda: MedianStoppingRule(grace_period=3),
        lambda: PB2(hyperparam_bounds={"lr": [0, 1]}),
        lambda: ResourceChangingScheduler(ASHAScheduler(max_t=9)),
        lambda: pbt(custom_explore_fn=explored),
        lambda: points(0.1, math.nan),
    ],
)
def test_what_is_made_twice_alike_has_no_differences(make: Any) -> None:
    assert differing_arguments(pickle.loads(pickle.dumps(make())), make()) == []


@pytest.mark.parametrize(
    ("kept", "said", "names"),
    [
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=27), ["max_t", "brackets"]),
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=9.0), []),
        (ASHAScheduler(max_t=9), ASHAScheduler(max_t=9, metric="loss", mode="min"), []),
        (ASHAScheduler(), HyperBandScheduler(), []),
        (pbt(), pbt(perturbation_interval=5), ["interval"]),
        (pbt(), pbt(hyperparam_mutations={"lr": tune.loguniform(1e-4, 2)}), ["given"]),
        (pbt(), pbt(custom_explore_fn=explored), ["custom_explore_fn"]),
        (points(0.1), points(0.2), ["points_to_evaluate"]),
        (points(0.1), points(0.1, 0.2), ["points_to_evaluate"]),
        (FIFOScheduler(), None, []),
    ],
)
def test_what_differs_is_named(kept: Any, said: Any, names: list[str]) -> None:
    assert differing_arguments(kept, said) == names


def test_other_arguments_are_reported_in_a_line_each() -> None:
    kept = tune.TuneConfig(scheduler=ASHAScheduler(max_t=9), search_alg=points(0.1))
    said = tune.TuneConfig(scheduler=ASHAScheduler(max_t=27), search_alg=points(0.2))
    assert list(ignored_arguments(kept, kept)) == []
    assert list(ignored_arguments(kept, said)) == [
        "scheduler: max_t, brackets differs from what the experiment was begun with. A restore "
        "cannot change it: the earlier ASHAScheduler is used. To use the new one, start a "
        "new run under another name=...",
        "search_alg: points_to_evaluate differs from what the experiment was begun with. A "
        "restore cannot change it: the earlier BasicVariantGenerator is used. To use the "
        "new one, start a new run under another name=...",
    ]
