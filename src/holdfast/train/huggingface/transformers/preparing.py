"""A Transformers Trainer as one rank of a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader, IterableDataset

from holdfast.experiment.worker.context import get_context
from holdfast.trial.errors import InvalidConfig

Trainer = TypeVar("Trainer")


class Batches(IterableDataset[Any]):
    """Batches that are ready, as a dataset with one of them per sample."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def prepare_trainer(trainer: Trainer) -> Trainer:
    """The same trainer, once it is sure to train with the other ranks.

    Where its `train_dataset` or `eval_dataset` is an iterable of ready batches, as
    `get_dataset_shard(...).iter_torch_batches()` gives one, they are used as they are, each rank
    its own; the Trainer needs `max_steps` then.

    Raises InvalidConfig where it would train alone; NotInTrial outside of a trial.
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
    """Raises InvalidConfig where each rank would train alone."""
    if processes != ranks:
        raise InvalidConfig(
            f"this Trainer trains with {processes} processes, its trial has {ranks} ranks: make "
            f"TrainingArguments and Trainer within train_loop_per_worker, and leave "
            f"ACCELERATE_USE_CPU as it is set there"
        )


def _are_batches(data: Any) -> bool:
    """Not of Hugging Face's own streamed datasets, which have samples and are iterable too."""
    return isinstance(data, Iterator) or type(data).__module__.startswith("holdfast.")


def _eval_loader(trainer: Any, plainly: Callable[[Any], Any], given: Any) -> Any:
    data = trainer.eval_dataset if given is None else given
    return _loader_of(data) if _are_batches(data) else plainly(given)


def _loader_of(batches: Iterable[Any]) -> DataLoader[Any]:
    return DataLoader(Batches(batches), batch_size=None)
