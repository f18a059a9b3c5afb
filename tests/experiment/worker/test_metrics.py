"""The values that may be reported, and their form in the journal."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pytest

from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.trial.errors import InvalidMetrics


class Phase(Enum):
    TRAIN = "train"
    PAIR = (1, 2)
    BROKEN = object()


class Split(StrEnum):
    TEST = "test"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (PurePosixPath("data") / "train", "data/train"),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (Phase.TRAIN, "train"),
        (Phase.PAIR, [1, 2]),
        (Split.TEST, "test"),
        ({3, 1, "a"}, [1, 3, "a"]),
        (frozenset({Decimal(1)}), [1.0]),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        (np.datetime64("2026-01-02T03:04:05.123456789"), "2026-01-02T03:04:05.123456"),
        (np.array(["2026-01-02", "NaT"], "M8[ns]"), ["2026-01-02T00:00:00", None]),
        (np.timedelta64(2, "m"), 120.0),
        (np.array([Decimal(1), None], dtype=object), [1.0, None]),
        (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
        (pd.Timedelta("1s"), 1.0),
        (pd.Series([1, 2]), [1, 2]),
        (pd.date_range("2026-01-02", periods=1, tz="UTC"), ["2026-01-02T00:00:00+00:00"]),
        ({1: {2: timedelta(1)}}, {"1": {"2": 86400.0}}),
        (MappingProxyType({Phase.TRAIN: 1}), {"train": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_with_a_plain_form_is_reported_as_that(value: Any, plain: Any) -> None:
    for metrics, expected in [
        ({"it": value}, {"it": plain}),
        ({"deep": [{"it": value}]}, {"deep": [{"it": plain}]}),
    ]:
        made = plain_metrics(metrics)
        assert made == expected
        assert msgpack.unpackb(msgpack.packb(made)) == json.loads(json.dumps(made)) == expected


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (1, "1"),
        (-0.5, "-0.5"),
        (True, "True"),
        (None, "None"),
        (np.int64(7), "7"),
        (date(2026, 1, 2), "2026-01-02"),
        (Phase.TRAIN, "train"),
        (Split.TEST, "test"),
    ],
    ids=str,
)
def test_a_key_is_reported_as_text(key: Any, text: str) -> None:
    assert plain_metrics({key: 1, "deep": {key: 2}}) == {text: 1, "deep": {text: 2}}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"m": object()}, r"'m' is a builtins\.object"),
        ({"a": {1: [1j]}}, r"'a/1/0' is a builtins\.complex"),
        ({"a": b"x"}, r"'a' is a builtins\.bytes"),
        (
            {"a": {Phase.BROKEN: 1}},
            r"the key <Phase\.BROKEN.* inside 'a' .* is a Phase: use",
        ),
        ({"a": {"b": Phase.BROKEN}}, r"'a/b' is a builtins\.object"),
        ({(1, 2): 3}, r"the key \(1, 2\) of the reported metrics is a tuple: use a string"),
        ({"a": Decimal("sNaN")}, r"'a' is a Decimal"),
        ({"a": Fraction(10**400)}, r"'a' is a Fraction"),
        ({"a": 2**64}, r"'a' is an integer beyond 64 bits"),
        ({"a": PurePosixPath("\udc80")}, r"'a' is text that is no valid Unicode"),
        ({1: 0, "1": 0}, r"the keys 1 and '1' of the reported metrics are both '1' as text"),
        ({"a": {1: 0, "1": 0}}, r"the keys 1 and '1' inside 'a' of the reported metrics are both"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_plain_form_is_refused_by_its_key(metrics: Any, message: str) -> None:
    with pytest.raises(InvalidMetrics, match=message):
        plain_metrics(metrics)


def test_no_text_is_made_of_keys_that_nothing_is_wrong_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Awaited in a thread: 10,000 keys of NumPy took 2.4 s."""

    def excerpt(value: object) -> str:
        raise AssertionError("there is nothing to say of it")

    monkeypatch.setattr("holdfast.experiment.worker.metrics.excerpt", excerpt)
    reported = {"confusion": {np.int64(1): {np.int64(2): 0.5}}, 3: 1}
    assert plain_metrics(reported) == {"confusion": {"1": {"2": 0.5}}, "3": 1}


@pytest.mark.parametrize(
    ("value", "instead"),
    [
        (object(), "write other data to a file in get_context().get_trial_dir(), or in a checkp"),
        (b"\x00", "write other data to a file in get_context().get_trial_dir(), or in a checkp"),
        (pd.DataFrame({"a": [1]}), "lists or dicts of them, such as its to_dict('list')"),
    ],
    ids=["an object", "bytes", "a table"],
)
def test_what_is_no_metric_is_refused_and_the_error_says_where_it_belongs(
    value: Any, instead: str
) -> None:
    with pytest.raises(InvalidMetrics) as refusal:
        plain_metrics({"curve": value})
    assert "the reported metric 'curve' is a" in str(refusal.value)
    assert instead in str(refusal.value)
