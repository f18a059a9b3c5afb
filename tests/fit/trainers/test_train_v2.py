"""What Train V2 added to trainings: validations, uploads, collectives, callbacks, settings."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.train import collective
from holdfast.trial.errors import InvalidConfig, TrialError, TuneError
from holdfast.tune.integration.ray_train import CHECKPOINT_PATH_KEY, TuneReportCallback
from tests.fit.conftest import Trainer

pytestmark = pytest.mark.process


def test_settings_have_rays_positions_and_names() -> None:
    scaling = train.ScalingConfig(None, 2, False, {"CPU": 2}, "SPREAD", "A100", {"zone": "a"})
    assert (scaling.max_workers, scaling.min_workers, scaling.elasticity_enabled) == (2, 2, False)
    assert scaling.without_effect == {"label_selector": {"zone": "a"}, "accelerator_type": "A100"}
    failure = train.FailureConfig(1, False, 3, 2, True, 7.0)
    assert (failure.max_preemptions, failure.preemption_grace_s) == (2, 7.0)
    assert train.FailureConfig(max_preemptions=4).max_preemptions == 4
    run = train.RunConfig(worker_runtime_env={"env_vars": {"A": "1"}})
    assert getattr(run.runtime_env, "env_vars", None) == {"A": "1"}


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: train.ScalingConfig(use_tpu=True), "there are no TPUs here"),
        (
            lambda: train.FailureConfig(max_preemptions=1, max_preemption_failures=2),
            "two names of one setting",
        ),
        (
            lambda: train.RunConfig(runtime_env={}, worker_runtime_env={}),
            "two names of one setting",
        ),
        (lambda: train.LoggingConfig("loud"), "log_level='loud'"),
        (lambda: train.RunConfig(logging_config="INFO"), "must be a LoggingConfig"),  # type: ignore[arg-type]
        (lambda: tune.TuneConfig(chdir_to_trial_dir="no"), "must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_not_valid_are_refused(make: Callable[[], Any], fact: str) -> None:
    with pytest.raises(InvalidConfig, match=fact):
        make()


def test_labels_are_ignored_with_one_line(
    trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    scaling = train.ScalingConfig(num_workers=1, label_selector={"zone": "a"})
    trainer(lambda: None, scaling_config=scaling)
    assert capsys.readouterr().err.startswith(
        "holdfast: ScalingConfig(label_selector) is ignored: machines have no labels here."
    )


def test_trials_stay_in_the_scripts_directory_also_after_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def where(config: dict[str, Any]) -> None:
        tune.report({"cwd": os.getcwd(), "origin": os.environ["TUNE_ORIG_WORKING_DIR"]})
        if not Path("flag").exists():
            Path("flag").touch()
            raise RuntimeError("not this time")

    run = tune.RunConfig(name="run", storage_path=str(tmp_path / "results"), verbose=0)
    stays = tune.TuneConfig(chdir_to_trial_dir=False)
    tune.Tuner(where, tune_config=stays, run_config=run).fit()
    path = str(tmp_path / "results" / "run")
    (result,) = tune.Tuner.restore(path, where, restart_errored=True).fit()
    assert told(result)["cwd"] == told(result)["origin"] == str(tmp_path)


def test_the_variable_for_the_scripts_directory_is_undone_after_a_trial_in_the_script(
    fit: Any,
) -> None:
    def where(config: dict[str, Any]) -> None:
        tune.report({"origin": os.environ["TUNE_ORIG_WORKING_DIR"]})

    before = os.getcwd()
    holdfast.init(local_mode=True)
    assert told(fit(where)[0])["origin"] == before
    assert "TUNE_ORIG_WORKING_DIR" not in os.environ


@pytest.fixture
def trainer(trainer: Trainer, tmp_path: Path) -> Trainer:
    """Its loop gets the path of a flag."""
    return partial(trainer, train_loop_config={"flag": str(tmp_path / "flag")})


def rank() -> int:
    return train.get_context().get_world_rank()


def saved(epoch: int) -> train.Checkpoint:
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("SCRATCH")))
    (folder / f"rank-{rank()}.json").write_text(json.dumps(epoch))
    return train.Checkpoint.from_directory(folder)


def started_at() -> int:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(json.loads(Path(folder, "rank-0.json").read_text())) + 1


def reported() -> list[tuple[str, int, float | None]]:
    return [
        (one.status.value, one.metrics["epoch"], one.metrics.get("accuracy"))
        for one in train.get_all_reported_checkpoints()
    ]


def told(result: train.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return dict(result.metrics)


# -- validation and reported checkpoints ----------------------------------------------------------


def validate(checkpoint: train.Checkpoint, **asked: Any) -> dict[str, float]:
    """Counts the ranks whose files there are."""
    if asked.get("fails"):
        raise RuntimeError("cannot be validated")
    if "sleeps" in asked:
        time.sleep(asked["sleeps"])
    with checkpoint.as_directory() as folder:
        files = [name for name in os.listdir(folder) if name.startswith("rank-")]
    return {"accuracy": len(files) * asked.get("scale", 1)}


def validated(config: dict[str, Any]) -> None:
    for epoch in range(started_at(), 3):
        train.report({"epoch": epoch}, saved(epoch), validation=True)
        if epoch == 1 and rank() == 0 and not Path(config["flag"]).exists():
            Path(config["flag"]).touch()
            raise RuntimeError("not this time")
    train.report({"epoch": 3, "seen": reported()})


def test_a_validation_sees_the_files_of_all_ranks_and_its_metrics_survive_a_restore(
    trainer: Trainer, tmp_path: Path
) -> None:
    """Also where the journal alone has them: no snapshot was written."""
    config = train.ValidationConfig(validate, train.ValidationTaskConfig({"scale": 10}))
    with pytest.raises(train.WorkerGroupError) as failed:
        trainer(validated, validation_config=config).fit()
    assert "not this time" in str(failed.value.worker_failures[0])
    assert isinstance(failed.value.__cause__, TrialError)
    for snapshot in (tmp_path / "results" / "run").glob("experiment_state-*"):
        snapshot.unlink()
    result = train.DataParallelTrainer.restore(str(tmp_path / "results" / "run")).fit()
    assert told(result)["seen"] == [["VALIDATED", epoch, 20] for epoch in range(3)]
    assert [row["accuracy"] for _, row in result.best_checkpoints] == [20, 20, 20]
    assert [row.get("accuracy") for row in result.rows()] == [20, 20, 20, None]


def judged(config: dict[str, Any]) -> None:
    asked: list[Any] = [
        train.ValidationTaskConfig({"fails": True}),
        train.ValidationTaskConfig({"sleeps": 60}, timeout_s=0.05),
        False,
        train.ValidationTaskConfig({"scale": 4}),
    ]
    for epoch, validation in enumerate(asked):
        train.report({"epoch": epoch}, saved(epoch), validation=validation)
    train.report({"epoch": 4, "seen": reported()})


def test_a_validation_that_fails_or_takes_too_long_costs_only_its_metrics(
    trainer: Trainer,
) -> None:
    result = trainer(judged, validation_config=train.ValidationConfig(validate)).fit()
    assert told(result)["seen"] == [
        ["VALIDATION_FAILED", 0, None],
        ["VALIDATION_TIMEOUT", 1, None],
        ["COMMITTED", 2, None],
        ["VALIDATED", 3, 8],
    ]
    stderr = Path(result.path, "stderr").read_text()
    assert "cannot be validated" in stderr
    assert "took longer than 0.05 s" in stderr


def kept_best(config: dict[str, Any]) -> None:
    for epoch, scale in enumerate((1, 3, 2, 1)):
        task = train.ValidationTaskConfig({"scale": scale})
        train.report({"epoch": epoch}, saved(epoch), validation=task)
    train.report({"epoch": 4, "seen": reported()})


def test_the_metrics_of_validations_decide_which_checkpoints_are_kept(trainer: Trainer) -> None:
    kept = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="accuracy")
    result = trainer(
        kept_best,
        validation_config=train.ValidationConfig(validate),
        run={"checkpoint_config": kept},
    ).fit()
    assert ["VALIDATED", 1, 6] in told(result)["seen"]
    checkpoint = result.get_best_checkpoint("accuracy", "max")
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        assert json.loads(Path(folder, "rank-0.json").read_text()) == 1


def test_a_validation_needs_a_function_and_a_trainer(trainer: Trainer, fit: Any) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"epoch": 0}, validation=True)

    with pytest.raises(train.TrainingFailedError, match=r"validation_config=train.ValidationConf"):
        trainer(loop).fit()
    assert "ValidationConfig" in str(fit(loop)[0].error)
    with pytest.raises(InvalidConfig, match="must be a function of a checkpoint"):
        train.ValidationConfig(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="timeout_s=0"):
        train.ValidationTaskConfig(timeout_s=0)


# -- arguments of report() ------------------------------------------------------------------------


def test_an_upload_function_makes_the_checkpoint_and_the_local_one_is_deleted(
    trainer: Trainer, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def upload(checkpoint: train.Checkpoint, name: str) -> train.Checkpoint:
        target = scratch / f"of-{name}-{rank()}"
        checkpoint.to_directory(str(target))
        (target / f"added-{rank()}").write_text(name)
        return train.Checkpoint.from_directory(str(target))

    def loop(config: dict[str, Any]) -> None:
        for epoch in range(2):
            checkpoint = saved(epoch)
            train.report(
                {"epoch": epoch},
                checkpoint,
                checkpoint_upload_fn=upload,
                delete_local_checkpoint_after_upload=True,
            )
            assert not os.path.exists(checkpoint.path)

    result = trainer(loop).fit()
    with result.best_checkpoints[1][0].as_directory() as folder:
        assert Path(folder, "added-1").read_text() == "checkpoint_000001"
    assert sorted(path.name for path in scratch.iterdir())[0] == "of-checkpoint_000000-0"


def test_a_checkpoint_that_the_trial_keeps_is_not_deleted(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"epoch": 0}, saved(0), checkpoint_dir_name="mine")
        newest = train.get_checkpoint()
        train.report({"epoch": 1}, newest, delete_local_checkpoint_after_upload=True)

    result = trainer(loop).fit()
    assert len(result.best_checkpoints) == 2
    assert Path(result.path, "checkpoint_000000", "rank-0.json").exists()
    assert Path(result.path, "stderr").read_text().count("checkpoint_dir_name='mine'") == 1


# -- collectives ----------------------------------------------------------------------------------


def test_ranks_wait_for_each_other_and_share_rank_0s_value(
    trainer: Trainer, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        if rank() == 1:
            Path(config["flag"]).touch()
        collective.barrier()
        assert Path(config["flag"]).exists()
        given = {"port": 7, "of": {1, 2}} if rank() == 0 else None
        shared: Any = collective.broadcast_from_rank_zero(given)
        if rank() == 0:
            with pytest.raises(ValueError, match="takes at most 65,536 bytes"):
                collective.broadcast_from_rank_zero(bytes(1 << 17))
        train.report({"port": shared["port"], "of": sorted(shared["of"])})

    result = trainer(loop, keep_all_metrics=True).fit()
    ranks = told(result)["ranks"]
    assert ranks["0"] == ranks["1"] == {"port": 7, "of": [1, 2]}


def test_ranks_that_can_never_meet_at_a_barrier_are_named_at_once(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        collective.barrier() if rank() == 0 else train.report({"loss": 1})

    with pytest.raises(train.WorkerGroupError, match=r"waits at .* in the same order"):
        trainer(loop).fit()


def test_a_rank_that_does_not_come_to_a_barrier_is_named_after_the_deadline(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_BARRIER_TIMEOUT_S", "0.2")

    def loop(config: dict[str, Any]) -> None:
        if rank() == 0:
            collective.barrier()
        signal.pause()

    with pytest.raises(train.TrainingFailedError, match=r"has not come to the barrier, or the li"):
        trainer(loop).fit()


def test_outside_the_loop_of_a_trainer_the_calls_say_where_they_work(fit: Any) -> None:
    with pytest.raises(TuneError, match="works only inside a trial"):
        collective.barrier()

    def trial(config: dict[str, Any]) -> None:
        for call in (collective.barrier, train.get_all_reported_checkpoints):
            with pytest.raises(TuneError, match="works in the loop of a trainer"):
                call()
        tune.report({"preempted": train.get_preemption_info() is not None})

    assert told(fit(trial)[0])["preempted"] is False


# -- preemption -----------------------------------------------------------------------------------


def test_all_ranks_learn_of_a_preemption_in_the_same_step(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        start = started_at()
        if start:
            train.report({"epoch": start, "attempt": train.get_context().get_attempt()})
            return
        if rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        while (info := train.get_preemption_info()) is None:
            pass
        assert info.preempted_node_to_ranks == {"": [0, 1]}
        assert info.preempted_ranks == [0, 1]
        assert info.deadline_ms is not None
        assert 0 < info.deadline_ms - time.time() * 1000 <= 30_000
        train.report({"epoch": 0}, saved(0))

    failure = train.FailureConfig(max_preemption_failures=1, preemption_grace_s=30)
    result = trainer(loop, run={"failure_config": failure}).fit()
    assert (told(result)["epoch"], told(result)["attempt"]) == (1, 2)


def test_a_training_that_is_preempted_too_often_says_so(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        if rank() == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        while train.get_preemption_info() is None:
            pass
        train.report({"epoch": 0}, saved(0))

    failure = train.FailureConfig(max_preemption_failures=0, preemption_grace_s=30)
    with pytest.raises(train.PreemptionError) as ended:
        trainer(loop, run={"failure_config": failure}).fit()
    assert ended.value.drain_timed_out is False
    assert len(ended.value.preemption_info.preempted_ranks) == 1


# -- callbacks ------------------------------------------------------------------------------------


class Heard(train.UserCallback):
    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.failures: list[Any] = []
        self.contexts: list[Any] = []

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        self.reports.append((run_context.experiment_name, metrics, checkpoint is not None))
        self.contexts.append(run_context)

    def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
        self.failures.append({at: str(error) for at, error in worker_exceptions.items()})


@pytest.mark.parametrize(
    ("dies", "why"),
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"), (lambda: 1 / 0, "ZeroDivision")],
)
def test_a_user_callback_hears_reports_and_failures(
    trainer: Trainer, dies: Callable[[], object], why: str
) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"loss": 1})
        train.report({"loss": 2}, saved(0) if rank() == 0 else None)
        if rank() == 1 and train.get_context().get_attempt() == 1:
            dies()
        train.report({"loss": 3})

    heard = Heard()
    failure = train.FailureConfig(max_failures=1)
    trainer(loop, run={"callbacks": [heard], "failure_config": failure}).fit()
    assert heard.reports[:2] == [("run", [{"loss": 1}], False), ("run", [{"loss": 2}], True)]
    assert heard.reports[-1] == ("run", [{"loss": 3}], False)
    ((at, text),) = heard.failures[0].items()
    assert (at, why in text) == (1, True)
    assert len(heard.failures) == 1
    context = heard.contexts[0]
    assert context.run_config.name == "run"
    assert context.scaling_config.num_workers == 2
    assert set(context.train_loop_config) == {"flag"}
    assert {one.run_id for one in heard.contexts} == {context.run_id} != {""}


def test_a_training_inside_a_trial_reports_to_it_and_ends_with_it(
    fit: Any, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        for epoch in range(config["epochs"]):
            train.report({"epoch": epoch}, saved(epoch) if epoch == 1 else None)

    def trial(config: dict[str, Any]) -> None:
        run = train.RunConfig(
            name=str(config["epochs"]),
            storage_path=str(tmp_path / "trainings"),
            verbose=0,
            callbacks=[TuneReportCallback()],
        )
        train.DataParallelTrainer(loop, train_loop_config=config, run_config=run).fit()
        Path(tmp_path, "trained").write_text(str(config["epochs"]))

    space = {"epochs": tune.grid_search([3, 1_000_000])}
    held = tune.with_resources(trial, {"cpu": 0})
    short, long = fit(held, space, stop={"epoch": 3})
    assert (told(short)["epoch"], told(long)["epoch"]) == (2, 3)
    rows = list(short.rows())
    assert [CHECKPOINT_PATH_KEY in row for row in rows] == [False, True, False]
    assert Path(rows[1][CHECKPOINT_PATH_KEY], "rank-0.json").read_text() == "1"
    assert (tmp_path / "trained").read_text() == "3"
    with pytest.raises(TuneError, match="make it in the function that a Tuner runs"):
        TuneReportCallback()
