"""Runs the user's stop function and scheduler in threads, off the control loop, in order.

User code that a restore has created knows nothing of earlier results. One pass over the journal
(`history`) replays them, change by change, in the original order. It holds only one record in
memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView, Views
from holdfast.experiment.records.journal import BEGINS
from holdfast.experiment.records.recovery import Fold, subject_of
from holdfast.experiment.records.rows import columns_of, newest_row
from holdfast.experiment.worker.failures import failure_of
from holdfast.forked import children_end_here
from holdfast.runtime.tasks import first_of
from holdfast.scheduler.effects import AskStopper
from holdfast.scheduler.events import (
    Event,
    ExperimentSpec,
    Recalled,
    Resumed,
    SchedulerAnswered,
    StopperAnswered,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policies.ray_style import CALL, CHOSEN, ORDERS, SAID
from holdfast.scheduler.policy import ENDS, SchedulerHooks, TrialScheduler
from holdfast.syncer.journal.journal import Position
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.events import Reported
from holdfast.trial.stoppers import Stopper
from holdfast.trial.trial import Status, Trial

# An event, and its trial before and after it. The event is None if an event of another trial
# changed this one.
Change = tuple[Event | None, Trial | None, Trial | None]


def history(journal: Path, start: Position, stop: Position) -> Iterator[Change]:
    """Each change of a trial between two positions of the journal.

    `start` is where the experiment begins.
    """
    fold = Fold(Machine(), start)
    for event, _, before in fold.run(journal, stop):
        subject = subject_of(event) or ""
        yield event, before, fold.machine.trials.get(subject)
        if isinstance(event, Recalled):
            yield from _known(fold.machine)
        yield from others_moved(fold.machine, subject)


def _known(machine: Machine) -> Iterator[Change]:
    """The trials of a history that is lost, and which of them have ended."""
    for trial in machine.trials.values():
        begun = Trial(spec=trial.spec)
        yield Suggested(spec=trial.spec), None, begun
        if trial.status.is_final:
            yield None, begun, trial


def others_moved(machine: Machine, by: str) -> list[Change]:
    """The changes of other trials by the newest event, which is about trial `by`.

    It may have ended, paused or resumed them; they have no event of their own.
    """
    return [
        (None, before, machine.trials[trial_id])
        for trial_id, before in machine.moved.items()
        if trial_id != by and _has_ended_or_paused(before, machine.trials[trial_id])
    ]


def _has_ended_or_paused(before: Trial, after: Trial) -> bool:
    has_ended = after.status.is_final and not before.status.is_final
    was_paused = before.status is Status.PAUSED
    return has_ended or was_paused != (after.status is Status.PAUSED)


_WORDS = (
    SchedulerHooks.CONTINUE,
    SchedulerHooks.PAUSE,
    SchedulerHooks.STOP,
    SchedulerHooks.NOOP,
)


class TrialController:
    """The experiment as a scheduler in Ray's style sees it during one call.

    `orders` gets what the scheduler orders about trials, each with the trial's id.
    """

    def __init__(self, views: Views, orders: list[list[str]]) -> None:
        self._views = views
        self._orders = orders

    def get_trials(self) -> list[TrialView]:
        """All trials, in the order in which they were added."""
        return list(self._views.trials)

    def get_live_trials(self) -> list[TrialView]:
        """The trials that have not ended."""
        return [trial for trial in self._views.trials if not trial.is_finished()]

    def get_trial(self, trial_id: str) -> TrialView | None:
        return self._views.get(trial_id)

    def pause_trial(self, trial: TrialView, should_checkpoint: bool = True) -> None:
        """Pause a running trial. It resumes from its newest checkpoint."""
        self._orders.append([SchedulerHooks.PAUSE, trial.trial_id])

    def stop_trial(self, trial: TrialView) -> None:
        """End a trial."""
        self._orders.append([SchedulerHooks.STOP, trial.trial_id])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = ", ".join(one for one in vars(TrialController) if one[0] != "_")
        raise AttributeError(f"a scheduler's controller has no {name}: it has {known}")


class SchedulerCalls:
    """The calls of one scheduler. Only one thread at a time may use it; `note` may be called from
    another one."""

    def __init__(self, users: TrialScheduler, surroundings: Surroundings) -> None:
        self._users = users
        self._views = Views(surroundings)
        # The newest states of trials that the views do not show yet.
        self._unseen: dict[str, Trial] = {}
        # The trials that `on_trial_add` has had.
        self._added: set[str] = set()
        # What the scheduler says about itself, for people.
        self.line = ""
        self._closed = False

    @property
    def name(self) -> str:
        return type(self._users).__name__

    def set_goal(self, spec: ExperimentSpec) -> None:
        """Give the scheduler its goal, unless that is its own. Raises InvalidConfig."""
        users = self._users
        metric = None if (users.metric or users._metric) == spec.metric else spec.metric
        mode = None if (users.mode or users._mode) == spec.mode else spec.mode
        if users.set_search_properties(metric, mode) is False:
            raise InvalidConfig(
                f"{self.name}.set_search_properties({metric!r}, {mode!r}) returned False: it has "
                "a metric or mode of its own. Leave them out there, or in TuneConfig"
            )

    def note(self, trial: Trial) -> None:
        """Show this state of the trial from the next call on."""
        self._unseen[trial.trial_id] = trial

    def call(self, trial_id: str, question: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """The call that answers a question about the trial as it is now."""
        unseen, self._unseen = self._unseen, {}

        def answer() -> dict[str, Any]:
            for trial in unseen.values():
                self._views.show(trial)
            return self._answer(trial_id, question[CALL])

        return answer

    def replay(self, history: Iterable[Change]) -> Iterator[None]:
        """Make the calls again that `history` has answers of; their decisions are known."""
        for event, _, after in history:
            if self._closed:
                return
            if isinstance(event, SchedulerAnswered) and CALL in event.answer:
                self._answer(event.trial_id, event.answer[CALL])
            if after is not None:
                self._views.show(after)
            yield

    def close(self) -> None:
        """End a replay."""
        self._closed = True

    def _answer(self, trial_id: str, hook: str) -> dict[str, Any]:
        trial = self._views.get(trial_id)
        if trial is None:
            raise TuneError(f"{self.name}.{hook}: there is no trial {trial_id}")
        orders: list[list[str]] = []
        controller = TrialController(self._views, orders)
        if hook == "choose_trial_to_run":
            chosen = self._id_of(self._users.choose_trial_to_run(controller))
            return {CALL: hook, CHOSEN: chosen, ORDERS: orders}
        if trial_id not in self._added:
            self._added.add(trial_id)
            self._users.on_trial_add(controller, trial)
        said = self._call(hook, controller, trial)
        if hook in ENDS:
            self._added.discard(trial_id)  # a restore may run it again
            self.line = self._users.debug_string()
        return {CALL: hook, SAID: said, ORDERS: orders}

    def _call(self, hook: str, controller: TrialController, trial: TrialView) -> str | None:
        users = self._users
        match hook:
            case "on_trial_result":
                return self._word(users.on_trial_result(controller, trial, _row(trial)))
            case "on_trial_complete":
                users.on_trial_complete(controller, trial, {**_row(trial), "done": True})
            case "on_trial_error":
                users.on_trial_error(controller, trial)
            case "on_trial_remove":
                users.on_trial_remove(controller, trial)
            case _:
                pass
        return None

    def _word(self, said: Any) -> str:
        if said not in _WORDS:
            raise TuneError(
                f"{self.name}.on_trial_result() must return TrialScheduler.CONTINUE, PAUSE, STOP "
                f"or NOOP, not {said!r:.100}"
            )
        return str(said)

    def _id_of(self, chosen: Any) -> str | None:
        if chosen is None:
            return None
        if isinstance(chosen, TrialView):
            return chosen.trial_id
        raise TuneError(
            f"{self.name}.choose_trial_to_run() must return one of get_trials(), or None, not "
            f"{chosen!r:.100}"
        )


def _row(trial: TrialView) -> dict[str, Any]:
    """The trial's newest row with `a/b` for nested values, as Ray's schedulers get it."""
    return columns_of(trial.last_result)


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


StopFunction = Stopper | Callable[[str, dict[str, Any]], bool]


class StopperThread:
    """Calls the stopper."""

    def __init__(self, stopper: StopFunction | None, *, deadline_s: float = DEADLINE_S) -> None:
        self._stopper = stopper
        self._user_thread = UserThread("stopper", deadline_s=deadline_s)

    async def ask(self, effect: AskStopper, trial: Trial) -> StopperAnswered:
        """The stopper's answer to the trial's newest report."""
        call = partial(answer_of, self._stopper, effect, trial)
        try:
            answer: StopperAnswered = await self._user_thread.ask(call)
        except TuneError as error:  # it did not return: a failure of the trial that reported
            answer = _failed(effect, error)
        return answer

    async def replay(self, history: Iterable[Change], number: int) -> list[StopperAnswered]:
        """Show the new stopper the reports that the earlier one saw.

        `number` is the stopper's number: an extended experiment may have had another one before.
        Returns the answers that `history` lacks. Raises TuneError if the user's code does not
        return.
        """
        due: dict[str, StopperAnswered] = {}
        telling = self._user_thread.tell_each(self._replayed(history, number, due))
        answers: list[StopperAnswered] = await self._user_thread.ask(lambda: list(due.values()))
        await telling
        return answers

    def close(self) -> None:
        self._user_thread.close()

    def _replayed(
        self, history: Iterable[Change], number: int, due: dict[str, StopperAnswered]
    ) -> Iterator[None]:
        """Show the stopper the reports step by step. Adds answers that `history` lacks to
        `due`."""
        is_asked = False
        for event, before, after in history:
            if isinstance(event, (*BEGINS, Resumed)) and event.spec is not None:
                is_asked = event.spec.has_stopper and event.spec.stop_number == number
            elif isinstance(event, StopperAnswered):
                due.pop(event.trial_id, None)
            elif isinstance(event, Reported) and is_asked and after is not before:
                assert after is not None
                due[event.trial_id] = answer_of(self._stopper, event, after)
            yield


def answer_of(
    stopper: StopFunction | None, asked: AskStopper | Reported, trial: Trial
) -> StopperAnswered:
    """Call the stopper here with the trial's newest report."""
    assert stopper is not None
    try:
        with children_end_here():  # a child that raises does not get to the failure below
            stop = bool(stopper(trial.trial_id, newest_row(trial)))
            stop_all = isinstance(stopper, Stopper) and bool(stopper.stop_all())
    except Exception as error:  # a failure of the trial; in a replay only if its answer is missing
        return _failed(asked, error)
    return replace(_answer(asked), stop=stop, stop_all=stop_all)


def _failed(asked: AskStopper | Reported, error: Exception) -> StopperAnswered:
    return replace(_answer(asked), failure=failure_of(error, "stopper"))


def _answer(asked: AskStopper | Reported) -> StopperAnswered:
    return StopperAnswered(
        trial_id=asked.trial_id, attempt=asked.attempt, iteration=asked.iteration, stop=False
    )
