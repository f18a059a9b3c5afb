"""Performs the orders of a person: checks each against the machine, and posts it as an event.

An order for several trials applies to those that it fits; the answer names the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from holdfast.experiment.progress.wording import shortage
from holdfast.experiment.steering.orders import (
    AddConfig,
    AddTrials,
    LimitTrials,
    Order,
    PauseTrials,
    ResumeTrials,
    StopExperiment,
    StopTrials,
    WriteNote,
)
from holdfast.experiment.steering.socket import Refused
from holdfast.names import listed
from holdfast.scheduler import events
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.steering import refusal
from holdfast.scheduler.stopping import RESUMABLE
from holdfast.text.values import counted
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from holdfast.experiment.callbacks.thread import Level
    from holdfast.experiment.control.controller import Controller

# So many events go into the journal with one write, and no report waits longer for them.
_AT_A_TIME = 200
_SHOWN = 10


TrialOrder = events.TrialStopOrdered | events.PauseRequested | events.ResumeRequested


class Steered(Protocol):
    """The run that a person steers."""

    @property
    def controller(self) -> Controller | None:
        """None until it has begun."""

    def end_for(self, by: str) -> None:
        """End as after a Ctrl-C, but say who has ordered it."""

    def tell(self, text: str, level: Level) -> None:
        """Show a message in the run's output."""


class PersonOrders:
    """Performs orders on one run."""

    def __init__(self, run: Steered) -> None:
        self._run = run

    async def perform(self, order: Order, by: str) -> str:
        """Perform an order of `by`, which is in the journal afterwards. Returns a sentence, which
        the run's output shows, too. Raises Refused."""
        text = await self._perform(order, by)
        if not isinstance(order, StopExperiment):  # `fit()` says more about it
            self._run.tell(f"{by}: {text}", "info")
        return text

    async def _perform(self, order: Order, by: str) -> str:
        match order:
            case StopExperiment():
                return self._stop_experiment(by)
            case StopTrials(trials=ids):
                stops = [events.TrialStopOrdered(trial_id=one, by=by) for one in ids]
                return await self._each(stops, lambda _, done: _trials(done, "stop"))
            case PauseTrials(trials=ids, now=now):
                pauses = [events.PauseRequested(trial_id=one, by=by, now=now) for one in ids]
                return await self._each(pauses, _paused)
            case ResumeTrials(trials=ids):
                resumes = [events.ResumeRequested(trial_id=one, by=by) for one in ids]
                return await self._each(resumes, lambda _, done: _trials(done, "resume"))
            case LimitTrials(max_concurrent=most):
                own = self._begun().user_code.own_limit
                return _limited(self._post(events.LimitChanged(max_concurrent=most, by=by)), own)
            case AddTrials(count=count):
                return self._add_trials(count, by)
            case AddConfig(config=config):
                return self._add_config(config, by)
            case WriteNote(trial=trial_id, text=text):
                self._post(events.NoteWritten(trial_id=trial_id, text=text, by=by))
                return f"the note of trial {trial_id} is {'written' if text else 'removed'}"
            case _:
                assert_never(order)

    def _begun(self) -> Controller:
        """Raises Refused before the run has begun, and once it ends."""
        controller = self._run.controller
        if controller is None:
            raise Refused("the run is still starting: try again in a moment")
        if controller.fault is not None:
            raise Refused(f"the run is ending: {controller.fault}")
        if (ending := controller.machine.ending) is not None:
            raise Refused(f"the run is ending: {ending.message or ending.reason}")
        if controller.machine.finished:
            raise Refused("the run has finished")
        return controller

    def _post(self, order: events.Order) -> Machine:
        """The machine that has handled it. Raises Refused."""
        controller = self._begun()
        if reason := refusal(controller.machine, order):
            raise Refused(reason)
        self._record(controller, [order])
        return controller.machine

    def _record(self, controller: Controller, several: Sequence[events.Order]) -> None:
        """Raises Refused if they are not in the journal."""
        controller.post_all(several)
        if controller.fault is not None:  # the disk is full
            raise Refused(f"the run is ending: {controller.fault}")

    async def _each(
        self,
        several: Sequence[TrialOrder],
        sentence: Callable[[Machine, list[str]], str],
    ) -> str:
        """Post those that apply. Returns the sentence about these trials, and why not the others.
        Raises Refused if none applies."""
        done: list[str] = []
        refused: list[str] = []
        for at in range(0, len(several), _AT_A_TIME):
            part = several[at : at + _AT_A_TIME]
            try:
                controller = self._begun()
                reasons = {one: refusal(controller.machine, one) for one in part}
                fitting = [one for one, reason in reasons.items() if not reason]
                self._record(controller, fitting)
            except Refused as error:
                if not done:
                    raise
                refused.append(f"{counted(len(several) - at, 'trial', 'trials')}: {error}")
                break
            done += [one.trial_id for one in fitting]
            refused += filter(None, reasons.values())
            await asyncio.sleep(0)  # let reports be answered in between
        reasons_text = listed(refused, _SHOWN, "; ")
        if not done:
            raise Refused(reasons_text)
        told = sentence(controller.machine, done)
        return f"{told}. Not done: {reasons_text}" if refused else told

    def _add_trials(self, count: int, by: str) -> str:
        total = self._begun().user_code.total_with(count)
        samples = self._post(events.SamplesAdded(count=count, by=by, total=total)).spec.num_samples
        if total in (None, samples):
            return (
                f"{counted(count, 'trial is', 'trials are')} added: num_samples is now {samples}"
            )
        return f"num_samples is now {samples}: the search makes {total} trials in total"

    def _add_config(self, config: Mapping[str, Any], by: str) -> str:
        search = self._begun().user_code
        try:
            checked, lines = search.checked_config(config)
        except InvalidConfig as error:
            raise Refused(str(error)) from error
        self._post(events.ConfigAdded(config=checked, by=by))
        return ". ".join(["a trial with this config is added and starts next", *lines])

    def _stop_experiment(self, by: str) -> str:
        controller = self._run.controller
        ending = None if controller is None else controller.machine.ending
        if ending is not None and ending.reason in RESUMABLE:
            return f"the run is ending already: {ending.message or ending.reason}"
        if controller is not None and controller.machine.finished:
            raise Refused("the run has finished")
        self._run.end_for(by)
        if controller is not None and controller.fault is not None:
            raise Refused(f"the run is ending: {controller.fault}")
        return "the experiment stops. A restore resumes it"


def _paused(machine: Machine, done: Sequence[str]) -> str:
    pausing = [one for one in done if machine.trials[one].is_pausing]
    paused = [one for one in done if not machine.trials[one].is_pausing]
    parts = [_trials(paused, "is paused", "are paused")] if paused else []
    saves = machine.spec.saves_when_told
    if pausing:
        when = "next report" if saves else "next report with a checkpoint"
        whose = "its" if len(pausing) == 1 else "their"
        parts.append(f"{_trials(pausing, 'pause')} at {whose} {when}")
    if without := [one for one in pausing if not (saves or machine.trials[one].checkpoints)]:
        parts.append(
            f"{_trials(without, 'has', 'have')} no checkpoint yet, and would start from scratch "
            f"if paused at once"
        )
    return "; ".join(parts)


def _limited(machine: Machine, own: int | None) -> str:
    most = machine.spec.max_concurrent
    more = ""
    if most is not None and (short := shortage(machine, most)):
        more = f", but {short}"
    if own is not None and (most is None or own < most):
        more += f". The search algorithm itself lets at most {own} run"
    if most is None:
        return f"any number of trials may run at once from now on{more}"
    running = sum(trial.status.has_worker for trial in machine.trials.values())
    if running > most:
        more += f". {running} run now, and continue"
    return f"at most {counted(most, 'trial runs', 'trials run')} at once from now on{more}"


def _trials(ids: Sequence[str], verb: str, plural: str = "") -> str:
    """`trial a stops`; `2 trials stop: a, b`."""
    if len(ids) == 1:
        return f"trial {ids[0]} {verb if plural else f'{verb}s'}"
    return f"{len(ids):,} trials {plural or verb} ({listed(ids, _SHOWN)})"
