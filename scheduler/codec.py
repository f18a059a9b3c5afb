"""Events as plain data: the records of the journal.

A record is `[name, now, {field: value}]`, readable without this package. A name or field that an
older version did not write takes its default; one that this version does not know is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast, get_args

from holdfast.names import shown
from holdfast.scheduler.events import Event
from holdfast.scheduler.policy import Answers, Decision
from holdfast.schema import LATEST_S, UnreadableRecord, to_fields
from holdfast.schema import decode as build

EVENTS: dict[str, type] = {kind.__name__: kind for kind in get_args(Event)}
DECISIONS: dict[str, type] = {kind.__name__: kind for kind in get_args(Decision)}


def encode(event: Event, now: float, answers: Answers = ()) -> list[Any]:
    """The record of an event and of the policy's decisions on it."""
    record = [type(event).__name__, now, to_fields(event)]
    return [*record, _encode_answers(answers)] if any(answers) else record


def _encode_answers(answers: Answers) -> list[Any]:
    return [[[type(one).__name__, to_fields(one)] for one in decided] for decided in answers]


class Record(NamedTuple):
    """An event, its time in seconds since 1970, and the policy's decisions on it."""

    event: Event
    now: float
    answers: Answers


def decode(record: Any) -> Record:
    """Raises UnreadableRecord for a record that this version cannot read."""
    if type(record) is not list or not 3 <= len(record) <= 4:
        raise UnreadableRecord(f"not a record of an event: {shown(record)}")
    name, now, plain = record[:3]
    kind = EVENTS.get(name) if type(name) is str else None
    if kind is None:
        raise UnreadableRecord(f"not an event of this version of holdfast: {shown(name)}")
    if type(now) not in (int, float) or not 0 <= now <= LATEST_S:
        raise UnreadableRecord(f"{name}: its time must be seconds since 1970, not {shown(now)}")
    answers = _decode_answers(record[3]) if len(record) > 3 else ()
    return Record(cast(Event, build(kind, plain)), now, answers)


def _decode_answers(plain: Any) -> Answers:
    try:
        return [[build(DECISIONS[name], parts) for name, parts in decided] for decided in plain]
    except UnreadableRecord:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(f"not a scheduler's decisions: {shown(plain)}") from error
