"""Runs the user's search and stop functions in threads, off the control loop, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.forked import children_end_here
from holdfast.runtime.deadlines import first_of
from holdfast.trial.errors import TuneError

DEADLINE_S = 300.0

_Question = tuple[Callable[[], Any], Future[Any]]


class UserThread:
    """One thread for one piece of user code.

    It starts with the first call, and runs until `close`. If a call does not return within its
    deadline, the thread is abandoned, and a new one makes the remaining calls.
    """

    def __init__(self, name: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._name = name
        self._deadline_s = deadline_s
        self._thread: _Thread | None = None

    async def ask(self, question: Callable[[], Any]) -> Any:
        """Call `question` and return its answer.

        Raises what the user's code raises, and TuneError at the deadline. The deadline is for one
        question: calls before it have their own.
        """
        thread, call = self._ensure_thread(), Future[Any]()
        answer = thread.put(question, call)
        try:
            while True:
                before = thread.answered
                if await first_of([answer], self._deadline_s):
                    return answer.result()
                if thread is not self._thread and thread.running is not call:
                    thread = self._ensure_thread()  # it was moved there: its time begins anew
                elif thread.answered == before:
                    break
        finally:
            call.cancel()  # at once: another thread may take it over
            answer.cancel()
        if thread is self._thread:
            self._abandon(thread)
        raise TuneError(f"the {self._name} gave no answer within {self._deadline_s:g} s")

    def tell(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Make `call` after all earlier ones."""
        return self._ensure_thread().put(call, Future())

    def tell_each(self, steps: Iterator[Any]) -> asyncio.Future[Any]:
        """As `tell`, for all of `steps`. Each has its own deadline."""
        thread, over = self._ensure_thread(), object()

        def go_through() -> None:
            while True:
                with children_end_here():
                    if next(steps, over) is over:
                        return
                thread.answered += 1

        return thread.put(go_through, Future())

    def close(self) -> None:
        """Cancel waiting calls, and do not wait for a running one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            for _, answer in thread.end():
                answer.cancel()

    def _ensure_thread(self) -> _Thread:
        if self._thread is None:
            self._thread = _Thread(f"holdfast-{self._name}")
        return self._thread

    def _abandon(self, thread: _Thread) -> None:
        self._thread = None
        for waiting in thread.end():
            self._ensure_thread().queue.put(waiting)


class _Thread:
    """A daemon thread: at exit, Python would wait for threads of an executor, even if they are
    stuck."""

    def __init__(self, name: str) -> None:
        self.answered = 0
        self.running: Future[Any] | None = None
        self.queue: SimpleQueue[_Question | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, question: Callable[[], Any], answer: Future[Any]) -> asyncio.Future[Any]:
        self.queue.put((question, answer))
        return asyncio.wrap_future(answer)

    def end(self) -> list[_Question]:
        """End when the current call has returned. Returns the calls that have not begun."""
        left = []
        try:
            while (item := self.queue.get_nowait()) is not None:
                left.append(item)
        except Empty:
            pass
        self.queue.put(None)
        return left

    def _run(self) -> None:
        while (item := self.queue.get()) is not None:
            self._answer(*item)
            del item  # it may be large, and the next one may come late

    def _answer(self, question: Callable[[], Any], answer: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        self.running = answer
        try:
            with children_end_here():
                found = question()
        except BaseException as error:  # raised where the question was asked
            self.answered += 1
            answer.set_exception(error)
        else:
            self.answered += 1
            answer.set_result(found)
