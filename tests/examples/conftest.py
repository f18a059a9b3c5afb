"""A place where an example runs, is killed and is started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.killing import example_bench
from tests.rig.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with example_bench(tmp_path) as made:
        yield made
