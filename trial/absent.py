"""What is said of names of metrics: of those that a setting has and no report, and the reverse."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast.trial.stopper import lookup

_SHOWN_NEAR = 3
# Lower than difflib's own: `acc` for `accuracy` is near enough to be asked about.
_NEAR = 0.5
_HARDLY_FARTHER = 0.1
_SHOWN_NAMES = 40
# Of these names rows have our own values, since files and checkpoints refer to them.
OVERRULED = ("training_iteration", "trial_id")
# In each row that users see, and told of by the user alone.
_IN_EVERY_ROW = frozenset({"done", "should_checkpoint"})


def has_metric(row: Mapping[str, Any], name: str) -> bool:
    """Whether `row` has `name`, or `a/b` inside of it, whatever the value is."""
    if name in row or name in _IN_EVERY_ROW:
        return True
    outer, _, last = name.rpartition("/")
    within = lookup(row, outer) if outer else None
    return isinstance(within, Mapping) and last in within


def absent_from_first_report(
    settings: Mapping[str, str], row: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """Why a run is ended whose `settings` (each with the metric that it names) the first report
    does not fit, and how to leave; `row` has the automatic metrics beside those of the user."""
    one = len(settings) == 1
    return (
        f"{' and '.join(settings)}: the first report has no such value{'' if one else 's'}."
        f"{near_text(settings.values(), row)} Correct the name{'' if one else 's'} and call fit() "
        f"again: the name of the run is free for it. Where the metric comes only with later "
        f"reports, set TUNE_DISABLE_STRICT_METRIC_CHECKING=1 for fit(), or for Tuner.restore() to "
        f"go on here. Reported were: {names_text(metrics)}"
    )


def unscored(name: str, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """Why a checkpoint has no score, where that may be a mistake; "" where it has one, or one
    that is not finite.

    A value that is None is missing now, and has the right name.
    """
    setting = f"CheckpointConfig(checkpoint_score_attribute={name!r})"
    if not has_metric(row, name):
        fault = f"the first report with a checkpoint has no such value.{near_text([name], row)}"
    elif type(value := lookup(row, name)) not in (int, float, type(None)):
        fault = (
            f"the first report with a checkpoint has a {type(value).__name__} there, no number."
        )
    else:
        return ""
    return (
        f"{setting}: {fault} Checkpoints without a score rank below all that have one. "
        f"Reported were: {names_text(metrics)}"
    )


def overruled(row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """What to say of metrics whose names are ours, and whose values are not in the `row`; ""
    where there are none."""
    names = [name for name in OVERRULED if name in metrics and metrics[name] != row[name]]
    if not names:
        return ""
    values = ", ".join(f"{name}={metrics[name]!r:.40}" for name in names)
    ours = ", ".join(f"{name}={row[name]!r}" for name in names)
    return (
        f"reported were {values}: rows have holdfast's own values there ({ours}). Give "
        f"{'another name' if len(names) == 1 else 'other names'} to keep yours"
    )


def near_text(wanted: Iterable[str], row: Mapping[str, Any]) -> str:
    """` Did you mean 'accuracy'?`, empty where nothing is near, and for a name that is there and
    holds no number."""
    names = list(_names(row, ""))
    absent = [name for name in wanted if name not in names]
    near = dict.fromkeys(found for name in absent for found in _near(name, names))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _near(wanted: str, names: Iterable[str]) -> list[str]:
    """The nearest name, and those that are hardly farther."""
    ratios = {name: difflib.SequenceMatcher(None, wanted, name).ratio() for name in names}
    least = max(_NEAR, max(ratios.values(), default=0.0) - _HARDLY_FARTHER)
    best_first = sorted(ratios, key=ratios.__getitem__, reverse=True)
    return [name for name in best_first if ratios[name] >= least][:_SHOWN_NEAR]


def names_text(metrics: Mapping[str, Any]) -> str:
    """The names in a report, nested ones as `a/b`."""
    names = sorted(_names(metrics, ""))
    more = len(names) - _SHOWN_NAMES
    shown = [*names[:_SHOWN_NAMES], *([f"and {more} more"] if more > 0 else [])]
    return ", ".join(shown) or "no metrics at all"


def _names(metrics: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in metrics.items():
        if isinstance(value, Mapping) and value:
            yield from _names(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}"
