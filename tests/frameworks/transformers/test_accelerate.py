"""Accelerate in a loop of TorchTrainer: it finds the ranks in the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import train
from holdfast.train.huggingface.transformers import TrainReportCallback, prepare_trainer
from holdfast.train.torch import TorchConfig, TorchTrainer
from holdfast.trial.errors import InvalidConfig
from tests.frameworks.example import Example, marks, rows
from tests.rig.bench import Bench

pytestmark = pytest.mark.process

PATH = Path(__file__).parents[3] / "examples" / "transformers" / "states.py"


def line() -> list[float]:
    """The weight after each epoch, of one process with the batches of both ranks at once."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    inputs = torch.arange(24.0).reshape(-1, 1) / 24
    weights = []
    for _ in range(4):
        for given in inputs.split(8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(given), 3 * given - 1).backward()
            optimizer.step()
        weights.append(model.weight.item())
    return weights


@pytest.mark.smoke
def test_deaths_of_a_rank_and_of_the_script_repeat_no_epoch_and_change_no_number(
    bench: Bench,
) -> None:
    script = Example(PATH).disturbed(bench, at=(2, 3))
    assert marks(script, 4) == ["at 2 2", "at 3 2", "at 3 3", "at 4 3"]
    told = rows(bench)
    # With all ranks: each of them has half of the six batches.
    assert [(row["epoch"], row["batches"]) for row in told] == [(n, 3) for n in range(4)]
    assert [row["weight"] for row in told] == pytest.approx(line(), rel=1e-5)
    for checkpoint in bench.root.glob("*/checkpoint_*"):
        names = {path.name for path in checkpoint.iterdir()}
        assert {"random_states_0.pkl", "random_states_1.pkl", "model.safetensors"} <= names
    assert bench.problems() == []


def alone(config: dict[str, Any]) -> None:
    """Variables of a script that was written for one process."""
    os.environ["ACCELERATE_USE_CPU"] = "false"
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    size = {"n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=4, bos_token_id=0, eos_token_id=0, **size))
    arguments = TrainingArguments(output_dir="saved", report_to="none")
    with pytest.raises(InvalidConfig, match="with 1 processes"):
        TrainReportCallback().on_train_begin(arguments, None, None)
    prepare_trainer(Trainer(model=model, args=arguments))


def test_a_trainer_that_would_train_alone_is_refused(tmp_path: Path) -> None:
    trainer = TorchTrainer(
        alone,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    )
    told = r"with 1 processes, its trial has 2 ranks"
    with pytest.raises(train.TrainingFailedError, match=told):
        trainer.fit()


def ending(config: dict[str, Any]) -> None:
    """Ends with the call with which scripts of Accelerate end."""
    from accelerate import Accelerator

    accelerator = Accelerator()
    bare = torch.nn.Linear(1, 1)
    made = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.1))
    accelerator.backward(made[0](torch.ones(2, 1)).sum())
    made[1].step()
    train.report({"ranks": accelerator.num_processes})
    accelerator.end_training()


@pytest.mark.parametrize("init_process_group", [True, False])
def test_end_training_at_the_end_of_the_loop_fails_nothing(
    tmp_path: Path, init_process_group: bool
) -> None:
    result = TorchTrainer(
        ending,
        torch_config=TorchConfig(init_process_group=init_process_group),
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(storage_path=str(tmp_path), name="run", verbose=0),
    ).fit()
    assert (result.error, result.stop_reason) == (None, "finished")
    assert [row["ranks"] for row in result.rows()] == [2]
