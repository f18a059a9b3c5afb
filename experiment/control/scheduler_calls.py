"""Calls a user's scheduler in Ray's style, with views of the trials as they were when the machine
asked; on a restore, makes the answered calls again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView, Views
from holdfast.experiment.control.replay import Change
from holdfast.experiment.records.rows import columns_of
from holdfast.scheduler.events import ExperimentSpec, SchedulerAnswered
from holdfast.scheduler.hooks import ENDS, SchedulerHooks
from holdfast.scheduler.policies.ray_style import CALL, CHOSEN, ORDERS, SAID
from holdfast.scheduler.policy import TrialScheduler
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.trial.trial import Trial

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
