"""Errors carry facts, as text for people and as fields for programs."""

import inspect
import pickle

from holdfast.trial import errors
from holdfast.trial.errors import (
    ExperimentExists,
    ExperimentInUse,
    Failure,
    ImpossibleResources,
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


def test_a_trial_error_without_logs_or_traceback_is_one_line() -> None:
    lost = Failure(kind="lost", type_name="WorkerLost", message="")
    assert str(TrialError("t0", lost)) == "trial t0 failed: WorkerLost"


def test_a_trial_error_survives_pickling_with_its_facts() -> None:
    error = pickle.loads(pickle.dumps(TrialError("t0", FAILURE, "/results/t0")))
    assert (error.trial_id, error.failure, error.log) == ("t0", FAILURE, "/results/t0")
    assert str(error) == str(TrialError("t0", FAILURE, "/results/t0"))


def test_errors_about_experiments_name_the_place_and_the_holder() -> None:
    assert ExperimentExists("there is one", "/results/x").path == "/results/x"
    error = ExperimentInUse("in use", "/results/x", "process 41 on host")
    assert (error.path, error.holder) == ("/results/x", "process 41 on host")


def test_impossible_resources_say_what_was_asked_and_what_there_is() -> None:
    error = ImpossibleResources("too much", {"CPU": 8}, {"CPU": 2})
    assert (error.requested, error.available) == ({"CPU": 8}, {"CPU": 2})
