"""Fixtures for tests of reading experiments."""

from __future__ import annotations

from tests.experiment.conftest import in_memory as in_memory
