"""Orders of a person inside a run of this process: each follows an event at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.experiment.control.controller import Controller
from holdfast.scheduler.events import Event
from holdfast.trial.events import Reported

# Whether it is the moment, and the event to post then: both see the controller.
When = Callable[[Controller, Event], bool]
What = Callable[[Controller], Event]


class Orders:
    """Posts each event once, as soon as its moment has come; before any later report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._due: list[tuple[When, What]] = []
        self.controller: Controller | None = None
        original = Controller.post

        def post(controller: Controller, event: Event) -> None:
            original(controller, event)
            self.controller = controller
            for one in [one for one in self._due if one[0](controller, event)]:
                self._due.remove(one)
                original(controller, one[1](controller))

        monkeypatch.setattr(Controller, "post", post)

    def add(self, when: When, *several: What) -> None:
        self._due += [(when, what) for what in several]

    @property
    def are_done(self) -> bool:
        return not self._due


def at_report(index: int, iteration: int) -> When:
    """The moment when trial number `index` has reported this iteration."""

    def is_due(controller: Controller, event: Event) -> bool:
        if not isinstance(event, Reported):
            return False
        trial = controller.machine.trials[event.trial_id]
        return (trial.spec.index, event.iteration) == (index, iteration)

    return is_due


def when_it_waits(controller: Controller, event: Event) -> bool:
    """The moment when only trials are left that a person has paused."""
    return controller.machine.waits_for_person


def of(index: int, make: Callable[[str], Event]) -> What:
    """The event about trial number `index`."""
    return lambda controller: make(list(controller.machine.trials)[index])
