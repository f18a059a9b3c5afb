"""What user code sees from inside one rank of a trial that several workers train together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.experiment.folder.layout import STAGING, rank_log
from holdfast.experiment.worker.session import Session
from holdfast.runtime.wire import Message
from holdfast.scheduler.verdict import Verdict
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.merge_ranks import merge_parts
from holdfast.syncer.checkpoint.staging import stage
from holdfast.syncer.errors import DirectoryMissing, StorageError
from holdfast.syncer.files.durable import remove_tree
from holdfast.trial.checkpoint import CheckpointRecord, CheckpointUploadMode, checkpoint_dirname
from holdfast.trial.errors import InvalidMetrics, TuneError


class RankSession(Session):
    """A report returns when all ranks have reported. Each rank stages its own files; rank 0, which
    waits with the others, makes one checkpoint of them."""

    _start: Checkpoint | None = None
    _telling: threading.Thread | None = None
    _has_looked = False
    # Said with the answer to one report, so that all ranks leave after the same one.
    _is_leaving = False
    # What `get_dataset_shard` gives here, by the names of the datasets.
    shards: Mapping[str, Any] = MappingProxyType({})

    def begin_from(self, start: Checkpoint | None) -> None:
        """What to resume from until there is a checkpoint of this trial's own."""
        self._start = start

    def checkpoint(self) -> Checkpoint | None:
        return super().checkpoint() or self._start

    def preempt(self) -> None:
        """Tell the other ranks, in a thread: this runs in a signal handler, which may have
        interrupted a message."""
        super().preempt()
        send = super()._send
        self._telling = threading.Thread(target=send, args=(["preempting"],), daemon=True)
        self._telling.start()

    def _send(self, message: Message) -> None:
        """What the other ranks are to know reaches them before this rank's next report."""
        if self._telling is not None:
            self._telling.join()
        super()._send(message)

    def report(
        self,
        metrics: object,
        checkpoint: Checkpoint | None = None,
        upload: CheckpointUploadMode | str = CheckpointUploadMode.ASYNC,
    ) -> None:
        keeps_all = self.job.group is not None and self.job.group.keeps_all_metrics
        if keeps_all and isinstance(metrics, Mapping) and "ranks" in metrics:
            raise InvalidMetrics(
                "'ranks' is where the metrics of all ranks are kept (keep_all_metrics): give this "
                "metric another name"
            )
        super().report(metrics, checkpoint, upload)

    def wait_for_all(self) -> None:
        """Returns when every rank has started. Raises TuneError if the run ends before."""
        self._told("go")

    def meet(self, address: str) -> str:
        """Where the ranks find each other: rank 0 says it, the others are told it.

        Raises TuneError if the run ends before.
        """
        if self.assignment.rank == 0:
            self._send(["meeting", address])
            return address
        (told,) = self._told("meet")
        return str(told)

    def _told(self, order: str) -> list[Any]:
        """What comes with this order, which is the next that there is."""
        match self._transport.receive():
            case [str(word), *told] if word == order:
                return told
            case None:
                os._exit(71)
            case message:
                raise TuneError(f"not the order {order!r}: {message!r:.100}")

    def _take(self, source: str, iteration: int, upload: CheckpointUploadMode) -> CheckpointRecord:
        part = self._part(self.assignment.rank, iteration)
        remove_tree(part)  # of a report that could not be sent
        staged = stage(source, part, staging_root=self.staging_root)
        return self._record(0, iteration, staged, upload)

    @property
    def log_names(self) -> tuple[str, ...]:
        """Rank 0 writes into the trial's; a rank that shared a file would write between lines."""
        rank = self.assignment.rank
        return tuple(rank_log(name, rank) if rank else name for name in self.job.log_names)

    @property
    def staging_root(self) -> Path:
        """Of this attempt: ranks may stage before rank 0 has cleared away what older ones left."""
        return self.trial_dir / STAGING / f"attempt-{self.assignment.attempt}"

    def _part(self, rank: int, iteration: int) -> Path:
        return self.staging_root / f"rank-{rank}-{iteration}"

    def _answer(self) -> Verdict:
        ungathered: StorageError | None = None
        while (message := self._transport.receive()) is not None:
            match message:
                case ["gather", int(index), list(ranks), str(upload)]:
                    ungathered = self._try_gather(index, ranks, CheckpointUploadMode(upload))
                case ["refused", str()] if ungathered is not None:
                    raise ungathered
                case ["newest", str(dirname)]:
                    self._newest = dirname
                case ["leave"]:
                    self.is_preempted = self._is_leaving = True
                case _:
                    return self._verdict(message)
        return self._verdict(None)

    def _leaves_once_saved(self) -> bool:
        return self._is_leaving

    def _try_gather(
        self, index: int, ranks: list[int], upload: CheckpointUploadMode
    ) -> StorageError | None:
        """The error that the report is to raise here, once it is refused to all."""
        parts = {rank: self._part(rank, self.iteration) for rank in ranks}
        try:
            self._gather(index, parts, upload)
        except StorageError as error:
            for part in parts.values():
                remove_tree(part)
            self._send(["ungathered", str(error)])
            return error
        return None

    def _gather(self, index: int, parts: Mapping[int, Path], upload: CheckpointUploadMode) -> None:
        self._check_seen(parts)
        assert self.job.group is not None
        self._add_metadata(list(parts.values()))
        gathered = merge_parts(
            parts,
            self.trial_dir / checkpoint_dirname(index),
            refuse_clashes=self.job.group.refuses_clashes,
            look_for_clashes=not self._has_looked,
        )
        # Once is enough: what a loop saves has the same names, and is alike or not, each time.
        self._has_looked = True
        with suppress(OSError):  # something of the user's may be there, too
            self.staging_root.rmdir()
        record = self._record(index, self.iteration, gathered.staged, upload)
        self._send(["gathered", asdict(record), gathered.clashes])

    def _check_seen(self, parts: Mapping[int, Path]) -> None:
        """Raises DirectoryMissing for the part of a rank whose disk this one does not see."""
        for rank, part in parts.items():
            if not part.is_dir():
                raise DirectoryMissing(
                    "gather",
                    str(part),
                    f"rank {rank} has put its part of the checkpoint there, and rank 0 does not "
                    f"see it: they are on machines that do not share this directory",
                    "Give RunConfig(storage_path=...) a directory or a bucket that all machines "
                    "see, and RAY_AIR_LOCAL_CACHE_DIR a directory that they share; a loop that "
                    "only reports metrics runs without",
                )

    def _add_metadata(self, parts: Sequence[Path]) -> None:
        """The trainer's, below what the loop has stored of its own: there, for of the files of
        several ranks that have one name the last is kept."""
        if self.job.metadata:
            checkpoints = [Checkpoint(str(part)) for part in parts]
            own = [checkpoint for checkpoint in checkpoints if checkpoint.get_metadata()]
            kept = own[-1] if own else checkpoints[0]
            kept.set_metadata({**self.job.metadata, **kept.get_metadata()})
