"""Trainings with real frameworks, each folder in its own environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.isolation import by_value as by_value
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing
from tests.rig.nodes.machines import Machines
from tests.rig.nodes.ssh_runs import ssh_nodes

Benches = Callable[[Path], AbstractContextManager[Bench]]


# -- examples, run as a user runs them ------------------------------------------------------------


@pytest.fixture(scope="session")
def ignored() -> Sequence[str]:
    """The framework's own warnings, `action:message:category`, which are not errors."""
    return ()


@pytest.fixture(scope="session")
def benches(ignored: Sequence[str]) -> Benches:
    """`benches(folder)`: an example on its own machine, which a test kills and restores."""

    @contextmanager
    def made(folder: Path) -> Iterator[Bench]:
        with workbench(folder, Path(__file__).parent / "driver.py") as bench:
            bench.environ |= {
                "HOLDFAST_TEST_DIES": "",
                "HOLDFAST_TEST_IGNORE": json.dumps(list(ignored)),
            }
            yield bench

    return made


@pytest.fixture
def bench(benches: Benches, tmp_path: Path) -> Iterator[Bench]:
    with benches(tmp_path) as made:
        yield made


# -- scripts as users of Ray write them -----------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`ray_script` is each file of the folder `ray_scripts` next to the test."""
    if "ray_script" in metafunc.fixturenames:
        folder = metafunc.definition.path.with_name("ray_scripts")
        scripts = sorted(folder.glob("*.py"))
        metafunc.parametrize("ray_script", scripts, ids=lambda path: path.stem)


# -- several machines -----------------------------------------------------------------------------


@pytest.fixture
def two_machines(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines with one CPU each, on which the trials of the bench's scripts run."""
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines"), scratch="/tmp") as made:
        yield made
        made.wait_until_idle()
