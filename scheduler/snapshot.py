"""The machine as plain data. Which attributes a snapshot has: see `holdfast.scheduler.kept`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cache, partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.scheduler.codec import UnknownRecord
from holdfast.scheduler.events import Recalled
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.kept import NOT_KEPT, Kept, TrialId
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.state import State
from holdfast.trial.decoding import Decode, table_decoder
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.fields import Write, to_fields, writer_of

_PARTS = {"placement": Placement, "expected": Expected}
_AS_IT_IS = Kept()


@dataclass(frozen=True, slots=True)
class _Attribute:
    """`part` is the attribute of State whose attribute it is, "" for one of State itself."""

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
    """Everything that `handle` has built up, as plain data."""
    plain: dict[str, Any] = {}
    for one in _attributes():
        value = one.of(machine)
        if value or not one.kept.rare:
            plain[one.stored_as] = value if one.write is None else one.write(value)
    # Older versions read it; this one derives it.
    return {**plain, "paused": machine.paused}


def recalled(machine: State) -> Recalled:
    """The record with which a journal begins anew where this machine was."""
    plain = snapshot(machine)
    del plain["spec"]
    return Recalled(spec=machine.spec, state=plain)


def recall(machine: State, event: Recalled) -> None:
    """Raises UnknownRecord."""
    restore_state(machine, {**event.state, "spec": to_fields(event.spec)})


def restore_state(machine: State, plain: Any) -> None:
    """Bring a machine to where another one was when `snapshot` was made of it, but for a policy.

    Raises UnknownRecord for a snapshot of another version, and for one that no run has written.
    """
    try:
        _restore(machine, _reader()(plain), has_scored="score_checked" in plain)
    except UnreadableRecord as error:
        raise UnknownRecord(str(error)) from None
    except (
        KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError
    ) as error:  # fmt: skip
        raise UnknownRecord(
            f"not a snapshot of this version of holdfast: {error!r:.200}"
        ) from error


def _restore(machine: State, known: Mapping[str, Any], *, has_scored: bool) -> None:
    """`has_scored`: the snapshot says whether the score of a checkpoint was looked for."""
    _check_references(known)
    several: dict[str, dict[str, Any]] = {"": {}, **{part: {} for part in _PARTS}}
    for one in _attributes():
        several[one.part][one.name] = known[one.stored_as]
    own = several[""]
    machine.begin_with(own.pop("trials"))
    for name, value in own.items():
        setattr(machine, name, value)
    machine.is_complete |= machine.search_ended
    machine.placement = Placement.restored(**several["placement"])
    machine.expected = Expected(machine.spec, **several["expected"])
    if not has_scored:
        machine.expected.score_checked |= any(t.next_checkpoint for t in known["trials"])


def _check_references(known: Mapping[str, Any]) -> None:
    """Raises UnknownRecord for a snapshot that refers to a trial that it does not have."""
    trials = {trial.trial_id for trial in known["trials"]}
    several: list[Any] = [known[one.stored_as] for one in _attributes() if one.refers]
    origins = [trial.origin.trial_id for trial in known["trials"] if trial.origin is not None]
    for ids in (*several, known["paused"], origins):
        for trial_id in ids:
            if trial_id not in trials:
                raise UnknownRecord(f"it names a trial that it does not have: {shown(trial_id)}")


@cache
def _attributes() -> Sequence[_Attribute]:
    """Those that a snapshot has."""
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
    """A function that reads what `snapshot` gives: a dict of values by their names there."""
    new = State()
    fields: dict[str, tuple[Any, Any]] = {"paused": (Sequence[TrialId], field(default=()))}
    for one in _attributes():
        default = field()
        if one.kept.rare or one.kept.late:
            default = field(default_factory=partial(copy, one.of(new)))
        fields[one.stored_as] = one.hint, default
    return table_decoder("snapshot", fields, dict)
