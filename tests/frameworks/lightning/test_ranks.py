"""Lightning's own Trainer on the ranks of one trial, over gloo on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.lightning import (
    DDPStrategy,
    FSDPStrategy,
    LightningEnvironment,
    TrainReportCallback,
    prepare_trainer,
)
from holdfast.train.torch import TorchTrainer, prepare_data_loader
from holdfast.trial.errors import InvalidConfig

pytestmark = pytest.mark.process

SAMPLES = 48
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}


class Line(pl.LightningModule):
    """Fits a line, and says which samples it was given; one rank of the first attempt is sent
    `config["signal"]` in the third batch of the second epoch."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
        )
        self.config = config

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, wanted = batch
        context = train.get_context()
        facts = {
            "attempt": context.get_attempt(),
            "epoch": self.trainer.current_epoch,
            "batch": batch_idx,
            "samples": [round(number) for number in (inputs.flatten() * SAMPLES).tolist()],
        }
        with open(f"seen-{context.get_world_rank()}", "a") as seen:
            seen.write(json.dumps(facts) + "\n")
        rank = min(1, context.get_world_size() - 1)
        place = (context.get_attempt(), context.get_world_rank(), facts["epoch"], batch_idx)
        if place == (1, rank, 1, 2) and "signal" in self.config:
            os.kill(os.getpid(), self.config["signal"])
        loss = torch.nn.functional.mse_loss(self.layers(inputs), wanted)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.3, momentum=0.5)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)]


def samples() -> DataLoader[Any]:
    inputs = torch.arange(SAMPLES, dtype=torch.float32).reshape(-1, 1) / SAMPLES
    return DataLoader(TensorDataset(inputs, 3 * inputs - 1), batch_size=4, shuffle=True)


def go_on(trainer: Any, model: Any, loader: Any) -> None:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        trainer.fit(model, loader)
        return
    with checkpoint.as_directory() as folder:
        name = TrainReportCallback.CHECKPOINT_NAME
        trainer.fit(model, loader, ckpt_path=os.path.join(folder, name))


def loop(config: dict[str, Any]) -> None:
    strategy = FSDPStrategy(state_dict_type="sharded") if config.get("sharded") else DDPStrategy()
    trainer = pl.Trainer(
        max_epochs=3,
        strategy=strategy,
        plugins=[LightningEnvironment()] if config.get("plugin") else [],
        callbacks=[TrainReportCallback()],
        **QUIET,
    )
    go_on(prepare_trainer(trainer), Line(config), prepare_data_loader(samples()))


def fit(tmp_path: Path, function: Any = loop, **config: Any) -> train.Result:
    return TorchTrainer(
        function,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "results"),
            name="run",
            verbose=0,
            failure_config=train.FailureConfig(max_failures=1, preemption_grace_s=30),
        ),
    ).fit()


def steps(result: train.Result) -> list[tuple[int, int]]:
    return [(row["epoch"], row["step"]) for row in result.rows()]


def seen(result: train.Result) -> list[dict[str, Any]]:
    lines: list[str] = []
    for path in Path(result.path).glob("seen-*"):
        lines += path.read_text().splitlines()
    return [json.loads(line) for line in lines]


def given(facts: list[dict[str, Any]], epoch: int) -> list[int]:
    return sorted(sample for fact in facts if fact["epoch"] == epoch for sample in fact["samples"])


@pytest.mark.smoke
def test_after_the_death_of_a_rank_the_epoch_begins_again_and_none_before_it(
    tmp_path: Path,
) -> None:
    result = fit(tmp_path, signal=int(signal.SIGKILL), plugin=True)
    assert steps(result) == [(0, 6), (1, 12), (2, 18)]
    again = [fact for fact in seen(result) if fact["attempt"] == 2]
    assert {fact["epoch"] for fact in again} == {1, 2}
    assert given(again, 1) == given(again, 2) == list(range(SAMPLES))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_notice_saves_in_the_middle_of_an_epoch_and_no_sample_comes_twice(
    tmp_path: Path, sharded: bool
) -> None:
    result = fit(tmp_path, signal=int(signal.SIGTERM), sharded=sharded)
    assert steps(result) == [(0, 6), (1, 9), (1, 12), (2, 18)]
    told = seen(result)
    for epoch in range(3):
        assert given(told, epoch) == list(range(SAMPLES))
    begun = [fact for fact in told if fact["attempt"] == 2]
    assert min((fact["epoch"], fact["batch"]) for fact in begun) == (1, 3)


OTHER = """
import os, sys
from holdfast import train
from holdfast.train.lightning import (
    DDPStrategy, LightningEnvironment, RayTrainReportCallback, prepare_trainer
)
import pytorch_lightning, torch
from holdfast.train.torch import TorchTrainer
from torch.utils.data import DataLoader, TensorDataset

class Line(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, batch_idx):
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def loop():
    trainer = prepare_trainer(pytorch_lightning.Trainer(
        max_epochs=2, strategy=DDPStrategy(), plugins=[LightningEnvironment()], accelerator="cpu",
        callbacks=[RayTrainReportCallback()], logger=False, enable_checkpointing=False,
        enable_progress_bar=False,
    ))
    assert isinstance(trainer.strategy, pytorch_lightning.strategies.DDPStrategy)
    data = TensorDataset(torch.ones(48, 1))
    trainer.fit(Line(), DataLoader(data, batch_size=4))

result = TorchTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
    run_config=train.RunConfig(storage_path=sys.argv[1], name="run", verbose=0),
).fit()
print("steps", [(row["epoch"], row["step"]) for row in result.rows()])
"""


def test_a_script_of_the_other_package_is_served_which_it_imports_after_our_classes(
    tmp_path: Path,
) -> None:
    source = Path(tmp_path, "script.py")
    source.write_text(OTHER)
    done = subprocess.run(
        [sys.executable, str(source), str(tmp_path / "results")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "steps [(0, 6), (1, 12)]" in done.stdout


def alone(config: dict[str, Any]) -> None:
    trainer = pl.Trainer(strategy=config["strategy"], devices=1, **QUIET)
    with pytest.raises(InvalidConfig, match=r"does not know of the 2 ranks"):
        TrainReportCallback().on_train_start(trainer, Line(config))
    prepare_trainer(trainer)


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_a_strategy_that_knows_no_other_rank_is_refused(tmp_path: Path, strategy: str) -> None:
    with pytest.raises(train.TrainingFailedError, match=r"does not know of the 2 ranks") as caught:
        fit(tmp_path, alone, strategy=strategy)
    assert "strategy=DDPStrategy()" in str(caught.value)
