"""Errors carry facts, as text for people and as fields for programs."""

import inspect
import pickle
from dataclasses import replace

import pytest

from holdfast.trial import errors
from holdfast.trial.errors import (
    ExperimentExists,
    ExperimentInUse,
    Failure,
    ImpossibleResources,
    InvalidTransition,
    TrialError,
    TuneError,
)

FAILURE = Failure(
    kind="user",
    type_name="ValueError",
    message="oh no",
    traceback="Traceback ...\nValueError: oh no\n",
    pid=41,
    hostname="host",
)


def test_every_error_of_holdfast_has_one_base() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    raised = [kind for kind in kinds if issubclass(kind, Exception)]
    assert len(raised) > 8
    assert all(issubclass(kind, TuneError) for kind in raised)


def test_a_trial_error_is_short_first_and_complete_below() -> None:
    error = TrialError("t0", FAILURE, "/results/t0")
    first, *rest = str(error).split("\n\n")
    assert first == "trial t0 failed: ValueError: oh no (logs: /results/t0)"
    assert rest == ["Traceback ...\nValueError: oh no\n"]


@pytest.mark.parametrize(
    ("node", "hostname", "told"),
    [
        ("a", "gpu7", "on node a (host gpu7)"),
        ("gpu7", "gpu7.cluster", "on node gpu7"),
        ("gpu7-2", "gpu7", "on node gpu7-2 (host gpu7)"),
        ("a", "", "on node a"),
        ("", "gpu7", ""),
    ],
)
def test_an_error_names_the_node_and_its_host_if_that_has_another_name(
    node: str, hostname: str, told: str
) -> None:
    failure = replace(FAILURE, node=node, hostname=hostname)
    assert failure.on_node == told
    where = f" {told}" if told else ""
    assert str(TrialError("t0", failure)).startswith(f"trial t0 failed{where}: ValueError: oh no")


def test_a_trial_error_without_logs_or_traceback_is_one_line() -> None:
    lost = Failure(kind="lost", type_name="WorkerLost", message="")
    assert str(TrialError("t0", lost)) == "trial t0 failed: WorkerLost"


def test_a_trial_error_survives_pickling_with_its_facts() -> None:
    error = pickle.loads(pickle.dumps(TrialError("t0", FAILURE, "/results/t0")))
    assert (error.trial_id, error.failure, error.log) == ("t0", FAILURE, "/results/t0")
    assert str(error) == str(TrialError("t0", FAILURE, "/results/t0"))


@pytest.mark.parametrize(
    ("message", "headline"), [("oh no", "ValueError: oh no"), ("", "ValueError")]
)
def test_a_headline_is_the_type_and_the_message(message: str, headline: str) -> None:
    assert Failure(kind="user", type_name="ValueError", message=message).headline == headline


def test_errors_about_experiments_name_the_place_and_the_holder() -> None:
    assert ExperimentExists("there is one", "/results/x").path == "/results/x"
    error = ExperimentInUse("in use", "/results/x", "process 41 on host")
    assert (error.path, error.holder) == ("/results/x", "process 41 on host")


def test_impossible_resources_say_what_was_asked_and_what_there_is() -> None:
    error = ImpossibleResources("too much", {"CPU": 8}, {"CPU": 2})
    assert (error.requested, error.available) == ({"CPU": 8}, {"CPU": 2})


def test_an_invalid_transition_tells_the_story_and_the_event() -> None:
    error = InvalidTransition("trial t0 (RUNNING)", {"what": "happened"})
    assert str(error) == "dict is impossible for trial t0 (RUNNING): {'what': 'happened'}"
    assert (error.story, error.event) == ("trial t0 (RUNNING)", {"what": "happened"})
