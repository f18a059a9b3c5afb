"""Warm starts: a search begins with the best configs of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_finite
from holdfast.schema import to_fields
from holdfast.text.values import counted
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.metrics import lookup, near_text
from holdfast.trial.space import same
from holdfast.trial.values import unwrap_scalar
from holdfast.tune.search.library import AssignmentCodec

# So many configs come first: half of those that are otherwise spread over the space. With two,
# good earlier runs help less; what misleading ones cost is in docs/quality.md.
_FIRSTS: Final = 4
# The best trials of a run that are kept: the very best may not fit the space.
_MOST_KEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The part of an earlier run that a search keeps: its best trials' configs by `metric` and
    `mode`, the best first."""

    name: str
    metric: str
    mode: str
    configs: Sequence[Any]

    def plain(self) -> dict[str, Any]:
        return to_fields(self)

    def check(self, metric: str, mode: str) -> None:
        """Raises InvalidConfig for another goal."""
        if (metric, mode) != (self.metric, self.mode):
            raise InvalidConfig(
                f"warm_start: the trials of {self.name} are compared by {self.metric!r}, "
                f"{self.mode}, and this search by {metric!r}, {mode}: give "
                f"AutoSearch(metric={metric!r}, mode={mode!r}) if they have that metric, or leave "
                f"this run out"
            )

    def fitting(self, terms: AssignmentCodec) -> Iterator[Mapping[str, Any]]:
        """The configs that the search space has, as assignments."""
        for config in self.configs:
            try:
                found = terms.assignment(terms.known(config), self.name, same)
                yield terms.fit(found, self.name)
            except InvalidSearchSpace:
                continue


def earlier_runs(given: Any, metric: Any, mode: Any) -> list[EarlierRun]:
    """Those of `warm_start`: a ResultGrid or a path for each.

    `metric` and `mode` are the search's own; default: those of each run. Raises InvalidConfig,
    ExperimentNotFound, StorageError.
    """
    if not isinstance(given, (list, tuple)):
        raise InvalidConfig(
            f"warm_start must be a list of results and paths of earlier runs, not {given!r:.100}"
        )
    return [_earlier(one, metric, mode) for one in given]


def first_points(
    runs: Iterable[EarlierRun], terms: AssignmentCodec, but: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The best configs that fit the space, one of each run in turn, without those in `but`."""
    found: list[Mapping[str, Any]] = []
    for one in chain.from_iterable(zip_longest(*(run.fitting(terms) for run in runs))):
        if one is not None and one not in found and one not in but:
            found.append(one)
        if len(found) == _FIRSTS:
            break
    return found


def told(runs: Sequence[EarlierRun], terms: AssignmentCodec) -> str:
    """For the user: how much of the earlier runs is of use."""
    count = sum(sum(1 for _ in run.fitting(terms)) for run in runs)
    return (
        f"it begins with the best of {counted(count, 'trial', 'trials')} of "
        f"{counted(len(runs), 'earlier run', 'earlier runs')}"
    )


def _earlier(given: Any, metric: Any, mode: Any) -> EarlierRun:
    from holdfast.results.result_grid import ResultGrid

    if isinstance(given, Mapping):  # a search that was stored
        return EarlierRun(**given)
    grid = given
    if not isinstance(grid, ResultGrid):
        from holdfast.api.load_experiment import load

        grid = load(given)
    name = f"the earlier run {grid.experiment_path.rpartition('/')[2]!r}"
    metric = metric or grid.analysis.default_metric
    mode = mode or grid.analysis.default_mode
    if not isinstance(metric, str) or mode not in ("min", "max"):
        raise InvalidConfig(
            f"warm_start needs one metric and its mode as text, and {name} has none of its own: "
            f"AutoSearch(metric='loss', mode='min')"
        )
    return _kept(grid, name, metric, mode)


def _kept(grid: Any, name: str, metric: str, mode: str) -> EarlierRun:
    if metric == grid.analysis.default_metric and mode != grid.analysis.default_mode:
        raise InvalidConfig(
            f"warm_start: {name} has mode={grid.analysis.default_mode!r} for {metric!r}, and "
            f"this search has mode={mode!r}"
        )
    # Fresh runs are known by what they confirm: the means of several, which come first.
    fresh = {trial.trial_id for trial in grid.analysis.trials if trial.confirms}
    is_own = metric == grid.analysis.default_metric
    means = {one.trial_id: one.mean for one in grid.confirmed if is_own and one.mean is not None}
    trials: list[tuple[bool, float, dict[str, Any]]] = []
    for result in grid:
        trial_id = (result.metrics or {}).get("trial_id")
        value = unwrap_scalar(means.get(trial_id, lookup(result.metrics or {}, metric)))
        is_known = result.error is None and is_finite(value)
        if is_known and trial_id not in fresh:
            rank = -float(value) if mode == "max" else float(value)
            trials.append((trial_id not in means, rank, _plain(result.config or {})))
    rows = [result.metrics for result in grid if result.metrics]
    if rows and all(lookup(row, metric) is None for row in rows):
        near = near_text([metric], rows[0])
        raise InvalidConfig(f"warm_start: no trial of {name} has reported {metric!r}.{near}")
    trials.sort(key=itemgetter(0, 1))
    kept = [config for *_, config in trials[:_MOST_KEPT]]
    return EarlierRun(name=name, metric=metric, mode=mode, configs=kept)


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without the user's objects: it is stored, and they may be large."""
    return {key: _plain_part(part) for key, part in config.items() if _is_plain(part)}


def _plain_part(part: Any) -> Any:
    return _plain(part) if isinstance(part, Mapping) else unwrap_scalar(part)


def _is_plain(part: Any) -> bool:
    if isinstance(part, (list, tuple)):
        return all(map(_is_plain, part))
    return isinstance(unwrap_scalar(part), (Mapping, str, bool, int, float, type(None)))
