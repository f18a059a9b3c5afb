"""`holdfast ray --check` lists what a script uses of Ray, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.ray_names.checking import Finding, check

SCRIPT = """
import ray
import ray.tune as t
from ray import train, tune
from ray.air import session
from ray.tune.schedulers import ASHAScheduler as A
from ray.rllib.algorithms import ppo

raise SystemExit("never run")

@ray.remote
def task(ref: ray.ObjectRef): ...

def loop(config):
    session.report({"x": 1})
    return lambda spec: tune.uniform(0, 1)

tuner = t.Tuner(
    loop,
    tune_config=t.TuneConfig(n_trials=3, scheduler=A(max_t=3)),
    run_config=train.RunConfig(upload_dir="results", name="a"),
)
t.Tuner.restore("results/a", loop)
"""


def found(text: str) -> dict[str, Finding]:
    return {one.name: one for one in check(text, "script.py")}


def test_names_are_found_through_aliases_and_in_functions() -> None:
    names = found(SCRIPT)
    assert names["ray.tune.schedulers.ASHAScheduler"].state.kind == "same"
    assert names["ray.tune.uniform"].state.kind == "same"
    assert names["ray.air.session.report"].state.kind == "differs"
    assert names["ray.tune.Tuner"].state.link == "docs/differences.md#start-stop-resume"
    assert list(names["ray.air.session.report"].lines) == [15]


def test_what_is_missing_says_what_to_use() -> None:
    names = found(SCRIPT)
    missing = {name for name, one in names.items() if one.state.kind == "missing"}
    assert missing == {
        "ray.remote",
        "ray.rllib.algorithms.ppo",
        "ray.tune.TuneConfig(n_trials=)",
        "ray.train.RunConfig(upload_dir=)",
    }
    assert names["ray.tune.TuneConfig(n_trials=)"].state.text == "use num_samples"
    assert names["ray.train.RunConfig(upload_dir=)"].state.text == "use storage_path"
    assert names["ray.remote"].state.text.startswith("use tune.Tuner(function)")
    assert not names["ray.rllib.algorithms.ppo"].is_used


@pytest.mark.parametrize(
    "text",
    [
        "from ray import train\ndef f(train): return train.nothing",
        "from ray import tune\ntune = 3\ntune.nothing",
        "from ray import train\ndef train(config): ...\ntrain.nothing = 1",
        "def f(ray): return ray.nothing",
        "from .ray import tune\ntune.nothing()",
    ],
)
def test_a_name_that_means_something_else_there_is_not_rays(text: str) -> None:
    assert not any(one.state.kind == "missing" for one in check(text, "script.py"))


def test_an_import_whose_error_the_script_expects_is_not_missing() -> None:
    text = "try:\n    from ray.tune.old import X\nexcept ImportError:\n    X = None"
    assert found(text) == {}
    assert set(found("from ray.tune.old import X")) == {"ray.tune.old.X"}


def test_what_replaces_an_import_counts_only_if_the_import_fails_here() -> None:
    text = "try:\n    from ray import tune\nexcept ImportError:\n    tune = None\ntune.nothing()"
    assert found(text)["ray.tune.nothing"].state.kind == "missing"
    text = (
        "try:\n    from ray.tune.old import run\nexcept ImportError:\n    from ray.tune import run"
    )
    assert set(found(f"{text}\nrun(print)")) == {"ray.tune.run"}


def test_what_a_runtime_env_cannot_have_is_missing() -> None:
    env = "{'pip': ['torch'], 'env_vars': {'A': '1'}, 'excludes': []}"
    names = found(f"import ray\nray.init(runtime_env={env})")
    missing = {name for name, one in names.items() if one.state.kind == "missing"}
    assert missing == {"ray.init(runtime_env.pip=)"}


def test_a_star_imports_all_names() -> None:
    assert set(
        found("from ray.tune import *\nTuner(print, param_space={'x': uniform(0, 1)})")
    ) == {
        "ray.tune.Tuner",
        "ray.tune.uniform",
    }


def test_the_command_prints_three_groups_and_fails_if_something_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    assert main(["ray", "--check", str(path)]) == 1
    said = capsys.readouterr().out
    assert [
        line for line in said.splitlines() if line in ("The same", "Different", "Missing")
    ] == [
        "The same",
        "Different",
        "Missing",
    ]
    assert "  ray.remote (line 11)\n      use tune.Tuner(function) for many trials" in said
    assert max(map(len, said.splitlines()[1:])) <= 100


def test_a_script_that_only_imports_what_is_missing_is_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "script.py"
    path.write_text("from ray import remote, tune\nprint(tune.Tuner)")
    assert main(["ray", "--check", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert main(["ray", "--check", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == said
    assert said["file"] == str(path)
    assert [(one["name"], one["used"]) for one in said["missing"]] == [("ray.remote", False)]
    assert [one["lines"] for one in said["differs"]] == [[2]]


@pytest.mark.parametrize("text", ["def", None])
def test_a_file_that_is_no_script_does_not_end_the_check_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "script.py"
    if text is not None:
        path.write_text(text)
    other = tmp_path / "other.py"
    other.write_text("from ray import tune\ntune.report(loss=1)")
    assert main(["ray", "--check", str(path), str(other)]) == 2
    said = capsys.readouterr()
    assert f"{path} cannot be read as a script" in said.err
    assert f"{other}: 0 the same, 1 different, 0 missing" in said.out
