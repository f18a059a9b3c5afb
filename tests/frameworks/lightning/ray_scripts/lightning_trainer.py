"""Lightning on two workers with Ray's strategy, environment, callback and prepare_trainer."""

import os

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import ray.train
import ray.train.lightning
from ray.train import CheckpointConfig, RunConfig, ScalingConfig
from ray.train.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from ray.train.torch import TorchTrainer

STORAGE = os.path.abspath("results")


class Regression(pl.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.model = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def train_func(config):
    x = torch.linspace(0, 1, 64).unsqueeze(1)
    loader = DataLoader(TensorDataset(x, 3 * x), batch_size=8, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        devices="auto",
        accelerator="cpu",
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer = prepare_trainer(trainer)
    path = None
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            path = os.path.join(folder, RayTrainReportCallback.CHECKPOINT_NAME)
            trainer.fit(Regression(config["lr"]), loader, ckpt_path=path)
    else:
        trainer.fit(Regression(config["lr"]), loader)


if __name__ == "__main__":
    path = os.path.join(STORAGE, "lightning")
    if TorchTrainer.can_restore(path):
        trainer = TorchTrainer.restore(path)
    else:
        trainer = TorchTrainer(
            train_func,
            train_loop_config={"lr": 0.1, "epochs": 4},
            scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
            run_config=RunConfig(
                name="lightning",
                storage_path=STORAGE,
                checkpoint_config=CheckpointConfig(
                    num_to_keep=1, checkpoint_score_attribute="loss", checkpoint_score_order="min"
                ),
            ),
        )
    result = trainer.fit()
    assert result.metrics["epoch"] == 3
    print("DONE", result.metrics["loss"] < 1)
