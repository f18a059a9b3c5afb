"""Lightning in the trials of a Tuner: the callbacks of tune.integration, and signals."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import tune
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.integration.pytorch_lightning import (
    TuneReportCallback,
    TuneReportCheckpointCallback,
)

pytestmark = pytest.mark.process

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "max_epochs": 4,
}


class Line(pl.LightningModule):
    """Its first attempt is sent config["signal"] in the second batch of epoch 2."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(1, 1)
        self.config = config

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        place = (tune.get_context().get_attempt(), self.trainer.current_epoch, batch_idx)
        if place == (1, 2, 1) and "signal" in self.config:
            os.kill(os.getpid(), self.config["signal"])
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", (self.layer(batch[0]) - batch[1]).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def samples() -> DataLoader[Any]:
    inputs = torch.arange(12.0).reshape(-1, 1) / 12
    return DataLoader(TensorDataset(inputs, 3 * inputs - 1), batch_size=4)


def train_with(callback: Any, config: dict[str, Any], file: str = "checkpoint") -> None:
    trainer = pl.Trainer(callbacks=[callback], **QUIET)
    begun = tune.get_checkpoint()
    path = os.path.join(begun.path, file) if begun else None
    trainer.fit(Line(config), samples(), samples(), ckpt_path=path)


def fit(tmp_path: Path, trainable: Any, space: dict[str, Any]) -> tune.Result:
    (result,) = tune.Tuner(
        trainable,
        param_space=space,
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "results"),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=1),
        ),
    ).fit()
    assert result.error is None
    return result


def test_a_killed_trial_resumes_from_what_the_callback_saved(tmp_path: Path) -> None:
    def trainable(config: dict[str, Any]) -> None:
        metrics = {"error": "val_loss", "loss": "loss", "unknown": "never logged"}
        train_with(TuneReportCheckpointCallback(metrics, filename="own.ckpt"), config, "own.ckpt")

    killed = fit(tmp_path, trainable, {"signal": int(signal.SIGKILL)})
    whole = fit(tmp_path, trainable, {})
    told = [
        [row[name] for row in result.rows()]
        for result in (killed, whole)
        for name in ("error", "loss")
    ]
    assert told[:2] == told[2:]
    assert [len(values) for values in told] == [4] * 4
    assert "val_loss" not in whole.rows()[0]
    assert "'never logged' is not reported" in Path(whole.path, "stderr").read_text()
    assert killed.checkpoint is not None
    assert (Path(killed.checkpoint.path) / "own.ckpt").is_file()


def test_all_that_is_logged_is_reported_at_the_hooks_that_one_names(tmp_path: Path) -> None:
    def trainable(config: dict[str, Any]) -> None:
        train_with(TuneReportCallback(on=["train_end", "train_epoch_end"]), config)

    rows = fit(tmp_path, trainable, {}).rows()
    assert len(rows) == 5
    assert all({"loss", "val_loss"} <= row.keys() for row in rows)


def of_two_devices(config: dict[str, Any]) -> None:
    trainer = pl.Trainer(devices=2, strategy=config["strategy"], **QUIET)
    trainer.fit(Line(config), samples())
    tune.report({"ranks": trainer.world_size})


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_a_trainer_that_would_start_the_script_again_is_told_what_works(
    tmp_path: Path, strategy: str
) -> None:
    (result,) = tune.Tuner(
        of_two_devices,
        param_space={"strategy": strategy},
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    told = str(result.error)
    assert all(way in told for way in ("ddp_spawn", "ddp_fork", "TorchTrainer")), told


@pytest.mark.parametrize("unsuited", [{"on": "epoch_end"}, {"metrics": 3}])
def test_an_unknown_hook_or_metric_is_refused(unsuited: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match=r"epoch_end|metrics=3"):
        TuneReportCallback(**unsuited)


@pytest.mark.parametrize(
    ("on", "told"), [("validation_end", ["on_validation_end"]), ("test_end", []), ("fit_end", [])]
)
def test_a_training_without_a_report_says_so(
    capsys: pytest.CaptureFixture[str], on: str, told: list[str]
) -> None:
    """Here no epoch is trained; without a val_dataloader none is validated, either."""
    trainer = pl.Trainer(**{**QUIET, "max_epochs": 0}, callbacks=[TuneReportCallback(on=on)])
    trainer.fit(Line({}), samples(), samples())
    written = capsys.readouterr().err
    assert re.findall(r"nothing was reported .* has not called (\w+)\.", written) == told


class OwnReport(pl.Callback):
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        staged = tune.staging_directory()
        trainer.save_checkpoint(os.path.join(staged, "checkpoint"))
        row = {"epoch": trainer.current_epoch}
        tune.report(row, checkpoint=tune.Checkpoint.from_directory(staged))


def test_a_notice_that_lightning_takes_for_the_end_is_not_the_end_of_the_trial(
    tmp_path: Path,
) -> None:
    """Nothing here is holdfast's: Lightning's own handler leaves by a SystemExit."""

    def trainable(config: dict[str, Any]) -> None:
        train_with(OwnReport(), config)

    result = fit(tmp_path, trainable, {"signal": int(signal.SIGTERM)})
    assert [row["epoch"] for row in result.rows()] == [0, 1, 2, 3]
