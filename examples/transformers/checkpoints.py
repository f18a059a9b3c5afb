"""Train with a Hugging Face Trainer on two workers, and resume after a kill.

    python examples/transformers/checkpoints.py --storage /tmp/results --name counting
    python examples/transformers/checkpoints.py --storage /tmp/results --name every-100 \\
        --frequency steps
    python examples/transformers/checkpoints.py --storage /tmp/results --name own --report custom

A model of 10,000 parameters, made here, learns to count on; nothing is downloaded. Kill this
script, or one of its workers, at any moment and start it again with the same --name.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from holdfast import train
from holdfast.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from holdfast.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from holdfast.train.torch import TorchTrainer

# A metric is reported with the next checkpoint, so evaluate before each save.
FREQUENCIES: dict[str, dict[str, Any]] = {
    "epoch": {"eval_strategy": "epoch", "save_strategy": "epoch"},
    "steps": {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "eval_steps": 50,
        "save_steps": 100,
    },
}
WORDS, LENGTH = 32, 12


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Rows of tokens that count up from a number, by ones, twos or threes."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        first = torch.randint(WORDS, (count, 1), generator=generator)
        step = torch.randint(1, 4, (count, 1), generator=generator)
        self._rows = (first + step * torch.arange(LENGTH)) % WORDS

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def make_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    size = {"n_positions": LENGTH, "n_embd": 24, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size))


# -- your own callback ----------------------------------------------------------------------------


class MyTrainReportCallback(TrainerCallback):
    """Reports the values logged since the last save, with the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, Any] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.metrics.update(logs)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # Wait for the files that the other workers save into the same directory.
        torch.distributed.barrier()
        checkpoint = None
        if train.get_context().get_world_rank() == 0:
            checkpoint = Checkpoint.from_directory(get_last_checkpoint(args.output_dir))
        train.report(self.metrics, checkpoint=checkpoint)
        self.metrics = {}


REPORTS = {
    "each-save": (RayTrainReportCallback, RayTrainReportCallback.CHECKPOINT_NAME),
    "custom": (MyTrainReportCallback, ""),
}


# -- the training ---------------------------------------------------------------------------------


def train_func(config: dict[str, Any]) -> None:
    report, folder = REPORTS[config["report"]]
    args = TrainingArguments(
        output_dir="saved",  # in the trial's directory
        num_train_epochs=config["num_epochs"],
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        logging_strategy="steps",
        logging_steps=10,
        save_total_limit=1,  # holdfast keeps the reported ones
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
        **FREQUENCIES[config["frequency"]],
    )
    trainer = Trainer(
        model=make_model(),
        args=args,
        train_dataset=Counting(480, seed=0),
        eval_dataset=Counting(64, seed=1),
    )
    trainer.add_callback(report())
    trainer = prepare_trainer(trainer)

    checkpoint = train.get_checkpoint()
    if not checkpoint:
        trainer.train()
        return
    with checkpoint.as_directory() as checkpoint_dir:
        trainer.train(resume_from_checkpoint=os.path.join(checkpoint_dir, folder))


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
            "frequency": given.frequency,
        },
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=given.storage,
            name=given.name,
            checkpoint_config=CheckpointConfig(
                num_to_keep=3,
                checkpoint_score_attribute="eval_loss",
                checkpoint_score_order="min",
            ),
            failure_config=FailureConfig(max_failures=1),
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="transformers", help="resume it if it exists")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--frequency", choices=list(FREQUENCIES), default="epoch")
    parser.add_argument("--report", choices=list(REPORTS), default="each-save")
    result = make_trainer(parser.parse_args()).fit()
    print(f"Results: {result.path}")
    for checkpoint, row in result.best_checkpoints:
        name = os.path.basename(checkpoint.path)
        print(f"{name}: epoch {row['epoch']:.1f}, eval_loss {row['eval_loss']:.4f}")


if __name__ == "__main__":
    main()
