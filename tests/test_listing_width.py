"""`holdfast ls` in a terminal that is narrower than its table."""

from __future__ import annotations

import pytest

from holdfast.cli.browse import output
from holdfast.experiment.browse.catalog import Best, CatalogEntry
from holdfast.experiment.browse.condition import Condition

ENTRY = CatalogEntry(
    name="digits",
    path="/results/digits",
    state=Condition.INTERRUPTED,
    trials={"TERMINATED": 17, "ERROR": 1, "PENDING": 2},
    stop_reasons={"finished": 17, "failed": 1, "interrupted": 2},
    not_created=4,
    best=Best(trial_id="46f40_00007", metric="accuracy", mode="max", value=0.975),
    began_at=0.0,
    size_bytes=2048,
)
BEST = "accuracy=0.975 (46f40_00007)"


@pytest.mark.parametrize(
    ("width", "header", "row", "hidden"),
    [
        (0, "NAME    STATE        TRIALS  ", "17 finished, 1 failed, 2 interrupted, 4 not", ""),
        (90, "BEST                          AGE   SIZE", "18 of 24, 1 failed", ""),
        (80, "BEST                          AGE", "18 of 24, 1 failed", "SIZE does"),
        (60, "NAME    STATE        BEST", BEST, "SIZE, AGE, TRIALS do"),
        (30, "NAME    STATE", "digits  interrupted", "SIZE, AGE, TRIALS, BEST do"),
    ],
)
def test_trials_are_shortened_then_columns_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    header: str,
    row: str,
    hidden: str,
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    output.show_entries([ENTRY], now=9.0)
    first, second, *more = capsys.readouterr().out.splitlines()
    assert header in first
    assert row in second
    assert (BEST in second) is (width != 30)
    assert more == [f"... {hidden} not fit here: widen the terminal, or add --json"] * bool(hidden)
    if width:
        assert max(map(len, (first, second))) <= width
