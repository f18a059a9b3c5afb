"""A search algorithm that evaluates each config several times, to average out noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_number
from holdfast.scheduler.searchers.concurrency_limiter import Wrapper
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.stopper import lookup
from holdfast.trial.values import unwrap_scalar

TRIAL_INDEX: Final = "__trial_index__"


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
