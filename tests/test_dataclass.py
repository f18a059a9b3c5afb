"""holdfast's `dataclass` behaves like the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dataclass import dataclass

Decorator = Callable[..., Any]
OPTIONS = {"frozen": True, "slots": True, "kw_only": True}


def point(decorate: Decorator) -> Any:
    """A class with every kind of field."""

    class Point:
        """Where."""

        kind: ClassVar[str] = "plane"
        x: float
        y: float = 0.0
        tags: list[str] = field(default_factory=list)
        seen: int = field(default=0, compare=False, repr=False)
        fixed: str = field(default="f", init=False)

        @property
        def total(self) -> float:
            return self.x + self.y

    return decorate(**OPTIONS)(Point)


OURS, THEIRS = point(dataclass), point(dataclasses.dataclass)
NUMBERS = st.floats() | st.integers()
POINTS = st.fixed_dictionaries(
    {"x": NUMBERS}, optional={"y": NUMBERS, "tags": st.lists(st.text()), "seen": st.integers()}
)


@given(POINTS, POINTS)
def test_equality_text_and_fields_are_as_in_the_standard_library(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    ours, theirs = OURS(**one), THEIRS(**one)
    assert repr(ours) == repr(theirs)
    assert repr(dataclasses.asdict(ours)) == repr(dataclasses.asdict(theirs))
    assert (ours == OURS(**other)) == (theirs == THEIRS(**other))
    assert ours != theirs
    assert repr(replace(ours, x=1)) == repr(replace(theirs, x=1))


@pytest.mark.parametrize("made", [OURS, THEIRS], ids=["ours", "theirs"])
def test_it_is_frozen_has_slots_and_takes_names_alone(made: Any) -> None:
    one = made(x=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'x'"):
        made()
    with pytest.raises(TypeError, match="unexpected keyword argument 'fixed'"):
        made(x=1, fixed="g")
    with pytest.raises(TypeError, match="takes 1 positional argument but"):
        made(1)
    assert not hasattr(one, "__dict__")
    assert (one.total, one.fixed, made.kind) == (1, "f", "plane")
    assert made(x=1).tags is not one.tags
    assert [found.name for found in fields(made)] == ["x", "y", "tags", "seen", "fixed"]
    assert made.__doc__ == "Where."


def test_init_is_compiled_when_it_is_first_used() -> None:
    made, bare = point(dataclass), point(dataclass)
    assert not inspect.isfunction(vars(made)["__init__"])
    assert made(x=1).x == 1
    assert inspect.isfunction(vars(made)["__init__"])

    class Child(bare):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(x=2)

    assert Child().x == 2
    assert inspect.isfunction(vars(bare)["__init__"])


def test_what_is_reported_of_it_is_the_same() -> None:
    ours, theirs = inspect.signature(OURS), inspect.signature(THEIRS)
    assert list(ours.parameters) == list(theirs.parameters)
    for mine, other in zip(ours.parameters.values(), theirs.parameters.values(), strict=True):
        assert (mine.kind, mine.annotation) == (other.kind, other.annotation)
    assert OURS.__init__.__qualname__ == THEIRS.__init__.__qualname__


@dataclass(frozen=True, slots=True)
class Pair:
    first: int
    second: Any = None

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("below 0")


@dataclass(frozen=True, slots=True)
class Named(Pair):
    name: str = ""


@dataclass(frozen=True, slots=True)
class Nothing:
    """It has no field."""


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    value: float


@dataclass(frozen=True, slots=True)
class Caseless:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caseless) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    "one", [Pair(1, [2]), Named(1, (2,), "n"), Nothing(), Caseless("A")], ids=repr
)
def test_copies_and_pickles_are_equal_to_it(one: Any) -> None:
    assert copy.copy(one) == copy.deepcopy(one) == one
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(one, protocol)) == one


def test_a_subclass_has_the_fields_of_both_and_is_checked_as_its_base() -> None:
    assert repr(Named(1, name="n")) == "Named(first=1, second=None, name='n')"
    assert Named(1) != Pair(1)
    with pytest.raises(ValueError, match="below 0"):
        Named(-1)
    with pytest.raises(ValueError, match="below 0"):
        replace(Named(1), first=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    path: str
    options: dict[str, str] = field(default_factory=dict, hash=False)


def test_hashes_follow_equality() -> None:
    here, there = Place(path="a"), Place(path="a", options={"region": "r"})
    assert here != there
    assert hash(here) == hash(there)
    assert len({Pair(1, 2), Pair(1, 2), Pair(2, 1), Nothing(), Nothing()}) == 3
    assert {Caseless("A"): 1}[Caseless("a")] == 1
    assert str(Caseless("A")) == "A"
    one = Itself(1.0)
    assert one == one
    assert one != Itself(1.0)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Pair(1, []))


MUTABLE = [
    {},
    {"unsafe_hash": True},
    {"slots": True},
    {"slots": True, "kw_only": True},
    {"eq": False},
]


@pytest.mark.parametrize("options", [*MUTABLE, {"frozen": True}], ids=str)
def test_one_with_other_options_is_as_in_the_standard_library(options: dict[str, bool]) -> None:
    def settings(decorate: Decorator) -> Any:
        class Settings:
            name: str
            sizes: list[int] = field(default_factory=list)
            limit: int = 3
            _: KW_ONLY
            retries: int = field(default=0, repr=False)

            def __post_init__(self) -> None:
                if self.limit < 0:
                    raise ValueError("below 0")

        return decorate(**options)(Settings)

    ours, theirs = settings(dataclass), settings(dataclasses.dataclass)
    seen = []
    for made in (ours, theirs):
        one = made(name="a")
        with pytest.raises(ValueError, match="below 0"):
            made(name="a", limit=-1)
        with pytest.raises(TypeError):
            made("a", [], 1, 2)
        if not options.get("frozen"):
            one.limit = 4
        seen.append(
            (
                repr(one),
                one.sizes is not made(name="a").sizes,
                one == made(name="a", limit=one.limit),
                made.__hash__ is None,
                hasattr(one, "__dict__"),
                [hasattr(made, name) for name in ("name", "sizes", "limit", "retries")],
                list(inspect.signature(made).parameters),
                repr(dataclasses.asdict(replace(one, sizes=[1]))),
            )
        )
    assert seen[0] == seen[1]


def test_one_with_an_order_is_compared_by_its_fields() -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        value: int
        name: str = ""

    assert sorted([Ordered(2), Ordered(1, "b"), Ordered(1, "a")])[0] == Ordered(1, "a")
    assert Ordered(1) <= Ordered(1) < Ordered(2)
    with pytest.raises(TypeError, match="not supported"):
        assert Ordered(1) < Pair(1)  # type: ignore[operator]
