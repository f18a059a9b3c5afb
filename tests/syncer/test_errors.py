"""Errors carry facts, travel between processes, and never credentials."""

from __future__ import annotations

import pickle

import pytest

from holdfast import tune
from holdfast.syncer.errors import (
    DirectoryMissing,
    InvalidLocation,
    ManifestMismatch,
    StorageError,
    StorageRefused,
    redact,
)

ERRORS = [
    StorageRefused("put", "s3://bucket/x", "403", "Check the key"),
    DirectoryMissing("open", "/nowhere", "it does not exist"),
    InvalidLocation("resolve", "x://y", "unknown"),
    ManifestMismatch("/checkpoint", ["model.pt is missing"]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_a_pickle_with_its_facts(error: StorageError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert (copy.operation, copy.where, copy.cause) == (error.operation, error.where, error.cause)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_who_catches_tune_error_catches_what_storage_raises(error: StorageError) -> None:
    assert isinstance(error, tune.TuneError)


def test_the_message_says_what_where_why_and_what_to_do() -> None:
    assert str(ERRORS[0]) == "cannot put s3://bucket/x: 403. Check the key"


def test_a_missing_directory_is_also_a_file_not_found_error() -> None:
    error = DirectoryMissing("open", "/nowhere", "it does not exist")
    assert isinstance(error, FileNotFoundError)
    assert error.filename == "/nowhere"


def test_a_mismatch_shows_five_problems_and_counts_the_rest() -> None:
    error = ManifestMismatch("/checkpoint", [f"file {n} is missing" for n in range(9)])
    assert "file 4 is missing; and 4 more" in str(error)
    assert len(error.problems) == 9
    assert error.during("fetch", "elsewhere").problems == error.problems


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIA:hunter2@bucket/prefix",
        "s3://bucket/x?access_key=AKIA&secret_key=hunter2&region=r",
        "config: password=hunter2, host=h",
        "abfs://:hunter2@account.dfs.core.windows.net",
        "https://host/?X-Amz-Signature=hunter2&x=1",
        "aws_secret_access_key: hunter2",
        "abfs://container@account/x?account_key=hunter2",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2",
    ],
)
def test_secrets_are_recognised_by_their_surroundings(text: str) -> None:
    assert "hunter2" not in redact(text)


def test_a_known_secret_is_hidden_wherever_it_stands() -> None:
    assert redact("the server said: hunter2 is wrong", ["hunter2"]) == (
        "the server said: *** is wrong"
    )
