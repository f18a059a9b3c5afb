"""Metrics by their names: values in a row, and messages about names that no report has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

Mode = Literal["max", "min"]
MODES: tuple[str, ...] = get_args(Mode)

_SHOWN_NEAR = 3
# Lower than difflib's default, so that `acc` suggests `accuracy`.
_NEAR = 0.5
_HARDLY_FARTHER = 0.1
_SHOWN_NAMES = 40
# The metric name of a number that a function returns.
UNNAMED = "_metric"
# Rows hold holdfast's values under these names, because files and checkpoints refer to them.
OVERRULED = ("training_iteration", "trial_id")
# Every row that users see has these; the metrics have them only if the user reports them.
_IN_EVERY_ROW = frozenset({"done", "should_checkpoint"})


def reaches(row: Mapping[str, Any], criteria: Mapping[str, float]) -> str | None:
    """The first key of `criteria` whose bound `row` has reached; None if there is none.

    A number is reached when `row[key] >= bound`, True by a true value.
    """
    for key, bound in criteria.items():
        value = lookup(row, key)
        if not isinstance(value, (int, float)):
            continue
        if (bool(value) is bound) if isinstance(bound, bool) else value >= bound:
            return key
    return None


def lookup(row: Mapping[str, Any], key: str) -> Any:
    """`row[key]`, or the nested value that `a/b` names; None if it is missing."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def has_metric(row: Mapping[str, Any], name: str) -> bool:
    """True if `row` has `name`, or `a/b` inside it, whatever the value."""
    if name in row or name in _IN_EVERY_ROW:
        return True
    outer, _, last = name.rpartition("/")
    within = lookup(row, outer) if outer else None
    return isinstance(within, Mapping) and last in within


def absent_from_first_report(
    settings: Mapping[str, str], row: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """The error that ends a run whose first report lacks a metric that a setting names.

    `settings` maps each setting to its metric; `row` has the automatic metrics and the user's.
    """
    kinds = [_kind_text(name, row) for name in settings.values() if has_metric(row, name)]
    if kinds:
        return (
            f"{' and '.join(settings)}: {'; '.join(kinds)}. "
            f"TUNE_DISABLE_STRICT_METRIC_CHECKING=1 lets such reports pass. Otherwise, report one "
            f"number under this name, such as the mean"
        )
    one = len(settings) == 1
    hint = f"{near_text(settings.values(), row)}{_unnamed_text(settings, metrics)}"
    return (
        f"{' and '.join(settings)}: the first report has no such value{'' if one else 's'}."
        f"{hint} Reported: {names_text(metrics)}. If only later reports have the metric, set "
        "TUNE_DISABLE_STRICT_METRIC_CHECKING=1 and call fit(), or Tuner.restore() or "
        f"`holdfast resume` to resume this run. Otherwise, correct the name{'' if one else 's'}"
    )


def _unnamed_text(settings: Mapping[str, str], metrics: Mapping[str, Any]) -> str:
    """What to write if the function returned a number, which has no name."""
    if list(metrics) != [UNNAMED]:
        return ""
    name = next(iter(settings.values()))
    return f" The function returned a number: return {{{name!r}: value}}, or pass it to report()."


def _kind_text(name: str, row: Mapping[str, Any]) -> str:
    """`loss is a list of 3 numbers, not a number`."""
    value = lookup(row, name)
    if value is None:
        return f"{name} is None, not a number"
    if isinstance(value, str):
        return f"{name} is the text {value!r:.40}, not a number"
    if isinstance(value, (list, tuple)):
        are_numbers = all(isinstance(part, (int, float)) for part in value)
        what = "number" if are_numbers else "value"
        return f"{name} is a list of {len(value)} {what}{'s' * (len(value) != 1)}, not a number"
    if isinstance(value, Mapping):
        return f"{name} holds {names_text(value)}: name one of them, as in '{name}/...'"
    return f"{name} is a {type(value).__name__}, not a number"


def unscored(name: str, row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """The reason why a checkpoint has no score, if that may be a mistake.

    Returns "" if the score is there, or is not finite, or is None: then only the value is missing.
    """
    setting = f"CheckpointConfig(checkpoint_score_attribute={name!r})"
    if not has_metric(row, name):
        fault = f"the first report with a checkpoint has no such value.{near_text([name], row)}"
    elif type(value := lookup(row, name)) not in (int, float, type(None)):
        fault = (
            f"the first report with a checkpoint has a {type(value).__name__} there, not a number."
        )
    else:
        return ""
    return (
        f"{setting}: {fault} Checkpoints without a score rank below all that have one. "
        f"Reported: {names_text(metrics)}"
    )


def overruled(row: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """A warning about metrics whose names are holdfast's and whose values the `row` does not have.

    Returns "" if there are none.
    """
    names = [name for name in OVERRULED if name in metrics and metrics[name] != row[name]]
    if not names:
        return ""
    values = ", ".join(f"{name}={metrics[name]!r:.40}" for name in names)
    ours = ", ".join(f"{name}={row[name]!r}" for name in names)
    return (
        f"reported {values}: holdfast sets {'this value' if len(names) == 1 else 'these values'} "
        f"itself ({ours}). Report yours under "
        f"{'another name' if len(names) == 1 else 'other names'} to keep "
        f"{'it' if len(names) == 1 else 'them'}"
    )


def near_text(wanted: Iterable[str], row: Mapping[str, Any]) -> str:
    """` Did you mean 'accuracy'?`; empty if no name is similar, or if the name itself is there."""
    names = list(_names(row, ""))
    absent = [name for name in wanted if name not in names]
    near = dict.fromkeys(found for name in absent for found in _near(name, names))
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _near(wanted: str, names: Iterable[str]) -> list[str]:
    """The most similar name, and those almost as similar."""
    import difflib

    ratios = {name: difflib.SequenceMatcher(None, wanted, name).ratio() for name in names}
    least = max(_NEAR, max(ratios.values(), default=0.0) - _HARDLY_FARTHER)
    best_first = sorted(ratios, key=ratios.__getitem__, reverse=True)
    return [name for name in best_first if ratios[name] >= least][:_SHOWN_NEAR]


def names_text(metrics: Mapping[str, Any]) -> str:
    """The names in a report, with nested ones as `a/b`."""
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
