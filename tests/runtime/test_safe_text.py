"""Every exception of user code has a text, and soon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.text import errors
from holdfast.text.errors import excerpt, message_of, named, traceback_of, type_name

released = threading.Event()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The wait for a text is short, and no thread that makes one outlives its test."""
    monkeypatch.setattr(errors, "TEXT_DEADLINE_S", 0.05)
    released.clear()
    yield
    released.set()
    monkeypatch.undo()
    for thread in threading.enumerate():
        if thread.name == "holdfast-safe-text":
            thread.join()


class Odd(ValueError):
    """An exception whose text comes from user code."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def __str__(self) -> str:
        text: str = self.make()
        return text


def wait() -> str:
    released.wait()
    return ""


def test_the_text_of_an_error_is_what_it_says() -> None:
    assert named(ValueError("no", 5)) == "ValueError: ('no', 5)"
    assert message_of(KeyError("k")) == "'k'"


def test_text_of_the_users_own_is_made_in_a_thread_and_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert message_of(Odd(wait)) == "(its __str__ did not end within 0.05 s)"
    monkeypatch.setattr(errors, "TEXT_DEADLINE_S", 60.0)
    assert message_of(Odd(lambda: threading.current_thread().name)) == "holdfast-safe-text"
    assert message_of(Odd(lambda: 5)) == "(its __str__ raised TypeError)"
    assert message_of(Odd(lambda: 1 // 0)) == "(its __str__ raised ZeroDivisionError)"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error", [raised(Odd(wait)), raised(ValueError("a"), Odd(wait)), raised(ValueError(Odd(wait)))]
)
def test_the_frames_of_an_error_are_shown_whatever_its_text_is(error: BaseException) -> None:
    text = traceback_of(error, error.__traceback__)
    assert "in raised" in text
    assert "(the rest cannot be shown: did not end within 0.05 s)" in text
    assert type_name(error) in text.splitlines()[-1]


def test_notes_and_groups_are_the_users_too() -> None:
    noted = ValueError("a")
    vars(noted)["__notes__"] = [Odd(wait)]
    group = ExceptionGroup("several", [Odd(wait)])
    for error in (noted, group):
        assert "cannot be shown" in traceback_of(raised(error), None)


def test_the_file_that_a_built_in_error_names_is_the_users_too() -> None:
    path = type("Path", (), {"__repr__": lambda self: wait()})()
    assert "cannot be shown" in traceback_of(raised(OSError(2, "not there", path)), None)


def test_an_error_is_reported_where_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert message_of(Odd(lambda: "what it says")) == "what it says"


def test_an_error_that_calls_itself_built_in_is_no_less_the_users() -> None:
    kind = type("ValueError", (Odd,), {"__module__": "builtins"})
    assert "did not end" in message_of(kind(wait))


def test_an_excerpt_of_a_value_ends() -> None:
    assert excerpt("x" * 100) == "'" + "x" * 79
    assert excerpt([1, 2]) == "[1, 2]"
    held = type("Held", (), {"__repr__": lambda self: wait()})
    assert excerpt(held()) == "(its __repr__ did not end within 0.05 s)"
    mute = type("Mute", (), {"__repr__": lambda self: None})
    assert excerpt(mute()) == "(its __repr__ raised TypeError)"
