"""Train with PyTorch Lightning on two workers, and resume after a kill.

    python examples/lightning/checkpoints.py --storage /tmp/results --name spiral
    python examples/lightning/checkpoints.py --storage /tmp/results --name spiral-3 --report custom
    python examples/lightning/checkpoints.py --storage /tmp/results --name parts --strategy fsdp

Kill this script, or one of its workers, at any moment and start it again with the same --name.
"""

from __future__ import annotations

import argparse
import math
import os
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from holdfast.train.lightning import (
    RayDDPStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from holdfast.train.torch import TorchTrainer


def spirals(count: int, seed: int) -> TensorDataset:
    """Points on each of two spiral arms, with the number of their arm."""
    generator = torch.Generator().manual_seed(seed)
    turn = 3 * torch.rand(count, generator=generator).sqrt()
    points, arms = [], []
    for arm in range(2):
        angle = turn + arm * math.pi
        noise = 0.15 * torch.randn(count, 2, generator=generator)
        points.append(torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) + noise)
        arms.append(torch.full((count,), arm))
    return TensorDataset(torch.cat(points), torch.cat(arms))


class Spirals(pl.LightningDataModule):
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(spirals(200, seed=0), batch_size=25, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(spirals(100, seed=1), batch_size=50)


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        points, arms = batch
        loss = torch.nn.functional.cross_entropy(self.model(points), arms)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        points, arms = batch
        right = (self.model(points).argmax(dim=1) == arms).float().mean()
        self.log("mean_accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.03)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)]


# -- your own callback ----------------------------------------------------------------------------


class CustomReportCallback(pl.Callback):
    """Reports each epoch, and a checkpoint with the third, the sixth and so on."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics["epoch"] = trainer.current_epoch
        if (trainer.current_epoch + 1) % 3:
            train.report(metrics)
            return
        with TemporaryDirectory() as temp_checkpoint_dir:
            # All workers call it and wait for each other; the first one writes the file.
            trainer.save_checkpoint(os.path.join(temp_checkpoint_dir, "ckpt.pt"))
            checkpoint = None
            if train.get_context().get_world_rank() == 0:
                checkpoint = Checkpoint.from_directory(temp_checkpoint_dir)
            train.report(metrics, checkpoint=checkpoint)


REPORTS = {
    "each-epoch": (RayTrainReportCallback, RayTrainReportCallback.CHECKPOINT_NAME),
    "custom": (CustomReportCallback, "ckpt.pt"),
}
STRATEGIES = {
    "ddp": (RayDDPStrategy, {}),
    "fsdp": (RayFSDPStrategy, {"state_dict_type": "sharded"}),
}


# -- the training ---------------------------------------------------------------------------------


def train_func(config: dict[str, Any]) -> None:
    report, file = REPORTS[config["report"]]
    strategy, wishes = STRATEGIES[config["strategy"]]
    trainer = pl.Trainer(
        max_epochs=config["num_epochs"],
        accelerator="auto",
        devices="auto",
        strategy=strategy(**wishes),
        plugins=[RayLightningEnvironment()],
        callbacks=[report()],
        # Checkpoints and metrics go to holdfast; you may add a logger of Lightning, too.
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer = prepare_trainer(trainer)
    fit(trainer, file)


def fit(trainer: pl.Trainer, file: str) -> None:
    """Start, or resume from the checkpoint after a failure or a restore."""
    model, data = Classifier(), Spirals()
    checkpoint = train.get_checkpoint()
    if not checkpoint:
        trainer.fit(model, datamodule=data)
        return
    with checkpoint.as_directory() as checkpoint_dir:
        ckpt_path = os.path.join(checkpoint_dir, file)
        trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)


def make_trainer(given: argparse.Namespace) -> TorchTrainer:
    path = os.path.join(given.storage, given.name)
    if TorchTrainer.can_restore(path):
        print(f"Resuming {given.name} ...")
        return TorchTrainer.restore(path, train_func)
    return TorchTrainer(
        train_func,
        train_loop_config={
            "num_epochs": given.epochs,
            "report": given.report,
            "strategy": given.strategy,
        },
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=given.storage,
            name=given.name,
            checkpoint_config=CheckpointConfig(
                num_to_keep=2,
                checkpoint_score_attribute="mean_accuracy",
                checkpoint_score_order="max",
            ),
            failure_config=FailureConfig(max_failures=1),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="lightning", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--report", choices=list(REPORTS), default="each-epoch")
    parser.add_argument("--strategy", choices=list(STRATEGIES), default="ddp")
    result = make_trainer(parser.parse_args()).fit()
    print(f"Results: {result.path}")
    for checkpoint, row in result.best_checkpoints:
        name = os.path.basename(checkpoint.path)
        print(f"{name}: epoch {row['epoch']}, mean_accuracy {row['mean_accuracy']:.4f}")


if __name__ == "__main__":
    main()
