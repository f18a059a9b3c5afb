"""The resources that a trial requests, a machine has, and an attempt has used."""

from __future__ import annotations

import marshal
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.plain_numbers import is_number, plain_number, takes_numbers
from holdfast.schema import Between, Count, PlainName, Stored, check_table
from holdfast.trial.errors import InvalidConfig

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_ALIASES = {"cpu": "CPU", "gpu": "GPU"}
# More than any machine has, also in bytes. Each GPU takes an entry in memory.
_MOST = 1e18
_MOST_GPUS = 1_000_000


def validated(resources: Mapping[str, float], *, where: str) -> dict[str, float]:
    """`resources` with the keys `cpu` and `gpu` in upper case, as Ray accepts both.

    Raises InvalidConfig, naming `where` and the key, if `resources` is not a mapping or an amount
    is negative, NaN, too large or not a number.
    """
    if not isinstance(resources, Mapping):
        raise InvalidConfig(f"{where}: must be a dict such as {{'CPU': 1}}, not {resources!r}")
    amounts: dict[str, float] = {}
    for key, amount in resources.items():
        amount = plain_number(amount)
        if not is_number(amount):
            raise InvalidConfig(f"{where}: {key!r} must be a number, not {amount!r}")
        if not math.isfinite(amount) or amount < 0:
            raise InvalidConfig(f"{where}: {key!r} must be zero or more, not {amount!r}")
        name = _ALIASES.get(key, key)
        most = _MOST_GPUS if name == "GPU" else _MOST
        if amount > most:
            raise InvalidConfig(f"{where}: {key!r} must be at most {most:,.0f}, not {amount!r}")
        amounts[name] = amount
    return amounts


def misnamed(wanted: Iterable[str], total: Iterable[str]) -> str:
    """` Instead of 'gpus', use 'gpu'.` for each wanted resource that is not there under its name;
    "" if there is none."""
    known = {*total, "CPU", "GPU", "memory"}
    meant = {name: _meant(name, known) for name in wanted if name not in known}
    words = {long: short for short, long in _ALIASES.items()}
    return "".join(
        f" Instead of {name!r}, use {words.get(found, found)!r}."
        for name, found in meant.items()
        if found
    )


def _meant(name: str, known: Iterable[str]) -> str:
    word = name.lower().removeprefix("num_").removeprefix("n_").removesuffix("s")
    word = {"ram": "memory", "mem": "memory"}.get(word, word)
    return next((one for one in known if one.lower() == word), "")


def comparable(total: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
    """What a machine has, for a message about a request: with memory only if that has some."""
    return {name: amount for name, amount in total.items() if name != "memory" or name in wanted}


class PlacementGroupFactory:
    """The resources of one trial as a list of bundles; the first belongs to the trainable itself.

    On one machine the bundles are added up. On a cluster each bundle is on one node: "PACK" uses
    as few nodes as possible, "SPREAD" as many, "STRICT_PACK" one, and "STRICT_SPREAD" another one
    for each bundle. Bundles that request nothing are where the others are. A trial can start
    without its last bundles, down to `least_bundles` (None: it needs all).

    Raises InvalidConfig for an empty list, a bundle that is not a mapping, or an invalid amount.
    """

    __slots__ = ("bundles", "least_bundles", "strategy")

    @takes_numbers
    def __init__(
        self,
        bundles: Sequence[Mapping[str, float]],
        strategy: str = "PACK",
        *,
        least_bundles: int | None = None,
    ) -> None:
        is_list = isinstance(bundles, Sequence) and len(bundles) > 0
        if not is_list or not all(isinstance(bundle, Mapping) for bundle in bundles):
            raise InvalidConfig(
                f"PlacementGroupFactory takes a list of dicts such as [{{'CPU': 1}}], "
                f"not {bundles!r}"
            )
        if strategy not in STRATEGIES:
            raise InvalidConfig(f"strategy must be one of {STRATEGIES}, not {strategy!r}")
        self.bundles = tuple(
            validated(bundle, where=f"bundle {at}") for at, bundle in enumerate(bundles)
        )
        self.strategy = strategy
        self.least_bundles = len(self.bundles) if least_bundles is None else least_bundles
        if not 1 <= self.least_bundles <= len(self.bundles):
            raise InvalidConfig(
                f"least_bundles={least_bundles!r} must be from 1 to {len(self.bundles)}"
            )

    @property
    def is_elastic(self) -> bool:
        """True if the trial can run with fewer bundles than it asks for."""
        return self.least_bundles < len(self.bundles)

    def first(self, count: int) -> PlacementGroupFactory:
        """Only the first `count` bundles."""
        if count == len(self.bundles) and not self.is_elastic:
            return self
        return PlacementGroupFactory(self.bundles[:count], self.strategy)

    @property
    def least_resources(self) -> dict[str, float]:
        """The sum of the bundles that the trial needs to start."""
        return self.first(self.least_bundles).required_resources

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for key, amount in bundle.items():
                total[key] = round(total.get(key, 0) + amount, 4)
        return total

    @property
    def head_cpus(self) -> float:
        """The CPUs of the first bundle."""
        return self.bundles[0].get("CPU", 0)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PlacementGroupFactory)
            and self.bundles == other.bundles
            and self.strategy == other.strategy
            and self.least_bundles == other.least_bundles
        )

    def __hash__(self) -> int:
        bundles = tuple(tuple(sorted(bundle.items())) for bundle in self.bundles)
        return hash((bundles, self.strategy, self.least_bundles))

    def __repr__(self) -> str:
        least = f", least_bundles={self.least_bundles}" if self.is_elastic else ""
        return f"PlacementGroupFactory({list(self.bundles)!r}, strategy={self.strategy!r}{least})"


ONE_CPU = PlacementGroupFactory([{"CPU": 1}])


def request(resources: object) -> PlacementGroupFactory:
    """The bundles of a user's request for one trial: a dict, a PlacementGroupFactory or None.

    Raises InvalidConfig for anything else.
    """
    if resources is None:
        return ONE_CPU
    if isinstance(resources, PlacementGroupFactory):
        return resources
    if isinstance(resources, Mapping):
        return PlacementGroupFactory([resources or {"CPU": 0}])
    raise InvalidConfig(f"resources must be a dict or PlacementGroupFactory, not {resources!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one bundle is: the node, what it holds there, and the indices of the node's GPUs that
    it may see."""

    node: PlainName
    amounts: Mapping[str, float]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The resources of one running trial: amounts, and the indices of the GPUs it may see.

    On a cluster `places` has one place for each bundle, and `gpus` is empty.
    """

    amounts: Mapping[str, float]
    gpus: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its bundles; none on one machine."""
        return tuple(dict.fromkeys(place.node for place in self.places))

    def is_on(self, node: str) -> bool:
        """True if one of the bundles is on this node."""
        return any(place.node == node for place in self.places)


# Most trials of an experiment request the same, and checking it takes longer than the rest of a
# trial in a snapshot. By bytes, because True and 1 are equal; `repr` takes four times as long.
_READ: dict[bytes, PlacementGroupFactory] = {}
_MOST_READ = 64


def _read_bundles(plain: Any) -> PlacementGroupFactory:
    # Version 2 has no references to objects seen before, which would make equal values differ.
    key = marshal.dumps(plain, 2)
    if (known := _READ.get(key)) is None:
        known = _checked_bundles(plain)
        if len(_READ) >= _MOST_READ:
            _READ.clear()
        _READ[key] = known
    return known


def _checked_bundles(plain: Any) -> PlacementGroupFactory:
    check_table(plain, "it")
    least = plain.get("least")
    if least is not None and type(least) is not int:
        raise ValueError(f"least must be a whole number, not {shown(least)}")
    return PlacementGroupFactory(plain["bundles"], plain["strategy"], least_bundles=least)


def _write_bundles(factory: PlacementGroupFactory) -> dict[str, Any]:
    plain = {"bundles": [dict(b) for b in factory.bundles], "strategy": factory.strategy}
    return {**plain, "least": factory.least_bundles} if factory.is_elastic else plain


def _read_amounts(plain: Any) -> dict[str, float]:
    return validated(check_table(plain, "it"), where="it")


# The resources of a trial.
Bundles = Annotated[PlacementGroupFactory, Stored(_read_bundles, _write_bundles)]
# The resources of a machine.
Amounts = Annotated[Mapping[str, float], Stored(_read_amounts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike, of which a cluster can have `most` (None: no limit is known).

    Each has `resources`; None if they are known only once a node has joined. `detects` are the
    names of further resources of which only a node that has joined says how much it has; nodes of
    one kind may then differ.
    """

    name: str
    resources: Amounts | None = None
    most: Count | None = None
    detects: Sequence[str] = ()


# Seconds of a processor.
Seconds = Annotated[float, Between(0, 1e12)]
Bytes = Annotated[int, Between(0, 1 << 60)]
Share = Annotated[float, Between(0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt has used, or (`attempt` 0) what several have.

    `wall_s` is the time from the start of its process to its end, `cpu_s` the CPU time of all its
    processes. `memory_bytes` and `gpu_memory_bytes` are the largest amounts of memory (0: too
    short to be measured); `gpu_s` is
    the number of GPUs that it held, times `wall_s`; `gpu_utilisation` is the mean share (0 to 1)
    of the time in which these computed. None if it is not known.
    """

    attempt: Count = 0
    wall_s: Seconds
    cpu_s: Seconds
    memory_bytes: Bytes
    gpu_s: Seconds = 0.0
    gpu_memory_bytes: Bytes | None = None
    gpu_utilisation: Share | None = None

    def columns(self) -> dict[str, float]:
        """What is known of it, by name. `gpu_s` is left out without GPUs."""
        known = {
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "memory_bytes": self.memory_bytes or None,
            "gpu_s": self.gpu_s or None,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "gpu_utilisation": self.gpu_utilisation,
        }
        return {name: value for name, value in known.items() if value is not None}


def usage_of_all(attempts: Sequence[Usage]) -> Usage | None:
    """What attempts that followed each other have used together; None if nothing is known."""
    if len(attempts) < 2:  # nearly always
        return attempts[0] if attempts else None
    rated = [one for one in attempts if one.gpu_utilisation is not None]
    rated_s = sum(one.wall_s for one in rated)
    return Usage(
        wall_s=sum(one.wall_s for one in attempts),
        cpu_s=sum(one.cpu_s for one in attempts),
        memory_bytes=max(one.memory_bytes for one in attempts),
        gpu_s=sum(one.gpu_s for one in attempts),
        gpu_memory_bytes=_largest([one.gpu_memory_bytes for one in attempts]),
        gpu_utilisation=(
            sum((one.gpu_utilisation or 0.0) * one.wall_s for one in rated) / rated_s
            if rated_s
            else None
        ),
    )


def usage_of_ranks(ranks: Sequence[Usage]) -> Usage:
    """What the workers of one attempt have used together. Their peaks are added, although they
    may not have been at the same time. `ranks` is not empty."""
    memory = [one.gpu_memory_bytes for one in ranks if one.gpu_memory_bytes is not None]
    rates = [one.gpu_utilisation for one in ranks if one.gpu_utilisation is not None]
    return Usage(
        attempt=ranks[0].attempt,
        wall_s=max(one.wall_s for one in ranks),
        cpu_s=sum(one.cpu_s for one in ranks),
        memory_bytes=sum(one.memory_bytes for one in ranks),
        gpu_s=sum(one.gpu_s for one in ranks),
        gpu_memory_bytes=sum(memory) if memory else None,
        gpu_utilisation=sum(rates) / len(rates) if rates else None,
    )


def _largest(several: Sequence[int | None]) -> int | None:
    return max((one for one in several if one is not None), default=None)
