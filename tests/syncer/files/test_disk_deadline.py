"""Calls to a disk that does not answer in time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.syncer.errors import DiskSilent, NoAnswer, from_os_error
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import answered, fsync_dir, waiting_at_most, write_atomic
from holdfast.syncer.files.threads import ThreadCall


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """The event that the disk waits for before it answers."""
    answers = threading.Event()
    yield answers
    answers.set()


def test_a_call_without_a_deadline_is_made_in_the_same_thread() -> None:
    assert answered(threading.get_ident, lambda: "look") == threading.get_ident()
    with waiting_at_most(0, lambda text: None):
        assert answered(threading.get_ident, lambda: "look") == threading.get_ident()


def test_what_the_disk_answers_in_time_is_returned_or_raised() -> None:
    with waiting_at_most(1000, lambda text: None):
        assert answered(lambda: 5, lambda: "look") == 5
        with pytest.raises(ZeroDivisionError):
            answered(lambda: 1 // 0, lambda: "look")


def test_a_silent_disk_is_reported_and_then_counts_as_one_that_failed(
    silence: threading.Event,
) -> None:
    told: list[str] = []
    with waiting_at_most(0.02, told.append), pytest.raises(NoAnswer) as failure:
        answered(silence.wait, lambda: "fsync of /x/y")
    assert failure.value.errno == errno.ETIMEDOUT
    assert failure.value.strerror == "the disk has not answered for 0.02 s"
    assert told == [
        "the disk has not answered for 0.01 s: fsync of /x/y. After 0.02 s "
        "(HOLDFAST_DISK_DEADLINE_S) this counts as failed"
    ]


def test_the_time_in_which_a_job_was_suspended_is_that_of_one_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = iter([False, False, True])
    has_ended = ThreadCall.has_ended

    def interrupted(started: ThreadCall[int], within_s: float) -> bool:
        return next(waits) and has_ended(started, 60.0)

    monkeypatch.setattr(ThreadCall, "has_ended", interrupted)
    with waiting_at_most(300, lambda text: None):
        assert answered(lambda: 5, lambda: "look") == 5


def test_a_large_file_may_take_longer(silence: threading.Event) -> None:
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        silence.set()

    with waiting_at_most(0.02, tell):
        answered(silence.wait, lambda: "fsync of /x", size_bytes=4000 << 20)
    assert "After 1000.02 s " in told[0]


def test_where_no_thread_can_be_started_the_call_has_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(threading.Thread, "start", refused)
    with waiting_at_most(0.02, lambda text: None):
        assert answered(threading.get_ident, lambda: "look") == threading.get_ident()
    assert threads.busy() == 0


def test_it_is_not_retried_as_storage_is(silence: threading.Event) -> None:
    with waiting_at_most(0.02, lambda text: None), pytest.raises(NoAnswer) as failure:
        answered(silence.wait, lambda: "fsync")
    assert isinstance(from_os_error(failure.value, "put", "/x"), DiskSilent)


def test_a_file_that_the_disk_does_not_take_is_an_error_that_names_the_file(
    tmp_path: Path, silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: silence.wait())
    with waiting_at_most(0.02, told.append):
        with pytest.raises(NoAnswer):
            write_atomic(tmp_path / "head", b"data")
        with pytest.raises(NoAnswer):
            fsync_dir(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert ".tmp-" in told[0]
    assert f"fsync of the folder {tmp_path}." in told[1]
