"""Events and the machine's state as plain data: the records of the journal, and snapshots.

A record is `[name, now, {field: value}]`, readable without this package. A snapshot has the
attributes that `holdfast.scheduler.kept` says. A name or field that is absent takes its default;
one that this version does not know is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.scheduler.events import Event, Recalled
from holdfast.scheduler.kept import NOT_KEPT, Kept, TrialId
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.policy import Answers, Decision
from holdfast.scheduler.state import Expected, State
from holdfast.schema import (
    LATEST_S,
    Decode,
    UnreadableRecord,
    Write,
    table_decoder,
    to_fields,
    writer_of,
)
from holdfast.schema import decode as build
from holdfast.trial.trial import Trial

_PARTS = {"placement": Placement, "expected": Expected, "cluster": Cluster}
_AS_IT_IS = Kept()


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute of the machine in a snapshot.

    `part` names the part of State that has the attribute; "" means State itself.
    """

    part: str
    name: str
    hint: Any
    kept: Kept
    write: Write | None
    refers: bool

    @property
    def stored_as(self) -> str:
        return self.kept.name or self.name

    def of(self, machine: State) -> Any:
        return getattr(getattr(machine, self.part) if self.part else machine, self.name)


def snapshot(machine: State) -> dict[str, Any]:
    """The state of the machine as plain data."""
    plain: dict[str, Any] = {}
    for one in _attributes():
        value = one.of(machine)
        if value or not one.kept.rare:
            plain[one.stored_as] = value if one.write is None else one.write(value)
    return plain


def recalled(machine: State) -> Recalled:
    """The first record of a new journal that continues from this machine's state."""
    plain = snapshot(machine)
    del plain["spec"]
    return Recalled(spec=machine.spec, state=plain)


def restore_recalled(machine: State, event: Recalled) -> None:
    """Raises UnreadableRecord."""
    restore_state(machine, {**event.state, "spec": to_fields(event.spec)})
    machine.ahead = ()  # no history has them for the search


def restore_state(machine: State, plain: Any) -> None:
    """Give the machine the state in a snapshot, which has no policy. A tuple of Trials in place of
    their plain data was decoded before.

    Raises UnreadableRecord if the snapshot is of another version, or is not valid.
    """
    try:
        _restore(machine, _known(plain))
    except UnreadableRecord:
        raise
    except (
        KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError
    ) as error:  # fmt: skip
        raise UnreadableRecord(
            f"not a snapshot of this version of holdfast: {error!r:.200}"
        ) from error


def _known(plain: Any) -> dict[str, Any]:
    """The values of the attributes by their stored names."""
    trials = plain.get("trials") if type(plain) is dict else None
    known: dict[str, Any]
    if type(trials) is tuple and all(type(trial) is Trial for trial in trials):
        known = {**_reader()({**plain, "trials": []}), "trials": trials}
    else:
        known = _reader()(plain)
    return known


def _restore(machine: State, known: Mapping[str, Any]) -> None:
    _check_references(known)
    several: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in _PARTS}}
    for one in _attributes():
        several[one.part][one.name] = known[one.stored_as]
    own = several[""]
    machine.begin_with(own.pop("trials"))
    for name, value in own.items():
        setattr(machine, name, value)
    machine.is_complete |= machine.search_ended
    cluster = Cluster.restored(**several["cluster"])
    machine.placement = Placement.restored(cluster=cluster, **several["placement"])
    machine.expected = Expected(machine.spec, **several["expected"])


def _check_references(known: Mapping[str, Any]) -> None:
    """Raise UnreadableRecord if the snapshot refers to a trial that it does not contain."""
    trials = {trial.trial_id for trial in known["trials"]}
    several: list[Any] = [known[one.stored_as] for one in _attributes() if one.refers]
    origins = [trial.origin.trial_id for trial in known["trials"] if trial.origin is not None]
    for ids in (*several, origins):
        for trial_id in ids:
            if trial_id not in trials:
                raise UnreadableRecord(
                    f"it names a trial that it does not have: {shown(trial_id)}"
                )


@cache
def _attributes() -> Sequence[_Attribute]:
    """The attributes in a snapshot."""
    kinds = {"": State, **_PARTS}
    return [one for part, kind in kinds.items() for one in _attributes_of(part, kind)]


def _attributes_of(part: str, kind: type) -> Iterator[_Attribute]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if NOT_KEPT in notes or name in _PARTS:
            continue
        yield _Attribute(
            part=part,
            name=name,
            hint=hint,
            kept=next((note for note in notes if isinstance(note, Kept)), _AS_IT_IS),
            write=writer_of(hint),
            refers=get_args(base)[:1] == (TrialId,),
        )


@cache
def _reader() -> Decode:
    """The decoder of snapshots, which returns a dict of values by their stored names."""
    new = State()
    fields: dict[str, tuple[Any, Any]] = {}
    for one in _attributes():
        default = field()
        if one.kept.rare:
            default = field(default_factory=partial(copy, one.of(new)))
        fields[one.stored_as] = one.hint, default
    return table_decoder("snapshot", fields, dict)


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
