"""The kinds of domains of a parameter, and how a value is drawn from each.

A draw uses only `rng.random()`, the one method of `random.Random` whose sequence Python promises
to keep between versions: a restore under another Python draws the same trials.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Final, Protocol

from holdfast.dataclass import dataclass
from holdfast.described import reduce_domain
from holdfast.trial.errors import InvalidSearchSpace

_INT64: Final = 1 << 63
_ONE_DRAW: Final = 1 << 40  # a draw has 53 bits: up to here the bias is immeasurable


class Random(Protocol):
    """A seeded source of numbers in [0, 1), such as `random.Random`."""

    def random(self) -> float: ...


class Domain(ABC):
    """The possible values of a parameter. Frozen; equal domains and equal generators draw equal
    values."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduce_domain(self, protocol)

    @abstractmethod
    def draw(self, rng: Random) -> Any:
        """Return one value."""

    def sample(
        self,
        rng: Random | None = None,
        size: int = 1,
        random_state: Random | int | None = None,
    ) -> Any:
        """Return one value, or a list of `size` values. For trying a domain out.

        Draws from `rng`, or from `random_state`: another name for it, which may also be a seed, so
        that equal calls return equal values. Without either, each call uses a new generator.
        """
        chosen = random_state if rng is None else rng
        source = _generator(chosen) if chosen is None or isinstance(chosen, int) else chosen
        return self.draw(source) if size == 1 else [self.draw(source) for _ in range(size)]

    @abstractmethod
    def is_valid(self, value: object) -> bool:
        """Return whether `draw` could return `value`."""

    @property
    @abstractmethod
    def domain_str(self) -> str:
        """The bounds or categories, for a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float(Domain):
    """A real number from `lower` to `upper`; with `log`, uniform in its logarithm.

    With `q`, a draw is rounded to a multiple of q; it can be `lower` or `upper` if they are
    multiples. Raises InvalidSearchSpace.
    """

    lower: float
    upper: float
    q: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        finite = math.isfinite(self.lower) and math.isfinite(self.upper)
        _require(finite, self, "both bounds must be finite")
        _require(self.lower < self.upper, self, "lower must be below upper")
        _require(not self.log or self.lower > 0, self, "log needs lower > 0")
        if self.q is not None:
            _require(0 < self.q < math.inf, self, "q must be positive and finite")
            _require(math.isfinite(max(-self.lower, self.upper) / self.q), self, "q is too small")
            first, last = self._multiples(self.q)
            _require(first <= last, self, "there is no multiple of q between the bounds")

    def draw(self, rng: Random) -> float:
        if self.q is None:
            return _between(self.lower, self.upper, rng, log=self.log)
        first, last = self._multiples(self.q)
        return self.nearest(_between(first * self.q, last * self.q, rng, log=self.log))

    def nearest(self, value: float) -> float:
        """The value closest to `value` that `draw` could return."""
        if self.q is None:
            return min(max(float(value), self.lower), self.upper)
        first, last = self._multiples(self.q)
        inside = min(max(float(value), first * self.q), last * self.q)
        return min(max(_nearest(inside, self.q), self.lower), self.upper)

    def is_valid(self, value: object) -> bool:
        if not isinstance(value, Real) or not self.lower <= float(value) <= self.upper:
            return False
        return self.q is None or _is_whole(float(value) / self.q)

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"

    def __str__(self) -> str:
        return _call(f"{'log' if self.log else ''}uniform", self.lower, self.upper, q=self.q)

    def _multiples(self, q: float) -> tuple[int, int]:
        low, high = self.lower / q, self.upper / q
        first = round(low) if _is_whole(low) else math.ceil(low)
        last = round(high) if _is_whole(high) else math.floor(high)
        return first, last


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(Domain):
    """A normally distributed number; with `q`, rounded to a multiple of q, whole if q is an int.

    Drawn as in Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958). Raises
    InvalidSearchSpace.
    """

    mean: float
    sd: float
    q: float | None = None

    def __post_init__(self) -> None:
        _require(math.isfinite(self.mean), self, "mean must be finite")
        _require(0 < self.sd < math.inf, self, "sd must be positive and finite")
        _require(self.q is None or 0 < self.q < math.inf, self, "q must be positive and finite")
        reach = abs(self.mean) + 9 * self.sd  # a 53-bit draw lies at most 8.6 sd off the mean
        _require(math.isfinite(reach / (self.q or 1.0)), self, "q is too small, or sd too large")

    def draw(self, rng: Random) -> float:
        radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
        value = self.mean + self.sd * radius * math.cos(math.tau * rng.random())
        return self.nearest(value)

    def nearest(self, value: float) -> float:
        """The value closest to `value` that `draw` could return."""
        return float(value) if self.q is None else _nearest(value, self.q)

    def is_valid(self, value: object) -> bool:
        if not isinstance(value, Real) or not math.isfinite(value):
            return False
        return self.q is None or _is_whole(float(value) / self.q)

    @property
    def lower(self) -> float:
        return -math.inf

    @property
    def upper(self) -> float:
        return math.inf

    @property
    def domain_str(self) -> str:
        return f"(mean={self.mean}, sd={self.sd})"

    def __str__(self) -> str:
        return _call("randn", self.mean, self.sd, q=self.q)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Domain):
    """A whole number from `lower` to `upper` - 1; with `q`, a multiple of q from `lower` to
    `upper`.

    Without `log`, all are equally likely. Raises InvalidSearchSpace.
    """

    lower: int
    upper: int
    q: int | None = None
    log: bool = False

    def __post_init__(self) -> None:
        small = self.lower >= -_INT64 and self.upper <= _INT64
        _require(small, self, "the bounds must fit 64 bits")
        _require(not self.log or self.lower > 0, self, "log needs lower > 0")
        if self.q is None:
            _require(self.lower < self.upper, self, "lower must be below upper (exclusive)")
        else:
            _require(self.q > 0, self, "q must be positive")
            _require(self.lower <= self.upper, self, "lower must not be above upper")
            first, last = self._multiples()
            _require(first <= last, self, "there is no multiple of q between the bounds")

    def draw(self, rng: Random) -> int:
        step = self.q or 1
        first, last = self._multiples()
        if not self.log:
            return (first + below(last - first + 1, rng)) * step
        if self.q is None:
            return min(math.floor(_between(self.lower, self.upper, rng, log=True)), last)
        return self.nearest(_between(first * step, last * step, rng, log=True))

    def nearest(self, value: float) -> int:
        """The value closest to `value` that `draw` could return."""
        step = self.q or 1
        first, last = self._multiples()
        return min(max(round(value / step), first), last) * step

    def is_valid(self, value: object) -> bool:
        if not isinstance(value, Integral):
            return False
        first, last = self._multiples()
        multiple, rest = divmod(int(value), self.q or 1)
        return rest == 0 and first <= multiple <= last

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"

    def __str__(self) -> str:
        return _call(f"{'log' if self.log else ''}randint", self.lower, self.upper, q=self.q)

    def _multiples(self) -> tuple[int, int]:
        step = self.q or 1
        end = self.upper if self.q else self.upper - 1
        return -(-self.lower // step), end // step


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical(Domain):
    """One of `categories`, all equally likely. If that is a domain, a value is drawn from it."""

    categories: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.categories:
            raise InvalidSearchSpace("choice([]): pass at least one category")

    def draw(self, rng: Random) -> Any:
        chosen = self.categories[below(len(self.categories), rng)]
        return chosen.draw(rng) if isinstance(chosen, Domain) else chosen

    def is_valid(self, value: object) -> bool:
        return any(
            category.is_valid(value) if isinstance(category, Domain) else same(category, value)
            for category in self.categories
        )

    @property
    def domain_str(self) -> str:
        return str(list(self.categories))

    def __str__(self) -> str:
        return f"choice({self.domain_str})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Domain):
    """A value that the user's function computes from the rest of the configuration."""

    func: Callable[..., Any]
    takes_spec: bool = True

    def call(self, spec: object) -> Any:
        """Call the function with the configuration drawn so far. Raises whatever it raises."""
        return self.func(spec) if self.takes_spec else self.func()

    def draw(self, rng: Random) -> Any:
        return self.call({})

    def is_valid(self, value: object) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return "(...)"

    def __str__(self) -> str:
        return "sample_from(...)"


def _generator(seed: int | None) -> Random:
    # The only unseeded randomness in this package: no trial is drawn with it.
    import random

    return random.Random(seed)


def below(count: int, rng: Random) -> int:
    """A whole number from 0 to `count` - 1, all equally likely."""
    if count <= _ONE_DRAW:
        return int(rng.random() * count)
    bits = int(rng.random() * 2**53) << 53 | int(rng.random() * 2**53)
    return bits * count >> 106


def same(one: object, other: object) -> bool:
    """Whether two of a user's values are equal; false if they cannot be compared, except to
    themselves."""
    if one is other:
        return True
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # arrays and data frames compare element by element
        return False


def _between(lower: float, upper: float, rng: Random, *, log: bool) -> float:
    part = rng.random()
    if log:
        value = math.exp((1.0 - part) * math.log(lower) + part * math.log(upper))
    else:
        value = (1.0 - part) * lower + part * upper
    return min(max(value, lower), upper)


def _is_whole(ratio: float) -> bool:
    # 0.3 / 0.1 is 2.9999999999999996 and means 3
    return math.isfinite(ratio) and math.isclose(ratio, round(ratio), rel_tol=1e-9)


def _nearest(value: float, q: float) -> float:
    # 3 * 0.1 is 0.30000000000000004, which users who wrote q=0.1 do not expect in a table.
    return round(round(value / q) * q, _decimals(q))


@lru_cache(maxsize=256)
def _decimals(q: float) -> int:
    exponent = Decimal(repr(q)).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _require(condition: bool, domain: Domain, rule: str) -> None:
    if not condition:
        raise InvalidSearchSpace(f"{domain}: {rule}")


def _call(function: str, *arguments: float, q: float | None) -> str:
    named = f"q{function}" if q is not None else function
    return f"{named}({', '.join(map(repr, arguments if q is None else (*arguments, q)))})"
