"""Checks `ExperimentSpec.options`: the settings of a run that the shell reads at a restore.

They are checked because a restore passes them to the user's classes, builds paths from them and
prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from holdfast.names import inner_path, plain_name, shown
from holdfast.plain_numbers import is_count
from holdfast.schema import Stored, check_table, decode, truth
from holdfast.trial.config import SyncConfig
from holdfast.trial.tuning import MODES

# The option of a run that enforces the resource memory.
ENFORCED = "enforce_memory"
# The option of a run of a script written for Ray: what Ray only warns of does not end it.
FOR_RAY = "for_ray"
# The option of a run that says where trials run.
CHDIR = "chdir_to_trial_dir"
# How many trials the search makes; None for no limit.
PLANNED = "trials"
# What the script has said of `max_concurrent` and `num_samples`, where a person changed them.
SAID = "said"


def checked_options(plain: Any) -> Mapping[str, Any]:
    """Return `plain` if its known options have the types that a run writes. Ignores others.

    Raises ValueError.
    """
    options: Mapping[str, Any] = check_table(plain, "options")
    for name, value in options.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)
    return options


def check_log_names(value: object) -> None:
    """Raise ValueError unless `log_to_file` names one or two files inside the trial's folder."""
    if type(value) is bool:
        return
    several = value if isinstance(value, (list, tuple)) else [value]
    if len(several) not in (1, 2):
        raise ValueError(f"log_to_file must be one name or two names, not {shown(value)}")
    for name in several:
        for part in inner_path(name, "log_to_file").split("/"):
            plain_name(part, "log_to_file")


def _sync(_: str, value: Any) -> None:
    decode(SyncConfig, value)


def _verbose(name: str, value: Any) -> None:
    if value not in (None, 0, 1, 2, 3):
        raise ValueError(f"{name} must be 0 to 3, not {shown(value)}")


def _trainer(name: str, value: Any) -> None:
    """Require an identifier: the name is printed in code that users paste."""
    is_class = type(value) is str and (not value or value.isidentifier())
    if not is_class:
        raise ValueError(f"{name} must be the name of a class, not {shown(value)}")


def _text(name: str, value: Any) -> None:
    if value is not None and type(value) is not str:
        raise ValueError(f"{name} must be text, not {shown(value)}")


def _texts(name: str, value: Any) -> None:
    if type(value) is not list or not all(type(item) is str for item in value):
        raise ValueError(f"{name} must be a list of names, not {shown(value)}")


def _table_of_texts(name: str, value: Any) -> None:
    if type(value) is not dict or not all(type(item) is str for item in (*value, *value.values())):
        raise ValueError(f"{name} must be a table of texts, not {shown(value)}")


def _flag(name: str, value: Any) -> None:
    truth(name)(value)


def _goals(name: str, value: Any) -> None:
    _table_of_texts(name, value)
    if not set(value.values()) <= set(MODES):
        raise ValueError(f"{name} must have 'max' or 'min' for each metric, not {shown(value)}")


def _said(name: str, value: Any) -> None:
    several = check_table(value, name)
    if not all(one is None or is_count(one) for one in several.values()):
        raise ValueError(f"{name} must be a table of whole numbers, not {shown(value)}")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "sync": _sync,
    "verbose": _verbose,
    "log_to_file": lambda _, value: check_log_names(value),
    "objects": _texts,
    "trainer": _trainer,
    "search": _text,
    "stopper": _text,
    "env_vars": _texts,
    CHDIR: _flag,
    "tags": _table_of_texts,
    ENFORCED: _flag,
    "goals": _goals,
    SAID: _said,
    "search_space": lambda _, value: _read_space(value),
}


def _read_stop(plain: Any) -> Any:
    """The bound of each metric: a number, infinity or a bool."""
    for name, bound in check_table(plain, "stop").items():
        if type(bound) not in (bool, int, float) or bound != bound:
            raise ValueError(f"{shown(name)} must be a number, not {shown(bound)}")
    return plain


def _read_space(plain: Any) -> Any:
    """As `holdfast.trial.search_space.description.describe` returns it."""
    if type(plain) not in (list, tuple):
        raise ValueError(f"must be a list, not {shown(plain)}")
    for part in plain:
        check_table(part, "a part")
        is_path = type(part["path"]) is list and _STEPS.issuperset(map(type, part["path"]))
        if not is_path or type(part["text"]) is not str or type(part["varied"]) is not bool:
            raise ValueError("a part must have a path, a text, and whether it is varied")
    return tuple(plain)


_STEPS = frozenset({str, int})

Options = Annotated[Mapping[str, Any], Stored(checked_options)]
# The bounds in `RunConfig(stop={...})`.
StopBounds = Annotated[Mapping[str, float], Stored(_read_stop)]
SpaceParts = Annotated[Sequence[Mapping[str, Any]], Stored(_read_space)]
