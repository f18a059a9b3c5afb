"""What `import ray` means where holdfast stands in for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.compat import ray_path

PATHS = """
import ray, importlib
from holdfast.ray_names.names import served, home_of
for path in sorted(served()):
    importlib.import_module(f"ray.{path}".rstrip("."))
from ray import tune, train, air
from ray.tune.schedulers.pbt import PopulationBasedTraining
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.suggest.hyperopt import HyperOptSearch as old
from ray.tune.search.sample import Categorical
from ray.air import session
import ray.train.v2.api.config as config
import holdfast
assert tune.Tuner is holdfast.tune.Tuner
assert old is HyperOptSearch
assert isinstance(tune.choice([1, 2]), Categorical)
assert config.RunConfig is train.RunConfig is air.RunConfig
assert ray.data.range is not None
print("fine")
"""
MISSING = """
import ray
import ray.rllib.algorithms.ppo as ppo
from ray.util import ActorPool
from ray.rllib.algorithms.ppo import PPOConfig

def unused(ref: ray.ObjectRef | None, other: "ray.actor.ActorHandle") -> ray.remote: ...

def told(use):
    try:
        use()
    except Exception as error:
        print(type(error).__name__, error)

def subclass():
    class Mine(PPOConfig): ...

told(lambda: ray.remote(num_cpus=1))
told(lambda: ray.wait.anything)
told(lambda: isinstance(1, ActorPool))
told(subclass)
"""


def python(code: str, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
    )


def run(code: str) -> list[str]:
    """The lines that the code prints, in a Python in which `import ray` means holdfast."""
    done = python(code, ray_path.added_to(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def with_ray(tmp_path: Path) -> Mapping[str, str]:
    """The environment of a Python in which a module `ray` is installed."""
    (tmp_path / "ray.py").write_text("name = 'the real one'")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def test_every_path_of_the_table_can_be_imported() -> None:
    assert run(PATHS) == ["fine"]


def test_a_missing_name_can_be_imported_and_fails_when_it_is_used() -> None:
    lines = run(MISSING)
    assert [line.split()[:2] for line in lines] == [
        ["NotInHoldfast", "ray.remote"],
        ["NotInHoldfast", "ray.wait"],
        ["NotInHoldfast", "ray.util.ActorPool"],
        ["NotInHoldfast", "ray.rllib.algorithms.ppo.PPOConfig"],
    ]
    assert all("holdfast, which stands in for Ray here. Use " in line for line in lines)
    assert all("(docs/differences.md#" in line for line in lines)


def test_a_module_that_is_not_there_is_an_import_error_that_names_holdfast() -> None:
    code = "try: import ray.tune.nothing\nexcept ImportError as error: print(error)"
    (line,) = run(code)
    assert line.startswith("No module named 'ray.tune.nothing' in holdfast")


UNKNOWN = """
import ray
from ray import tune
try:
    from ray.tune.result import NEVER_THERE
except ImportError as error:
    print(error)
print(hasattr(tune, "never_there"), getattr(ray, "never_there", 3))
try:
    tune.never_there
except AttributeError as error:
    print(error)
"""


def test_a_name_that_ray_does_not_have_either_is_an_import_error_that_names_holdfast() -> None:
    imported, asked, used = run(UNKNOWN)
    assert imported.startswith("No module named 'ray.tune.result.NEVER_THERE' in holdfast, which ")
    assert "no name 'NEVER_THERE' in 'ray.tune.result'" in imported
    assert asked == "False 3"
    assert used.startswith("module 'ray.tune' has no attribute 'never_there' in holdfast, which ")


def test_ray_cloudpickle_is_the_library() -> None:
    code = (
        "import ray.cloudpickle as one\n"
        "from ray import cloudpickle as other\n"
        "from ray.cloudpickle import dumps\n"
        "print(one is other, one.loads(dumps(lambda x: x + 1))(1))"
    )
    assert run(code) == ["True 2"]


OLDER = """
import os
from ray import tune
from ray.tune.logger import UnifiedLogger
from ray.tune.registry import get_trainable_cls
from ray.tune.result import DEFAULT_RESULTS_DIR

def train(config): ...

tune.register_trainable("mine", train)
print(get_trainable_cls("mine") is train)
print(DEFAULT_RESULTS_DIR == os.path.expanduser("~/ray_results"))
try:
    UnifiedLogger({}, "here")
except Exception as error:
    print(error)
"""


def test_names_of_older_versions_are_there_or_say_what_to_use() -> None:
    *there, missing = run(OLDER)
    assert there == ["True", "True"]
    assert "Use tune.logger.LoggerCallback, in RunConfig(callbacks=[...])" in missing


def test_the_same_paths_work_below_holdfast() -> None:
    code = (
        "from holdfast.tune.schedulers.pbt import PopulationBasedTraining as pbt\n"
        "from holdfast.tune.tuner import Tuner\n"
        "from holdfast import tune\n"
        "print(pbt is tune.schedulers.PopulationBasedTraining, Tuner is tune.Tuner)\n"
        "print(*(name.__name__ for name in (tune.utils, tune.logger, tune.integration)))"
    )
    done = python(code, os.environ)
    modules = [f"holdfast.tune.{name}" for name in ("utils", "logger", "integration")]
    assert (done.stdout.split(), done.returncode) == (["True", "True", *modules], 0), done.stderr


def test_an_installed_ray_is_not_touched(with_ray: Mapping[str, str]) -> None:
    done = python("import holdfast.tune, ray; print(ray.name)", with_ray)
    assert (done.stdout.strip(), done.returncode) == ("the real one", 0), done.stderr


@pytest.mark.parametrize("first", ["import ray; ", ""])
def test_an_import_of_holdfast_ray_comes_before_that_of_ray(
    with_ray: Mapping[str, str], first: str
) -> None:
    code = f"{first}import holdfast.ray, ray; print(ray.tune.Tuner.__module__)"
    done = python(code, with_ray)
    if first:
        assert "RayAlreadyImported: Ray itself is imported already" in done.stderr
    else:
        assert done.stdout.startswith("holdfast."), done.stderr
