"""The trials of an experiment as rows of a table, kept as they change, and their values as a
browser's JSON parser reads them. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.results.ranking import params_of, varied_in
from holdfast.scheduler.machine import Machine
from holdfast.text.trials import stop_reason, stop_sentence
from holdfast.trial.best import value_of
from holdfast.trial.trial import Trial
from holdfast.trial.values import flatten, readable, whole_text

# A text in a table, and one in the page of a trial. The whole text is in the files.
SHORT: Final = 200
LONG: Final = 10_000
# The leaves of a config or of metrics that a page shows.
MOST_LEAVES: Final = 2_000
# Fewer than the bits of the largest double.
_DOUBLE_BITS: Final = 1_000
_CUT: Final = "…"


def number(value: float) -> float | str:
    """A number; NaN and the infinities, which JSON lacks, as texts."""
    if value - value == 0:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def shortened(text: str, most: int = LONG) -> str:
    return text if len(text) <= most else text[: most - 1] + _CUT


def json_value(value: Any, most: int = LONG) -> Any:
    """A readable value as JSON, with texts of at most `most` characters and at most 2,000
    leaves."""
    return _Counted(most).of(readable(value))


class _Counted:
    """Converts a value, and stops when it has converted enough."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = MOST_LEAVES

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return number(value)
        if kind is str:
            return shortened(value, self._most)
        if kind is int:
            # A browser's numbers are doubles; a larger one is shown whole, as text.
            return value if abs(value) <= 1 << 53 else str(value)
        if isinstance(value, Mapping):
            found: dict[str, Any] = {}
            for key, item in value.items():
                if not self._take():
                    found[_CUT] = f"{len(value) - len(found)} more"
                    break
                found[shortened(str(key), SHORT)] = self.of(item)
            return found
        if isinstance(value, (list, tuple)):
            items: list[Any] = []
            for item in value:
                if not self._take():
                    items.append(_CUT)
                    break
                items.append(self.of(item))
            return items
        return value

    def _take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def cells(flat: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The first `most` numbers and short texts of a flat table, for columns."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        kind = type(value)
        if kind is float:
            value = number(value)
        elif kind is int:
            value = value if abs(value) <= 1 << 53 else _large(value)
        elif kind is str:
            value = shortened(value, SHORT)
        elif kind is not bool:
            continue
        found[shortened(name, SHORT)] = value
        if len(found) >= most:
            break
    return found


def _large(value: int) -> float | str:
    """A browser's numbers are doubles."""
    return (
        float(value) if value.bit_length() < _DOUBLE_BITS else shortened(whole_text(value), SHORT)
    )


def is_number(value: Any) -> bool:
    """True for a number in a column, also NaN and the infinities."""
    return type(value) in (int, float) or value in ("NaN", "Infinity", "-Infinity")


COLUMNS: Final = (
    "index", "name", "status", "stop_reason", "why", "iteration", "attempt", "failures",
    "time_total_s", "reported_at", "value", "node", "note", "checkpoint", "error", "is_added",
    "confirms", "is_held", "pausing", "checkpoint_iteration", "began_at",
)  # fmt: skip
# Of the columns that an experiment may name itself; each trial shows at most so many.
_MOST_NAMES: Final = 200
_WHY_CHARS: Final = 500
_SIMPLE = frozenset({int, float, bool, str})
_TEXTS = frozenset({str})


@dataclass(frozen=True, slots=True)
class Entry:
    """One trial: the values of COLUMNS, in order, its config and its last metrics, flat."""

    values: tuple[Any, ...]
    params: Mapping[str, Any]
    metrics: Mapping[str, Any]

    def plain(self, trial_id: str) -> dict[str, Any]:
        return {
            "trial_id": trial_id,
            **dict(zip(COLUMNS, self.values, strict=True)),
            "params": self.params,
            "metrics": self.metrics,
        }


class Entries:
    """All trials of a machine; `update` computes those anew that have changed.

    `version` is the number of the newest change.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._entries: dict[str, Entry] = {}
        # By trial, the version of its last change; the newest is last.
        self._changed_at: dict[str, int] = {}
        self._configs: dict[str, tuple[object, Mapping[str, Any]]] = {}
        self._param_names: dict[str, Any] = {}
        self._differing: dict[str, None] = {}
        self._having: Counter[str] = Counter()
        self._metric_names: dict[str, None] = {}
        self._numeric: dict[str, None] = {}
        self.statuses: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()

    def update(self, machine: Machine, trial_ids: Iterable[str], *, is_live: bool) -> None:
        """Compute these trials again."""
        version = self.version + 1
        for trial_id in trial_ids:
            trial = machine.trials[trial_id]
            new = self._entry(machine, trial, is_live=is_live)
            old = self._entries.get(trial_id)
            if new == old:
                continue
            self._count(old, -1)
            self._count(new, 1)
            self._entries[trial_id] = new
            self._changed_at.pop(trial_id, None)
            self._changed_at[trial_id] = self.version = version

    def changed_since(self, version: int) -> Iterator[dict[str, Any]]:
        """The trials that have changed after that version, the newest change first."""
        for trial_id in reversed(self._changed_at):
            if self._changed_at[trial_id] <= version:
                return
            yield self._entries[trial_id].plain(trial_id)

    def columns(self) -> dict[str, Any]:
        """The answer of api/e/KEY/trials."""
        known = list(self._entries.values())
        by_column = (
            zip(*(one.values for one in known), strict=True) if known else [()] * len(COLUMNS)
        )
        columns = dict(zip(COLUMNS, map(list, by_column), strict=True))
        params = [entry.params for entry in known]
        metrics = [entry.metrics for entry in known]
        return {
            "version": self.version,
            "ids": list(self._entries),
            "columns": columns,
            "params": {name: [one.get(name) for one in params] for name in self.shown_params},
            "metrics": {name: [one.get(name) for one in metrics] for name in self.shown_metrics},
        }

    @property
    def shown_params(self) -> list[str]:
        return list(self._param_names)[:_MOST_NAMES]

    @property
    def shown_metrics(self) -> list[str]:
        return list(self._metric_names)[:_MOST_NAMES]

    def numeric_metrics(self) -> list[str]:
        """The names of those that some trial has reported as a number."""
        return list(self._numeric)[:_MOST_NAMES]

    def varied(self, space: Sequence[Mapping[str, Any]]) -> list[str]:
        """The varied parameters, as `varied_names` finds them."""
        count = len(self._entries)
        return varied_in(
            space,
            list(self._param_names),
            lambda name: name in self._differing or self._having[name] < count,
        )

    def _entry(self, machine: Machine, trial: Trial, *, is_live: bool) -> Entry:
        spec = machine.spec
        newest = trial.newest_checkpoint
        reason = stop_reason(trial, is_live=is_live)
        status = trial.shown_status.value
        value = value_of(trial, spec.metric)
        return Entry(
            (
                trial.spec.index,
                trial.spec.name,
                status,
                None if reason is None else reason.value,
                shortened(stop_sentence(trial, spec.options, is_live=is_live), _WHY_CHARS),
                trial.iteration,
                trial.attempt,
                trial.setbacks,
                number(trial.time_total_s),
                trial.reported_at or None,
                value,
                shortened(", ".join(dict.fromkeys(trial.place.nodes)), _WHY_CHARS),
                shortened(trial.note),
                None if newest is None else newest.dirname,
                None if trial.error is None else shortened(trial.error.headline, _WHY_CHARS),
                trial.spec.added_by_person,
                trial.spec.confirms,
                trial.is_held,
                trial.is_pausing,
                None if newest is None else newest.iteration,
                trial.first_began_at or None,
            ),
            self._params_of(trial),
            self._metrics_of(trial),
        )

    def _params_of(self, trial: Trial) -> Mapping[str, Any]:
        """Finding them takes a while, and they hardly ever change."""
        config, params = self._configs.get(trial.trial_id, (None, {}))
        if config is trial.config:
            return params
        params = cells(_config_of(trial), _MOST_NAMES)
        is_new = trial.trial_id not in self._configs
        self._configs[trial.trial_id] = (trial.config, params)
        for name, value in params.items():
            if self._param_names.setdefault(name, value) != value:
                self._differing[name] = None
            self._having[name] += is_new
        return params

    def _metrics_of(self, trial: Trial) -> Mapping[str, Any]:
        row = trial.shown_row
        simple = _SIMPLE.issuperset(map(type, row.values()))
        found = cells(row if simple else flatten(readable(dict(row))), _MOST_NAMES)
        if not found.keys() <= self._metric_names.keys():
            self._metric_names.update(dict.fromkeys(found))
        numeric = self._numeric
        if new := [n for n in found if n not in numeric and is_number(found[n])]:
            numeric.update(dict.fromkeys(new))
        return found

    def _count(self, entry: Entry | None, by: int) -> None:
        if entry is not None:
            self.statuses[entry.values[2]] += by
            if entry.values[3] is not None:
                self.stop_reasons[entry.values[3]] += by


def _config_of(trial: Trial) -> Mapping[str, Any]:
    """As `params_of`: a config of plain numbers and texts is flat and readable already, which
    takes a sixth of the time to find."""
    config = trial.config
    is_flat = _SIMPLE.issuperset(map(type, config.values())) and _TEXTS.issuperset(
        map(type, config)
    )
    return config if is_flat else params_of(trial)
