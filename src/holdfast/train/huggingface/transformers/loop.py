"""The callback that reports what a Transformers Trainer saves."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from holdfast.experiment.worker.context import get_context, report, staging_directory
from holdfast.experiment.worker.session import running
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.staging import stage
from holdfast.train.reporting import say_nothing_reported
from holdfast.train.torch.loop import preemption_agreed
from holdfast.trial.errors import InvalidConfig

Trainer = TypeVar("Trainer")


class Batches(IterableDataset[Any]):
    """Ready batches, as a dataset in which each sample is one batch."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Return the trainer after checking that it trains together with the other ranks.

    If its `train_dataset` or `eval_dataset` is an iterable of ready batches, as
    `get_dataset_shard(...).iter_torch_batches()` returns, each rank uses its own batches as they
    are. The Trainer then needs `max_steps`.

    Raises InvalidConfig if it would train alone; NotInTrial outside a trial.
    """
    known: Any = trainer
    ranks = get_context().get_world_size()
    if getattr(known, "args", None) is None:
        raise InvalidConfig(
            f"prepare_trainer() takes a Transformers Trainer, not {trainer!r:.100}"
        )
    check_ranks(known.args.world_size, ranks)
    if _are_batches(known.train_dataset):
        known.get_train_dataloader = lambda: _loader_of(known.train_dataset)
    if _are_batches(known.eval_dataset):
        plainly = known.get_eval_dataloader
        known.get_eval_dataloader = lambda given=None: _eval_loader(known, plainly, given)
    return trainer


def check_ranks(processes: int, ranks: int) -> None:
    """Raises InvalidConfig if each rank would train alone."""
    if processes != ranks:
        raise InvalidConfig(
            f"this Trainer trains with {processes} processes, its trial has {ranks} ranks: create "
            f"TrainingArguments and Trainer in train_loop_per_worker, and leave "
            f"ACCELERATE_USE_CPU as it is set there"
        )


def _are_batches(data: Any) -> bool:
    """Not true of Hugging Face's streamed datasets, which are iterable but yield samples."""
    return isinstance(data, Iterator) or type(data).__module__.startswith("holdfast.")


def _eval_loader(trainer: Any, plainly: Callable[[Any], Any], given: Any) -> Any:
    data = trainer.eval_dataset if given is None else given
    return _loader_of(data) if _are_batches(data) else plainly(given)


def _loader_of(batches: Iterable[Any]) -> DataLoader[Any]:
    return DataLoader(Batches(batches), batch_size=None)


class TrainReportCallback(TrainerCallback):
    """Reports at each save of the Trainer: the latest value of each logged metric, and the saved
    checkpoint in the directory CHECKPOINT_NAME.

    Give that directory to `trainer.train(resume_from_checkpoint=...)` to resume. If the trial is
    preempted (SIGTERM), the Trainer saves after the current step, and the training resumes from
    there. `when_preempted=False` turns that off, and saves the ranks a message to each other in
    each step.
    """

    CHECKPOINT_NAME: ClassVar[str] = "checkpoint"

    def __init__(self, *, when_preempted: bool = True) -> None:
        super().__init__()
        self._when_preempted = when_preempted
        self._has_reported = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raises InvalidConfig if each rank would train alone, or the Trainer handles SIGTERM."""
        if self._when_preempted and getattr(args, "enable_jit_checkpoint", False):
            raise InvalidConfig(
                "TrainingArguments(enable_jit_checkpoint=True) takes SIGTERM for itself: leave it "
                "off, this callback saves then; or have TrainReportCallback(when_preempted=False)"
            )
        if running() is not None:
            check_ranks(args.world_size, get_context().get_world_size())

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self._when_preempted and preemption_agreed():
            control.should_save = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._has_reported and state.is_world_process_zero:
            say_nothing_reported(
                f"with {args.save_strategy} the Trainer has not saved in {state.global_step} "
                f"steps, and each save is a report"
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raises StorageError if the saved checkpoint cannot be read or copied."""
        metrics: dict[str, Any] = {}
        for logged in state.log_history:
            metrics |= logged
        self._has_reported = True
        report(metrics, checkpoint=self._saved(args.output_dir, state.global_step))

    def _saved(self, folder: str, step: int) -> Checkpoint | None:
        """A copy of it: the Trainer deletes its checkpoints by `save_total_limit`."""
        exact = os.path.join(folder, f"checkpoint-{step}")
        source = exact if os.path.isdir(exact) else get_last_checkpoint(folder)
        if source is None or not _is_first_to_see(source):
            return None
        staged = staging_directory()
        stage(source, Path(staged, self.CHECKPOINT_NAME), staging_root=staged)
        return Checkpoint.from_directory(staged)


def _is_first_to_see(folder: str) -> bool:
    """True if no lower rank has the same directory; waits until all ranks have written.

    Ranks share one `output_dir`, or each has its own, with its part of the checkpoint.
    """
    if get_context().get_world_size() == 1 or not dist.is_initialized():
        return True
    found = os.stat(folder)
    own = (socket.gethostname(), found.st_dev, found.st_ino)
    seen: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(seen, own)
    return seen.index(own) == dist.get_rank()
