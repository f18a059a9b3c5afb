"""Whole experiments with trackers, from outside."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.rig.isolation import nothing_is_left, own_environment, trainables_by_value


@pytest.fixture(scope="module", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_environment(tmp_path_factory.mktemp("home")):
        yield


@pytest.fixture(scope="module", autouse=True)
def _trainables_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    with trainables_by_value(sys.modules[request.module.__name__]):
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    with nothing_is_left():
        yield
