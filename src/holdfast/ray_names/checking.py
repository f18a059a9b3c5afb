"""`holdfast ray --check`: what a script uses of Ray: the same here, different or missing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import report
from holdfast.ray_names.finder import RAY, Names
from holdfast.ray_names.missing import NOT_YET, package_of
from holdfast.ray_names.placeholder import Placeholder
from holdfast.ray_names.reading import Dotted, Used, can_be_imported, module_in, read
from holdfast.ray_names.states import State, parameter_text, state_of
from holdfast.trial.config import why_refused
from holdfast.unknown_keywords import advice

_UNKNOWN = State(kind="missing", text="holdfast has no such name", section=NOT_YET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A name that a script uses, or a keyword of its calls: `ray.tune.run(loggers=)`.

    `is_used` is false for a name that is only imported, which fails nothing.
    """

    name: str
    state: State
    lines: Sequence[int]
    is_used: bool = True


def check(text: str | bytes, file: str) -> list[Finding]:
    """What the script uses, in the order of its names. Runs none of it. Raises SyntaxError."""
    used = read(text, file)
    return sorted(_findings(used), key=lambda one: (one.lines[0], one.name))


def _findings(used: Used) -> Iterator[Finding]:
    for name, lines in used.names.items():
        if (state := _state(name)) is not None:
            yield Finding(name=_shown(name), state=state, lines=sorted(set(lines)))
    for name, lines in used.imported.items():
        if any(one[: len(name)] == name for one in used.names):
            continue
        if (state := _state(name)) is not None and state.kind == "missing":
            fails = not can_be_imported(name)
            yield Finding(name=_shown(name), state=state, lines=lines, is_used=fails)
    for (name, keyword), lines in used.keywords.items():
        if (state := _keyword_state(name, keyword)) is not None:
            shown = f"{_shown(name)}({keyword}=)"
            yield Finding(name=shown, state=state, lines=sorted(set(lines)))


def _shown(name: Dotted) -> str:
    return ".".join((RAY, *name))


def _state(name: Dotted) -> State | None:
    """The state of a dotted name; None for a module that is there."""
    path, rest = module_in(name)
    if not rest:
        package = package_of(path)
        return None if package is None else State.of(package)
    found = object_of(path, rest[0])
    state = state_of(path, rest[0], is_here=found is not None)
    if state is None:
        return _UNKNOWN
    if state.kind != "missing" and len(rest) > 1 and inspect.isclass(found):
        return state if hasattr(found, rest[1]) else _UNKNOWN
    return state


def object_of(path: str, name: str) -> Any:
    """What `ray.path.name` is in holdfast; None if it is not there. A text if its library is not
    installed."""
    if package_of(f"{path}.{name}".lstrip(".")) is not None:
        return None
    try:
        found = Names(RAY, path).get(ModuleType(RAY), name)
    except AttributeError:
        return None
    except ImportError as error:
        return str(error)
    return None if isinstance(found, Placeholder) else found


def _keyword_state(name: Dotted, keyword: str) -> State | None:
    """The state of a keyword of a call; None for one that is there."""
    if setting := keyword.partition("runtime_env.")[2]:
        why, section = why_refused(setting), "shared-objects-and-runtime_env"
        return State(kind="missing", text=why, section=section) if why else None
    path, rest = module_in(name)
    found: Any = object_of(path, rest[0]) if rest else None
    for part in rest[1:]:
        found = getattr(found, part, None)
    parameters = _parameters(found)
    # In older scripts each metric is a keyword of report().
    if parameters is None or keyword in parameters or found is report:
        return None
    text = parameter_text(path, rest[0], keyword) or advice(rest[-1], keyword)
    use = text[0].lower() + text[1:] if text.startswith("Use ") else f"use {text}" if text else ""
    state = state_of(path, rest[0], is_here=True)
    section = state.section if state is not None and state.section else NOT_YET
    return State(kind="missing", text=use or "there is no such parameter", section=section)


def _parameters(called: Any) -> set[str] | None:
    """The names of its parameters; None if any, or if they are not known."""
    try:
        parameters = inspect.signature(called).parameters
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    return set(parameters)
