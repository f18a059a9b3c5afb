"""A Transformers Trainer as one rank of a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader, IterableDataset

from holdfast.experiment.worker.context import get_context
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
