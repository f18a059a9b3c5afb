"""Events and the machine as plain data: what the journal and the snapshots hold.

A record is `[name, now, {field: value}]`, readable without this package. A name or field that an
older version did not write takes its default; one that this version does not know is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple, cast, get_args

from holdfast.scheduler.allotment import Allotment
from holdfast.scheduler.events import (
    Begun,
    CheckpointLost,
    EndOrdered,
    Event,
    Exited,
    ExperimentSpec,
    Raised,
    Resumed,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
    WaitEnded,
)
from holdfast.scheduler.expected import Expected
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import (
    Answers,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
)
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.encoding import from_plain, to_plain
from holdfast.trial.errors import Failure
from holdfast.trial.events import Adopted, Committed, Reported, Returned, Saved, Started
from holdfast.trial.evolving import reader
from holdfast.trial.resources import Allocation, PlacementGroupFactory
from holdfast.trial.trial import Origin, Place, Status, Trial, TrialSpec

EVENTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Begun,
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


class UnknownRecord(ValueError):
    """A record that this version of holdfast cannot read; the message names it."""


def _encode_bundles(factory: PlacementGroupFactory) -> dict[str, Any]:
    plain = {"bundles": [dict(b) for b in factory.bundles], "strategy": factory.strategy}
    return {**plain, "least": factory.least_bundles} if factory.is_elastic else plain


def _decode_bundles(plain: Mapping[str, Any]) -> PlacementGroupFactory:
    least = plain.get("least")
    return PlacementGroupFactory(plain["bundles"], plain["strategy"], least_bundles=least)


def _decode_wish(plain: Mapping[str, Any] | None) -> PlacementGroupFactory | None:
    return None if plain is None else _decode_bundles(plain)


def _each(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: tuple(decode(value) for value in values)


def _one(kind: type) -> Callable[[Any], Any]:
    return lambda plain: None if plain is None else _build(kind, plain)


def _from_plain_or_none(plain: Any) -> Any:
    return None if plain is None else from_plain(plain)


_CONFIGS = (from_plain, _from_plain_or_none)

# How a field that is more than a plain value is read back; writing follows from its type.
_DECODERS: dict[type, dict[str, Callable[[Any], Any]]] = {
    Begun: {"spec": _one(ExperimentSpec)},
    ExperimentSpec: {
        "failure": _one(FailureConfig),
        "checkpoint": _one(CheckpointConfig),
        "resources": _decode_wish,
        "space": tuple,
        "stop_metrics": tuple,
    },
    Resumed: {"resources": _decode_wish, "spec": _one(ExperimentSpec)},
    Suggested: {"spec": _one(TrialSpec), "answer": from_plain},
    TrialSpec: {"resources": _decode_bundles, "config": from_plain},
    Reported: {"checkpoint": _one(CheckpointRecord)},
    Saved: {"checkpoint": _one(CheckpointRecord)},
    Adopted: {"checkpoint": _one(CheckpointRecord)},
    SchedulerAnswered: {"answer": from_plain},
    CloneTrial: {"config": from_plain},
    ChangeTrial: {"config": _from_plain_or_none, "resources": _decode_wish},
    AskUser: {"question": from_plain},
    Origin: {"checkpoint": _one(CheckpointRecord)},
    Raised: {"failure": _one(Failure)},
    StopperAnswered: {"failure": _one(Failure)},
    Trial: {
        "spec": _one(TrialSpec),
        "status": Status,
        "error": _one(Failure),
        "checkpoints": _each(_one(CheckpointRecord)),
        "place": _one(Place),
        "changed_config": _from_plain_or_none,
        "origin": _one(Origin),
    },
    Allocation: {"gpus": tuple},
}
_READERS: dict[type, Callable[[Any], dict[str, Any]]] = {}


def to_fields(value: Any) -> dict[str, Any]:
    """A dataclass of ours as a dict of plain values."""
    kind = type(value)
    read = _READERS.get(kind)
    if read is None:
        read = _READERS[kind] = reader(kind)
    plain = read(value)
    nested = _DECODERS.get(kind)
    if nested:
        for name in nested:
            plain[name] = _plain_part(plain[name], is_config=nested[name] in _CONFIGS)
    return plain


def _plain_part(value: Any, *, is_config: bool) -> Any:
    if value is None:
        return None
    if is_config:
        return to_plain(value)
    if isinstance(value, PlacementGroupFactory):
        return _encode_bundles(value)
    if isinstance(value, tuple):
        return [to_fields(part) if is_dataclass(part) else part for part in value]
    return to_fields(value) if is_dataclass(value) else value


def _build(kind: type, plain: Mapping[str, Any]) -> Any:
    decoders = _DECODERS.get(kind)
    try:
        values = dict(plain)
        if decoders:
            for name, decode in decoders.items():
                if name in values:
                    values[name] = decode(values[name])
        return kind(**values)
    except UnknownRecord:
        raise
    except (KeyError, TypeError, ValueError) as error:
        names = sorted(plain) if isinstance(plain, Mapping) else f"{plain!r:.100}"
        raise UnknownRecord(
            f"{kind.__name__} with the fields {names}: written by another version of "
            f"holdfast ({error!r})"
        ) from error


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


def decode(record: list[Any]) -> Record:
    """Raises UnknownRecord for a record that this version cannot read."""
    try:
        name, now, plain, *rest = record
        event = cast(Event, _build(EVENTS[name], plain))
        return Record(event, now, _decode_answers(*rest) if rest else ())
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnknownRecord):
            raise
        raise UnknownRecord(
            f"not an event of this version of holdfast: {record!r:.200}"
        ) from error


def _decode_answers(plain: list[Any]) -> Answers:
    return [[_build(DECISIONS[name], fields) for name, fields in decided] for decided in plain]


def snapshot(machine: Machine) -> dict[str, Any]:
    """Everything that `handle` has built up, as plain data."""
    return {
        "spec": to_fields(machine.spec),
        "trials": [to_fields(trial) for trial in machine.trials.values()],
        "capacity": machine.allotment.capacity.total,
        "epoch": machine.epoch,
        "boot_id": machine.boot_id,
        "ending": None if machine.ending is None else to_fields(machine.ending),
        "finished": machine.finished,
        "search_ended": machine.search_ended,
        "metric_seen": machine.expected.metric_seen,
        "score_checked": machine.expected.score_checked,
        "active_s": machine.active_s,
        "now": machine.now,
        "holds": {key: to_fields(held) for key, held in machine.allotment.holds.items()},
        "idle": {key: to_fields(held) for key, held in machine.allotment.idle.items()},
        "queue": list(machine.allotment.queue),
        "paused": sorted(machine.paused),
        "asking": machine.asking,
        # Mostly there are none, and an older version knew nothing of them.
        **{name: value for name, value in _rarities(machine).items() if value},
    }


def _rarities(machine: Machine) -> dict[str, Any]:
    return {
        "bounds_unseen": machine.expected.bounds,
        "delayed": sorted(machine.allotment.delayed),
        "errored_before": machine.errored_before,
        "search_waits": machine.search_waits,
        "is_complete": machine.is_complete,
        "returning": sorted(machine.returning),
        "withheld": machine.withheld,
        "saving": machine.saving,
        "questions": {key: to_plain(asked) for key, asked in machine.questions.items()},
    }


def from_snapshot(plain: Mapping[str, Any]) -> Machine:
    """The machine as it was, but for a policy.

    Raises UnknownRecord for a snapshot of another version.
    """
    try:
        machine = Machine()
        machine.spec = _build(ExperimentSpec, plain["spec"])
        trials = [_build(Trial, part) for part in plain["trials"]]
        machine.trials = {trial.trial_id: trial for trial in trials}
        ending = plain["ending"]
        machine.ending = None if ending is None else _build(EndOrdered, ending)
        for name in ("epoch", "boot_id", "finished", "search_ended", "active_s"):
            setattr(machine, name, plain[name])
        machine.expected = Expected(
            machine.spec,
            metric_seen=plain["metric_seen"],
            bounds=tuple(plain.get("bounds_unseen", ())),
            score_checked=plain.get(
                "score_checked", any(trial.next_checkpoint for trial in trials)
            ),
        )
        machine.now, machine.asking = plain["now"], plain["asking"]
        machine.allotment = Allotment.restored(
            plain["capacity"],
            holds={key: _build(Allocation, held) for key, held in plain["holds"].items()},
            idle={key: _build(Allocation, held) for key, held in plain["idle"].items()},
            queue=plain["queue"],
            delayed=plain.get("delayed", ()),
        )
        machine.paused = set(plain["paused"])
        machine.errored_before = plain.get("errored_before", 0)
        machine.search_waits = plain.get("search_waits", False)
        machine.is_complete = plain.get("is_complete", machine.search_ended)
        machine.returning = set(plain.get("returning", ()))
        machine.withheld = dict(plain.get("withheld", {}))
        machine.saving = dict(plain.get("saving", {}))
        machine.questions = {
            key: from_plain(asked) for key, asked in plain.get("questions", {}).items()
        }
        machine.clones = {
            t.trial_id for t in trials if t.origin is not None and not t.status.is_final
        }
    except UnknownRecord:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnknownRecord(f"not a snapshot of this version of holdfast: {error!r}") from error
    return machine
