"""What the tests of Transformers and Accelerate stand on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from holdfast.testing.bench import Bench, workbench

DRIVER = Path(__file__).parents[1] / "driver.py"

# Transformers 5.23 with torch 2.13, about calls of its own; literal text, the start of each.
IGNORED = ["ignore:'pin_memory' argument is set as true:UserWarning"]


def pytest_configure(config: pytest.Config) -> None:
    for line in IGNORED:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def benches() -> Callable[[Path], AbstractContextManager[Bench]]:
    """`benches(folder)`: an example on a machine of its own, killed and restored as one likes."""

    @contextmanager
    def made(folder: Path) -> Iterator[Bench]:
        with workbench(folder, DRIVER) as bench:
            bench.environ |= {
                "HOLDFAST_TEST_DIES": "",
                "HOLDFAST_TEST_IGNORE": json.dumps(IGNORED),
            }
            yield bench

    return made


@pytest.fixture
def bench(
    benches: Callable[[Path], AbstractContextManager[Bench]], tmp_path: Path
) -> Iterator[Bench]:
    with benches(tmp_path) as made:
        yield made
