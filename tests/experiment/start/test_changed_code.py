"""What is said, and which trials run again, if the code of an experiment has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.experiment.start.extension import change_notice, retried
from holdfast.trial.config import ResumeConfig
from holdfast.trial.trial import Status

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
    assert told.startswith("train() (test_changed_code.py:")
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
