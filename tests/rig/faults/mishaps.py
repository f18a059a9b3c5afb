"""The faults that a campaign can inject into a run, and endless series of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.dataclass import dataclass
from tests.rig.faults.deaths import ROLES
from tests.rig.faults.ills import Aim, Ill

EVERYONE: Final = ROLES
# Disturbances that do not fit a store with conditional puts, and the other way round.
NEEDS_MD5: Final = frozenset({Ill.CORRUPTED})
SILENT: Final = frozenset({Ill.SILENCE, Ill.SILENCE_AFTER})


def _named(roles: Sequence[str]) -> str:
    if len(roles) == len(EVERYONE):
        return "all at once"
    return " and ".join(f"the {role}" for role in roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOperation:
    """Something happens when the process of this `role` reaches its operation number `at`.
    `mirrored`: the run works in one directory and is persisted to another."""

    role: str
    at: int
    mirrored: bool = False

    @property
    def kind(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        where = "mirrored" if self.mirrored else "local"
        return f"{self.kind}, at operation {self.at} of the {self.role} ({where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash(AtOperation):
    """The `victims` die; no victims means the process itself."""

    is_torn: bool = False
    victims: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        within = " within a write" if self.is_torn else ""
        return f"SIGKILL of {_named(self.victims or (self.role,))}{within}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(AtOperation):
    """The processes of the role `victim` are stopped (SIGSTOP).

    Only holdfast may continue them, but for the script, which is suspended for a while.
    """

    victim: str

    @property
    def kind(self) -> str:
        return f"SIGSTOP of {_named((self.victim,))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal(AtOperation):
    """`what` (one of REMOVABLE) is removed."""

    what: str

    @property
    def kind(self) -> str:
        return f"{self.what} is removed while the run works in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The power fails after this many fsyncs; `luck` is a seed for what else is on the disk."""

    after: int
    luck: int | None

    @property
    def kind(self) -> str:
        more = "nothing but" if self.luck is None else "by chance more than"
        return f"power cut that leaves {more} what was forced to the disk"

    def __str__(self) -> str:
        return f"{self.kind}, after {self.after} fsyncs (luck {self.luck})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The disk refuses the fsync number `at` and drops the pages, `times` times in a row.

    Later fsyncs succeed. The power fails when the run has ended; `luck` as for a `Cut`.
    """

    at: int
    times: int = 1
    luck: int | None = None

    @property
    def kind(self) -> str:
        how = "" if self.times == 1 else f" {self.times} times in a row"
        return (
            f"fsync that the disk refuses{how} and drops the pages of, and a power cut at the end"
        )

    def __str__(self) -> str:
        return f"{self.kind}, from fsync {self.at} (luck {self.luck})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """This many matching requests to the bucket are disturbed, from the `at`-th on."""

    ill: Ill
    at: int
    times: int = 1
    aim: Aim = Aim.ANY

    @property
    def kind(self) -> str:
        return f"S3: {self.ill}" + ("" if self.aim is Aim.ANY else f" ({self.aim})")

    def __str__(self) -> str:
        return f"{self.kind}, {self.times} times from number {self.at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """Each request to the bucket is disturbed with a probability, in one of several ways."""

    seed: int
    probability: float

    @property
    def kind(self) -> str:
        return "S3: many ills at random in one run"

    def __str__(self) -> str:
        return f"{self.kind}, with probability {self.probability} (seed {self.seed})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The credentials are refused from the `at`-th request on; those of the next run are valid."""

    at: int

    @property
    def kind(self) -> str:
        return "S3: the credentials expire in the middle of the run"

    def __str__(self) -> str:
        return f"{self.kind}, at request {self.at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """The server goes away at the `at`-th request: it refuses connections, or `is_silent`.

    It comes back after `lasts_s` seconds; 0 means as soon as the run has reported it, None never:
    the next run has another way to it.
    """

    at: int
    is_silent: bool
    lasts_s: float | None = 0

    @property
    def kind(self) -> str:
        how = "answers nothing any more" if self.is_silent else "is gone"
        back = "" if self.lasts_s is None else ", and comes back"
        return f"S3: the server {how}{back}"

    def __str__(self) -> str:
        after = f" after {self.lasts_s:g} s" if self.lasts_s else ""
        return f"{self.kind}{after}, at request {self.at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """The victims die at the `at`-th request to the bucket: before it `is_performed`, or after
    that and before the answer."""

    at: int
    victims: tuple[str, ...]
    is_performed: bool

    @property
    def kind(self) -> str:
        return f"S3: SIGKILL of {_named(self.victims)} at a request"

    def __str__(self) -> str:
        when = "performed" if self.is_performed else "not performed"
        return f"{self.kind}: number {self.at}, {when}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """All processes are stopped at the `at`-th request, and continue when another incarnation has
    ended: one `elsewhere`, or one here."""

    at: int
    elsewhere: bool
    is_performed: bool = True

    @property
    def kind(self) -> str:
        where = "on another machine" if self.elsewhere else "here"
        return f"S3: a run is frozen while another incarnation tries to resume {where}"

    def __str__(self) -> str:
        when = "performed" if self.is_performed else "not performed"
        return f"{self.kind}, at request {self.at}, {when}"


Remote = Strike | Storm | Expiry | Outage | Kill | Freeze
Mishap = Crash | Stop | Removal | Cut | Refusal | Remote


def crashes(measured: Mapping[bool, Mapping[str, int]], chance: random.Random) -> Iterator[Crash]:
    """Endless: each role's operations in random order, each way of dying in turn.

    Roles come equally often, however many operations they have.
    """
    by_role = [
        (mirrored, role, most)
        for mirrored, roles in measured.items()
        for role, most in roles.items()
        if most
    ]
    while True:
        for mirrored, role, most in chance.sample(by_role, len(by_role)):
            is_torn, victims = chance.choice(_ways(role, chance))
            at = chance.randint(1, most)
            yield Crash(role=role, at=at, is_torn=is_torn, victims=victims, mirrored=mirrored)


def stops(measured: Mapping[bool, Mapping[str, int]], chance: random.Random) -> Iterator[Stop]:
    """Endless: each role in turn is stopped, at any operation of any role."""
    while True:
        for victim in chance.sample(ROLES, len(ROLES)):
            yield Stop(victim=victim, **_operation(measured, chance))


def _operation(
    measured: Mapping[bool, Mapping[str, int]], chance: random.Random
) -> dict[str, Any]:
    """Any operation of any role."""
    mirrored = chance.choice(list(measured))
    role = chance.choice([role for role, most in measured[mirrored].items() if most])
    at = chance.randint(1, measured[mirrored][role])
    return {"mirrored": mirrored, "role": role, "at": at}


# By the pattern of its path below the experiment's folder.
REMOVABLE: Final = {
    "the experiment's folder": "",
    "the journal": "journal",
    "the journal's newest segment": "journal/*.log",
    "the lock": ".lock",
}


def removals(
    measured: Mapping[bool, Mapping[str, int]], chance: random.Random
) -> Iterator[Removal]:
    """Endless: each thing in turn, at any operation of any role."""
    while True:
        for what in chance.sample(list(REMOVABLE), len(REMOVABLE)):
            yield Removal(what=what, **_operation(measured, chance))


def _ways(role: str, chance: random.Random) -> list[tuple[bool, tuple[str, ...]]]:
    """The process itself, also within a write; with the script; all; and another one at that
    moment."""
    other = chance.choice([known for known in ROLES if known != role])
    ways: list[tuple[bool, tuple[str, ...]]] = [(False, ()), (True, ()), (False, EVERYONE)]
    ways.append((False, (other,)))
    if role != "script":
        ways += [(False, ("script", role)), (True, ("script", role))]
    return ways


def cuts(fsyncs: int, chance: random.Random) -> Iterator[Cut]:
    """Endless: every moment at its worst and at random."""
    while True:
        for after in chance.sample(range(1, fsyncs + 1), fsyncs):
            yield Cut(after=after, luck=None)
            yield Cut(after=after, luck=chance.randrange(1 << 30))


def refusals(fsyncs: int, chance: random.Random) -> Iterator[Refusal]:
    """Endless: every fsync, once and twice in a row."""
    while True:
        for at in chance.sample(range(1, fsyncs + 1), fsyncs):
            times = chance.choice((1, 1, 1, 2, 3))
            luck = chance.choice((None, chance.randrange(1 << 30)))
            yield Refusal(at=at, times=times, luck=luck)


# Requests of multipart uploads: the n-th part, or completion.
MULTIPART: Final = tuple(
    Strike(ill=ill, at=1, times=times, aim=aim)
    for aim in (Aim.PART, Aim.COMPLETION)
    for ill, times in (
        (Ill.FORBIDDEN, 1),
        (Ill.SLOW_DOWN, 1),
        (Ill.SLOW_DOWN, 9),
        (Ill.ANSWER_LOST, 1),
        (Ill.RESET, 9),
        (Ill.PHANTOM, 1),
    )
)


def strikes(requests: int, chance: random.Random, *, outage_s: float = 0) -> Iterator[Remote]:
    """Endless: each kind of fault in turn, at any request. `outage_s`: how long a server is away,
    0 for as long as the run takes to notice."""
    while True:
        yield from _single(requests, chance)
        yield from chance.sample(MULTIPART, 2)
        at = [chance.randint(1, requests) for _ in range(12)]
        yield Storm(seed=chance.randrange(1 << 30), probability=chance.choice((0.02, 0.1, 0.3)))
        yield Expiry(at=at[0])
        for is_silent in (False, True):
            yield Outage(at=at.pop(), is_silent=is_silent, lasts_s=outage_s)
            yield Outage(at=at.pop(), is_silent=is_silent, lasts_s=None)
        for victims in (*((role,) for role in ROLES), ("script", "uploader"), EVERYONE):
            performed = chance.random() < 0.5
            yield Kill(at=chance.randint(1, requests), victims=victims, is_performed=performed)
        yield Freeze(at=at.pop(), elsewhere=False)
        yield Freeze(at=at.pop(), elsewhere=True)


def _single(requests: int, chance: random.Random) -> Iterator[Strike]:
    """Each disturbance, once or several times, at any request; and again at one that matters
    most."""
    for ill in chance.sample(list(Ill), len(Ill)):
        times = chance.choice((1, 1, 5))
        yield Strike(ill=ill, at=chance.randint(1, requests), times=times)
        aim = chance.choice((Aim.CLAIM, Aim.SEGMENT, Aim.HEAD, Aim.MANIFEST))
        yield Strike(ill=ill, at=1 if aim is Aim.CLAIM else chance.randint(1, 4), aim=aim)
