"""The state of each name of Ray: the same in holdfast, different, or missing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from holdfast.dataclass import dataclass
from holdfast.ray_names.differences import DIFFERENCES, PARAMETERS
from holdfast.ray_names.missing import NOT_YET, PAGE, Missing, missing
from holdfast.ray_names.paths import name_at

Kind = Literal["same", "differs", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`text` says what differs, or what to use instead; `section` is one of PAGE."""

    kind: Kind
    text: str = ""
    section: str = ""

    @classmethod
    def of(cls, absent: Missing) -> State:
        """The state of a name that holdfast does not have."""
        return cls(kind="missing", text=f"use {absent.use}", section=absent.section)

    @property
    def link(self) -> str:
        return f"{PAGE}#{self.section}" if self.section else ""


# Where a name without an entry of its own is looked up.
_ALSO: Final = {"air": "train", "train.base_trainer": "train", "tune.experiment": "tune"}


@cache
def differences() -> Mapping[str, State]:
    found: dict[str, State] = {}
    for section, entries in DIFFERENCES.items():
        for names, text in entries:
            for name in names.split():
                found.setdefault(name, State(kind="differs", text=text, section=section))
    return found


def state_of(path: str, name: str, *, is_here: bool) -> State | None:
    """The state of `ray.path.name`; None for a name that Ray does not have, as far as known.

    `is_here`: holdfast has it.
    """
    module, other = name_at(path, name)
    if not is_here:
        absent = missing(path, name) or missing(module, other)
        if absent is None:
            return None
        return State.of(absent)
    for full in (f"{path}.{name}", f"{module}.{other}", f"{_ALSO.get(module, module)}.{other}"):
        if (found := differences().get(full.lstrip("."))) is not None:
            return found
    if lacking := _lacking(module, other):
        return State(kind="differs", text=lacking, section=NOT_YET)
    return State(kind="same")


def _lacking(module: str, name: str) -> str:
    """The parameters that it does not have here; "" if it has all."""
    return "; ".join(f"no {one}=: {use}" for one, use in parameters(module, name).items())


def parameter_text(path: str, name: str, parameter: str) -> str:
    """What to write instead of a parameter that `ray.path.name` does not have here; "" if not
    known."""
    return parameters(*name_at(path, name)).get(parameter, "")


def parameters(module: str, name: str) -> Mapping[str, str]:
    """The parameters of Ray's that a name of `ray.module` does not have here, with what to write
    instead."""
    found: dict[str, str] = {}
    for where in (_ALSO.get(module, module), module):
        found |= PARAMETERS.get(f"{where}.{name}".lstrip("."), {})
    return found
