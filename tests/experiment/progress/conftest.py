"""A fixture for the tests of what a run shows."""

from __future__ import annotations

import pytest


@pytest.fixture
def terminal_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with colours, 80 columns and 24 lines."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.delenv("NO_COLOR", raising=False)
