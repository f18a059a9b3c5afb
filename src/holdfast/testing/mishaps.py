"""What can befall a run in a campaign of faults, and endless series of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.testing.fault_proxy import Ill


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Where a run is cut. `mirrored`: it works in one directory and is persisted to another."""

    role: str
    at: int
    is_torn: bool = False
    takes_all: bool = False
    mirrored: bool = False

    @property
    def kind(self) -> str:
        whom = "the script and " if self.takes_all else ""
        return f"SIGKILL of {whom}the {self.role}{' within a write' if self.is_torn else ''}"

    def __str__(self) -> str:
        where = "mirrored" if self.mirrored else "local"
        return f"{self.kind} at its operation {self.at} ({where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The power goes after so many fsyncs; `luck` is a seed for what else is on the disk."""

    after: int
    luck: int | None

    @property
    def kind(self) -> str:
        more = "nothing but" if self.luck is None else "by chance more than"
        return f"power cut that leaves {more} what was forced to the disk"

    def __str__(self) -> str:
        return f"{self.kind}, after {self.after} fsyncs (luck {self.luck})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """So many requests to the bucket, from the `at`-th, are ill."""

    ill: Ill
    at: int
    times: int = 1

    @property
    def kind(self) -> str:
        return f"S3: {self.ill}"

    def __str__(self) -> str:
        return f"{self.kind}, {self.times} times from request {self.at}"


Mishap = Crash | Cut | Strike


def crashes(measured: Mapping[bool, Mapping[str, int]], chance: random.Random) -> Iterator[Crash]:
    """Without end: each role's operations in random order, each way of dying in turn.

    Roles come equally often, however many operations they have.
    """
    by_role = [
        [
            Crash(role=role, at=at, is_torn=is_torn, takes_all=takes_all, mirrored=mirrored)
            for at in range(1, most + 1)
            for is_torn in (False, True)
            for takes_all in ((False,) if role == "script" else (False, True))
        ]
        for mirrored, roles in measured.items()
        for role, most in roles.items()
        if most
    ]
    while True:
        for role in chance.sample(by_role, len(by_role)):
            yield chance.choice(role)


def cuts(fsyncs: int, chance: random.Random) -> Iterator[Cut]:
    """Without end: every moment at its worst and by chance."""
    while True:
        for after in chance.sample(range(1, fsyncs + 1), fsyncs):
            yield Cut(after=after, luck=None)
            yield Cut(after=after, luck=chance.randrange(1 << 30))


def strikes(requests: int, chance: random.Random) -> Iterator[Strike]:
    """Without end: each kind in turn, once or several times, at any request.

    A flipped bit is left out: it is the server that has to notice it, and moto does not.
    """
    ills = [ill for ill in Ill if ill is not Ill.CORRUPTED]
    while True:
        for ill in chance.sample(ills, len(ills)):
            times = chance.choice((1, 1, 5))
            yield Strike(ill=ill, at=chance.randint(1, requests), times=times)
