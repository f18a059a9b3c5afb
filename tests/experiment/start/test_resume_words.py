"""What `tune.run(resume=...)` means, in all of Ray's spellings."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.experiment.start.restoring import resuming
from holdfast.trial.config import ResumeConfig
from holdfast.trial.errors import InvalidConfig

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
