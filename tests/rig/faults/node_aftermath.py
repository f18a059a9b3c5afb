"""Checks what a fault across nodes has left: in the journal, in the notes of trials, on nodes.

Like the checker, it shares no code with holdfast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from tests.rig import checker
from tests.rig.faults.node_mishaps import Blow

# How late a busy machine may be.
ALLOWANCE_S: Final = 10.0
# Trials that a stopped agent cannot end may still be computing, unheard, when others have begun.
_UNAWARE: Final = frozenset({Blow.AGENT_STOP, Blow.AGENT_STOP_BRIEFLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """A fault of a node, and when, by the wall clock."""

    blow: Blow
    node: str
    at: float


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the journal."""

    name: str
    at: float
    fields: Mapping[str, Any]


def journal(root: Path) -> list[Record]:
    return [Record(name, at, fields) for name, at, fields in checker.records(root)]


def losses(records: Sequence[Record], dealt: Dealt, *, before: float) -> list[Record]:
    """How nodes of this host have left since then, and before this time."""
    hosts = {
        record.fields["node"]: record.fields["hostname"]
        for record in records
        if record.name == "NodeJoined"
    }
    return [
        record
        for record in records
        if record.name == "NodeLeft"
        and hosts.get(record.fields["node"]) == dealt.node
        and dealt.at <= record.at <= before
    ]


def had_joined(records: Sequence[Record], dealt: Dealt) -> bool:
    """Whether a node of this host was there at that moment."""
    here: set[str] = set()
    for record in records:
        if record.at > dealt.at:
            break
        if record.name == "NodeJoined" and record.fields["hostname"] == dealt.node:
            here.add(record.fields["node"])
        elif record.name == "NodeLeft":
            here.discard(record.fields["node"])
        elif record.name == "Resumed":
            here.clear()
    return bool(here)


def orphaned(records: Sequence[Record], left: Record) -> Iterator[tuple[str, float | None]]:
    """The trials that ran on the node when it left, and after how many seconds each was free to
    start again: when the journal has its end. None if it never was."""
    at = records.index(left)
    running: dict[str, Sequence[str]] = {}
    for record in records[:at]:
        trial = record.fields.get("trial_id", "")
        if record.name == "Started":
            running[trial] = record.fields.get("nodes", ())
        elif record.name in ("Exited", "Raised", "Returned", "Resumed"):
            running.pop(trial, None) if trial else running.clear()
    for trial, nodes in running.items():
        if left.fields["node"] in nodes:
            ends = (
                record.at - left.at
                for record in records[at:]
                if record.name in ("Exited", "Raised") and record.fields["trial_id"] == trial
            )
            yield trial, next(ends, None)


def charged(records: Sequence[Record]) -> Iterator[str]:
    """The nodes that left without notice: their trials count this as a failure."""
    announced = set()
    for record in records:
        if record.name == "NodeLeaving":
            announced.add(record.fields["node"])
        elif record.name == "NodeLeft" and record.fields["node"] not in announced:
            yield f"node {record.fields['node']} left without notice: {record.fields['cause']}"


def used_again(records: Sequence[Record]) -> int:
    """How often a host that had left has joined again in the same incarnation."""
    gone: set[str] = set()
    hosts: dict[str, str] = {}
    again = 0
    for record in records:
        if record.name == "NodeJoined":
            hosts[record.fields["node"]] = host = record.fields["hostname"]
            again += host in gone
            gone.discard(host)
        elif record.name == "NodeLeft":
            gone.add(hosts.get(record.fields["node"], ""))
        elif record.name == "Resumed":
            gone.clear()
    return again


def late_rows(records: Sequence[Record]) -> Iterator[str]:
    """Rows of an attempt after the start of a newer one: its node should have been silent."""
    newest: dict[str, int] = {}
    for record in records:
        trial, attempt = record.fields.get("trial_id", ""), record.fields.get("attempt", 0)
        if record.name == "Started":
            newest[trial] = attempt
        elif record.name == "Reported" and attempt < newest.get(trial, 0):
            yield f"a row of attempt {attempt} of {trial} follows the start of a newer one"


def resumed_early(records: Sequence[Record]) -> Iterator[str]:
    """Attempts that began before the newest checkpoint that was in storage when the attempt before
    had ended."""
    saved: dict[tuple[str, int], int] = {}
    committed: dict[str, dict[int, int]] = {}
    least: dict[str, int] = {}
    begun: set[tuple[str, int]] = set()
    for record in records:
        fields = record.fields
        trial, index = fields.get("trial_id", ""), fields.get("index", -1)
        match record.name:
            case "Reported" | "Saved" | "Adopted":
                if (kept := fields.get("checkpoint")) is not None:
                    saved[trial, kept["index"]] = kept["iteration"]
                attempt = trial, fields["attempt"]
                if record.name == "Reported" and attempt not in begun:
                    begun.add(attempt)
                    if fields["iteration"] <= least.get(trial, 0):
                        at = f"{fields['iteration']}, not after {least[trial]}"
                        yield f"attempt {attempt[1]} of {trial} began at {at}"
            case "Committed":
                committed.setdefault(trial, {})[index] = saved[trial, index]
            case "CheckpointLost" | "Dropped":
                committed.get(trial, {}).pop(index, None)
            case "Exited" | "Raised":
                least[trial] = max(committed.get(trial, {}).values(), default=0)
            case "Resumed":
                for each, known in committed.items():
                    least[each] = max(known.values(), default=0)
            case _:
                pass


def at_the_same_time(notes: Sequence[Mapping[str, Any]], dealt: Sequence[Dealt]) -> Iterator[str]:
    """Attempts that did something when a newer one of their trial had begun. One that could not
    know it may have computed, but nobody may have acknowledged anything."""
    unaware = any(one.blow in _UNAWARE for one in dealt)
    newest: dict[str, int] = {}
    for fact in notes:
        what, trial, attempt = fact["what"], fact["trial"], fact["attempt"]
        if attempt < newest.get(trial, 0) and (what == "acknowledged" or not unaware):
            yield f"two attempts of a trial at the same time: {fact}"
        newest[trial] = max(newest.get(trial, 0), attempt)
