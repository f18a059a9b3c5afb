"""Every event is the same when it is read back from the journal.

The kinds and their fields come from the definitions, so new ones are tested automatically.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.scheduler.events import (
    Begun,
    Event,
    ExperimentSpec,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
)
from holdfast.testing.rehearsal import through_journal
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.errors import Failure
from holdfast.trial.events import Started
from holdfast.trial.resources import PlacementGroupFactory, Usage
from holdfast.trial.trial import CheckpointRecord, TrialSpec
from holdfast.trial.values import Opaque, Ref

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats()
SCALARS = st.none() | st.booleans() | NUMBERS | TEXT | st.binary(max_size=20)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
AMOUNTS = st.dictionaries(
    st.sampled_from(["CPU", "GPU", "licence"]), st.floats(0.5, 8), min_size=1
)
BUNDLES = st.builds(
    PlacementGroupFactory,
    st.lists(AMOUNTS, min_size=1, max_size=3),
    st.sampled_from(["PACK", "SPREAD"]),
)
CONFIG_VALUES = st.recursive(
    SCALARS
    | st.builds(Opaque, pickled=st.binary(max_size=9), summary=TEXT)
    | st.builds(Ref, path=st.tuples(TEXT), index=st.none() | st.integers(0, 9), summary=TEXT),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.dictionaries(st.integers(-9, 9), inner, max_size=3)
    ),
    max_leaves=8,
)
PLAIN_NAMES = st.text("abc019", min_size=1, max_size=9)
SPACE_PARTS = st.fixed_dictionaries(
    {"path": st.lists(TEXT | st.integers(0, 9)), "text": TEXT, "varied": st.booleans()}
)
# Values that are checked at construction, and those that a type does not describe.
KNOWN: dict[Any, st.SearchStrategy[Any]] = {
    PlacementGroupFactory: BUNDLES,
    FailureConfig: st.builds(FailureConfig, max_failures=st.integers(-1, 9)),
    CheckpointConfig: st.builds(
        CheckpointConfig,
        num_to_keep=st.none() | st.integers(1, 9),
        checkpoint_score_attribute=st.none() | TEXT,
        checkpoint_score_order=st.sampled_from(["min", "max"]),
    ),
    str: TEXT,
    int: st.integers(0, 10**7),
    float: st.floats(0, 2**37),
    bool: st.booleans(),
    Any: PLAIN,
    types.NoneType: st.none(),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of this type of a field."""
    if kind in KNOWN:
        return KNOWN[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(parts)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    if origin in (Union, types.UnionType):
        return st.one_of([any_of(part) for part in parts])
    if origin is Mapping:
        return st.dictionaries(any_of(parts[0]), any_of(parts[1]), max_size=3)
    if origin is tuple:
        return st.lists(any_of(parts[0]), max_size=3).map(tuple)
    if origin is Sequence:
        return st.lists(any_of(parts[0]), max_size=3).map(tuple)
    assert is_dataclass(kind), f"how is a {kind} made?"
    return any_event(kind)  # type: ignore[arg-type]  # mypy: an instance might be meant


def any_event(kind: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    given_for = {part.name: any_of(hints[part.name]) for part in fields(kind)}
    if kind is TrialSpec:
        given_for["trial_id"] = given_for["dirname"] = PLAIN_NAMES
        given_for["config"] = st.dictionaries(TEXT, CONFIG_VALUES, max_size=3)
    if kind is Begun:
        given_for["version"] = st.just(3)
    if kind in (NodeJoined, NodeLeaving, NodeLeft):
        given_for["node"] = PLAIN_NAMES
    if kind is Started:
        given_for["nodes"] = st.lists(PLAIN_NAMES, max_size=3).map(tuple)
    if kind in (CheckpointRecord, Failure):
        given_for["node"] = st.just("") | PLAIN_NAMES
    if kind is Usage:
        given_for["gpu_utilisation"] = st.none() | st.floats(0, 1)
    if kind is ExperimentSpec:
        given_for["space"] = st.lists(SPACE_PARTS, max_size=2).map(tuple)
        # Hypothesis also draws texts of our own code, and those are names of options with rules.
        given_for["options"] = st.dictionaries(PLAIN_NAMES, PLAIN, max_size=3)
    return st.builds(kind, **given_for)


@settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(event=st.one_of([any_event(kind) for kind in get_args(Event)]), now=st.floats(0, 1e10))
def test_any_event_survives_the_journal(event: Event, now: float) -> None:
    assert repr(through_journal(event, now)[:2]) == repr((event, now))
