"""`runtime_env`: variables that every worker gets and no file contains, and a working
directory."""

from __future__ import annotations

import copy
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.trial.errors import InvalidConfig

SECRET = "s3cr3t-that-no-disk-shall-see"
ENVIRONMENT = {"env_vars": {"BUCKET_KEY": SECRET}}


def say(config: dict[str, Any]) -> None:
    tune.report(
        {
            "key": len(os.environ.get("BUCKET_KEY", "")),
            "other": os.environ.get("OTHER"),
            "cwd": os.getcwd(),
            "origin": tune.get_context().get_original_working_dir(),
        }
    )


def fail_until(config: dict[str, Any]) -> None:
    """Report, save and fail: so every file of a trial is written."""
    folder = tune.staging_directory()
    Path(folder, "length").write_text(str(len(os.environ["BUCKET_KEY"])))
    tune.report(
        {"key": len(os.environ["BUCKET_KEY"])}, checkpoint=tune.Checkpoint.from_directory(folder)
    )
    if not Path(config["flag"]).exists():
        Path(config["flag"]).touch()
        raise RuntimeError("not this time")


def with_secret(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 8
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def begun(fit: Any, tmp_path: Path) -> str:
    """An experiment of one trial that failed, under the name `run`."""
    space = {"flag": str(tmp_path / "flag")}
    assert len(fit(fail_until, space, name="run", runtime_env=ENVIRONMENT).errors) == 1
    return str(tmp_path / "results" / "run")


# -- variables ----------------------------------------------------------------------------------


def test_an_experiments_variables_reach_its_workers_over_those_of_init(fit: Any) -> None:
    holdfast.init(runtime_env={"env_vars": {"BUCKET_KEY": "short", "OTHER": "of init"}})
    metrics = fit(say, runtime_env=ENVIRONMENT)[0].metrics
    assert (metrics["key"], metrics["other"]) == (len(SECRET), "of init")
    metrics = fit(say)[0].metrics
    assert (metrics["key"], metrics["other"]) == (len("short"), "of init")
    assert "BUCKET_KEY" not in os.environ


def test_a_trainable_that_uses_the_scripts_run_config_takes_no_secret_along(
    tmp_path: Path,
) -> None:
    config = tune.RunConfig(
        storage_path=str(tmp_path / "results"), name="run", verbose=0, runtime_env=ENVIRONMENT
    )

    def told(_: dict[str, Any]) -> None:
        tune.report({"name": config.name, "key": len(os.environ["BUCKET_KEY"])})

    metrics = tune.Tuner(told, run_config=config).fit()[0].metrics
    assert metrics is not None
    assert (metrics["name"], metrics["key"]) == ("run", len(SECRET))
    assert with_secret(tmp_path) == []


def test_a_run_config_shows_and_pickles_no_values_and_its_copies_keep_them() -> None:
    config = tune.RunConfig(runtime_env=ENVIRONMENT)
    assert SECRET not in repr(config)
    assert SECRET.encode() not in pickle.dumps(config)
    for same in (copy.copy(config), copy.deepcopy(config), replace(config, name="x")):
        assert getattr(same.runtime_env, "env_vars", None) == {"BUCKET_KEY": SECRET}


def test_a_restore_without_them_names_them_before_a_trial_runs(fit: Any, tmp_path: Path) -> None:
    path = begun(fit, tmp_path)
    tuner = tune.Tuner.restore(path, fail_until, resume_errored=True)
    with pytest.raises(InvalidConfig, match=r"lacks the variable BUCKET_KEY: .*runtime_env"):
        tuner.fit()
    assert len(tuner.get_results().errors) == 1
    tune.Tuner.restore(path, fail_until).fit()  # nothing runs


def test_a_restore_may_be_given_them_in_any_way_and_no_file_has_them(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = begun(fit, tmp_path)
    assert with_secret(tmp_path) == []

    def goes_on(place: Any, **given: Any) -> None:
        Path(tmp_path, "flag").unlink()
        results = tune.Tuner.restore(place, fail_until, resume_errored=True, **given).fit()
        assert "not this time" in str(results.errors[0])
        assert (results[0].metrics or {})["key"] == len(SECRET)
        assert with_secret(tmp_path) == []

    goes_on(path, runtime_env=ENVIRONMENT)
    storage = str(tmp_path / "results")
    goes_on(tune.RunConfig(storage_path=storage, name="run", runtime_env=ENVIRONMENT))
    holdfast.init(runtime_env=ENVIRONMENT)
    goes_on(path)
    holdfast.shutdown()
    monkeypatch.setenv("BUCKET_KEY", SECRET)
    goes_on(path)


def test_the_ranks_of_a_trainer_have_them_and_its_restore_asks_for_them(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def loop() -> None:
        train.report({"key": len(os.environ["BUCKET_KEY"])})
        if not flag.exists():
            flag.touch()
            raise RuntimeError("not this time")

    trainer = train.DataParallelTrainer(
        loop,
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "results"),
            name="run",
            verbose=0,
            runtime_env=ENVIRONMENT,
        ),
    )
    with pytest.raises(train.TrainingFailedError, match="not this time"):
        trainer.fit()
    path = str(tmp_path / "results" / "run")
    with pytest.raises(InvalidConfig, match="BUCKET_KEY"):
        train.DataParallelTrainer.restore(path, loop).fit()
    result = train.DataParallelTrainer.restore(path, loop, runtime_env=ENVIRONMENT).fit()
    assert (result.metrics or {})["key"] == len(SECRET)
    assert with_secret(tmp_path) == []


def test_the_debug_mode_has_them_while_a_trial_runs(fit: Any, tmp_path: Path) -> None:
    holdfast.init(local_mode=True)
    (tmp_path / "code").mkdir()
    path, where = list(sys.path), os.getcwd()
    environment = {**ENVIRONMENT, "working_dir": tmp_path / "code"}
    assert fit(say, runtime_env=environment)[0].metrics["key"] == len(SECRET)
    assert "BUCKET_KEY" not in os.environ
    assert (sys.path, os.getcwd()) == (path, where)


# -- working_dir --------------------------------------------------------------------------------


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory with a file, and with a module that only a worker in it can import."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "only_in_working_dir.py").write_text("ANSWER = 42\n")
    (folder / "data.txt").write_text("of the working_dir")
    return folder


def import_it(config: dict[str, Any]) -> None:
    from only_in_working_dir import ANSWER  # type: ignore[import-not-found]

    origin = Path(tune.get_context().get_original_working_dir())
    tune.report(
        {
            "answer": ANSWER,
            "data": (origin / "data.txt").read_text(),
            "cwd": os.getcwd(),
            "origin": str(origin),
        }
    )


def test_workers_import_from_working_dir_and_still_work_in_their_trials_folder(
    fit: Any, code: Path
) -> None:
    holdfast.init(runtime_env={"working_dir": str(code)})
    results = fit(import_it)
    assert not results.errors
    metrics = results[0].metrics
    assert metrics["answer"] == 42
    assert metrics["data"] == "of the working_dir"
    assert metrics["origin"] == str(code)
    assert metrics["cwd"] == results[0].path
    assert "only_in_working_dir" not in sys.modules
    assert Path.cwd() != code


def test_without_a_trial_folder_of_their_own_workers_stay_in_working_dir(
    fit: Any, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    monkeypatch.chdir(code.parent)
    assert fit(import_it, runtime_env={"working_dir": "code"})[0].metrics["cwd"] == str(code)


def test_a_restore_without_the_working_dir_asks_for_it(
    fit: Any, code: Path, tmp_path: Path
) -> None:
    space = {"flag": str(tmp_path / "flag")}
    environment = {**ENVIRONMENT, "working_dir": code}
    fit(fail_until, space, name="run", runtime_env=environment)
    path = str(tmp_path / "results" / "run")
    tuner = tune.Tuner.restore(path, fail_until, resume_errored=True, runtime_env=ENVIRONMENT)
    with pytest.raises(InvalidConfig, match="lacks the working_dir"):
        tuner.fit()
    moved = code.rename(tmp_path / "moved")
    environment["working_dir"] = moved
    tuner = tune.Tuner.restore(path, fail_until, resume_errored=True, runtime_env=environment)
    assert not tuner.fit().errors


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"pip": ["torch"]}, "'pip' is not supported: .*install them"),
        ({"conda": "x"}, "'conda' is not supported"),
        ({"working_dirs": "x"}, "use env_vars or working_dir"),
        ({"env_vars": ["A=1"]}, "env_vars must be a dict of variables, not a list"),
        ({"env_vars": {"A": 1}}, "'A' is a int"),
        ({"env_vars": {"A=B": SECRET}}, "'A=B' cannot be an environment variable"),
        ({"working_dir": "s3://bucket/code.zip"}, "an archive or a URI: unpack or download it"),
        ({"working_dir": "https://user:pw@host/code"}, "is an archive or a URI"),
        ({"working_dir": "code.zip"}, "unpack or download it first"),
        ({"working_dir": 7}, "working_dir must be a directory, not 7"),
        ("env", "must be a dict, not a str"),
    ],
)
def test_what_it_cannot_mean_is_refused_at_once(environment: Any, told: str) -> None:
    for say_it in (
        lambda: holdfast.init(runtime_env=environment),
        lambda: tune.RunConfig(runtime_env=environment),
    ):
        with pytest.raises(InvalidConfig, match=told) as caught:
            say_it()
        assert SECRET not in str(caught.value)
        assert "pw" not in str(caught.value)
    assert not holdfast.is_initialized()


@pytest.mark.parametrize(
    ("name", "told"), [("nowhere", "does not exist"), ("file", "is not a directory")]
)
def test_a_working_dir_that_is_none_is_refused(
    name: str, told: str, fit: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    environment = {"working_dir": tmp_path / name}
    with pytest.raises(InvalidConfig, match=told):
        holdfast.init(runtime_env=environment)
    with pytest.raises(InvalidConfig, match=told):
        fit(say, runtime_env=environment)
