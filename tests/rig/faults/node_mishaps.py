"""The faults that a campaign across nodes can inject into a run, and an endless series of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from holdfast.dataclass import dataclass


class Blow(StrEnum):
    """A fault of a node, the network, the controller, the engine's command or the bucket."""

    POWER_OFF = "a node loses its power"
    REBOOT = "a node is rebooted"
    DEATHS = "all processes of a node are killed"
    UNPLUG_BRIEFLY = "the link of a node is down for less than the lease"
    UNPLUG = "the link of a node is down for longer than the lease"
    DROP_BRIEFLY = "packets from and to a node are dropped for less than the lease"
    DROP = "packets from and to a node are dropped"
    DROP_IN = "packets to a node are dropped"
    DROP_OUT = "packets from a node are dropped"
    AGENT_KILL = "SIGKILL of an agent"
    AGENT_STOP_BRIEFLY = "SIGSTOP of an agent for less than the lease"
    AGENT_STOP = "SIGSTOP of an agent for longer than the lease"
    AGENT_TERM = "SIGTERM of an agent (a notice of preemption)"
    WORKER_KILL = "SIGKILL of a worker on a node"
    WARM_KILL = "SIGKILL of the warm parent on a node"
    KEEPER_KILL = "SIGKILL of the keeper on a node"
    SSH_KILL = "SIGKILL of an ssh client"
    SSH_STOP_BRIEFLY = "SIGSTOP of an ssh client for less than the lease"
    SSH_STOP = "SIGSTOP of an ssh client for longer than the lease"
    SSH_FAILS = "ssh fails at first and works later"
    SSH_HANGS = "ssh hangs"
    DISK_FULL = "the disk of a node is full for a while"
    NO_BUCKET = "the bucket cannot be reached from one node"
    REBOOT_ALL = "all nodes are rebooted at once"
    CONTROLLER_UNPLUG_BRIEFLY = "the link of the controller is down for less than the lease"
    CONTROLLER_UNPLUG = "the link of the controller is down for longer than the lease"
    SCRIPT_KILL = "SIGKILL of the script"
    SCRIPT_STOP_BRIEFLY = "SIGSTOP of the script for less than the lease"
    SCRIPT_STOP = "SIGSTOP of the script for longer than the lease"
    CONTROLLER_OFF = "the controller's machine loses its power"
    BUCKET_FAILS = "the bucket answers 500 and 503"
    BUCKET_RESETS = "the bucket breaks connections"
    BUCKET_STALLS = "the bucket answers nothing for a while"
    BUCKET_GONE = "the bucket refuses connections, and comes back"


# After them, the agent's connection ends or is silent for a lease.
LOSES: Final = frozenset(
    {
        Blow.POWER_OFF, Blow.REBOOT, Blow.DEATHS, Blow.UNPLUG, Blow.DROP, Blow.DROP_IN,
        Blow.DROP_OUT, Blow.AGENT_KILL, Blow.AGENT_STOP, Blow.SSH_KILL, Blow.SSH_STOP,
    }
)  # fmt: skip


class Undone(StrEnum):
    """When everything works again."""

    AT_ONCE = "at once"
    SOON = "long before the lease ends"
    AFTER_A_LEASE = "after a lease"
    WHEN_LOST = "when the controller has given the nodes up"


_UNDONE: Final = {
    Undone.SOON: (
        Blow.UNPLUG_BRIEFLY, Blow.DROP_BRIEFLY, Blow.AGENT_STOP_BRIEFLY, Blow.SSH_STOP_BRIEFLY,
        Blow.CONTROLLER_UNPLUG_BRIEFLY, Blow.SCRIPT_STOP_BRIEFLY,
    ),
    Undone.AFTER_A_LEASE: (
        Blow.SCRIPT_STOP,
        Blow.NO_BUCKET, Blow.DISK_FULL, Blow.BUCKET_STALLS, Blow.BUCKET_GONE, Blow.BUCKET_FAILS,
    ),
    Undone.WHEN_LOST: (
        Blow.POWER_OFF, Blow.DEATHS, Blow.UNPLUG, Blow.DROP, Blow.DROP_IN, Blow.DROP_OUT,
        Blow.AGENT_STOP, Blow.SSH_STOP, Blow.CONTROLLER_UNPLUG,
    ),
}  # fmt: skip
OF_THE_CONTROLLER: Final = frozenset({Blow.SCRIPT_KILL, Blow.CONTROLLER_OFF})
SUSPENSIONS: Final = frozenset({Blow.SCRIPT_STOP, Blow.SCRIPT_STOP_BRIEFLY})
OF_THE_BUCKET: Final = frozenset(
    {Blow.BUCKET_FAILS, Blow.BUCKET_RESETS, Blow.BUCKET_STALLS, Blow.BUCKET_GONE}
)
# What is prepared before the script starts.
OF_THE_COMMAND: Final = frozenset({Blow.SSH_FAILS, Blow.SSH_HANGS})
_OF_ALL: Final = frozenset(
    {
        Blow.REBOOT_ALL, Blow.CONTROLLER_UNPLUG, Blow.CONTROLLER_UNPLUG_BRIEFLY,
        Blow.CONTROLLER_OFF, Blow.SCRIPT_STOP, Blow.SCRIPT_STOP_BRIEFLY,
    }
)  # fmt: skip


class Workload(StrEnum):
    """What the script runs."""

    TRIALS = "four trials"
    IN_SYNC = "four trials that wait for storage at each checkpoint"
    RANKS = "two trials of two ranks"
    POPULATION = "a population with clones"


class Resume(StrEnum):
    """How a killed script is continued."""

    SAME = "on the same nodes"
    AUTO = 'with fit(resume="auto")'
    FEWER = "on two of the nodes"
    ALONE = "without a cluster"
    ELSEWHERE = "on another machine, on the same nodes"


class Fact(StrEnum):
    """What a moment is counted by."""

    EPOCH = "the start of an epoch"
    REQUEST = "a request to the bucket"
    BEGIN = "the start of the script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """All `blows` fall at once, on different nodes: the first one on the node number `node` of
    those that run a trial then, or of all if none does. The moment is the `at`-th such fact after
    the wave before was undone."""

    blows: tuple[Blow, ...]
    fact: Fact
    at: int = 1
    node: int = 0

    @property
    def undone(self) -> Undone:
        found = {undone_of(blow) for blow in self.blows}
        return max(found, key=list(Undone).index)

    def __str__(self) -> str:
        what = " and ".join(self.blows)
        return f"{what} (at number {self.at} of {self.fact}, node {self.node})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMishap:
    """One scenario. A killed script is continued, without further faults."""

    waves: tuple[Wave, ...]
    workload: Workload = Workload.TRIALS
    resume: Resume = Resume.SAME
    has_real_beats: bool = False

    @property
    def blows(self) -> tuple[Blow, ...]:
        return tuple(blow for wave in self.waves for blow in wave.blows)

    @property
    def kind(self) -> str:
        return " and ".join(self.blows)

    def __str__(self) -> str:
        beats = ", with the beats of a user" if self.has_real_beats else ""
        again = f", resumed {self.resume}" if OF_THE_CONTROLLER & set(self.blows) else ""
        return f"{', then '.join(map(str, self.waves))}: {self.workload}{again}{beats}"


# One wave in so many has two faults at once, and one scenario has the beats of a user.
_TWICE, _REAL = 2, 8
_MOST_WAVES: Final = 5
# A wave comes at the latest after one such part of the run of four trials.
_PARTS: Final = {Workload.RANKS: 6, Workload.POPULATION: 15}
_EARLY: Final = {Fact.EPOCH: 3, Fact.REQUEST: 20, Fact.BEGIN: 1}


def node_mishaps(
    nodes: int, requests: int, epochs: int, chance: random.Random
) -> Iterator[NodeMishap]:
    """Endless: each blow in turn, at any moment; `requests` and `epochs` are how many of them a
    run of four trials without a fault has."""
    firsts = _in_turn(chance)
    while True:
        workload = chance.choice(list(Workload))
        part = _PARTS.get(workload, 3)
        most = {Fact.EPOCH: epochs // part, Fact.REQUEST: requests // part, Fact.BEGIN: 1}
        waves: list[Wave] = []
        while len(waves) < _MOST_WAVES and not OF_THE_CONTROLLER & set(_blows(waves)):
            first = next(firsts)
            blows = (first, *_second(first, chance))
            fact = _fact(blows, chance, is_first=not waves)
            # Later ones come soon: much of the run has passed when a lost node is given up.
            at = chance.randint(1, max(1, (_EARLY if waves else most)[fact]))
            waves.append(Wave(blows=blows, fact=fact, at=at, node=chance.randrange(nodes)))
        yield NodeMishap(
            waves=tuple(waves),
            workload=workload,
            resume=chance.choice(list(Resume)),
            has_real_beats=chance.randrange(_REAL) == 0,
        )


def _in_turn(chance: random.Random) -> Iterator[Blow]:
    while True:
        yield from chance.sample(list(Blow), len(Blow))


def _blows(waves: Sequence[Wave]) -> Iterator[Blow]:
    return (blow for wave in waves for blow in wave.blows)


def undone_of(blow: Blow) -> Undone:
    return next((when for when, blows in _UNDONE.items() if blow in blows), Undone.AT_ONCE)


def _second(first: Blow, chance: random.Random) -> tuple[Blow, ...]:
    """One that is undone with the first, or needs not be. Not two of those that concern all nodes,
    nor two of the bucket."""
    if chance.randrange(_TWICE):
        return ()
    groups = [_OF_ALL, OF_THE_CONTROLLER, OF_THE_BUCKET, OF_THE_COMMAND]
    others = [
        blow
        for blow in Blow
        if not any(first in group and blow in group for group in groups)
        and len({undone_of(first), undone_of(blow)} - {Undone.AT_ONCE}) < 2
    ]
    return (chance.choice([blow for blow in others if blow != first]),)


def _fact(blows: tuple[Blow, ...], chance: random.Random, *, is_first: bool) -> Fact:
    """What is prepared before the script starts has no moment of its own, and processes on nodes
    are not there at once."""
    if is_first and OF_THE_COMMAND.issuperset(blows):
        return Fact.BEGIN
    facts = (Fact.EPOCH, Fact.EPOCH, Fact.REQUEST)
    can_begin = is_first and not any("SIG" in blow for blow in blows)
    return chance.choice((*facts, Fact.BEGIN) if can_begin else facts)
