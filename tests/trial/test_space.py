"""Domains: their draws, the arguments that they refuse, and their texts."""

import inspect
import math
import random
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.trial import space
from holdfast.trial.errors import InvalidSearchSpace, TuneError
from holdfast.trial.space import (
    Categorical,
    Domain,
    choice,
    grid_search,
    grid_values,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)

EACH = [
    uniform(-1, 2.5),
    quniform(0, 1, 0.1),
    loguniform(1e-4, 1e-1),
    qloguniform(1e-4, 1e-1, 5e-5),
    randint(-3, 4),
    qrandint(-10, 10, 5),
    lograndint(1, 1000),
    qlograndint(16, 4096, 16),
    randn(),
    qrandn(10, 2, 0.2),
    choice(["a", 1, None]),
]


class FixedRandom:
    """Returns the same number each time, so the ends of every range can be reached."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


LOWEST, HIGHEST = FixedRandom(0.0), FixedRandom(1 - 2**-53)


def draws(domain: Domain, count: int = 2000, seed: int = 7) -> list[Any]:
    rng = Random(seed)
    return [domain.sample(rng) for _ in range(count)]


@pytest.mark.parametrize("domain", EACH, ids=str)
def test_what_a_domain_draws_is_valid_in_it(domain: Domain) -> None:
    assert all(map(domain.is_valid, draws(domain)))


def test_a_domain_is_written_as_it_was_made() -> None:
    assert [str(domain) for domain in EACH] == [
        "uniform(-1.0, 2.5)",
        "quniform(0.0, 1.0, 0.1)",
        "loguniform(0.0001, 0.1)",
        "qloguniform(0.0001, 0.1, 5e-05)",
        "randint(-3, 4)",
        "qrandint(-10, 10, 5)",
        "lograndint(1, 1000)",
        "qlograndint(16, 4096, 16)",
        "randn(0.0, 1.0)",
        "qrandn(10.0, 2.0, 0.2)",
        "choice(['a', 1, None])",
    ]


def test_parameters_and_defaults_are_those_of_ray() -> None:
    expected = {
        "choice": "categories",
        "grid_search": "values",
        "lograndint": "lower, upper, base=UNSET",
        "loguniform": "lower, upper, base=UNSET",
        "qlograndint": "lower, upper, q, base=UNSET",
        "qloguniform": "lower, upper, q, base=UNSET",
        "qrandint": "lower, upper, q=1",
        "qrandn": "mean, sd, q",
        "quniform": "lower, upper, q",
        "randint": "lower, upper",
        "randn": "mean=0.0, sd=1.0",
        "sample_from": "func",
        "uniform": "lower, upper",
    }
    for name, parameters in expected.items():
        found = inspect.signature(getattr(space, name)).parameters.values()
        assert ", ".join(map(spelled, found)) == parameters, name


def spelled(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    unset = parameter.default is space.UNSET
    return f"{parameter.name}={'UNSET' if unset else parameter.default}"


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (randint(-3, 4), set(range(-3, 4))),
        (qrandint(0, 10, 5), {0, 5, 10}),
        (qrandint(1, 11, 5), {5, 10}),
        (qrandint(1, 3), {1, 2, 3}),
        (qrandint(4, 4), {4}),
        (lograndint(1, 4), {1, 2, 3}),
        (qlograndint(2, 8, 2), {2, 4, 6, 8}),
        (quniform(0, 1, 0.25), {0.0, 0.25, 0.5, 0.75, 1.0}),
        (quniform(0.1, 0.5, 0.2), {0.2, 0.4}),
        (choice("abc"), {"a", "b", "c"}),
        (choice([1, choice([2, 3])]), {1, 2, 3}),
    ],
    ids=lambda value: str(sorted(value, key=str) if isinstance(value, set) else value),
)
def test_all_the_values_in_the_bounds_are_drawn_and_no_others(
    domain: Domain, values: set[Any]
) -> None:
    assert set(draws(domain)) == values


@pytest.mark.parametrize(
    ("domain", "lowest", "highest"),
    [
        (randint(0, 10), 0, 9),
        (qrandint(0, 10), 0, 10),
        (lograndint(1, 10), 1, 9),
        (qlograndint(1, 10, 1), 1, 10),
        (lograndint(2**50 - 1, 2**50), 2**50 - 1, 2**50 - 1),  # exp(log(x)) rounds to 2**50
        (randint(0, 2**60), 0, 2**60 - 1),
        (choice([1, 2, 3]), 1, 3),
    ],
    ids=str,
)
def test_a_whole_number_reaches_its_ends_and_no_further(
    domain: Domain, lowest: int, highest: int
) -> None:
    assert (domain.sample(LOWEST), domain.sample(HIGHEST)) == (lowest, highest)
    if not isinstance(domain, Categorical):
        assert not domain.is_valid(lowest - 1)
        assert not domain.is_valid(highest + 1)


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.floats(0, 1, exclude_max=True))
def test_a_real_number_never_leaves_its_bounds(one: float, other: float, part: float) -> None:
    lower, upper = sorted((one, other))
    if lower < upper:
        assert lower <= uniform(lower, upper).sample(FixedRandom(part)) <= upper
    if 0 < lower < upper:
        assert lower <= loguniform(lower, upper).sample(FixedRandom(part)) <= upper


@given(
    st.integers(-50, 50),
    st.integers(0, 50),
    st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 0.05, 7.0]),
    st.floats(0, 1, exclude_max=True),
)
def test_a_rounded_number_is_a_multiple_inside_its_bounds(
    first: int, steps: int, q: float, part: float
) -> None:
    lower, upper = first * q, (first + steps + 1) * q
    value = quniform(lower, upper, q).sample(FixedRandom(part))
    assert lower <= value <= upper
    assert math.isclose(value / q, round(value / q), abs_tol=1e-9)


def test_a_normal_number_has_its_mean_and_deviation() -> None:
    values = draws(randn(10, 2), 5000)
    assert abs(np.mean(values) - 10) < 0.1
    assert abs(np.std(values) - 2) < 0.1
    assert randn(0, 1).sample(HIGHEST) < 9
    assert all(float(f"{value:.1f}") == value for value in draws(qrandn(10, 2, 0.2)))


def test_base_changes_nothing() -> None:
    assert loguniform(1e-4, 1e-1, base=2) == loguniform(1e-4, 1e-1)
    assert qloguniform(1, 10, 1, 2) == qloguniform(1, 10, 1)
    assert lograndint(1, 10, base=math.e) == lograndint(1, 10)
    assert qlograndint(1, 10, 1, base=10) == qlograndint(1, 10, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(1, 1), r"uniform\(1\.0, 1\.0\): lower must be below upper"),
        (lambda: uniform(2, 1), r"uniform\(2\.0, 1\.0\): lower must be below upper"),
        (lambda: uniform(math.nan, 1), r"uniform\(nan, 1\.0\): both bounds must be finite"),
        (lambda: uniform(0, math.inf), r"uniform\(0\.0, inf\): both bounds must be finite"),
        (lambda: uniform("1e-4", 1), r"uniform: lower must be a number, not '1e-4'"),  # type: ignore[arg-type]
        (lambda: uniform(0, 10**400), r"uniform: upper must be a number, not 1000"),
        (lambda: loguniform(0, 1), r"loguniform\(0\.0, 1\.0\): log needs lower > 0"),
        (lambda: loguniform(1, 2, base=1), r"loguniform: base must be positive and not 1"),
        (lambda: loguniform(1, 2, base="e"), r"loguniform: base must be a number, not 'e'"),
        (lambda: quniform(0, 1, 0), r"quniform\(0\.0, 1\.0, 0\.0\): q must be positive"),
        (lambda: quniform(0, 1, math.nan), r"q must be positive"),
        (lambda: quniform(0, 1e10, 5e-324), r"q is too small"),
        (lambda: quniform(1, 2, 5), r"quniform\(1\.0, 2\.0, 5\.0\): there is no multiple of q"),
        (lambda: randint(3, 3), r"randint\(3, 3\): lower must be below upper \(exclusive\)"),
        (lambda: randint(0.5, 3), r"randint: lower must be a whole number, not 0\.5"),  # type: ignore[arg-type]
        (lambda: randint(0, 2**70), r"the bounds must fit 64 bits"),
        (lambda: qrandint(4, 3), r"qrandint\(4, 3, 1\): lower must not be above upper"),
        (lambda: qrandint(0, 3, 0), r"qrandint\(0, 3, 0\): q must be positive"),
        (lambda: qrandint(1, 3, 5), r"qrandint\(1, 3, 5\): there is no multiple of q"),
        (lambda: lograndint(0, 3), r"lograndint\(0, 3\): log needs lower > 0"),
        (lambda: qlograndint(-1, 3, 1), r"qlograndint\(-1, 3, 1\): log needs lower > 0"),
        (lambda: randn(0, 0), r"randn\(0\.0, 0\.0\): sd must be positive"),
        (lambda: randn(math.nan), r"randn\(nan, 1\.0\): mean must be finite"),
        (lambda: qrandn(0, 1, -1), r"qrandn\(0\.0, 1\.0, -1\.0\): q must be positive"),
        (lambda: qrandn(0, 1e300, 1e-300), r"q is too small"),
        (lambda: choice([]), r"choice\(\[\]\): pass at least one category"),
        (lambda: choice({1}), r"choice: a set has no order"),  # type: ignore[arg-type]
        (lambda: choice(3), r"choice needs a list of values, not 3"),  # type: ignore[arg-type]
        (lambda: grid_search([]), r"grid_search\(\[\]\): pass at least one value"),
        (lambda: grid_search({1}), r"grid_search: a set has no order"),
        (lambda: sample_from(3), r"sample_from needs a function, not 3"),  # type: ignore[arg-type]
        (lambda: sample_from(lambda a, b: 1), r"must take no argument or one"),
    ],
)
def test_a_domain_that_cannot_be_sampled_is_refused_when_made(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(InvalidSearchSpace, match=message) as caught:
        make()
    assert isinstance(caught.value, TuneError)
    assert isinstance(caught.value, ValueError)


def test_validity_asks_for_type_bounds_and_step() -> None:
    assert uniform(0, 1).is_valid(np.float32(0.5))
    assert not uniform(0, 1).is_valid("0.5")
    assert not uniform(0, 1).is_valid(math.nan)
    assert not quniform(0, 1, 0.5).is_valid(0.3)
    assert not randn().is_valid(math.inf)
    assert not qrandn(0, 1, 0.5).is_valid(0.3)
    assert not randint(0, 3).is_valid(1.0)
    assert not qrandint(0, 4, 2).is_valid(3)
    assert choice([1, uniform(5, 6)]).is_valid(5.5)
    assert not choice([1, uniform(5, 6)]).is_valid(2)
    assert not choice([np.zeros(2)]).is_valid(np.zeros(2))
    assert sample_from(lambda: 1).is_valid("anything")


def test_bounds_and_categories_can_be_inspected() -> None:
    real, whole, normal = loguniform(0.1, 1), randint(1, 9), randn(1, 2)
    assert (real.lower, real.upper, real.domain_str) == (0.1, 1.0, "(0.1, 1.0)")
    assert (whole.lower, whole.upper, whole.domain_str) == (1, 9, "(1, 9)")
    assert (normal.lower, normal.upper) == (-math.inf, math.inf)
    assert normal.domain_str == "(mean=1.0, sd=2.0)"
    assert choice([1, 2]).categories == (1, 2)
    assert choice([1, 2]).domain_str == "[1, 2]"
    assert sample_from(lambda: 1).domain_str == "(...)"


def test_a_grid_is_a_dict_as_users_know_it() -> None:
    assert grid_search(range(2)) == {"grid_search": [0, 1]}
    assert grid_search(word for word in "ab") == {"grid_search": ["a", "b"]}
    assert grid_values({"grid_search": [1]}) == [1]
    assert grid_values({"grid_search": [1], "more": 2}) is None
    assert grid_values([1]) is None
    with pytest.raises(InvalidSearchSpace, match="needs a non-empty list of values, not 'ab'"):
        grid_values({"grid_search": "ab"})


def test_a_function_is_called_with_as_much_as_it_takes() -> None:
    rng = Random(0)
    assert sample_from(lambda: 5).sample(rng) == 5
    assert sample_from(lambda config: config).call({"a": 1}) == {"a": 1}
    assert sample_from(lambda config=None: config).call({"a": 1}) == {"a": 1}
    assert sample_from(len).call({"a": 1}) == 1
    assert sample_from(dict).call({"a": 1}) == {"a": 1}


# -- tried out by hand --------------------------------------------------------------------------


def test_without_a_generator_values_differ_and_touch_no_other_draws() -> None:
    random.seed(1)
    state = random.getstate()
    assert len(set(uniform(0, 1).sample(size=20))) == 20
    assert random.getstate() == state


def test_sampling_by_hand_draws_what_a_trial_is_given() -> None:
    for domain in EACH:
        assert domain.sample(Random(5)) == domain.draw(Random(5))
    assert sample_from(lambda: 5).sample(size=2) == [5, 5]


def test_values_that_are_not_in_one_list_are_explained() -> None:
    with pytest.raises(InvalidSearchSpace, match=r"one list of values: choice\(\[1, 2, 3\]\)"):
        space.choice(1, 2, 3)  # type: ignore[call-arg,arg-type]
    with pytest.raises(InvalidSearchSpace, match=r"grid_search\(\[1, 2\]\)"):
        space.grid_search(1, 2)  # type: ignore[call-arg,arg-type]
