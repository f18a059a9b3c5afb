"""Helpers for worker code that lies to its controller."""

from __future__ import annotations

from typing import Any

from holdfast import tune
from holdfast.experiment.worker.session import Session, running

RECORD = {"index": 0, "iteration": 2, "attempt": 1, "files": 1, "size_bytes": 1,
          "time_total_s": 1.0, "upload": "ASYNC"}  # fmt: skip


def own_session() -> Session:
    """The connection of the trial in this process."""
    session = running()
    assert session is not None
    return session


def report(**changed: Any) -> list[Any]:
    """The second report of the first attempt, with another value somewhere."""
    fields = {
        "attempt": 1, "iteration": 2, "metrics": {"n": 2}, "timestamp": 1e9, "this_s": 0.1,
        "total_s": 0.2, "checkpoint": None,
    }  # fmt: skip
    return ["report", *{**fields, **changed}.values()]


def refusal(result: tune.Result, name: str) -> str:
    """The error of a trial whose lie was refused after its first, honest report."""
    assert isinstance(result.error, tune.TuneError), name
    text = str(result.error)
    assert "sent an invalid message" in text or "its connection failed" in text, text
    assert result.metrics is not None
    assert result.metrics["n"] == 1, name
    return text
