"""What a tracker is to be told, what it has taken in, and when to try again: values alone.

A *moment* is one call of a hook: an attempt that starts, a row, a checkpoint, an end. The moments
of a trial are numbered from 1 in the order of the journal, which gives the same numbers to
whoever reads it; that is how a courier knows after any death where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.experiment.callbacks import hooks_for
from holdfast.scheduler.events import Event
from holdfast.trial.trial import Trial

FORMAT: Final = 1
ROW: Final = "on_trial_result"
START: Final = "on_trial_start"
_TOLD: Final = frozenset(
    {START, "on_trial_restore", ROW, "on_trial_save", "on_trial_complete", "on_trial_error"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One call of `hook`. `number` counts the trial's moments, `row` its rows so far; both from 1.

    `trial` is as it was then.
    """

    trial: Trial
    hook: str
    number: int
    row: int

    @property
    def is_row(self) -> bool:
        return self.hook == ROW


class Numbering:
    """Gives moments their numbers. It must be shown every change since the journal's beginning."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def moments(
        self, event: Event | None, before: Trial | None, after: Trial | None
    ) -> list[Moment]:
        """What this change of a trial means to a tracker."""
        found = []
        for hook in hooks_for(event, before, after) if after is not None else ():
            if hook not in _TOLD or after is None:
                continue
            number, row = self._counts.get(after.trial_id, (0, 0))
            number, row = number + 1, row + (hook == ROW)
            self._counts[after.trial_id] = number, row
            found.append(Moment(trial=after, hook=hook, number=number, row=row))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Moments `first` to `last` of a trial, whose rows are those of these iterations of an
    attempt; `why` they were refused, "" where they were not."""

    first: int
    last: int
    attempt: int
    from_iteration: int
    to_iteration: int
    why: str = ""

    def takes(self, moment: Moment, why: str) -> bool:
        """Whether the row goes on where this ends."""
        follows = moment.trial.iteration == self.to_iteration + 1
        return follows and moment.trial.attempt == self.attempt and why == self.why

    def __str__(self) -> str:
        one = self.from_iteration == self.to_iteration
        shown = f"{self.from_iteration}" if one else f"{self.from_iteration}-{self.to_iteration}"
        return f"{shown} (attempt {self.attempt})" if self.attempt > 1 else shown


def added(spans: tuple[Span, ...], moment: Moment, why: str = "") -> tuple[Span, ...]:
    """`spans` with one more row in them."""
    iteration = moment.trial.iteration
    if spans and spans[-1].takes(moment, why):
        return (*spans[:-1], replace(spans[-1], last=moment.number, to_iteration=iteration))
    one = Span(
        first=moment.number,
        last=moment.number,
        attempt=moment.trial.attempt,
        from_iteration=iteration,
        to_iteration=iteration,
        why=why,
    )
    return (*spans, one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How far a tracker has come with one trial, in numbers of moments.

    `read` were found in the journal, `given` to the tracker (the last in iteration
    `given_iteration`), `delivered` are acknowledged. `waiting` are the rows that are not,
    `refused` those that the tracker would not have.
    """

    read: int = 0
    given: int = 0
    given_iteration: int = 0
    delivered: int = 0
    waiting: tuple[Span, ...] = ()
    refused: tuple[Span, ...] = ()

    @property
    def is_settled(self) -> bool:
        return self.delivered == self.read and not self.refused


class Books:
    """The accounts of all trials with one tracker.

    `kept` are those of an earlier courier. What it had refused is tried once more, and what came
    behind that is told once more.
    """

    def __init__(self, kept: Mapping[str, Account] | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        for name, account in (kept or {}).items():
            refused = [span.first - 1 for span in account.refused]
            settled = min([account.delivered, *refused])
            self.accounts[name] = Account(delivered=settled, given=settled)

    def read(self, moment: Moment) -> bool:
        """Note what the journal holds; whether the tracker is to be told."""
        account = self._of(moment)
        is_due = moment.number > account.delivered
        waiting = account.waiting
        if is_due and moment.is_row:
            waiting = added(waiting, moment)
        self._put(moment, replace(account, read=moment.number, waiting=waiting))
        return is_due

    def gave(self, moment: Moment) -> None:
        """The tracker has taken it; nobody knows yet whether it is kept."""
        account = self._of(moment)
        iteration = moment.trial.iteration
        self._put(moment, replace(account, given=moment.number, given_iteration=iteration))

    def refuse(self, moment: Moment, why: str) -> None:
        """The tracker will not have it: go on without."""
        account = self._of(moment)
        refused = added(account.refused, moment, why)
        self._put(moment, replace(account, refused=refused))
        self.gave(moment)

    def acknowledge(self, held: Iterable[str] = ()) -> None:
        """All that was given is kept, but for trials that the tracker still holds back."""
        still = set(held)
        for name, account in self.accounts.items():
            if name not in still and account.delivered < account.given:
                waiting = (_behind(span, account) for span in account.waiting)
                self.accounts[name] = replace(
                    account,
                    delivered=account.given,
                    waiting=tuple(span for span in waiting if span is not None),
                )

    def unsettled(self) -> dict[str, Account]:
        """Accounts of trials of which something was not delivered."""
        return {name: a for name, a in self.accounts.items() if not a.is_settled}

    def _of(self, moment: Moment) -> Account:
        return self.accounts.get(_id(moment), Account())

    def _put(self, moment: Moment, account: Account) -> None:
        self.accounts[_id(moment)] = account


def _id(moment: Moment) -> str:
    return moment.trial.trial_id


def _behind(span: Span, account: Account) -> Span | None:
    """What of a span was not given yet."""
    if span.last <= account.given:
        return None
    if span.first > account.given:
        return span
    # A span is of one attempt, whose iterations follow one another.
    return replace(span, first=account.given + 1, from_iteration=account.given_iteration + 1)


def encode_books(experiment_id: str, books: Books) -> dict[str, Any]:
    """What a courier must know after its death, as plain data."""
    return {
        "format": FORMAT,
        "experiment": experiment_id,
        "trials": {
            name: {
                "delivered": account.delivered,
                "refused": [_encode_span(span) for span in account.refused],
            }
            for name, account in books.accounts.items()
        },
    }


def decode_books(data: Any, experiment_id: str) -> Books:
    """Empty for those of another experiment. Raises ValueError, KeyError or TypeError for what is
    no such data."""
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']!r}, not {FORMAT}")
    if data["experiment"] != experiment_id:
        return Books()
    return Books(
        {
            name: Account(
                delivered=int(kept["delivered"]),
                refused=tuple(Span(**span) for span in kept["refused"]),
            )
            for name, kept in data["trials"].items()
        }
    )


def _encode_span(span: Span) -> dict[str, Any]:
    return {name: getattr(span, name) for name in Span.__slots__}


def undelivered(books: Books, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """For each trial, which iterations the tracker has not acknowledged, or refused and why."""
    for trial_id, account in books.unsettled().items():
        yield {
            "trial": trial_id,
            "name": names.get(trial_id, trial_id),
            "iterations": [str(span) for span in account.waiting],
            "refused": [{"iterations": str(s), "why": s.why} for s in account.refused],
            "only_its_end": not account.waiting and not account.refused,
        }


def told(missing: Sequence[Mapping[str, Any]], limit: int = 5) -> str:
    """The same in a line for people."""
    parts = []
    for trial in missing[:limit]:
        spans = [*trial["iterations"], *(refused["iterations"] for refused in trial["refused"])]
        shown = ", ".join(spans[:limit]) + (" ..." if len(spans) > limit else "")
        parts.append(f"{trial['name']}: {'iterations ' + shown if spans else 'its start or end'}")
    rest = f"; and {len(missing) - limit} other trials" if len(missing) > limit else ""
    return "; ".join(parts) + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waits of `first_s`, doubled up to `longest_s`, each shortened by up to half at random. What
    is refused for what it is gets `tries`, or one while the tracker refuses everything."""

    first_s: float = 0.5
    longest_s: float = 30.0
    tries: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How it goes with a tracker: `failures` in a row, and when to try again (0: now)."""

    patience: Patience = field(default_factory=Patience)
    failures: int = 0
    is_refusing: bool = False
    not_before: float = 0.0

    def after_success(self) -> Standing:
        return Standing(patience=self.patience)

    def after_failure(self, now: float, chance: float) -> Standing:
        """`chance` is a random number from 0 to 1."""
        patience = self.patience
        # Past twenty doublings the power itself would grow without end.
        wait_s = min(patience.longest_s, patience.first_s * 2 ** min(self.failures, 20))
        return replace(
            self, failures=self.failures + 1, not_before=now + wait_s * (1 - chance / 2)
        )

    @property
    def is_last_try(self) -> bool:
        """Whether what is refused now is not tried again."""
        return self.is_refusing or self.failures + 1 >= self.patience.tries

    def after_refusal(self) -> Standing:
        """It was set aside: what comes behind it may be taken."""
        return Standing(patience=self.patience, is_refusing=True)

    def hurried(self) -> Standing:
        """Try at once: there is not much time left."""
        return Standing(patience=self.patience, is_refusing=self.is_refusing)
