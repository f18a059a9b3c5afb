"""What a tracker is to be told, what it has taken in, and when to try again: values alone.

A *moment* is one call of a hook: an attempt that starts, a row, a checkpoint, an end. The moments
of a trial follow one another by attempt, iteration and kind, which is the same for whoever reads
the journal; that is how a tracker process knows after any death where it was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.callback import hooks_for
from holdfast.names import shown as shown_value
from holdfast.scheduler.events import Event
from holdfast.trial.decoding import decode
from holdfast.trial.trial import Status, Trial

FORMAT: Final = 3
# Without a checksum.
_FORMAT_2: Final = 2
ROW: Final = "on_trial_result"
START: Final = "on_trial_start"
# In the order in which they can follow one another in one iteration of an attempt.
_TOLD: Final = {
    START: 0,
    "on_trial_restore": 1,
    ROW: 2,
    "on_trial_save": 3,
    "on_trial_complete": 4,
    "on_trial_error": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mark:
    """How far somebody has come with a trial. `rows` counts its rows so far, those that were
    repeated after a failure too."""

    attempt: int = 0
    iteration: int = 0
    stage: int = 0
    rows: int = field(default=0, compare=False)

    @property
    def is_end(self) -> bool:
        return self.stage == _TOLD["on_trial_complete"]


def reached(trial: Trial) -> Mark:
    """The newest moment of a trial, but for its rows. An attempt that was launched and has not
    started counts as one that has."""
    newest = trial.newest_checkpoint
    if trial.status.is_final:
        hook = "on_trial_complete"
    elif newest and (newest.attempt, newest.iteration) == (trial.attempt, trial.iteration):
        hook = "on_trial_save"
    elif trial.iteration > trial.resumed_from:
        hook = ROW
    else:
        hook = "on_trial_restore" if trial.resumed_from else START
    return Mark(attempt=trial.attempt, iteration=trial.iteration, stage=_TOLD[hook])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerCall:
    """One call of `hook`, with the trial as it was then."""

    trial: Trial
    hook: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """These iterations of an attempt, which were refused, and `why`; `after` is what the tracker
    had been given before."""

    after: Mark
    attempt: int
    from_iteration: int
    to_iteration: int
    why: str

    def takes(self, moment: TrackerCall, why: str) -> bool:
        """Whether the row goes on where this ends."""
        follows = moment.trial.iteration == self.to_iteration + 1
        return follows and moment.trial.attempt == self.attempt and why == self.why

    def __str__(self) -> str:
        shown = shown_range(self.from_iteration, self.to_iteration)
        return f"{shown} (attempt {self.attempt})" if self.attempt > 1 else shown


def shown_range(first: int, last: int) -> str:
    """`1-3`, or `2`."""
    return f"{first}" if first == last else f"{first}-{last}"


RECORDS_LOST: Final = "the journal was begun anew and has no record of them: see result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How far a tracker has come with one trial: what was `read` for it, what of that it was
    `given` and has acknowledged (`delivered`), and the rows that it would not have."""

    read: Mark = Mark()
    given: Mark = Mark()
    delivered: Mark = Mark()
    refused: tuple[Span, ...] = ()

    @property
    def is_settled(self) -> bool:
        return self.delivered == self.given and not self.refused


class DeliveryState:
    """The accounts of all trials with one tracker.

    `kept` are those of an earlier tracker process. What it had refused is tried once more, and
    what came behind that is told once more.
    """

    def __init__(self, kept: Mapping[str, Account] | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        for name, account in (kept or {}).items():
            settled = min([account.delivered, *(span.after for span in account.refused)])
            self.accounts[name] = Account(read=settled, given=settled, delivered=settled)

    @property
    def are_settled(self) -> bool:
        """Whether all that was given is kept, and nothing was refused."""
        return all(account.is_settled for account in self.accounts.values())

    def read(
        self, event: Event | None, before: Trial | None, after: Trial | None
    ) -> list[TrackerCall]:
        """What this change of a trial means to the tracker, and it has not acknowledged. Changes
        must be read in their order."""
        found = []
        for hook in hooks_for(event, before, after) if after is not None else ():
            if hook not in _TOLD or after is None:
                continue
            account = self.accounts.get(after.trial_id, Account())
            mark = Mark(
                attempt=after.attempt,
                iteration=after.iteration,
                stage=_TOLD[hook],
                rows=account.read.rows + (hook == ROW),
            )
            if mark > account.read:
                self.accounts[after.trial_id] = replace(account, read=mark)
                found.append(TrackerCall(trial=after, hook=hook, mark=mark))
        return found

    def begin_anew(self, trial: Trial) -> list[TrackerCall]:
        """The journal begins anew with this trial, and has no record of what came before: of that
        the tracker hears the end alone. Rows that it has not taken count as refused."""
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

    def gave(self, moment: TrackerCall) -> None:
        """The tracker has taken it; nobody knows yet whether it is kept."""
        self._put(moment, replace(self._of(moment), given=moment.mark))

    def refuse(self, moment: TrackerCall, why: str) -> None:
        """The tracker will not have it: go on without."""
        account = self._of(moment)
        refused, iteration = account.refused, moment.trial.iteration
        if refused and refused[-1].takes(moment, why):
            refused = (*refused[:-1], replace(refused[-1], to_iteration=iteration))
        else:
            one = Span(
                after=account.given,
                attempt=moment.trial.attempt,
                from_iteration=iteration,
                to_iteration=iteration,
                why=why,
            )
            refused = (*refused, one)
        self._put(moment, replace(account, refused=refused, given=moment.mark))

    def acknowledge(self, held: Iterable[str] = ()) -> None:
        """All that was given is kept, but for trials that the tracker still holds back."""
        still = set(held)
        for name, account in self.accounts.items():
            if name not in still and account.delivered != account.given:
                self.accounts[name] = replace(account, delivered=account.given)

    def _of(self, moment: TrackerCall) -> Account:
        return self.accounts.get(moment.trial.trial_id, Account())

    def _put(self, moment: TrackerCall, account: Account) -> None:
        self.accounts[moment.trial.trial_id] = account


def encode_state(experiment_id: str, state: DeliveryState) -> dict[str, Any]:
    """What must be known after a tracker process's death, as plain data.

    The checksum finds a changed number: rows behind one that is too high would never be delivered.
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
    """None of another experiment. Raises ValueError for what is no such data."""
    try:
        return _decoded(data, experiment_id)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What `encode_state` writes of an account."""

    delivered: Mark
    refused: Sequence[Span]


def _decoded(data: Any, experiment_id: str) -> dict[str, Account]:
    if data["format"] not in (_FORMAT_2, FORMAT):
        raise ValueError(f"its format is {shown_value(data['format'])}, not {FORMAT}")
    if data["format"] == FORMAT and data["crc32"] != _checksum(data["trials"]):
        raise ValueError("its checksum is wrong")
    if data["experiment"] != experiment_id:
        return {}
    return {
        name: Account(delivered=one.delivered, refused=tuple(one.refused))
        for name, one in ((name, decode(_Kept, kept)) for name, kept in data["trials"].items())
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDelays:
    """Waits of `first_s`, doubled up to `longest_s`, each shortened by up to half at random. What
    is refused for what it is gets `tries`, or one while the tracker refuses everything."""

    first_s: float = 0.5
    longest_s: float = 30.0
    tries: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """How it goes with a tracker: `failures` in a row, and when to try again (0: now)."""

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
        """Whether what is refused now is not tried again."""
        return self.is_refusing or self.failures + 1 >= self.delays.tries

    def after_refusal(self) -> DeliveryStatus:
        """It was set aside: what comes behind it may be taken."""
        return DeliveryStatus(delays=self.delays, is_refusing=True)

    def hurried(self) -> DeliveryStatus:
        """Try at once: there is not much time left."""
        return DeliveryStatus(delays=self.delays, is_refusing=self.is_refusing)
