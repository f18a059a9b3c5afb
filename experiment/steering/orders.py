"""The orders of a person to a run, and their form on the socket.

An order is a table of plain data, as `{"order": "pause", "trials": ["d2a66_00001"]}`. It may come
from anybody who reaches the socket, or from a browser, so its names, types, ranges and nesting
are checked here, and only here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.schema import Between, PlainName, Stored, UnreadableRecord, to_fields
from holdfast.schema import decode as build
from holdfast.trial.errors import InvalidConfig

LARGEST_FRAME = 1 << 20
MOST_TRIALS = 10_000
LONGEST_NOTE = 10_000
# Each value is checked, recorded and shown by the process that answers the reports of all trials:
# a million of them in one frame would hold it up for half a minute.
MOST_VALUES = 10_000
_MOST_AT_ONCE = 1_000_000

Via = Literal["command", "page"]
"""The interface that a person has used. It is recorded next to the name."""


class InvalidOrder(InvalidConfig):
    """An order that no run can perform: the message names its field, its value and what is
    allowed."""


def _several(ids: Any) -> tuple[str, ...]:
    """The ids, each once."""
    if not 0 < len(ids) <= MOST_TRIALS:
        raise ValueError(f"trials must be 1 to {MOST_TRIALS:,} ids, not {len(ids):,}")
    return tuple(dict.fromkeys(ids))


def _note_text(text: Any) -> str:
    if type(text) is not str:
        raise ValueError(f"text must be text, not {shown(text)}")
    if len(text) > LONGEST_NOTE:
        raise ValueError(f"text has {len(text):,} characters, and at most {LONGEST_NOTE:,} fit")
    return text


def _few_values(config: Any) -> Any:
    """The config. Not recursive: it may have any depth that fits into a frame."""
    left, inner = MOST_VALUES, [config]
    while inner:
        value = inner.pop()
        if type(value) in (dict, list, tuple):
            left -= len(value)
            if left < 0:
                raise ValueError(f"config has more than {MOST_VALUES:,} values")
            inner += value.values() if type(value) is dict else value
    return config


TrialIds = Annotated[Sequence[str], Stored(_several, list, Sequence[PlainName])]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrials:
    """End these trials for good."""

    shown_as: ClassVar[str] = "the order to stop trials"
    trials: TrialIds


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTrials:
    """Take the workers from these trials until a person resumes them: at their next report with a
    checkpoint, or `now`."""

    shown_as: ClassVar[str] = "the order to pause trials"
    trials: TrialIds
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTrials:
    """Let trials continue that a person has paused."""

    shown_as: ClassVar[str] = "the order to resume trials"
    trials: TrialIds


@dataclass(frozen=True, slots=True, kw_only=True)
class StopExperiment:
    """End the run as the first Ctrl-C does."""

    shown_as: ClassVar[str] = "the order to stop the experiment"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTrials:
    """Run at most so many trials at once from now on; None for no limit."""

    shown_as: ClassVar[str] = "the order to limit the trials"
    max_concurrent: Annotated[int, Between(1, _MOST_AT_ONCE)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddTrials:
    """Let the search make so many trials more."""

    shown_as: ClassVar[str] = "the order to add trials"
    count: Annotated[int, Between(1, _MOST_AT_ONCE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddConfig:
    """One more trial, the next, with these values. What they leave out is drawn."""

    shown_as: ClassVar[str] = "the order to add a config"
    config: Annotated[Mapping[str, Any], Stored(_few_values, of=Mapping[str, Any])]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteNote:
    """Replace the note of a trial; "" removes it."""

    shown_as: ClassVar[str] = "the order to write a note"
    trial: PlainName
    text: Annotated[str, Stored(_note_text)]


Order = (
    StopTrials
    | PauseTrials
    | ResumeTrials
    | StopExperiment
    | LimitTrials
    | AddTrials
    | AddConfig
    | WriteNote
)
ORDERS: Mapping[str, type[Order]] = {
    "stop": StopTrials,
    "pause": PauseTrials,
    "resume": ResumeTrials,
    "stop_experiment": StopExperiment,
    "limit": LimitTrials,
    "add_trials": AddTrials,
    "add_config": AddConfig,
    "note": WriteNote,
}
_NAMES = {kind: name for name, kind in ORDERS.items()}


def decode(plain: Any) -> Order:
    """The order in a table of plain data. Raises InvalidOrder."""
    if type(plain) is not dict:
        raise InvalidOrder(f"an order must be a table, not {shown(plain)}")
    name = plain.get("order")
    kind = ORDERS.get(name) if type(name) is str else None
    if kind is None:
        raise InvalidOrder(f"there is no order {shown(name)}: the orders are {', '.join(ORDERS)}")
    fields = {field: value for field, value in plain.items() if field != "order"}
    try:
        order: Order = build(kind, fields)
    except UnreadableRecord as error:
        raise InvalidOrder(str(error)) from None
    return order


def encode(order: Order) -> dict[str, Any]:
    """The inverse of `decode`."""
    return {"order": _NAMES[type(order)], **to_fields(order)}


def via_of(plain: Any) -> Via:
    """The interface that the person has used. Raises InvalidOrder."""
    known: tuple[Via, ...] = get_args(Via)
    for via in known:
        if plain == via:
            return via
    raise InvalidOrder(f"an order comes from {' or '.join(known)}, not {shown(plain)}")
