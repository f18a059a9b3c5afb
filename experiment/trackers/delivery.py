"""Decides what a tracker gets, notes what it has acknowledged, and says when to retry.

A tracker gets a call for each start of an attempt, row, checkpoint and end. The calls for a trial
are ordered by attempt, iteration and kind, and the order is the same for everyone who reads the
journal. So a new tracker process knows where the previous one stopped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.callback import hooks_for
from holdfast.experiment.folder.layout import Layout
from holdfast.names import shown as shown_value
from holdfast.scheduler.events import Event
from holdfast.schema import decode
from holdfast.trial.trial import Status, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerJob:
    """The start data of one tracker process, sent over its socket.

    `name`, `file` and `tracker` (pickled) are those of one tracker. `secrets` are its attributes
    that are never in a pickle; `target` is where it sends to, for messages. `space` describes the
    search space. Everything else is the same for all trackers of an experiment: `tags` are those
    of its RunConfig, `resume_command` is a run that delivers what is missing.
    """

    root: str
    experiment_id: str
    trainable: str
    experiment_path: str
    begins: int
    samples: int | None = None
    total_samples: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    space: Sequence[Mapping[str, Any]] = ()
    resume_command: str = ""
    name: str = ""
    file: str = ""
    tracker: bytes = b""
    secrets: bytes = b""
    target: str = ""

    @property
    def layout(self) -> Layout:
        return Layout(Path(self.root))


FORMAT: Final = 3
ROW: Final = "on_trial_result"
START: Final = "on_trial_start"
# In the order in which they can occur in one iteration of an attempt.
_STAGES: Final = {
    START: 0,
    "on_trial_restore": 1,
    ROW: 2,
    "on_trial_save": 3,
    "on_trial_complete": 4,
    "on_trial_error": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mark:
    """A position among the calls for a trial. `rows` counts its rows, including repeated ones."""

    attempt: int = 0
    iteration: int = 0
    stage: int = 0
    rows: int = field(default=0, compare=False)

    @property
    def is_end(self) -> bool:
        return self.stage == _STAGES["on_trial_complete"]


def reached(trial: Trial) -> Mark:
    """The position of the newest call for a trial, without its number of rows.

    An attempt that was launched counts as started.
    """
    newest = trial.newest_checkpoint
    if trial.status.is_final:
        hook = "on_trial_complete"
    elif newest and (newest.attempt, newest.iteration) == (trial.attempt, trial.iteration):
        hook = "on_trial_save"
    elif trial.iteration > trial.resumed_from:
        hook = ROW
    else:
        hook = "on_trial_restore" if trial.resumed_from else START
    return Mark(attempt=trial.attempt, iteration=trial.iteration, stage=_STAGES[hook])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerCall:
    """One call of `hook`, with the trial as it was then."""

    trial: Trial
    hook: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Iterations of an attempt that the tracker refused, and `why`.

    `after` is the last call that the tracker got before them.
    """

    after: Mark
    attempt: int
    from_iteration: int
    to_iteration: int
    why: str

    def takes(self, call: TrackerCall, why: str) -> bool:
        """True if the row directly follows this span, and was refused for the same reason."""
        follows = call.trial.iteration == self.to_iteration + 1
        return follows and call.trial.attempt == self.attempt and why == self.why

    def __str__(self) -> str:
        shown = shown_range(self.from_iteration, self.to_iteration)
        return f"{shown} (attempt {self.attempt})" if self.attempt > 1 else shown


def shown_range(first: int, last: int) -> str:
    """`1-3`, or `2`."""
    return f"{first}" if first == last else f"{first}-{last}"


RECORDS_LOST: Final = "the journal was begun anew and has no record of them: see result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The progress of a tracker with one trial.

    `read`, `given` and `delivered` are the positions of the last call that was read from the
    journal, taken by the tracker, and acknowledged by it; `refused` are the rows that it refused.
    """

    read: Mark = Mark()
    given: Mark = Mark()
    delivered: Mark = Mark()
    refused: tuple[Span, ...] = ()

    @property
    def is_settled(self) -> bool:
        return self.delivered == self.given and not self.refused


class DeliveryState:
    """The accounts of all trials with one tracker.

    `kept` are those of an earlier tracker process. Rows that it had refused are tried once more,
    and so are all calls after them.
    """

    def __init__(self, kept: Mapping[str, Account] | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        for name, account in (kept or {}).items():
            settled = min([account.delivered, *(span.after for span in account.refused)])
            self.accounts[name] = Account(read=settled, given=settled, delivered=settled)

    @property
    def are_settled(self) -> bool:
        """True if the tracker has acknowledged everything, and refused nothing."""
        return all(account.is_settled for account in self.accounts.values())

    def read(
        self, event: Event | None, before: Trial | None, after: Trial | None
    ) -> list[TrackerCall]:
        """The calls of this change that the tracker has not acknowledged. Call it for changes in
        their order."""
        found = []
        for hook in hooks_for(event, before, after) if after is not None else ():
            if hook not in _STAGES or after is None:
                continue
            account = self.accounts.get(after.trial_id, Account())
            mark = Mark(
                attempt=after.attempt,
                iteration=after.iteration,
                stage=_STAGES[hook],
                rows=account.read.rows + (hook == ROW),
            )
            if mark > account.read:
                self.accounts[after.trial_id] = replace(account, read=mark)
                found.append(TrackerCall(trial=after, hook=hook, mark=mark))
        return found

    def begin_anew(self, trial: Trial) -> list[TrackerCall]:
        """Continue with a journal that begins with the state of this trial, because earlier
        records are lost.

        Of what came before, the tracker gets only the end. Rows that it has not taken count as
        refused.
        """
        account, end = self.accounts.get(trial.trial_id, Account()), reached(trial)
        if end <= account.read:
            return []
        mark = replace(end, rows=account.read.rows)
        follows = account.read.attempt == trial.attempt
        first = 1 + (account.read.iteration if follows else trial.resumed_from)
        lost = Span(
            after=account.given,
            attempt=trial.attempt,
            from_iteration=first,
            to_iteration=trial.iteration,
            why=RECORDS_LOST,
        )
        refused = (*account.refused, lost) if first <= trial.iteration else account.refused
        self.accounts[trial.trial_id] = replace(account, read=mark, refused=refused)
        if not trial.status.is_final:
            return []
        hook = "on_trial_error" if trial.status is Status.ERROR else "on_trial_complete"
        return [TrackerCall(trial=trial, hook=hook, mark=mark)]

    def mark_given(self, call: TrackerCall) -> None:
        """The tracker has taken the call, but has not acknowledged it yet."""
        self._put(call, replace(self._of(call), given=call.mark))

    def refuse(self, call: TrackerCall, why: str) -> None:
        """The tracker has refused the call: continue without it."""
        account = self._of(call)
        refused, iteration = account.refused, call.trial.iteration
        if refused and refused[-1].takes(call, why):
            refused = (*refused[:-1], replace(refused[-1], to_iteration=iteration))
        else:
            one = Span(
                after=account.given,
                attempt=call.trial.attempt,
                from_iteration=iteration,
                to_iteration=iteration,
                why=why,
            )
            refused = (*refused, one)
        self._put(call, replace(account, refused=refused, given=call.mark))

    def acknowledge(self, held: Iterable[str] = ()) -> None:
        """Everything given is acknowledged, except for trials that the tracker still `held`
        back."""
        still = set(held)
        for name, account in self.accounts.items():
            if name not in still and account.delivered != account.given:
                self.accounts[name] = replace(account, delivered=account.given)

    def _of(self, call: TrackerCall) -> Account:
        return self.accounts.get(call.trial.trial_id, Account())

    def _put(self, call: TrackerCall, account: Account) -> None:
        self.accounts[call.trial.trial_id] = account


def encode_state(experiment_id: str, state: DeliveryState) -> dict[str, Any]:
    """The state that a later tracker process needs, as plain data.

    The checksum detects a changed number: rows after one that is too high would never be
    delivered.
    """
    trials = {
        name: {
            "delivered": asdict(account.delivered),
            "refused": [asdict(span) for span in account.refused],
        }
        for name, account in state.accounts.items()
    }
    return {
        "format": FORMAT,
        "experiment": experiment_id,
        "crc32": _checksum(trials),
        "trials": trials,
    }


def _checksum(trials: Any) -> str:
    text = json.dumps(trials, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def decode_accounts(data: Any, experiment_id: str) -> dict[str, Account]:
    """The accounts in the data; empty for another experiment. Raises ValueError for invalid
    data."""
    try:
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {shown_value(data['format'])}, not {FORMAT}")
        if data["crc32"] != _checksum(data["trials"]):
            raise ValueError("its checksum is wrong")
        if data["experiment"] != experiment_id:
            return {}
        return {name: decode(Account, one) for name, one in data["trials"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelays:
    """Waits of `first_s`, doubled up to `longest_s`, each shortened by up to half at random.

    A row that the tracker refuses is tried `tries` times, or once while the tracker refuses
    everything.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    tries: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """The state of the delivery: `failures` in a row, and when to retry (0: now)."""

    delays: RetryDelays = field(default_factory=RetryDelays)
    failures: int = 0
    is_refusing: bool = False
    not_before: float = 0.0

    def after_success(self) -> DeliveryStatus:
        return DeliveryStatus(delays=self.delays)

    def after_failure(self, now: float, chance: float) -> DeliveryStatus:
        """`chance` is a random number from 0 to 1."""
        delays = self.delays
        # Past twenty doublings the power itself would grow without end.
        wait_s = min(delays.longest_s, delays.first_s * 2 ** min(self.failures, 20))
        return replace(
            self, failures=self.failures + 1, not_before=now + wait_s * (1 - chance / 2)
        )

    @property
    def is_last_try(self) -> bool:
        """True if a row that is refused now will not be retried."""
        return self.is_refusing or self.failures + 1 >= self.delays.tries

    def after_refusal(self) -> DeliveryStatus:
        """The refused row was set aside: later ones may be accepted."""
        return DeliveryStatus(delays=self.delays, is_refusing=True)

    def hurried(self) -> DeliveryStatus:
        """Retry at once, because little time is left."""
        return DeliveryStatus(delays=self.delays, is_refusing=self.is_refusing)
