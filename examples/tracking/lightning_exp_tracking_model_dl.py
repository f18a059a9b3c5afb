"""The model and the data of the Lightning examples, and their training on two workers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import lightning.pytorch as pl
import task
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch.utils.data import DataLoader

from holdfast import train
from holdfast.train import Checkpoint

FILE = "lightning.ckpt"


class DummyModel(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = task.make_model()

    def training_step(self, batch: list[torch.Tensor], batch_index: int) -> torch.Tensor:
        images, kinds = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), kinds)
        self.log("loss", loss, on_step=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def make_dataloader() -> DataLoader[Any]:
    return DataLoader(task.patterns(128), batch_size=32)


class Report(pl.Callback):
    """Reports each epoch, with a checkpoint from rank 0, with `history` in it: all reports."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for logger in trainer.loggers:
            logger.save()  # before the report: reported epochs do not run again
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics = {"epoch": trainer.current_epoch, **logged}
        self.history.append(metrics)
        with tempfile.TemporaryDirectory() as folder:
            trainer.save_checkpoint(os.path.join(folder, FILE))  # in every rank: it is a barrier
            checkpoint = None
            if trainer.is_global_zero:
                checkpoint = Checkpoint.from_directory(folder)
            train.report(metrics, checkpoint=checkpoint)


class LogAgain(pl.Callback):
    """Keeps the logged values in the checkpoint, and logs them again when the training resumes.

    For a tracker that loses what it has not written when its process is killed.
    """

    def __init__(self, logger: Logger | None) -> None:
        self._rows: list[tuple[dict[str, float], int | None]] = []
        self._log = logger.log_metrics if logger else None
        if logger:
            logger.log_metrics = self._keep_and_log

    def _keep_and_log(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert self._log is not None
        self._rows.append((dict(metrics), step))
        self._log(metrics, step)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._log is not None:
            for metrics, step in self._rows:
                self._log(dict(metrics), step)

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self._rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._rows = list(state_dict["rows"])


def train_with(
    logger: Logger | None, num_epochs: int, callbacks: Sequence[pl.Callback] = ()
) -> list[dict[str, Any]]:
    """Train in all workers, from the newest checkpoint if there is one.

    Returns what was reported of all epochs, also by attempts before this one.
    """
    report = Report()
    trainer = pl.Trainer(
        max_epochs=num_epochs,
        accelerator="cpu",
        strategy="ddp",
        devices=train.get_context().get_world_size(),
        plugins=[TorchElasticEnvironment()],  # the processes exist already
        logger=logger or False,
        callbacks=[*callbacks, report],
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    checkpoint = train.get_checkpoint()
    with checkpoint.as_directory() if checkpoint else nullcontext() as folder:
        path = os.path.join(folder, FILE) if folder else None
        trainer.fit(DummyModel(), make_dataloader(), ckpt_path=path)
    return report.history
