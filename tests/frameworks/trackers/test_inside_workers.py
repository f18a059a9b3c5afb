"""A tracker in the training function: what it starts, what it gets, and how it ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
import wandb

import holdfast
from holdfast import train
from tests.rig.bench import workbench
from tests.rig.trackers import tracked

pytestmark = [
    pytest.mark.process,
    # MLflow's own use of SQLAlchemy 2.1.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
]

Fit = Callable[..., train.Result]


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    def run(loop: Callable[[dict[str, Any]], None], **options: Any) -> train.Result:
        return train.DataParallelTrainer(
            loop,
            train_loop_config={"folder": str(tmp_path)},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=str(tmp_path), name="run", **options),
        ).fit()

    return run


def is_first() -> bool:
    return train.get_context().get_world_rank() == 0


def was_forked() -> bool:
    return not any("runtime.warm.fresh" in argument for argument in sys.orig_argv)


# -- W&B's own process ----------------------------------------------------------------------------


def _services() -> list[int]:
    return [child.pid for child in psutil.Process().children() if "wandb-core" in child.name()]


def test_wandb_runs_in_a_forked_worker_and_its_service_dies_with_the_rank(fit: Fit) -> None:
    def loop(config: dict[str, Any]) -> None:
        noted = Path(config["folder"], "service")
        attempt = train.get_context().get_attempt()
        if is_first():
            run = wandb.init(id=train.get_context().get_trial_id(), mode="offline")
            run.log({"attempt": attempt}, step=attempt)
            if attempt == 1:
                (service,) = _services()
                noted.write_text(str(service))
                os.kill(os.getpid(), signal.SIGKILL)
            run.finish()
        outlived = noted.exists() and psutil.pid_exists(int(noted.read_text()))
        train.report({"outlived": outlived, "forked": was_forked(), "attempt": attempt})

    result = fit(loop, failure_config=train.FailureConfig(max_failures=1))
    assert result.metrics is not None
    assert result.metrics["attempt"] == 2
    assert result.metrics["forked"]
    assert not result.metrics["outlived"]
    runs = tracked.wandb_offline(Path(result.path))
    assert [tracked.steps(logged, "attempt") for _, logged in runs][-1] == [2]


SETUP = """
import sys
import wandb
from holdfast import train

wandb.setup()

def loop(config):
    if train.get_context().get_world_rank() == 0:
        with wandb.init(id="setup", mode="offline") as run:
            run.log({"loss": 1.0}, step=0)
    train.report({"loss": 1.0})

if __name__ == "__main__":
    train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(storage_path=sys.argv[1], name="run"),
    ).fit()
"""


def test_a_service_that_the_users_module_starts_when_imported_ends_with_the_experiment(
    tmp_path: Path,
) -> None:
    """Which is in the script, and in the parent of the ranks."""
    with workbench(tmp_path, tmp_path / "script.py") as bench:
        script = bench.run(bench.write(SETUP), str(bench.storage)).succeeds(120)
        assert script.left() == []
        ((run, logged),) = tracked.wandb_offline(bench.root)
    assert run == "setup"
    assert tracked.steps(logged, "loss") == [0]


# -- the end --------------------------------------------------------------------------------------


def test_a_tracker_that_takes_its_time_to_finish_is_given_it(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the grace of a worker that was asked to end: this one was not."""
    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "0.3")

    def loop(config: dict[str, Any]) -> None:
        train.report({"loss": 1.0})
        if is_first():
            threading.Event().wait(1.5)  # an upload
            Path(config["folder"], "uploaded").touch()

    fit(loop)
    assert (tmp_path / "uploaded").exists()


def test_a_run_that_is_ended_in_finally_is_whole_where_the_training_is_asked_to_stop(
    fit: Fit, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        run = wandb.init(mode="offline", dir=config["folder"]) if is_first() else None
        try:
            for epoch in range(10):
                if run is not None:
                    run.log({"loss": 1.0}, step=epoch)
                train.report({"loss": 1.0})
        finally:
            if run is not None:
                run.finish()

    fit(loop, stop={"training_iteration": 3})
    ((_, logged),) = tracked.wandb_offline(tmp_path / "wandb")
    assert tracked.steps(logged, "loss") == [0, 1, 2]


def test_what_a_tracker_does_when_its_process_exits_is_given_the_grace(
    fit: Fit, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"loss": 1.0})
        if is_first():
            wandb.init(mode="offline", dir=config["folder"]).log({"loss": 1.0})

    fit(loop)
    ((_, logged),) = tracked.wandb_offline(tmp_path / "wandb")
    assert tracked.steps(logged, "loss") == [0]


def test_an_exit_hook_that_blocks_delays_the_end_by_the_grace(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STOP_GRACE_S", "0.5")

    def loop(config: dict[str, Any]) -> None:
        atexit.register(threading.Event().wait)
        train.report({"loss": 1.0})

    began = time.monotonic()
    result = fit(loop)
    assert result.error is None
    assert time.monotonic() - began < 20


def test_an_mlflow_run_that_was_left_open_is_finished(fit: Fit, tmp_path: Path) -> None:
    """As in a script of its own: MLflow sees to it when its process exits."""
    uri = f"sqlite:///{tmp_path}/mlflow.db"

    def loop(config: dict[str, Any]) -> None:
        if is_first():
            mlflow.set_tracking_uri(uri)
            mlflow.set_experiment("open")
            mlflow.start_run()
            mlflow.log_metric("loss", 1.0)
        train.report({"forked": was_forked()})

    result = fit(loop)
    assert result.metrics is not None
    assert result.metrics["forked"]
    (run,) = tracked.mlflow_runs(uri, "open")
    assert run.info.status == "FINISHED"


# -- credentials ----------------------------------------------------------------------------------

KEY = "5ec2e7" * 7


def files_with(text: str, *folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.glob("**/*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_a_key_in_env_vars_reaches_every_rank_and_no_file(fit: Fit, tmp_path: Path) -> None:
    holdfast.init(runtime_env={"env_vars": {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}})

    def loop(config: dict[str, Any]) -> None:
        assert len(os.environ["WANDB_API_KEY"]) == 42
        if is_first():
            with wandb.init(config=config) as run:
                run.log({"loss": 1.0})
        train.report({"loss": 1.0})

    result = fit(loop)
    assert tracked.wandb_offline(Path(result.path))
    assert files_with("wandb", tmp_path)  # the search finds what is there
    assert files_with(KEY, tmp_path, Path.home()) == []


# -- what the user sees ---------------------------------------------------------------------------


def test_a_missing_key_is_an_error_of_the_rank_that_names_what_to_do(fit: Fit) -> None:
    def loop(config: dict[str, Any]) -> None:
        if is_first():
            wandb.init(project="online")
        train.report({"loss": 1.0})

    with pytest.raises(train.TrainingFailedError) as failed:
        fit(loop)
    told = str(failed.value)
    assert "rank 0" in told
    assert "UsageError" in told
    assert "No API key configured. Use `wandb login` to log in." in told
    assert 'wandb.init(project="online")' in told
