"""The resources that a trial requests and a machine has, in units that add up exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from holdfast.dataclass import dataclass
from holdfast.names import shown
from holdfast.trial.bounds import Count, PlainName, Stored
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.plain import check_table

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
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
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
    """` 'gpus' is 'GPU' here.` for each wanted resource that is not there under its name; "" if
    there is none."""
    known = {*total, "CPU", "GPU", "memory"}
    meant = {name: _meant(name, known) for name in wanted if name not in known}
    return "".join(f" {name!r} is {found!r} here." for name, found in meant.items() if found)


def _meant(name: str, known: Iterable[str]) -> str:
    word = name.lower().removeprefix("num_").removeprefix("n_").removesuffix("s")
    word = {"ram": "memory", "mem": "memory"}.get(word, word)
    return next((one for one in known if one.lower() == word), "")


class PlacementGroupFactory:
    """The resources of one trial as a list of bundles; the first belongs to the trainable itself.

    On one machine the bundles are added up. On a cluster each bundle is on one node: "PACK" uses
    as few nodes as possible, "SPREAD" as many, "STRICT_PACK" one, and "STRICT_SPREAD" another one
    for each bundle. Bundles that request nothing are where the others are. A trial can start
    without its last bundles, down to `least_bundles` (None: it needs all).

    Raises InvalidConfig for an empty list, a bundle that is not a mapping, or an invalid amount.
    """

    __slots__ = ("bundles", "least_bundles", "strategy")

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
        """Whether the trial can run with fewer bundles than it asks for."""
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
        """Whether one of the bundles is on this node."""
        return any(place.node == node for place in self.places)


def _read_bundles(plain: Any) -> PlacementGroupFactory:
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
