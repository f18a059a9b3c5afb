"""A trial's working directory, and the files that it still finds from there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.started_by_import import StartedByImport

_UNGUARDED = """
from holdfast import tune

def train(config):
    tune.report({"n": 1})

tune.Tuner(
    train, run_config=tune.RunConfig(name="run", storage_path="results", verbose=0)
).fit()
"""


@pytest.fixture
def unguarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "unguarded.py").write_text(_UNGUARDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "unguarded", raising=False)
    return tmp_path


def test_a_module_that_runs_its_own_trainable_at_its_import_is_refused(unguarded: Path) -> None:
    with pytest.raises(StartedByImport, match=r"importing unguarded started fit\(\)"):
        import_module("unguarded")
    assert not (unguarded / "results").exists()


def imports_it(config: dict[str, Any]) -> None:
    import_module("unguarded")


def test_a_trial_that_imports_a_module_which_runs_fails_with_the_reason(
    unguarded: Path, fit: Callable[..., Any]
) -> None:
    (result,) = fit(imports_it)
    assert "importing unguarded started fit()" in str(result.error)
    assert not list(unguarded.rglob("run"))


def look_around(config: dict[str, Any]) -> None:
    Path("artifact.txt").write_text("relative")
    tune.report(
        {"cwd": os.getcwd(), "origin": tune.get_context().get_original_working_dir()},
    )


def test_a_trial_runs_in_its_own_directory_and_its_files_land_there(fit: Any) -> None:
    result = fit(look_around)[0]
    assert result.metrics["cwd"] == result.path
    assert result.metrics["origin"] == os.getcwd()
    assert Path(result.path, "artifact.txt").read_text() == "relative"


def test_relative_storage_means_where_the_script_was_started(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = fit(look_around, storage_path="here/below", name="rel")[0]
    assert result.path.startswith(str(tmp_path / "here" / "below" / "rel"))
    assert Path(result.path, "result.json").exists()


SCRIPT = """
import sys
from holdfast import tune

def train(config):
    import sibling
    from package import part
    tune.report({"answer": sibling.ANSWER + part.MORE})

if __name__ == "__main__":
    storage, = sys.argv[1:]
    result = tune.Tuner(train, run_config=tune.RunConfig(storage_path=storage)).fit()[0]
    if result.error:
        raise result.error
    print("answer", result.metrics["answer"])
"""


@pytest.mark.parametrize("spawned", ["0", "1"])
def test_modules_next_to_the_script_are_found_inside_a_trial(
    run_script: Any, tmp_path: Path, spawned: str
) -> None:
    package = tmp_path / "script" / "package"
    package.mkdir(parents=True)
    (package / "part.py").write_text("MORE = 2")
    (tmp_path / "script" / "sibling.py").write_text("ANSWER = 40")
    source = SCRIPT
    if spawned == "1":
        # A native thread in the workers' parent makes a fork unsafe: then workers start from
        # scratch.
        source = source.replace("import sibling", "import sibling; starts_a_thread.START")
        source = f"import starts_a_thread\n{source}"
        (tmp_path / "script" / "starts_a_thread.py").write_text(
            "import threading\n"
            "START = threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        )
    done = run_script(source, str(tmp_path / "results"))
    assert "answer 42" in done.stdout, done.stderr
    assert ("Forking is not safe" in done.stderr) is (spawned == "1")


def keep_own_folders(config: dict[str, Any]) -> None:
    names = ["checkpoint_best", "checkpoint_500", "checkpoint_0000007", "deep/checkpoint_000009"]
    if tune.get_context().get_attempt() == 1:
        for name in names:
            Path(name).mkdir(parents=True)
        Path("checkpoint_000008").write_text("a file")
        raise RuntimeError("try again")
    kept = all(Path(name).is_dir() for name in names) and Path("checkpoint_000008").is_file()
    tune.report({"kept": kept})


def test_folders_of_the_user_that_are_called_like_checkpoints_stay(fit: Any) -> None:
    result = fit(keep_own_folders, failure_config=tune.FailureConfig(max_failures=1))[0]
    assert result.metrics["kept"]
    assert tune.Result.from_path(result.path).checkpoint is None
