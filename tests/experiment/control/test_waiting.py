"""What wakes the thread of `fit()` while a run goes its way. The waits would take minutes."""

from __future__ import annotations

import os
import queue
import signal
import threading
from types import SimpleNamespace
from typing import Any

from holdfast.experiment.control.run import Run
from holdfast.experiment.control.watch import StopSignals
from holdfast.scheduler.machine import Machine

LONG_S = 300.0


def a_run() -> Run:
    plan: Any = SimpleNamespace(machine=Machine(), engine=None)
    return Run(plan)


def test_a_message_and_a_line_end_a_rest_also_if_they_came_before_it() -> None:
    run = a_run()
    run.tell("look out")
    run.tell("again")
    assert run.wait_for_news(0.0, LONG_S, LONG_S)
    threading.Timer(0.01, run.tell, ["look out"]).start()
    assert run.wait_for_news(0.0, LONG_S, LONG_S)


def test_a_signal_ends_a_rest() -> None:
    run = a_run()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignals(caught=run.ring) as signals:
            threading.Timer(0.01, os.kill, [os.getpid(), signal.SIGINT]).start()
            assert run.wait_for_news(0.0, LONG_S, LONG_S)
            assert signals.take() == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_report_is_news_only_after_the_rest_and_a_new_status_at_once() -> None:
    run = a_run()
    run._on_change(is_of_status=False)
    assert run._bell.empty()
    run.machine.now = 7.0
    assert not run.wait_for_news(0.0, 0.0, LONG_S)  # an event since the look at 0.0

    class Bell:
        """A report comes when the quiet has begun."""

        def __init__(self) -> None:
            self.waits: list[float] = []

        def empty(self) -> bool:
            return True

        def get(self, timeout: float) -> None:
            self.waits.append(timeout)
            if len(self.waits) == 2:
                run._on_change(is_of_status=False)
            else:
                raise queue.Empty

        def put(self, _: None) -> None:
            self.waits.append(-1.0)

    bell: Any = Bell()
    run._bell = bell
    assert run.wait_for_news(7.0, 1.0, 2.0)
    assert bell.waits == [1.0, 2.0, -1.0]
    run._on_change(is_of_status=True)
    assert bell.waits[-1] == -1.0
    assert len(bell.waits) == 4


def test_the_end_of_the_run_ends_a_rest() -> None:
    run = a_run()
    run.done.set()
    run.ring()
    assert run.wait_for_news(0.0, LONG_S, LONG_S)
