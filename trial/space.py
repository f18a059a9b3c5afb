"""A search space: the kinds of domains, and the functions that make them.

A draw uses only `rng.random()`, the one method of `random.Random` whose sequence Python promises
to keep between versions: a restore under another Python draws the same trials.
"""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from holdfast.compat.advice import explains_call, instead_of_domain
from holdfast.dataclass import dataclass
from holdfast.described import reduce_domain
from holdfast.plain_numbers import is_count, is_number, plain_number
from holdfast.trial.errors import InvalidSearchSpace

INT64: Final = 1 << 63
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
        small = self.lower >= -INT64 and self.upper <= INT64
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


UNSET: Final[object] = object()
P = ParamSpec("P")
T = TypeVar("T")


def _of_a_list(function: Callable[P, T]) -> Callable[P, T]:
    """Explains a call with several values in place of one list."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if len(args) > 1:
            name = function.__name__
            raise InvalidSearchSpace(f"{name}() takes one list of values: {name}({list(args)!r})")
        return function(*args, **kwargs)

    return checked


@explains_call("tune.uniform")
def uniform(lower: float, upper: float) -> Float:
    """A real number, uniform in [lower, upper]. Raises InvalidSearchSpace."""
    return Float(**_reals("uniform", lower=lower, upper=upper))


def quniform(lower: float, upper: float, q: float) -> Float:
    """`uniform`, rounded to a multiple of q within the bounds. Raises InvalidSearchSpace."""
    return Float(**_reals("quniform", lower=lower, upper=upper, q=q))


@explains_call("tune.loguniform")
def loguniform(lower: float, upper: float, base: object = UNSET) -> Float:
    """A real number from `lower` > 0 to `upper` whose logarithm is uniform.

    `base` is accepted for older scripts; the distribution is the same for every base.

    Raises InvalidSearchSpace.
    """
    _check_base("loguniform", base)
    return Float(**_reals("loguniform", lower=lower, upper=upper), log=True)


def qloguniform(lower: float, upper: float, q: float, base: object = UNSET) -> Float:
    """`loguniform`, rounded to a multiple of q within the bounds. Raises InvalidSearchSpace."""
    _check_base("qloguniform", base)
    return Float(**_reals("qloguniform", lower=lower, upper=upper, q=q), log=True)


@explains_call("tune.randint")
def randint(lower: int, upper: int) -> Integer:
    """A whole number from `lower` to `upper` - 1. Raises InvalidSearchSpace."""
    return Integer(**_wholes("randint", lower=lower, upper=upper))


def qrandint(lower: int, upper: int, q: int = 1) -> Integer:
    """A multiple of q from `lower` to `upper`, both included. Raises InvalidSearchSpace."""
    return Integer(**_wholes("qrandint", lower=lower, upper=upper, q=q))


def lograndint(lower: int, upper: int, base: object = UNSET) -> Integer:
    """A whole number from `lower` > 0 to `upper` - 1, uniform in its logarithm.

    `base` changes nothing (see `loguniform`). Raises InvalidSearchSpace.
    """
    _check_base("lograndint", base)
    return Integer(**_wholes("lograndint", lower=lower, upper=upper), log=True)


def qlograndint(lower: int, upper: int, q: int, base: object = UNSET) -> Integer:
    """A multiple of q from `lower` > 0 to `upper`, both included, uniform in its logarithm.

    `base` changes nothing (see `loguniform`). Raises InvalidSearchSpace.
    """
    _check_base("qlograndint", base)
    return Integer(**_wholes("qlograndint", lower=lower, upper=upper, q=q), log=True)


def randn(mean: float = 0.0, sd: float = 1.0) -> Normal:
    """A normal number of this `mean` and standard deviation `sd`. Raises InvalidSearchSpace."""
    return Normal(**_reals("randn", mean=mean, sd=sd))


def qrandn(mean: float, sd: float, q: float) -> Normal:
    """`randn`, rounded to a multiple of q. Raises InvalidSearchSpace."""
    return Normal(**_reals("qrandn", mean=mean, sd=sd, q=q))


# The functions that make a domain of numbers, by name.
DOMAINS: Final[Mapping[str, Callable[..., Any]]] = {
    one.__name__: one
    for one in (
        *(uniform, quniform, loguniform, qloguniform, randint, qrandint),
        *(lograndint, qlograndint, randn, qrandn),
    )
}


@explains_call("tune.choice")
@_of_a_list
def choice(categories: Sequence[Any]) -> Categorical:
    """One of `categories`, all equally likely; they may be or contain other domains.

    Raises InvalidSearchSpace if there are none, or if they have no order (a set): trials are drawn
    by number and must be the same after a restore.
    """
    return Categorical(categories=tuple(_ordered("choice", categories)))


def sample_from(func: Callable[..., Any]) -> Function:
    """The value that `func` returns for the configuration drawn so far.

    `func` takes no argument, or one that supports `spec.config.lr`, `spec.config["lr"]` and
    `config["lr"]`. It may read other `sample_from` values: it is called again when they are known,
    so it should have no side effects. Raises InvalidSearchSpace.
    """
    if not callable(func):
        raise InvalidSearchSpace(f"sample_from needs a function, not {func!r}")
    return Function(func=func, takes_spec=_takes_spec(func))


@_of_a_list
def grid_search(values: Iterable[Any]) -> dict[str, list[Any]]:
    """All of `values`, each combined with every value of the other grids.

    Raises InvalidSearchSpace if there are none, or if they have no order (a set).
    """
    listed = _ordered("grid_search", values)
    if not listed:
        raise InvalidSearchSpace("grid_search([]): pass at least one value")
    return {"grid_search": listed}


def is_grid(value: object) -> bool:
    """True if `value` is a grid, made by `grid_search` or written by hand."""
    return isinstance(value, dict) and len(value) == 1 and "grid_search" in value


def grid_values(value: Any) -> Sequence[Any] | None:
    """The values of a grid; None for anything else.

    Raises InvalidSearchSpace for a grid written by hand whose values are not a non-empty list.
    """
    if not is_grid(value):
        return None
    values = value["grid_search"]
    if isinstance(values, (list, tuple)) and values:
        return values
    raise InvalidSearchSpace(f"grid_search needs a non-empty list of values, not {values!r}")


def is_searched(value: Any) -> bool:
    """True if `value` is a domain or a grid, or contains one."""
    if isinstance(value, Domain) or is_grid(value):
        return True
    if isinstance(value, (dict, list, tuple)):
        return any(map(is_searched, value.values() if isinstance(value, dict) else value))
    return False


def check_drawn(config: Mapping[str, Any], who: str) -> None:
    """Raise InvalidSearchSpace for a config of the user's code that still contains a domain."""
    for name, value in config.items():
        if is_searched(value):
            raise InvalidSearchSpace(
                f"{who} returned a domain or a grid in {name!r}, from which nothing draws: return "
                "a value, as domain.sample() draws one"
            )


def check_called(value: Any, path: str, expressions: str = "") -> None:
    """Raise InvalidSearchSpace for what would be a constant, but was surely meant as a domain.

    That is a function of this module, which should have been called, and a distribution of another
    library than the one whose `expressions` the search finds.
    """
    if inspect.isfunction(value) and value.__module__ == __name__:
        raise InvalidSearchSpace(f"{path} is a function: call it, as tune.{value.__name__}(...)")
    library = type(value).__module__.partition(".")[0]
    if library != expressions and (instead := instead_of_domain(value)):
        raise InvalidSearchSpace(
            f"{path} is {library}'s {type(value).__name__}, which would be the same object in "
            f"each trial: write {instead}"
        )
    value = value.categories if isinstance(value, Categorical) else value
    if isinstance(value, (dict, list, tuple)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            check_called(item, f"{path}[{key!r}]", expressions)


def has_user_code(space: Mapping[str, Any]) -> bool:
    """True if drawing from `space` runs the user's functions."""
    ours = (Float, Integer, Normal, Categorical)
    return any(not isinstance(domain, ours) for domain in _domains(space))


def _domains(value: Any) -> Iterator[Domain]:
    if isinstance(value, Domain):
        yield value
    if isinstance(value, Categorical):
        value = value.categories
    if isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _domains(item)


def _reals(function: str, **given: object) -> dict[str, Any]:
    return {name: _real(function, name, value) for name, value in given.items()}


def _real(function: str, name: str, value: object) -> float:
    number = plain_number(value)
    if is_number(number):
        try:
            return float(number)
        except OverflowError:
            pass  # the error below shows the number
    raise InvalidSearchSpace(f"{function}: {name} must be a number, not {value!r}")


def _wholes(function: str, **given: object) -> dict[str, Any]:
    return {name: _whole(function, name, value) for name, value in given.items()}


def _whole(function: str, name: str, value: object) -> int:
    whole = plain_number(value)
    if is_count(whole):
        return whole
    number = _real(function, name, value)
    if not number.is_integer():
        raise InvalidSearchSpace(f"{function}: {name} must be a whole number, not {value!r}")
    return int(number)


def _check_base(function: str, base: object) -> None:
    if base is not UNSET:
        number = _real(function, "base", base)
        if not 0 < number < math.inf or number == 1.0:
            raise InvalidSearchSpace(f"{function}: base must be positive and not 1, not {base!r}")


def _ordered(function: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, Mapping):
        what = "a grid" if is_grid(values) else "a dict"
        raise InvalidSearchSpace(f"{function} takes a list of values, not {what}: {values!r:.100}")
    if isinstance(values, (set, frozenset)):
        raise InvalidSearchSpace(
            f"{function}: a set has no order, so trials would differ from one start to the next. "
            f"Pass a list: {values!r}"
        )
    try:
        return list(values)
    except TypeError as error:
        raise InvalidSearchSpace(f"{function} needs a list of values, not {values!r}") from error


def _takes_spec(func: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(func)
    except ValueError:  # some functions written in C have no signature
        return True
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise InvalidSearchSpace(
        f"sample_from: {func!r} must take no argument or one argument (the configuration so far)"
    )
