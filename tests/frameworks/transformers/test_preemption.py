"""A Transformers training that is preempted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from holdfast import train
from holdfast.train.huggingface.transformers import TrainReportCallback, prepare_trainer
from holdfast.train.torch import TorchTrainer
from holdfast.trial.errors import InvalidConfig

pytestmark = pytest.mark.process


class Noticed(TrainerCallback):
    """Rank 1 of the first attempt gets a notice in its second step; it reports the steps."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        context = train.get_context()
        with open(f"steps-{context.get_world_rank()}", "a") as steps:
            steps.write(f"{context.get_attempt()} {state.global_step + 1}\n")
        place = (context.get_attempt(), context.get_world_rank(), state.global_step)
        if place == (1, 1, 1):
            os.kill(os.getpid(), signal.SIGTERM)


def loop(config: dict[str, Any]) -> None:
    size = {"n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8, bos_token_id=0, eos_token_id=0, **size))
    tokens = torch.arange(24 * 4).reshape(24, 4) % 8
    args = TrainingArguments(
        output_dir="saved",
        num_train_epochs=2,
        per_device_train_batch_size=4,
        save_strategy="epoch",
        save_total_limit=1,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=[{"input_ids": row, "labels": row} for row in tokens]
    )
    trainer.add_callback(TrainReportCallback())
    trainer.add_callback(Noticed())
    trainer = prepare_trainer(trainer)
    begun = train.get_checkpoint()
    if begun is None:
        trainer.train()
        return
    with begun.as_directory() as folder:
        name = TrainReportCallback.CHECKPOINT_NAME
        trainer.train(resume_from_checkpoint=os.path.join(folder, name))


def test_who_takes_sigterm_for_itself_is_refused() -> None:
    args = TrainingArguments(output_dir="saved", enable_jit_checkpoint=True)
    with pytest.raises(InvalidConfig, match="takes SIGTERM for itself"):
        TrainReportCallback().on_train_begin(args, None, None)


def test_a_training_that_saves_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    args = TrainingArguments(output_dir="saved", save_strategy="no")
    TrainReportCallback().on_train_end(args, TrainerState(global_step=7), None)
    told = "nothing was reported of this training: with SaveStrategy.NO the Trainer has not"
    assert told in capsys.readouterr().err


def test_a_notice_saves_after_the_step_and_no_step_is_done_twice(tmp_path: Path) -> None:
    result = TorchTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=train.RunConfig(
            storage_path=str(tmp_path),
            name="run",
            verbose=0,
            # A preemption has a budget of its own: this one does not fail the training.
            failure_config=train.FailureConfig(max_failures=0, preemption_grace_s=30),
        ),
    ).fit()
    # 24 samples for two ranks in batches of 4: an epoch is three steps.
    assert [row["step"] for row in result.rows()] == [2, 3, 6]
    for rank in range(2):
        done = Path(result.path, f"steps-{rank}").read_text().splitlines()
        assert done == ["1 1", "1 2", *(f"2 {step}" for step in range(3, 7))]
