"""What worker code needs that lies to its controller."""

from __future__ import annotations

from holdfast.experiment.worker.session import Session, running


def own_session() -> Session:
    """Of the trial in this process."""
    session = running()
    assert session is not None
    return session
