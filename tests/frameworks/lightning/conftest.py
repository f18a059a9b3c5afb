"""What the tests of Lightning stand on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from holdfast.testing.bench import Bench, workbench

DRIVER = Path(__file__).parents[1] / "driver.py"

# Lightning 2.6 with torch 2.13, about calls of its own; literal text, of which a match is a start.
IGNORED = [
    "ignore:`isinstance:FutureWarning",
    "ignore:`_get_pg_default_device` will be deprecated:Warning",
    "ignore:Multiple backends are registered with this ProcessGroup:Warning",
    "ignore:Please use DTensor instead:Warning",
    "ignore:`load_state_dict` is deprecated:FutureWarning",
]


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
