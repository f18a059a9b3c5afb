"""Lines of trials on their way to the screen: the newest are shown, the others are counted."""

from __future__ import annotations

import io
from typing import Any, cast

from holdfast.experiment.control.run import Run
from holdfast.experiment.control.watch import watch
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.terminal_view import LogBuffer
from holdfast.experiment.progress.views import LogView
from holdfast.scheduler.machine import Machine


def test_lines_are_taken_once_in_their_order() -> None:
    log_buffer = LogBuffer(10)
    for number in range(3):
        log_buffer.put("a", f"{number}")
    taken = log_buffer.take()
    assert list(taken.lines) == [("a", "0"), ("a", "1"), ("a", "2")]
    assert not taken.skipped
    assert not log_buffer.take().lines


def test_the_oldest_make_room_and_are_counted_for_each_trial() -> None:
    log_buffer = LogBuffer(2)
    for prefix in ("a", "b", "a", "a", "b"):
        log_buffer.put(prefix, "x")
    log_buffer.skip("c", 5)
    taken = log_buffer.take()
    assert list(taken.lines) == [("a", "x"), ("b", "x")]
    assert taken.skipped == {"a": 2, "b": 1, "c": 5}
    assert not log_buffer.take().skipped


class Busy:
    """A run that ends while it is watched, with more lines than the buffer holds."""

    fault = None
    stopped_by = ""
    machine = Machine()

    def __init__(self) -> None:
        self.lines = LogBuffer(2)
        self.messages: list[Any] = []
        for number in range(5):
            self.lines.put("train_7 pid=9", f"line {number}")

    def start(self) -> None: ...

    def join(self) -> None: ...

    def ring(self) -> None: ...

    def wait_for_news(self, seen: float, rest_s: float, quiet_s: float) -> bool:
        return True

    def wait(self, timeout_s: float | None) -> bool:
        return True

    def summary(self, facts: RunFacts) -> Summary:
        return Summary(name=facts.name, path=facts.path, counts={}, total=0)


def test_a_watcher_that_catches_up_is_shown_what_it_does_not_see() -> None:
    stream = io.StringIO()
    facts = RunFacts(name="exp", path="p", local_path="p")
    watch(cast(Run, Busy()), LogView(stream), facts)
    assert stream.getvalue().splitlines()[:3] == [
        "(train_7 pid=9) ... 3 lines not shown here, see its stdout and stderr files",
        "(train_7 pid=9) line 3",
        "(train_7 pid=9) line 4",
    ]
