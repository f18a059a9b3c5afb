"""A user's script: two trials of Lightning, reported by the callback for Tune."""

from __future__ import annotations

import argparse
import os
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import tune
from holdfast.tune.integration.pytorch_lightning import TuneReportCheckpointCallback


class Line(pl.LightningModule):
    def __init__(self, rate: float) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(1, 1)
        self.rate = rate

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.layer(batch[0]) - batch[1]).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.rate, momentum=0.9)


def train_func(config: dict[str, Any]) -> None:
    inputs = torch.arange(12.0).reshape(-1, 1) / 12
    loader = DataLoader(TensorDataset(inputs, 3 * inputs - 1), batch_size=4)
    trainer = pl.Trainer(
        max_epochs=4,
        callbacks=[TuneReportCheckpointCallback("loss", filename="own.ckpt")],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    begun = tune.get_checkpoint()
    path = os.path.join(begun.path, "own.ckpt") if begun else None
    trainer.fit(Line(config["rate"]), loader, loader, ckpt_path=path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--storage")
    parser.add_argument("--name")
    given = parser.parse_args()
    path = os.path.join(given.storage, given.name)
    if tune.Tuner.can_restore(path):
        print(f"Resuming {given.name} ...")
        tuner = tune.Tuner.restore(path, train_func)
    else:
        tuner = tune.Tuner(
            tune.with_resources(train_func, {"CPU": 0.1}),
            param_space={"rate": tune.grid_search([0.1, 0.01])},
            run_config=tune.RunConfig(storage_path=given.storage, name=given.name, verbose=0),
        )
    results = tuner.fit()
    print("losses", [[row["loss"] for row in result.rows()] for result in results])


if __name__ == "__main__":
    main()
