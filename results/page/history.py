"""The attempts of trials and what happened to an experiment, from the records of its journal.

A million records are read in a second, because nearly all are reports: of these only the first
and the last of each attempt are decoded. Pure: no I/O.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.results.page.happened import Attempt, Happening, Restore
from holdfast.results.page.raw_records import raw_record, raw_report, text_of, time_of, whole_of
from holdfast.results.page.raw_reports import ID_AT, NAME, PLAIN, SHORT_TEXT
from holdfast.syncer.journal.segment import HEADER
from holdfast.trial.errors import OF_THE_PROCESS

_REPORTED: Final = NAME + b"\xcb"
_NAME_ENDS: Final = 1 + len(_REPORTED)
_LENGTH_AT: Final = ID_AT - 1
_MOST_HAPPENINGS: Final = 1_000
_MOST_STEPS: Final = 20_000


class History:
    """Hears every record in order, by `hear`. `attempts` has those of each trial, `failed` the
    failed ones in the order of their ends."""

    def __init__(self) -> None:
        self.attempts: dict[str, list[Attempt]] = {}
        self.failed: list[tuple[str, Attempt]] = []
        self.restores: list[Restore] = []
        self.happenings: list[Happening] = []
        self.left_out = 0
        self.last_at = 0.0
        # How many attempts run, after each change: pairs of time and number.
        self.running: list[tuple[float, int]] = []
        self._epoch = 1
        self._alive: dict[str, Attempt] = {}
        # By the bytes of a running trial's id: the newest report of its attempt.
        self._reports: dict[bytes, bytes] = {}
        self._ending: Mapping[str, Any] | None = None
        self._pauses: dict[str, str] = {}
        # By trial: who has paused it last, and when.
        self.paused: dict[str, tuple[str, float]] = {}

    def hear(self, payload: bytes) -> None:
        """Note a record. One that is not a record is left out."""
        if payload[1:_NAME_ENDS] == _REPORTED and payload[0] == PLAIN:
            key = payload[ID_AT : ID_AT + payload[_LENGTH_AT] - SHORT_TEXT]
            if key in self._reports:
                self._reports[key] = payload
                return
        self._decode(payload)

    def hear_frames(self, data: bytes) -> int:
        """Note the records at the beginning of `data`, a part of a segment; returns how many bytes
        these are. The checksums of reports are not compared, which would take most of the time."""
        reports, unpack, crc32 = self._reports, HEADER.unpack_from, zlib.crc32
        at, end = 0, len(data)
        while at + HEADER.size <= end:
            length, crc = unpack(data, at)
            begin = at + HEADER.size
            if not length or begin + length > end:
                break
            if data[begin + 1 : begin + _NAME_ENDS] == _REPORTED and data[begin] == PLAIN:
                id_at = begin + ID_AT
                key = data[id_at : id_at + data[id_at - 1] - SHORT_TEXT]
                if key in reports:
                    at = begin + length
                    reports[key] = data[begin:at]
                    continue
            payload = data[begin : begin + length]
            if crc32(payload) != crc:
                break
            self._decode(payload)
            at = begin + length
        return at

    def _decode(self, payload: bytes) -> None:
        name = payload[2 : 2 + max(0, payload[1] - SHORT_TEXT)] if len(payload) > 1 else b""
        if name in _UNHEARD and payload[0] == PLAIN:
            return
        record = raw_record(payload)
        if record is None:
            return
        kind, now, fields, answers = record
        if kind == "Reported" and type(trial_id := fields.get("trial_id")) is str:
            self._on_report(trial_id, payload)
        elif (note := _NOTES.get(kind)) is not None:
            note(self, now, fields)
        for decision, parts in answers:
            self._hear_decision(decision, parts)
        if kind in _HAPPENINGS:
            self._happen(now, kind, fields)
        self.last_at = max(self.last_at, now)

    def attempts_of(self, trial_id: str) -> Sequence[Attempt]:
        """Its attempts; the newest with its newest report."""
        known = self.attempts.get(trial_id, ())
        if known:
            self._take_report(trial_id, known[-1])
        return known

    def began_at(self, trial_id: str) -> float | None:
        known = self.attempts.get(trial_id)
        return known[0].began_at if known else None

    @property
    def now(self) -> float:
        """The time of the newest record."""
        newest = max((time_of(one) for one in self._reports.values()), default=0.0)
        return max(self.last_at, newest)

    # -- records ------------------------------------------------------------------------------

    def _on_begun(self, now: float, fields: Mapping[str, Any]) -> None:
        self._epoch = 1

    def _on_resumed(self, now: float, fields: Mapping[str, Any]) -> None:
        since = self.now
        cut = dict(self._alive)
        for trial_id, attempt in cut.items():
            self._take_report(trial_id, attempt)
            self._end(trial_id, since, "interrupted", _why_cut(self._ending))
        epoch = fields.get("epoch")
        self._epoch = epoch if type(epoch) is int else self._epoch + 1
        # Attempts that an end of the run has interrupted resume with this restore, too.
        for trial_id, attempts in self.attempts.items():
            last = attempts[-1]
            if last.end == "interrupted" and last.epoch == self._epoch - 1:
                cut.setdefault(trial_id, last)
        was_ended = self._ending is not None
        self.restores.append(Restore(now, self._epoch, since, cut, was_ended))
        self._ending = None
        self._pauses.clear()

    def _on_started(self, now: float, fields: Mapping[str, Any]) -> None:
        trial_id, number = fields.get("trial_id"), fields.get("attempt")
        if type(trial_id) is not str or type(number) is not int:
            return
        if (before := self._alive.get(trial_id)) is not None:
            if before.attempt == number:  # another worker took over the same attempt
                before.pid = whole_of(fields.get("pid"))
                return
            self._take_report(trial_id, before)
            self._end(trial_id, now, "interrupted", "the next attempt began")
        nodes = fields.get("nodes")
        made = Attempt(
            attempt=number,
            began_at=now,
            epoch=self._epoch,
            pid=whole_of(fields.get("pid")),
            hostname=text_of(fields.get("hostname")),
            nodes=tuple(filter(None, map(text_of, nodes))) if type(nodes) is list else (),
        )
        known = self.attempts.setdefault(trial_id, [])
        before = known[-1] if known else None
        has_failed = before is not None and before.end in ("failed", "lost")
        if before is not None and has_failed and before.epoch < self._epoch and self.restores:
            self.restores[-1].retried += 1
        known.append(made)
        self._alive[trial_id] = made
        self._reports.pop(trial_id.encode(), None)
        self._pauses.pop(trial_id, None)
        self._step(now)

    def _on_returned(self, now: float, fields: Mapping[str, Any]) -> None:
        why = self._pauses.get(text_of(fields.get("trial_id")), "")
        self._ends(now, fields, "returned", why)

    def _on_raised(self, now: float, fields: Mapping[str, Any]) -> None:
        failure = fields.get("failure")
        failure = failure if type(failure) is dict else {}
        if self._ending is not None and _is_of_the_end(self._ending, failure):
            self._ends(now, fields, "interrupted", _why_cut(self._ending))
        else:
            self._ends(now, fields, "failed", "", failure)

    def _on_stopper(self, now: float, fields: Mapping[str, Any]) -> None:
        if type(failure := fields.get("failure")) is dict:
            self._ends(now, fields, "failed", "", failure)

    def _on_exited(self, now: float, fields: Mapping[str, Any]) -> None:
        trial_id = fields.get("trial_id")
        if self._ending is not None:
            self._ends(now, fields, "interrupted", _why_cut(self._ending))
        elif type(trial_id) is str and trial_id in self._pauses:
            self._ends(now, fields, "paused", self._pauses.pop(trial_id))
        else:
            failure = {"kind": fields.get("kind", "lost"), "message": fields.get("cause", "")}
            self._ends(now, fields, "lost", "", failure)

    def _on_ending(self, now: float, fields: Mapping[str, Any]) -> None:
        self._ending = fields

    def _on_stop(self, now: float, fields: Mapping[str, Any]) -> None:
        self._mark(fields, "stopped", f"stopped by {text_of(fields.get('by'))}")

    def _on_pause(self, now: float, fields: Mapping[str, Any]) -> None:
        if type(trial_id := fields.get("trial_id")) is str:
            by = text_of(fields.get("by"))
            self._pauses[trial_id], self.paused[trial_id] = f"paused by {by}", (by, now)

    def _on_resume(self, now: float, fields: Mapping[str, Any]) -> None:
        self._pauses.pop(text_of(fields.get("trial_id")), None)

    def _hear_decision(self, name: str, fields: Mapping[str, Any]) -> None:
        if name == "StopTrial":
            self._mark(fields, "stopped", text_of(fields.get("why")))
        elif name in ("PauseTrial", "CloneTrial") and type(fields.get("trial_id")) is str:
            source = text_of(fields.get("source"))
            why = (
                "the scheduler paused it"
                if name == "PauseTrial"
                else f"it continues from a checkpoint of trial {source}"
            )
            self._pauses[fields["trial_id"]] = why
            self._mark(fields, "paused", why)

    # -- attempts -----------------------------------------------------------------------------

    def _mark(self, fields: Mapping[str, Any], end: str, why: str) -> None:
        """The attempt will end so: its worker has been told."""
        attempt = self._alive.get(text_of(fields.get("trial_id")))
        if attempt is not None:
            attempt.end, attempt.why = end, why

    def _ends(
        self,
        now: float,
        fields: Mapping[str, Any],
        end: str,
        why: str,
        failure: Mapping[str, Any] | None = None,
    ) -> None:
        trial_id = fields.get("trial_id")
        attempt = self._alive.get(trial_id) if type(trial_id) is str else None
        if attempt is None or type(trial_id) is not str:
            return
        if attempt.attempt != fields.get("attempt"):
            return
        self._take_report(trial_id, attempt)
        if attempt.end:  # told before: what follows is its consequence
            self._end(trial_id, now, attempt.end, attempt.why)
            return
        if failure is not None:
            attempt.failure = failure
            self.failed.append((trial_id, attempt))
        self._end(trial_id, now, end, why)

    def _end(self, trial_id: str, now: float, end: str, why: str) -> None:
        attempt = self._alive.pop(trial_id)
        attempt.ended_at, attempt.end, attempt.why = now, end, why
        self._pauses.pop(trial_id, None)
        self._reports.pop(trial_id.encode(), None)
        self._step(now)

    def _on_report(self, trial_id: str, payload: bytes) -> None:
        """The first report of an attempt says where it began."""
        attempt = self._alive.get(trial_id)
        if attempt is None:
            return
        self._reports[trial_id.encode()] = payload
        if attempt.from_iteration is None and (row := raw_report(payload)) is not None:
            attempt.from_iteration = row.iteration - 1
            attempt.from_time_s = max(0.0, row.time_total_s - row.time_this_iter_s)

    def _take_report(self, trial_id: str, attempt: Attempt) -> None:
        payload = self._reports.get(trial_id.encode())
        row = None if payload is None else raw_report(payload)
        if row is not None:
            attempt.to_iteration, attempt.to_time_s = row.iteration, row.time_total_s
            attempt.reported_at = row.at

    def _step(self, now: float) -> None:
        self.running.append((now, len(self._alive)))
        if len(self.running) > _MOST_STEPS:
            # Each pair of neighbours becomes the one with more running attempts.
            pairs = zip(self.running[::2], self.running[1::2], strict=False)
            self.running = [max(pair, key=lambda one: one[1]) for pair in pairs]

    def _happen(self, now: float, name: str, fields: Mapping[str, Any]) -> None:
        if len(self.happenings) < _MOST_HAPPENINGS:
            self.happenings.append(Happening(at=now, epoch=self._epoch, name=name, fields=fields))
        else:
            self.left_out += 1


# Records of one trial that say nothing about attempts.
_UNHEARD: Final = frozenset(
    {b"Suggested", b"Committed", b"Measured", b"ConstraintViolated", b"WaitEnded", b"Adopted"}
)
_Note = Callable[[History, float, Mapping[str, Any]], None]
_NOTES: Final[Mapping[str, _Note]] = {
    "Begun": History._on_begun,
    "Recalled": History._on_begun,
    "Resumed": History._on_resumed,
    "Started": History._on_started,
    "Returned": History._on_returned,
    "Raised": History._on_raised,
    "Exited": History._on_exited,
    "StopperAnswered": History._on_stopper,
    "EndOrdered": History._on_ending,
    "TrialStopOrdered": History._on_stop,
    "PauseRequested": History._on_pause,
    "ResumeRequested": History._on_resume,
}
_HAPPENINGS: Final = frozenset(
    {
        "Begun", "Recalled", "EndOrdered", "NodeJoined", "NodeLeaving", "NodeLeft", "NodesSettled",
        "TrialStopOrdered", "PauseRequested", "ResumeRequested", "LimitChanged", "SamplesAdded",
        "ConfigAdded", "ConfigRefused", "NoteWritten",
    }
)  # fmt: skip


def _why_cut(ending: Mapping[str, Any] | None) -> str:
    if ending is None:
        return "no process ran the experiment any more"
    return text_of(ending.get("message")) or f"the run ended: {text_of(ending.get('reason'))}"


def _is_of_the_end(ending: Mapping[str, Any], failure: Mapping[str, Any]) -> bool:
    """Whether the end of the run explains the failure, as the machine sees it."""
    return ending.get("reason") == "preempted" or failure.get("kind") in OF_THE_PROCESS
