"""The functions that define a search space, and those that recognize domains and grids in one."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from holdfast.foreign import instead_of_domain
from holdfast.plain_numbers import is_count, is_number, plain_number
from holdfast.trial.domains import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    Normal,
)
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.unknown_keywords import explains_call

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
    """Whether `value` is a grid, made by `grid_search` or written by hand."""
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
    """Whether `value` is a domain or a grid, or contains one."""
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
    """Whether drawing from `space` runs the user's functions."""
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
