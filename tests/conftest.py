"""Fixtures for several folders: a user's script on its own machine, and an S3 server."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast.experiment.folder.shell import listed_file
from tests.rig.bench import Bench, workbench
from tests.rig.nodes import slurm as slurm_rig
from tests.rig.nodes.machines import Machines, machines, missing
from tests.rig.storage.gcs_server import GcsServer, gcs_server
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server

# The time that an example takes depends on the machine, not on the code. `scripts/nightly` tries
# twenty times as many.
settings.register_profile(
    "holdfast", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("holdfast"), max_examples=1000)
settings.load_profile("holdfast")

# A shell lets background processes ignore SIGINT, and nohup SIGHUP; all children of a test would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Six thousand tests and what they import live to the end. The collector need not look at them, nor
# so often: that took a tenth of the CPU time of a test process.
gc.disable()

# About how many seconds a test with this fixture takes; any other takes a tenth.
_SECONDS = {
    "moto": 5.0,
    "gcs": 5.0,
    "buckets": 5.0,
    "slurm": 2.5,
    "stage": 2.5,
    "bench": 2.5,
    "run_script": 2.5,
    "trainer": 2.0,
    "three_machines": 1.5,
    "fit": 1.0,
}
# And a test of these files, which has none of them.
_SECONDS_OF_FILES = {
    "test_first_hour.py": 40.0,
    "test_contributing.py": 15.0,
    "test_scripts.py": 10.0,
    "test_runner.py": 10.0,
    "test_flat_memory.py": 10.0,
    "test_packaging.py": 5.0,
    "test_benchmarks_run.py": 3.0,
    "test_recipes.py": 3.0,
}

# Files that take so long per test, and these folders, are not in the first tier.
_LONG_S = 3.0
_LONG_FOLDERS = ("benchmarks", "examples")

USER_SCRIPT = Path(__file__).parent / "restore" / "user_script.py"


@pytest.fixture(scope="session", autouse=True)
def _no_temporary_file_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trials that are killed leave the temporary folders of their checkpoints behind."""
    before, folder = os.environ.get("TMPDIR"), tmp_path_factory.mktemp("temporary")
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    yield
    os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
    tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _home_stays_as_it_is(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run without RAY_AIR_LOCAL_CACHE_DIR writes to ~/ray_results, and would find there what
    another test session has left. Each run notes its place in the folder for states."""
    names = ("HOME", "XDG_STATE_HOME")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    yield
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _no_test_remembers_another(_home_stays_as_it_is: None) -> Iterator[None]:
    """A name that one test looks for may be similar to one that another has run. A restore adds to
    the import path, and torch's groups of processes to the environment."""
    listed_file(os.environ).unlink(missing_ok=True)
    path, environ = sys.path[:], dict(os.environ)
    yield
    sys.path[:] = path
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)


@pytest.fixture(scope="session", autouse=True)
def _tests_do_not_hear_of_each_other() -> Iterator[None]:
    """A run says so if another one of this user fills the machine, as those of other tests do."""
    before = os.environ.get("HOLDFAST_SHARE")
    os.environ["HOLDFAST_SHARE"] = "0"
    yield
    os.environ.pop("HOLDFAST_SHARE") if before is None else os.environ.update(
        HOLDFAST_SHARE=before
    )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A user's script on its own machine, which a test kills and restores."""
    with workbench(tmp_path, USER_SCRIPT) as made:
        yield made


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """A fake Google Cloud Storage with a bucket named `bucket`."""
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="module")
def three_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three machines with an sshd each. A test that unplugs one heals it."""
    if why := missing():
        pytest.skip(why)
    with machines(3, tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_rig.SlurmCluster]:
    """A real Slurm with four nodes, each in a network namespace."""
    if why := slurm_rig.missing():
        pytest.skip(f"no Slurm: {why}")
    with slurm_rig.slurm_cluster() as cluster:
        yield cluster


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[Proxy]:
    made = Proxy(moto.endpoint)
    yield made
    made.close()


@pytest.hookimpl(tryfirst=True)  # before those that a marker deselects are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rest, and start the longest files first: one process runs a whole file, and the
    others would wait for the last one.

    The first tier has every test that starts no process, and of each other file the first test,
    which is its main one; none of files that take long, and none that is marked `rest` itself.
    """
    seconds: defaultdict[Path, float] = defaultdict(float)
    begun: set[Path] = set()
    for item in items:
        if _starts_processes(item) and not item.get_closest_marker("nightly"):
            if item.path in begun or _takes_long(item.path):
                item.add_marker("rest")
            begun.add(item.path)
        names = getattr(item, "fixturenames", ())
        least = _SECONDS_OF_FILES.get(item.path.name, 0.1)
        seconds[item.path] += max([least, *(_SECONDS.get(name, 0.1) for name in names)])
    items.sort(key=lambda item: -seconds[item.path])


def _takes_long(file: Path) -> bool:
    return _SECONDS_OF_FILES.get(file.name, 0.0) >= _LONG_S or file.parent.name in _LONG_FOLDERS


def _starts_processes(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    marks = ("process", "server")
    return (
        any(item.get_closest_marker(mark) for mark in marks)
        or not _SECONDS.keys().isdisjoint(names)
        or item.path.name in _SECONDS_OF_FILES
    )


def pytest_collection_finish() -> None:
    """From here on the collector looks at what the tests themselves make."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 10, 10)
