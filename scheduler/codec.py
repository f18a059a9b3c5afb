"""Events and the machine as plain data: what the journal and the snapshots hold.

A record is `[name, now, {field: value}]`, readable without this package. A name or field that an
older version did not write takes its default; one that this version does not know is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from typing import Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.scheduler.events import (
    Begun,
    CheckpointLost,
    EndOrdered,
    Event,
    Exited,
    ExperimentSpec,
    Raised,
    Recalled,
    Resumed,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
    WaitEnded,
)
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.placement import Placement
from holdfast.scheduler.policy import (
    Answers,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
)
from holdfast.scheduler.state import State
from holdfast.trial.bounds import LATEST_S, Count, Moment
from holdfast.trial.decoding import check_plain, check_table, read_otherwise
from holdfast.trial.decoding import decode as build
from holdfast.trial.encoding import from_plain, to_plain
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Saved, Started
from holdfast.trial.evolving import reader
from holdfast.trial.nesting import DEEPEST
from holdfast.trial.options import checked_options
from holdfast.trial.resources import Allocation, PlacementGroupFactory, validated
from holdfast.trial.trial import Trial, TrialSpec

EVENTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Begun,
        Recalled,
        Resumed,
        Suggested,
        SearchEnded,
        Started,
        Reported,
        Saved,
        Returned,
        Raised,
        Exited,
        WaitEnded,
        StopperAnswered,
        SchedulerAnswered,
        SearchWaits,
        Adopted,
        CheckpointLost,
        Committed,
        EndOrdered,
    )
}


DECISIONS: dict[str, type] = {kind.__name__: kind for kind in get_args(Decision)}


class UnknownRecord(UnreadableRecord):
    """A record that this version of holdfast cannot read; the message names what is wrong."""


def _encode_bundles(factory: PlacementGroupFactory) -> dict[str, Any]:
    plain = {"bundles": [dict(b) for b in factory.bundles], "strategy": factory.strategy}
    return {**plain, "least": factory.least_bundles} if factory.is_elastic else plain


def _decode_bundles(plain: Any) -> PlacementGroupFactory:
    check_table(plain, "it")
    least = plain.get("least")
    if least is not None and type(least) is not int:
        raise ValueError(f"least must be a whole number, not {shown(least)}")
    return PlacementGroupFactory(plain["bundles"], plain["strategy"], least_bundles=least)


def _decode_wish(plain: Any) -> PlacementGroupFactory | None:
    return None if plain is None else _decode_bundles(plain)


def _decode_capacity(plain: Any) -> Any:
    return validated(check_table(plain, "it"), where="it")


def _decode_config(plain: Any) -> Any:
    # What JSON does not know, such as a tuple, takes two levels there.
    config = from_plain(check_plain(plain, "it", 2 * DEEPEST + 2))
    if type(config) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(config)}")
    return config


def _decode_config_or_none(plain: Any) -> Any:
    return None if plain is None else _decode_config(plain)


def _decode_state(plain: Any) -> Any:
    # The configs of trials stand three levels down.
    if type(plain) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(plain)}")
    return check_plain(plain, "it", 2 * DEEPEST + 6)


def _decode_bounds(plain: Any) -> Any:
    """Of metrics: a number, infinity or a truth value each."""
    for name, bound in check_table(plain, "stop").items():
        if type(bound) not in (bool, int, float) or bound != bound:
            raise ValueError(f"{shown(name)} must be a number, not {shown(bound)}")
    return plain


def _decode_space(plain: Any) -> Any:
    """As `holdfast.trial.search_space.description.describe` gives it."""
    if type(plain) not in (list, tuple):
        raise ValueError(f"must be a list, not {shown(plain)}")
    for part in plain:
        check_table(part, "a part")
        is_path = type(part["path"]) is list and _ENDS.issuperset(map(type, part["path"]))
        if not is_path or type(part["text"]) is not str or type(part["varied"]) is not bool:
            raise ValueError("a part must have a path, a text, and whether it is varied")
    return tuple(plain)


_ENDS = frozenset({str, int})
_CONFIGS = (_decode_config, _decode_config_or_none)

# What of a class is read otherwise than the annotations of its fields say.
_SPECIAL: dict[type, dict[str, Callable[[Any], Any]]] = {
    ExperimentSpec: {
        "resources": _decode_wish,
        "stop": _decode_bounds,
        "space": _decode_space,
        "options": checked_options,
    },
    Begun: {"capacity": _decode_capacity},
    Recalled: {"state": _decode_state},
    Resumed: {"capacity": _decode_capacity, "resources": _decode_wish},
    Suggested: {"answer": _decode_config_or_none},
    TrialSpec: {"resources": _decode_bundles, "config": _decode_config},
    SchedulerAnswered: {"answer": _decode_config},
    CloneTrial: {"config": _decode_config},
    ChangeTrial: {"config": _decode_config_or_none, "resources": _decode_wish},
    AskUser: {"question": _decode_config},
    Trial: {"changed_config": _decode_config_or_none},
}
read_otherwise(_SPECIAL)
_READERS: dict[type, Callable[[Any], dict[str, Any]]] = {}
_NESTED: dict[type, list[tuple[str, bool]]] = {}


def to_fields(value: Any) -> dict[str, Any]:
    """A dataclass of ours as a dict of plain values."""
    kind = type(value)
    read = _READERS.get(kind)
    if read is None:
        read = _READERS[kind] = reader(kind)
    plain = read(value)
    for name, is_config in _nested(kind):
        plain[name] = _plain_part(plain[name], is_config=is_config)
    return plain


def _nested(kind: type) -> list[tuple[str, bool]]:
    """The fields of a class that are not written as they are, and which of them are configs."""
    known = _NESTED.get(kind)
    if known is None:
        special = _SPECIAL.get(kind, {})
        hints = get_type_hints(kind)
        names = [part.name for part in fields(kind)]
        known = _NESTED[kind] = [
            (name, special.get(name) in _CONFIGS)
            for name in names
            if special.get(name) in _CONFIGS or not _is_written_as_it_is(hints[name])
        ]
    return known


def _is_written_as_it_is(hint: Any) -> bool:
    """Whether the values of such a field are what MessagePack holds."""
    return not any(
        is_dataclass(part) or part is PlacementGroupFactory or get_origin(part) is tuple
        for part in (hint, *get_args(hint))
    )


def _plain_part(value: Any, *, is_config: bool) -> Any:
    if value is None:
        return None
    if is_config:
        return to_plain(value)
    if isinstance(value, PlacementGroupFactory):
        return _encode_bundles(value)
    if isinstance(value, (tuple, list)):
        return [to_fields(part) if is_dataclass(part) else part for part in value]
    return to_fields(value) if is_dataclass(value) else value


def _build(kind: type, plain: Any) -> Any:
    """Raises UnknownRecord."""
    try:
        return build(kind, plain)
    except UnreadableRecord as error:
        raise UnknownRecord(str(error)) from None


def encode(event: Event, now: float, answers: Answers = ()) -> list[Any]:
    """The record of one event, and of what the policy decided upon it."""
    record = [type(event).__name__, now, to_fields(event)]
    return [*record, _encode_answers(answers)] if any(answers) else record


def _encode_answers(answers: Answers) -> list[Any]:
    return [[[type(one).__name__, to_fields(one)] for one in decided] for decided in answers]


class Record(NamedTuple):
    """An event with its time (seconds since 1970), and what the policy decided upon it."""

    event: Event
    now: float
    answers: Answers


def decode(record: Any) -> Record:
    """Raises UnknownRecord for a record that this version cannot read."""
    if type(record) is not list or not 3 <= len(record) <= 4:
        raise UnknownRecord(f"not a record of an event: {shown(record)}")
    name, now, plain = record[:3]
    kind = EVENTS.get(name) if type(name) is str else None
    if kind is None:
        raise UnknownRecord(f"not an event of this version of holdfast: {shown(name)}")
    if type(now) not in (int, float) or not 0 <= now <= LATEST_S:
        raise UnknownRecord(f"{name}: its time must be seconds since 1970, not {shown(now)}")
    answers = _decode_answers(record[3]) if len(record) > 3 else ()
    return Record(cast(Event, _build(kind, plain)), now, answers)


def _decode_answers(plain: Any) -> Answers:
    try:
        return [[_build(DECISIONS[name], parts) for name, parts in decided] for decided in plain]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnknownRecord):
            raise
        raise UnknownRecord(f"not a scheduler's decisions: {shown(plain)}") from error


def snapshot(machine: State) -> dict[str, Any]:
    """Everything that `handle` has built up, as plain data."""
    return {
        "spec": to_fields(machine.spec),
        "trials": [to_fields(trial) for trial in machine.trials.values()],
        "capacity": machine.placement.capacity.total,
        "epoch": machine.epoch,
        "boot_id": machine.boot_id,
        "ending": None if machine.ending is None else to_fields(machine.ending),
        "finished": machine.finished,
        "search_ended": machine.search_ended,
        "metric_seen": machine.expected.metric_seen,
        "score_checked": machine.expected.score_checked,
        "active_s": machine.active_s,
        "now": machine.now,
        "holds": {key: to_fields(held) for key, held in machine.placement.holds.items()},
        "idle": {key: to_fields(held) for key, held in machine.placement.idle.items()},
        "queue": list(machine.placement.queue),
        "paused": machine.paused,
        "asking": machine.asking,
        # Mostly there are none, and an older version knew nothing of them.
        **{name: value for name, value in _rarities(machine).items() if value},
    }


def _rarities(machine: State) -> dict[str, Any]:
    return {
        "bounds_unseen": machine.expected.bounds,
        "delayed": sorted(machine.placement.delayed),
        "errored_before": machine.errored_before,
        "search_waits": machine.search_waits,
        "is_complete": machine.is_complete,
        "returning": sorted(machine.resume_when_free),
        "withheld": machine.deferred_replies,
        "saving": machine.saving,
        "questions": {key: to_plain(asked) for key, asked in machine.questions.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What a snapshot has of a machine, as `snapshot` writes it."""

    spec: ExperimentSpec
    trials: Sequence[Trial]
    capacity: Mapping[str, float]
    epoch: Count
    boot_id: str
    ending: EndOrdered | None
    finished: bool
    search_ended: bool
    metric_seen: bool
    active_s: float
    now: Moment
    holds: Mapping[str, Allocation]
    idle: Mapping[str, Allocation]
    queue: Sequence[str]
    paused: Sequence[str]
    asking: bool
    bounds_unseen: Sequence[str] = ()
    delayed: Sequence[str] = ()
    errored_before: Count = 0
    search_waits: bool = False
    is_complete: bool | None = None
    returning: Sequence[str] = ()
    withheld: Mapping[str, Count] = field(default_factory=dict)
    saving: Mapping[str, Count] = field(default_factory=dict)
    score_checked: bool | None = None
    questions: Mapping[str, Any] = field(default_factory=dict)


read_otherwise({_Kept: {"capacity": _decode_capacity}})


def restore_state(machine: State, plain: Any) -> None:
    """Bring a machine to where another one was when `snapshot` was made of it, but for a policy.

    Raises UnknownRecord for a snapshot of another version, and for one that no run has written.
    """
    kept: _Kept = _build(_Kept, plain)
    try:
        _restore(machine, kept)
    except (
        KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError
    ) as error:  # fmt: skip
        raise UnknownRecord(
            f"not a snapshot of this version of holdfast: {error!r:.200}"
        ) from error


def recalled(machine: State) -> Recalled:
    """The record with which a journal begins anew where this machine was."""
    plain = snapshot(machine)
    del plain["spec"]
    return Recalled(spec=machine.spec, state=plain)


def recall(machine: State, event: Recalled) -> None:
    """Raises UnknownRecord."""
    restore_state(machine, {**event.state, "spec": to_fields(event.spec)})


def _restore(machine: State, kept: _Kept) -> None:
    machine.spec, machine.ending = kept.spec, kept.ending
    machine.trials.clear()  # whoever folds a journal holds on to it
    machine.folders.clear()
    machine.clones.clear()
    for trial in kept.trials:
        machine.add(trial)
    _check_known(kept, machine)
    for name in ("epoch", "boot_id", "finished", "search_ended", "active_s", "now", "asking"):
        setattr(machine, name, getattr(kept, name))
    machine.expected = Expected(
        machine.spec,
        metric_seen=kept.metric_seen,
        bounds=tuple(kept.bounds_unseen),
        score_checked=any(trial.next_checkpoint for trial in kept.trials)
        if kept.score_checked is None
        else kept.score_checked,
    )
    machine.placement = Placement.restored(
        kept.capacity, holds=kept.holds, idle=kept.idle, queue=kept.queue, delayed=kept.delayed
    )
    machine.resume_when_free = set(kept.returning)
    machine.errored_before, machine.search_waits = kept.errored_before, kept.search_waits
    complete = kept.is_complete
    machine.is_complete = machine.search_ended if complete is None else complete
    machine.deferred_replies, machine.saving = dict(kept.withheld), dict(kept.saving)
    machine.questions = {key: _decode_config(asked) for key, asked in kept.questions.items()}


def _check_known(kept: _Kept, machine: State) -> None:
    """Raises UnknownRecord where something is said of a trial that there is not."""
    origins = [trial.origin.trial_id for trial in kept.trials if trial.origin is not None]
    for several in (
        *(kept.holds, kept.idle, kept.queue, kept.delayed, kept.paused, kept.returning),
        *(kept.withheld, kept.saving, kept.questions, origins),
    ):
        for trial_id in several:
            if trial_id not in machine.trials:
                raise UnknownRecord(f"it names a trial that it does not have: {shown(trial_id)}")
