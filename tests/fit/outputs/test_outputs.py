"""The files that a run leaves or does not leave, and its messages."""

from __future__ import annotations

import csv
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.worker.metrics import sendable
from holdfast.results.short_errors import short_errors
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.errors import InvalidConfig, TuneError
from tests.fit.conftest import Fit

NAMES = ("params.json", "progress.csv", "result.json", "error.txt", "params.pkl")


def train(config: dict[str, Any]) -> None:
    attempt = tune.get_context().get_attempt()
    for epoch in range(3):
        for name in NAMES:
            Path(name).write_text(f"{name} of attempt {attempt}, epoch {epoch}")
        own = Path(f"checkpoint_{epoch:06d}")
        own.mkdir(exist_ok=True)
        (own / "model").write_text(f"{attempt} {epoch}")
        tune.report({"epoch": epoch}, checkpoint=tune.Checkpoint.from_directory(own))
        if epoch == 1 and attempt == 1:
            raise RuntimeError("once")


def check(trial: Path) -> None:
    for name in NAMES:
        kept = trial / (name if name == "params.pkl" else f"{name}.of-script")
        assert kept.read_text() == f"{name} of attempt 2, epoch 2"
    rows = [json.loads(line) for line in (trial / "result.json").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 0, 1, 2]
    assert len((trial / "progress.csv").read_text().splitlines()) == 6
    assert json.loads((trial / "params.json").read_text()) == {"x": 1}
    assert (trial / "error.txt").read_text().startswith("Attempt 1 failed at ")
    for epoch in range(3):
        folder = trial / f"checkpoint_{epoch:06d}"
        assert [(path.name, path.read_text()) for path in folder.iterdir()] == [
            ("model", f"2 {epoch}")
        ]
    assert sorted(path.name for path in trial.glob("checkpoint_1*")) == ["checkpoint_100004"]


def test_they_are_kept_over_a_retry_and_a_restore_and_it_is_said_once(
    fit: Fit, capfd: pytest.CaptureFixture[str]
) -> None:
    (result,) = fit(
        train,
        {"x": 1},
        verbose=1,
        failure_config=tune.FailureConfig(max_failures=1),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
    )
    assert result.error is None
    trial = Path(result.path)
    check(trial)
    assert capfd.readouterr().err.count("of its own in its folder") == 1
    again = tune.Tuner.restore(str(trial.parent), train).fit()
    assert again[0].error is None
    check(trial)
    loaded = tune.load(str(trial.parent))[0]
    assert loaded.metrics is not None
    assert loaded.metrics["epoch"] == 2
    assert loaded.checkpoint is not None
    assert Path(loaded.checkpoint.path, "model").read_text() == "2 2"


IMPOSSIBLE = {"cpu": 9999}


def reports(config: dict[str, Any]) -> None:
    tune.report({"n": 1})


@pytest.mark.parametrize("name", [None, "run"])
def test_a_refused_fit_leaves_no_folder(fit: Any, tmp_path: Path, name: str | None) -> None:
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name=name)
    assert list((tmp_path / "results").iterdir()) == []
    (result,) = fit(reports, name="run")
    assert result.metrics["n"] == 1


def test_a_refused_fit_into_a_storage_leaves_no_folder_on_this_machine(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, storage = tmp_path / "here", fsspec.filesystem("memory")
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(here))
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(
            tune.with_resources(reports, IMPOSSIBLE),
            name="run",
            storage_path="refused",
            storage_filesystem=storage,
        )
    assert list(here.iterdir()) == []


def test_a_refused_second_fit_leaves_the_first_one(fit: Any, tmp_path: Path) -> None:
    fit(reports, name="run")
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name="run")
    assert len(tune.load(str(tmp_path / "results" / "run"))) == 1


def test_what_a_script_has_put_into_the_folder_stays(fit: Any, tmp_path: Path) -> None:
    root = tmp_path / "results" / "run"

    def writes(config: dict[str, Any]) -> dict[str, float]:
        (root / "mine").write_text("kept")
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        fit(tune.with_resources(reports, writes), name="run")
    assert (root / "mine").read_text() == "kept"


def test_a_folder_that_another_process_locks_meanwhile_stays(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "results" / "run"

    class TakenMeanwhile(ExperimentLock):
        def __init__(self, path: Path, **settings: Any) -> None:
            other = ExperimentLock(path)
            try:
                super().__init__(path, **settings)
            finally:
                other.release()

    monkeypatch.setattr("holdfast.api.fit.ExperimentLock", TakenMeanwhile)
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name="run")
    assert root.exists()


def speak(config: dict[str, Any]) -> None:
    print("from python")
    print("unfinished", end="")
    print("to stderr", file=sys.stderr)
    os.write(1, b"from C\n")
    subprocess.run(["sh", "-c", "echo from a child; echo child error >&2"], check=True)
    directory = tune.staging_directory()
    Path(directory, "model").write_text("weights")
    tune.report({"score": config["lr"]}, checkpoint=tune.Checkpoint.from_directory(directory))
    Path("artifact").touch()
    if config["kind"] == "b":
        raise ValueError("halfway")


@pytest.fixture(scope="module")
def left(shared_fit: Any) -> tune.ResultGrid:
    """A run with TensorBoard on, one of whose trials fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_TENSORBOARD", "1")
        space = {"lr": tune.choice([0.5]), "kind": tune.grid_search(["a", "b"]), "n": {"w": 1}}
        results: tune.ResultGrid = shared_fit(speak, space, name="exp")
    return results


# -- the tree -----------------------------------------------------------------------------------


def test_the_experiments_folder_is_as_users_know_it(left: tune.ResultGrid) -> None:
    names = sorted(path.name for path in Path(left.experiment_path).iterdir())
    stamp = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
    for pattern in (
        rf"experiment_state-{stamp}\.json",
        rf"basic-variant-state-{stamp}\.json",
        r"tuner\.pkl",
        r"journal",
        rf"speak_[0-9a-f]{{5}}_00000_0_kind=a,lr=0\.5_{stamp}",
        rf"speak_[0-9a-f]{{5}}_00001_1_kind=b,lr=0\.5_{stamp}",
    ):
        assert [name for name in names if re.fullmatch(pattern, name)], (pattern, names)


def test_a_trials_folder_holds_all_its_records(left: tune.ResultGrid) -> None:
    well, failed = ({path.name for path in Path(result.path).iterdir()} for result in left)
    expected = {"params.json", "result.json", "progress.csv", "stdout", "stderr"}
    expected |= {"checkpoint_000000", "artifact"}
    assert {name for name in well if not name.startswith((".", "events"))} == expected
    assert {name for name in failed if not name.startswith((".", "events"))} == {
        *expected,
        "error.txt",
    }
    assert any(name.startswith("events.out.tfevents.") for name in well)


def test_params_json_and_the_csv_hold_the_config_and_the_rows(left: tune.ResultGrid) -> None:
    path = Path(left[0].path)
    assert json.loads((path / "params.json").read_text()) == {
        "lr": 0.5,
        "kind": "a",
        "n": {"w": 1},
    }
    with open(path / "progress.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["score"], row["training_iteration"]) == ("0.5", "1")


def test_stdout_holds_what_python_c_and_children_print_in_their_order(
    left: tune.ResultGrid,
) -> None:
    path = Path(left[0].path)
    assert (path / "stdout").read_text() == "from python\nunfinishedfrom C\nfrom a child\n"
    assert (path / "stderr").read_text() == "to stderr\nchild error\n"


def test_nothing_of_the_staging_is_left(left: tune.ResultGrid) -> None:
    assert list(Path(left.experiment_path).rglob(".staging/*")) == []


# -- what is left of a trial that died ------------------------------------------------------------


def speak_in_all_ways() -> None:
    libc = ctypes.CDLL(None)
    print("from python")
    libc.puts(b"from C")
    print("unfinished", end=" ")
    subprocess.run(["sh", "-c", "echo from a child"], check=True)
    if os.fork() == 0:
        print("from a fork")
        os._exit(0)
    os.wait()
    print("to stderr", file=sys.stderr)


def die(how: str) -> None:
    match how:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case _:
            os._exit(3)


def speak_and_die(config: dict[str, Any]) -> None:
    speak_in_all_ways()
    die(config["how"])


class SpeaksAndDies(tune.Trainable):
    """Its second trial runs in the process of the first."""

    def setup(self, config: dict[str, Any]) -> None:
        self.how = config["how"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.how = new_config["how"]
        return True

    def step(self) -> dict[str, Any]:
        speak_in_all_ways()
        if self.how:
            die(self.how)
        return {"done": True}


SPOKEN = ["from python", "from C", "unfinished from a child", "from a fork"]


@pytest.mark.parametrize("verbose", [0, 1])
def test_what_a_trial_printed_before_it_died_is_in_its_files(fit: Any, verbose: int) -> None:
    space = {"how": tune.grid_search(["SIGKILL", "segfault", "os._exit"])}
    results = fit(speak_and_die, space, verbose=verbose)
    assert results.num_errors == 3
    for result in results:
        assert Path(result.path, "stdout").read_text().splitlines() == SPOKEN
        assert Path(result.path, "stderr").read_text().startswith("to stderr\n")


def test_nor_is_it_lost_where_one_process_hosts_several_trials(fit: Any) -> None:
    config = tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1)
    results = fit(SpeaksAndDies, {"how": tune.grid_search([None, "SIGKILL"])}, config, verbose=1)
    assert [result.error is None for result in results] == [True, False]
    for result in results:
        assert Path(result.path, "stdout").read_text().splitlines() == SPOKEN


# -- names --------------------------------------------------------------------------------------


def report_once(config: dict[str, Any]) -> None:
    print(f"I am {config.get('n')}")
    tune.report({"n": config.get("n")})


def test_log_files_may_have_names_of_the_users(fit: Any) -> None:
    path = Path(fit(report_once, log_to_file=("out.log", "err.log"))[0].path)
    assert (path / "out.log").read_text() == "I am None\n"
    assert (path / "err.log").exists()
    assert not (path / "stdout").exists()


def test_one_log_file_takes_both_streams(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        print("one", flush=True)
        print("two", file=sys.stderr)
        tune.report({"n": 1})

    assert Path(fit(train, log_to_file="all.log")[0].path, "all.log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("name", ["result.json", "../outside", "/tmp/elsewhere", ""])
def test_a_log_file_that_would_destroy_a_record_or_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="log_to_file"):
        tune.Tuner(report_once, run_config=tune.RunConfig(log_to_file=name))


def test_creators_of_names_see_the_trial_and_name_it(fit: Any) -> None:
    results = fit(
        report_once,
        {"n": tune.grid_search([1, 2])},
        tune.TuneConfig(
            trial_name_creator=lambda trial: f"number{trial.config['n']}",
            trial_dirname_creator=lambda trial: f"{trial.trainable_name}-{trial.experiment_tag}/x",
        ),
    )
    assert [Path(result.path).name for result in results] == [
        "report_once-0_n=1_x",
        "report_once-1_n=2_x",
    ]


@pytest.mark.parametrize("name", ["same", "journal", "tuner.pkl"])
def test_trials_that_are_given_one_folder_get_two(fit: Any, name: str) -> None:
    config = tune.TuneConfig(trial_dirname_creator=lambda trial: name)
    results = fit(report_once, {"n": tune.grid_search([1, 2])}, config)
    assert [result.metrics["n"] for result in results] == [1, 2]
    assert len({result.path for result in results}) == 2
    for result in results:
        assert Path(result.path, "stdout").read_text() == f"I am {result.metrics['n']}\n"
        assert Path(result.path).name.startswith(name)


@pytest.mark.parametrize("bad", ["", "..", None, 7])
def test_a_creator_that_names_nothing_fails_fit(fit: Any, bad: Any) -> None:
    config = tune.TuneConfig(trial_dirname_creator=lambda trial: bad)
    with pytest.raises(InvalidConfig, match="trial_dirname_creator"):
        fit(report_once, None, config)


def test_long_and_foreign_names_still_fit_into_a_folder(fit: Any) -> None:
    config = tune.TuneConfig(trial_name_creator=lambda trial: "试验" * 200)
    assert fit(report_once, {"n": 1}, config)[0].metrics["n"] == 1


# -- places -------------------------------------------------------------------------------------


def test_without_a_name_each_run_gets_one_of_its_own(fit: Any) -> None:
    paths = {fit(report_once).experiment_path for _ in range(2)}
    assert len(paths) == 2
    assert all(re.match(r"report_once_\d{4}-", Path(path).name) for path in paths)


def where(monkeypatch: pytest.MonkeyPatch, path: Any = None, **environ: Path) -> tune.ResultGrid:
    for name, value in environ.items():
        monkeypatch.setenv(name, str(value))
    config = tune.RunConfig(storage_path=path and str(path), name="exp", verbose=0)
    return tune.Tuner(report_once, run_config=config).fit()


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        (None, {"HOME": "home"}, "home/ray_results"),
        (None, {"RAY_STORAGE": "variable"}, "variable"),
        ("given", {"RAY_STORAGE": "variable"}, "given"),
    ],
    ids=["the default", "the variable", "what is given"],
)
def test_results_go_where_the_script_the_variable_or_the_home_says(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    given: str | None,
    environ: dict[str, str],
    expected: str,
) -> None:
    places = {name: tmp_path / value for name, value in environ.items()}
    results = where(monkeypatch, given and tmp_path / given, **places)
    assert results.experiment_path == str(tmp_path / expected / "exp")
    assert Path(results[0].path, "result.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == [expected.partition("/")[0]]


def test_the_local_cache_is_worked_in_and_everything_is_persisted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = where(monkeypatch, tmp_path / "given", RAY_AIR_LOCAL_CACHE_DIR=tmp_path / "cache")
    assert results.experiment_path == str(tmp_path / "given" / "exp")
    for place in ("given", "cache"):
        (trial,) = (tmp_path / place / "exp").glob("report_once_*")
        assert (trial / "result.json").exists()
        assert (trial / "stdout").read_text() == "I am None\n"


@pytest.mark.parametrize("name", ["a/b", "..", "", "a\\b"])
def test_a_name_that_is_not_a_single_folder_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="name"):
        tune.RunConfig(name=name)


def test_an_error_of_storage_is_one_line_with_the_users_frames(
    run_script: Any, tmp_path: Path
) -> None:
    done = run_script(SCRIPT, "/proc/holdfast", "1")
    assert done.returncode == 1
    mark, *frames, what = done.stderr.splitlines()
    assert re.match(r"holdfast\.syncer\.errors\.Storage\w+: .*/proc/holdfast", what)
    assert mark == "Traceback (most recent call last):"
    files = [line for line in frames if line.startswith("  File")]
    assert len(files) == 1
    assert str(tmp_path / "script" / "script.py") in files[0]


MISTAKES = {
    "a metric": ("tune.TuneConfig(metric='b', mode='min')", "{}", "Did you mean|no such value"),
    "an object": ("None", "{'lock': threading.Lock()}", r"param_space\['lock'\] is a lock"),
    "resources": ("None", "{}", "no trial could ever start"),
    "a library": (
        "tune.TuneConfig(metric='a', mode='min', search_alg='optuna')",
        "{'x': tune.uniform(0, 1)}",
        r"Optuna is not installed: pip install 'optuna>=4', or the extra holdfast\[optuna\]",
    ),
    "the best": ("None", "{}", "no trial reported a number 'los'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_user_is_one_line_with_their_frames(
    run_script: Any, tmp_path: Path, mistake: str
) -> None:
    tuning, space, wanted = MISTAKES[mistake]
    source = f"""
import threading
from holdfast import tune

def train(config):
    tune.report({{"a": 1}})

if __name__ == "__main__":
    trainable = tune.with_resources(train, {{"gpu": 1}}) if {mistake == "resources"} else train
    run = tune.RunConfig(storage_path={str(tmp_path)!r}, verbose=0)
    tuner = tune.Tuner(trainable, param_space={space}, tune_config={tuning}, run_config=run)
    tuner.fit().get_best_result("los", "min")
"""
    done = run_script(source)
    assert done.returncode == 1
    mark, *frames, what = done.stderr.splitlines()
    assert mark == "Traceback (most recent call last):"
    assert len([line for line in frames if line.startswith("  File")]) == 1
    assert re.search(wanted, what)


def test_an_error_of_a_users_search_shows_their_lines_and_how_to_resume(
    run_script: Any, tmp_path: Path
) -> None:
    source = f"""
from holdfast import tune
from holdfast.tune.search import Searcher

def chosen(number):
    try:
        return [1, 2][number]
    except IndexError as error:
        raise LookupError("no config is left") from error

class Mine(Searcher):
    asked = -1
    def suggest(self, trial_id):
        self.asked += 1
        return {{"x": chosen(self.asked)}}

def train(config):
    tune.report({{"a": 1}})

if __name__ == "__main__":
    run = tune.RunConfig(storage_path={str(tmp_path)!r}, name="exp", verbose=1)
    config = tune.TuneConfig(search_alg=Mine(), num_samples=4, max_concurrent_trials=1)
    tune.Tuner(train, tune_config=config, run_config=run).fit(resume="auto")
"""
    done = run_script(source)
    assert done.returncode == 1
    told = f"An error ended the run: 2 trials are kept. Results: {tmp_path}/exp"
    assert told in done.stderr
    assert "To resume: start this script again, or " in done.stderr
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    names = [line.rpartition(" in ")[2] for line in frames]
    assert names == ["chosen", "<module>", "suggest", "chosen"]
    assert "direct cause of the following exception" in done.stderr
    assert done.stderr.splitlines()[-1] == "LookupError: no config is left"


def test_an_error_that_has_a_cause_keeps_it() -> None:
    @short_errors
    def call() -> None:
        try:
            raise KeyError("board")
        except KeyError as error:
            raise tune.TuneError("a searcher failed") from error

    with pytest.raises(tune.TuneError) as caught:
        call()
    assert isinstance(caught.value.__cause__, KeyError)


def test_its_history_is_in_the_log(fit: Any, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("DEBUG", "holdfast.results.short_errors"),
        pytest.raises(tune.TuneError) as caught,
    ):
        fit(report_once, storage_path="/proc/holdfast")
    assert len(caught.traceback) < 5
    assert "in check_local" in caplog.text


def test_a_run_with_several_goals_ends_with_its_pareto_front(
    fit: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def measured(config: dict[str, Any]) -> None:
        tune.report({"accuracy": config["x"], "cost": config["x"] % 3})

    goals = ["accuracy", "cost"], ["max", "min"]
    # It stops none of them.
    scheduler = tune.schedulers.MultiObjectiveASHAScheduler(*goals, grace_period=5)
    config = tune.TuneConfig(scheduler=scheduler)
    results = fit(measured, {"x": tune.grid_search([1, 2, 3, 4])}, config, name="goals", verbose=1)
    assert len(results.pareto_front()) == 2
    told = "2 trials are on the Pareto front of accuracy (max), cost (min): results.pareto_front()"
    assert f"{told}, or " in capfd.readouterr().err
    assert main(["ls", results.experiment_path]) == 0
    assert "2 trials on the Pareto front" in capfd.readouterr().out


# -- the terminal -------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from holdfast import tune

def train(config):
    print("hello from the trial")
    print("\\r 10%\\r 20%", end="", file=sys.stderr)
    print("\\r 30%", file=sys.stderr)
    print("and an error line", file=sys.stderr)
    tune.report({"a": 1})
    if config["fails"]:
        raise ValueError("seen by all")
    print("no end of line", end="")

if __name__ == "__main__":
    storage, verbose = sys.argv[1:]
    tune.Tuner(
        train,
        param_space={"fails": tune.grid_search([False, True])},
        run_config=tune.RunConfig(storage_path=storage, verbose=int(verbose), name="exp"),
    ).fit()
    print("the end")
"""


def test_what_trials_print_and_what_became_of_them_is_shown_on_stderr(
    run_script: Any, tmp_path: Path
) -> None:
    done = run_script(SCRIPT, str(tmp_path / "results"), "1")
    assert done.stdout == "the end\n"
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    spoken = [line for line in lines if line.endswith("hello from the trial")]
    assert len(spoken) == 2
    assert all(re.search(r"train_\w{5}_0000\d pid=\d+", line) for line in spoken)
    assert len([line for line in lines if line.endswith("and an error line")]) == 2
    assert len([line for line in lines if line.endswith("  30%")]) == 2
    assert len([line for line in lines if line.endswith("no end of line")]) == 1
    assert "10%" not in done.stderr
    assert "ValueError: seen by all" in done.stderr
    assert "1 failed" in done.stderr
    assert str(tmp_path / "results" / "exp") in done.stderr


def test_verbose_0_is_silent_but_for_failures(run_script: Any, tmp_path: Path) -> None:
    done = run_script(SCRIPT, str(tmp_path / "results"), "0")
    assert done.stdout == "the end\n"
    assert "hello" not in done.stderr
    assert "running" not in done.stderr


def test_a_line_that_no_terminal_can_show_is_shown_with_question_marks() -> None:
    assert sendable("caf\u00e9 \udc80!") == "caf\u00e9 ?!"


def test_output_that_is_not_utf8_or_very_long_does_no_harm(fit: Any) -> None:
    def train(config: dict[str, Any]) -> None:
        os.write(2, b"\xff\xfe\n")
        print("\udc80", file=sys.stderr)
        print("x" * 1_000_000)
        tune.report({"a": 1})

    result = fit(train, verbose=None)[0]
    assert result.error is None
    assert Path(result.path, "stdout").stat().st_size == 1_000_001
