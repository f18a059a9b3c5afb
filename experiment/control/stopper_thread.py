"""Calls the user's stopper in its own thread, with each report in order; on a restore also with
the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from holdfast.experiment.control.replay import Change
from holdfast.experiment.control.user_threads import DEADLINE_S, UserThread
from holdfast.experiment.records.journal_start import BEGINS
from holdfast.experiment.records.rows import newest_row
from holdfast.experiment.worker.host import failure_of
from holdfast.scheduler.effects import AskStopper
from holdfast.scheduler.events import Resumed, StopperAnswered
from holdfast.trial.events import Reported
from holdfast.trial.stopper import Stopper
from holdfast.trial.trial import Trial

StopFunction = Stopper | Callable[[str, dict[str, Any]], bool]


class StopperThread:
    """Calls the stopper."""

    def __init__(self, stopper: StopFunction | None, *, deadline_s: float = DEADLINE_S) -> None:
        self._stopper = stopper
        self._user_thread = UserThread("stopper", deadline_s=deadline_s)

    async def ask(self, effect: AskStopper, trial: Trial) -> StopperAnswered:
        """The stopper's answer to the trial's newest report."""
        row = newest_row(trial)
        try:
            stop, stop_all = await self._user_thread.ask(
                partial(_verdict, self._stopper, trial.trial_id, row)
            )
        except Exception as error:  # it becomes the failure of the trial that reported
            return _answer(effect, failure=failure_of(error, "stopper"))
        return _answer(effect, stop=stop, stop_all=stop_all)

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
    try:
        stop, stop_all = _verdict(stopper, trial.trial_id, newest_row(trial))
    except Exception as error:  # a failure of the trial; in a replay only if its answer is missing
        return _answer(asked, failure=failure_of(error, "stopper"))
    return _answer(asked, stop=stop, stop_all=stop_all)


def _verdict(
    stopper: StopFunction | None, trial_id: str, row: dict[str, Any]
) -> tuple[bool, bool]:
    assert stopper is not None
    stop = bool(stopper(trial_id, row))
    return stop, isinstance(stopper, Stopper) and bool(stopper.stop_all())


def _answer(asked: AskStopper | Reported, **answer: Any) -> StopperAnswered:
    return StopperAnswered(
        trial_id=asked.trial_id,
        attempt=asked.attempt,
        iteration=asked.iteration,
        **{"stop": False, **answer},
    )
