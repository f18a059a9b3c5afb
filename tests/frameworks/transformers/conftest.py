"""Fixtures for tests of Transformers and Accelerate."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

# Transformers 5.23 with torch 2.13, about calls of its own; literal text, the start of each.
IGNORED = ["ignore:'pin_memory' argument is set as true:UserWarning"]


def pytest_configure(config: pytest.Config) -> None:
    for line in IGNORED:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def ignored() -> Sequence[str]:
    return IGNORED
