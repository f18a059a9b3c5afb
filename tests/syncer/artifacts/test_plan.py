"""The decisions from the contents of storage and of the local folder."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast.syncer.artifacts.settings import (
    FileStat,
    FolderScan,
    StoredFile,
    changes,
    skipped_text,
    uncertain,
)

AS_IT_WAS = FileStat(10, 1_000, 1_000)


def known(*keys: str) -> dict[str, StoredFile]:
    return {key: StoredFile(AS_IT_WAS, "sum", True) for key in keys}


def found(*keys: str, skipped: Mapping[str, str] | None = None) -> FolderScan:
    return FolderScan(files=dict.fromkeys(keys, AS_IT_WAS), skipped=skipped or {})


@pytest.mark.parametrize("field", FileStat._fields)
def test_a_file_is_read_again_where_its_size_or_one_of_its_times_differs(field: str) -> None:
    other = AS_IT_WAS._replace(**{field: 2_000})
    decided = changes(known("t/a"), FolderScan(files={"t/a": other}, skipped={}))
    assert decided.to_read == ("t/a",)


def test_a_file_that_was_changing_or_of_which_storage_is_uncertain_is_read_again() -> None:
    recent = {"t/a": StoredFile(AS_IT_WAS, "sum", False)}
    assert changes(recent, found("t/a")).to_read == ("t/a",)
    assert changes({"t/a": uncertain(known("t/a")["t/a"])}, found("t/a")).to_read == ("t/a",)


def test_what_could_not_be_looked_at_is_not_gone() -> None:
    hidden = found(skipped={"t/closed": "cannot be read", "t/link": "leads nowhere"})
    decided = changes(known("t/closed/deep/a", "t/link", "t/closedness"), hidden)
    assert decided.deleted == ("t/closedness",)


def test_what_the_walk_was_not_after_is_not_gone() -> None:
    records = changes(known("t/stdout", "t/a"), found(), lambda key: key == "t/stdout")
    assert records.deleted == ("t/stdout",)


def test_a_change_shows_only_some_time_after_the_last() -> None:
    moment = 10**18
    facts = FileStat(1, moment, moment - 5 * 10**9)
    assert not facts.is_settled(moment + 10**9)
    assert facts.is_settled(moment + 3 * 10**9)
    assert not facts._replace(ctime_ns=moment + 2 * 10**9).is_settled(moment + 3 * 10**9)


def test_what_is_reported_of_many_files_fits_on_a_line() -> None:
    assert skipped_text({"a": "x", "new\nline": "y"}) == r"a: x; 'new\nline': y"
    assert skipped_text(dict.fromkeys("abcdefg", "x")).endswith("e: x; and 2 more")
