"""Wrappers around a search algorithm: one limits the trials in progress, one evaluates each config
several times to average out noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_count, is_number
from holdfast.scheduler.events import Outlook
from holdfast.scheduler.searchers.searcher import Searcher, SearchPlan, introduce
from holdfast.trial.config import TRIAL_INDEX
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import lookup
from holdfast.trial.values import unwrap_scalar

_End = tuple[dict[str, Any] | None, bool]


class Wrapper(Searcher, ABC):
    """Base class of searchers that wrap another one, `searcher`."""

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise InvalidConfig(
                f"{type(self).__name__} needs a tune.search.Searcher, not {searcher!r:.100}"
            )
        super().__init__(metric=searcher.metric, mode=searcher.mode)
        self.searcher = searcher
        self.repeats = searcher.repeats

    @property
    def look_ahead(self) -> float:
        """That of the inner searcher."""
        return self.searcher.look_ahead

    @look_ahead.setter
    def look_ahead(self, share: float) -> None:
        self.searcher.look_ahead = share

    @property
    def expressions(self) -> str:
        return self.searcher.expressions

    @property
    def seed(self) -> int | None:
        """The seed of the inner searcher, which becomes the experiment's."""
        return getattr(self.searcher, "seed", None)

    @property
    def asked_space(self) -> Mapping[str, str]:
        return self.searcher.asked_space

    @property
    def own_space(self) -> Any:
        return self.searcher.own_space

    @property
    def infeasible(self) -> Collection[str]:
        return self.searcher.infeasible

    @property
    def outlook(self) -> Outlook | None:
        return self.searcher.outlook

    def plan(self, space: Mapping[str, Any]) -> SearchPlan | None:
        return self.searcher.plan(space)

    def check_space(self, metric: str | None, mode: str | None, config: Mapping[str, Any]) -> Any:
        return self.searcher.check_space(metric, mode, config)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        self.metric, self.mode = self.metric or metric, self.mode or mode
        self._forget()
        return introduce(self.searcher, metric, mode, config, **spec)

    def get_state(self) -> dict[str, Any]:
        return self.searcher.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what `get_state` has returned: the state of the inner searcher."""
        self.searcher.set_state(state)

    def save(self, checkpoint_path: Any) -> None:
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: Any) -> None:
        self.searcher.restore(checkpoint_path)

    def save_to_dir(self, checkpoint_dir: Any, session_str: str = "default") -> None:
        self.searcher.save_to_dir(checkpoint_dir, session_str)

    def restore_from_dir(self, checkpoint_dir: Any) -> None:
        self.searcher.restore_from_dir(checkpoint_dir)

    @abstractmethod
    def _forget(self) -> None:
        """Return to the state before the first trial."""

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(
            parameters, value, error=error, pruned=pruned, intermediate_values=intermediate_values
        )


class ConcurrencyLimiter(Wrapper):
    """Asks `searcher` for a config only while fewer than `max_concurrent` trials are in progress.

    With `batch`, the searcher learns of ended trials only when a full batch has ended. So it
    suggests all `max_concurrent` configs of the next batch from the same results. Trials that a
    restore resumes count, too.

    Raises InvalidConfig.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        super().__init__(searcher)
        if isinstance(searcher, ConcurrencyLimiter):
            raise InvalidConfig("searcher is already a ConcurrencyLimiter: set only one limit")
        self.batch = batch
        self._forget()
        self.set_max_concurrency(max_concurrent)

    @property
    def look_ahead(self) -> float:
        """The configs of a batch know the same results, whenever they are suggested."""
        return 1.0 if self.batch else self.searcher.look_ahead

    @look_ahead.setter
    def look_ahead(self, share: float) -> None:
        self.searcher.look_ahead = share

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials in progress. Raises InvalidConfig."""
        fits = is_count(max_concurrent) and max_concurrent >= 1
        require(fits, f"max_concurrent must be 1 or more, not {max_concurrent!r}")
        self.max_concurrent = max_concurrent
        self._is_inner = self.searcher.set_max_concurrency(max_concurrent)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self._is_inner and len(self._live) >= self.max_concurrent:
            return None
        answer = self.searcher.suggest(trial_id)
        if answer is None and self._live and len(self._ended) == len(self._live):
            # The searcher waits for results that are held back here.
            self._report_ends()
            answer = self.searcher.suggest(trial_id)
        if isinstance(answer, dict):
            self._live[trial_id] = None
        return answer

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self._live[trial_id] = None
        self.searcher.recall(trial_id, config)

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        is_taken = self.searcher.take_added(trial_id, config)
        if is_taken:
            self._live[trial_id] = None
        return is_taken

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_pruned(self, trial_id: str) -> None:
        self.searcher.on_trial_pruned(trial_id)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if trial_id not in self._live:
            return
        self._ended[trial_id] = (result, error)
        if not self.batch or len(self._ended) >= self.max_concurrent:
            self._report_ends()

    def _forget(self) -> None:
        self._live: dict[str, None] = {}
        self._ended: dict[str, _End] = {}

    def _report_ends(self) -> None:
        ended, self._ended = self._ended, {}
        for trial_id, (result, error) in ended.items():
            del self._live[trial_id]
            self.searcher.on_trial_complete(trial_id, result=result, error=error)


@dataclass(slots=True, kw_only=True)
class _Group:
    """The trials of one config; the searcher knows only the first."""

    config: dict[str, Any]
    trials: list[str] = field(default_factory=list)
    scores: dict[str, Mapping[str, float] | None] = field(default_factory=dict)


class Repeater(Wrapper):
    """Evaluates each config of `searcher` `repeat` times, and passes it the mean.

    With `set_index`, each config has the number of its repetition, from 0, under
    `__trial_index__`.

    The mean is that of the metric in the last reports. Trials that failed, or whose metric is
    missing, not a number or NaN, are left out; if none remains, the searcher sees a failure. It
    does not see intermediate reports. `num_samples` counts trials, so it should be a multiple of
    `repeat`; a scheduler that stops trials early distorts the mean.

    Raises InvalidConfig.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        super().__init__(searcher)
        if not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 1:
            raise InvalidConfig(f"repeat must be 1 or more, not {repeat!r}")
        self.repeat = repeat
        self.set_index = set_index
        self.repeats = repeat * searcher.repeats
        self._forget()

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        taken = super().set_search_properties(metric, mode, config, **spec)
        if not self._metrics:
            raise InvalidConfig(
                "Repeater needs a metric to average: set TuneConfig(metric=..., mode=...)"
            )
        return taken

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        group = self._open_group()
        if group is None:
            answer = self.searcher.suggest(trial_id)
            if not isinstance(answer, dict):
                return answer
            group = _Group(config=answer)
        return self._joined(group, trial_id)

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        group = self._open_group()
        if group is None:
            inner = {key: value for key, value in config.items() if key != TRIAL_INDEX}
            self.searcher.recall(trial_id, inner)
            group = _Group(config=inner)
        self._joined(group, trial_id)

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        return False  # it runs once, and a mean needs several

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        group = self._groups.get(trial_id)
        if group is None:
            return
        del self._groups[trial_id]
        group.scores[trial_id] = None if error or result is None else self._scores(result)
        if len(group.scores) == self.repeat:
            mean = self._mean(group)
            self.searcher.on_trial_complete(group.trials[0], result=mean, error=mean is None)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return self.searcher.set_max_concurrency(max_concurrent)

    def _forget(self) -> None:
        self._newest: _Group | None = None
        self._groups: dict[str, _Group] = {}

    @property
    def _metrics(self) -> Sequence[str]:
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    def _open_group(self) -> _Group | None:
        group = self._newest
        return None if group is None or len(group.trials) == self.repeat else group

    def _joined(self, group: _Group, trial_id: str) -> dict[str, Any]:
        self._newest = group
        number = len(group.trials)
        group.trials.append(trial_id)
        self._groups[trial_id] = group
        return {**group.config, TRIAL_INDEX: number} if self.set_index else dict(group.config)

    def _scores(self, row: Mapping[str, Any]) -> Mapping[str, float] | None:
        found = {metric: unwrap_scalar(lookup(row, metric)) for metric in self._metrics}
        return found if all(map(_is_score, found.values())) else None

    def _mean(self, group: _Group) -> dict[str, Any] | None:
        scores = [score for score in group.scores.values() if score is not None]
        if not scores:
            return None
        return {m: sum(score[m] for score in scores) / len(scores) for m in self._metrics}


def _is_score(value: object) -> bool:
    return is_number(value) and not math.isnan(value)
