"""One rank of a trial that several workers train together: its session, and what its loop can ask
for besides reports: barriers, preemption, the checkpoints reported so far."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import STAGING, rank_log
from holdfast.experiment.worker.session import NotInTrial, Session, current
from holdfast.runtime.wire import Message
from holdfast.scheduler.effects import Verdict
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.staging import facts_of, merge_parts, owners_of, stage
from holdfast.syncer.errors import DirectoryMissing, StorageError
from holdfast.syncer.files.durable import put_aside, remove_tree
from holdfast.syncer.files.tree import is_ours
from holdfast.trees import delete_tree
from holdfast.trial.errors import InvalidConfig, InvalidMetrics
from holdfast.trial.trial import (
    CheckpointRecord,
    CheckpointUploadMode,
    Validation,
    checkpoint_dirname,
    checkpoint_number,
)


class RankSession(Session):
    """A session whose report returns when all ranks have reported.

    Each rank stages its own files. A rank of each node, which waits with the others, merges those
    of its node.
    """

    _telling: threading.Thread | None = None
    _has_looked = False
    # The newest checkpoint is on another node, or in parts on several. The one to read is older.
    _is_elsewhere = False
    _readable: str | None = None
    # Sent with the answer to one report, so that all ranks leave after the same one.
    _is_leaving = False
    # The results of `get_dataset_shard`, by the names of the datasets.
    shards: Mapping[str, Any] = MappingProxyType({})

    def checkpoint(self) -> Checkpoint | None:
        if not self._is_elsewhere:
            return super().checkpoint()
        readable = self._readable
        return Checkpoint(str(self.trial_dir / readable)) if readable else self._start

    def preempt(self) -> None:
        """Tell the other ranks in a thread, because this runs in a signal handler that may have
        interrupted a message."""
        super().preempt()
        send = super()._send
        self._telling = threading.Thread(target=send, args=(["preempting"],), daemon=True)
        self._telling.start()

    def _send(self, message: Message) -> None:
        """Send a message after the one of `preempt`, so that the other ranks get that one before
        this rank's next report."""
        if self._telling is not None:
            self._telling.join()
        super()._send(message)

    def report(
        self,
        metrics: object,
        checkpoint: Checkpoint | None = None,
        upload: CheckpointUploadMode | str = CheckpointUploadMode.ASYNC,
        validation: object = False,
    ) -> None:
        keeps_all = self.job.group is not None and self.job.group.keeps_all_metrics
        if keeps_all and isinstance(metrics, Mapping) and "ranks" in metrics:
            raise InvalidMetrics(
                "keep_all_metrics stores the metrics of all ranks as 'ranks': give this metric "
                "another name"
            )
        super().report(metrics, checkpoint, upload, validation)

    def ask_reported(self) -> list[tuple[str, dict[str, Any], str]]:
        """The folder, the metrics and the validation of each checkpoint of this trial that is
        kept. Raises TuneError."""
        with self._reporting:
            self._send(["reported"])
            (found,) = self._receive("reported")
        return [(str(name), dict(metrics), str(state)) for name, metrics, state in found]

    def checkpoint_named(self, dirname: str) -> Checkpoint:
        """The checkpoint in the trial's folder, or in storage if it is not on this machine."""
        here = self.trial_dir / dirname
        if here.is_dir():
            return Checkpoint(str(here))
        return Checkpoint(f"{self.job.storage}/{self.assignment.dirname}/{dirname}")

    def wait_for_all(self) -> None:
        """Wait until every rank has started. Raises TuneError if the run ends before."""
        self._receive("go")

    def meet(self, address: str) -> str:
        """The address at which the ranks find each other: rank 0 chooses it, the others receive
        it.

        Raises TuneError if the run ends before.
        """
        if self.assignment.rank == 0:
            self._send(["address", address])
            return address
        (address,) = self._receive("address")
        return str(address)

    def gather(self, text: str) -> list[str]:
        """The texts of all ranks, by rank. Raises TuneError if the run ends before."""
        self._send(["gather", text])
        (texts,) = self._receive("gathered")
        return [str(one) for one in texts]

    def _take(self, source: str, iteration: int, upload: CheckpointUploadMode) -> CheckpointRecord:
        part = self._part(self.assignment.rank, iteration)
        remove_tree(part)  # left by a report that could not be sent
        staged = stage(source, part, staging_root=self.staging_root)
        return self._record(0, iteration, staged, upload)

    @property
    def log_names(self) -> tuple[str, ...]:
        """Rank 0 writes to the trial's files. Other ranks have their own, because lines would
        mix."""
        rank = self.assignment.rank
        return tuple(rank_log(name, rank) if rank else name for name in self.job.log_names)

    @property
    def staging_root(self) -> Path:
        """A folder of this attempt: ranks may stage before rank 0 has removed what older attempts
        left."""
        return self.trial_dir / STAGING / f"attempt-{self.assignment.attempt}"

    def _part(self, rank: int, iteration: int) -> Path:
        return self.staging_root / f"rank-{rank}-{iteration}"

    def _answer(self) -> Verdict:
        merge_failure: StorageError | None = None
        while (message := self._transport.receive()) is not None:
            match message:
                case ["merge", int(index), list(ranks), str(upload), *is_first]:
                    mode = CheckpointUploadMode(upload)
                    merge_failure = self._try_merge(index, ranks, mode, *is_first)
                case ["refused", str()]:
                    remove_tree(self._part(self.assignment.rank, self.iteration))
                    if merge_failure is not None:
                        raise merge_failure
                    return self._verdict(message)
                case ["newest", str(dirname)]:
                    self._newest, self._is_elsewhere = dirname, False
                    self.pass_over(checkpoint_number(dirname) or 0)
                case ["saved", str(dirname)]:
                    self.pass_over(checkpoint_number(dirname) or 0)
                    if not self._is_elsewhere:
                        self._readable, self._is_elsewhere = self._newest, True
                    self._newest = dirname
                case ["leave"]:
                    self.is_preempted = self._is_leaving = True
                case _:
                    return self._verdict(message)
        return self._verdict(None)

    def _leaves_once_saved(self) -> bool:
        return self._is_leaving

    def _try_merge(
        self,
        index: int,
        ranks: list[int],
        upload: CheckpointUploadMode,
        is_first: bool | None = None,
    ) -> StorageError | None:
        """Returns the error that `report` must raise here once the report is refused in all
        ranks. `is_first`: whether this is the first of several nodes with a share; None if one
        node has all."""
        parts = {rank: self._part(rank, self.iteration) for rank in ranks}
        try:
            self._merge(index, parts, upload, is_first)
        except StorageError as error:
            for part in parts.values():
                remove_tree(part)
            self._send(["merge_failed", str(error)])
            return error
        return None

    def _merge(
        self,
        index: int,
        parts: Mapping[int, Path],
        upload: CheckpointUploadMode,
        is_first: bool | None,
    ) -> None:
        """Merge the parts to the checkpoint, or those of this node's ranks to its share of it."""
        assert self.job.group is not None
        is_share = is_first is not None
        if is_share and self._validation:
            raise InvalidConfig(
                "report(validation=...) needs the whole checkpoint on one node, and the ranks of "
                "several have reported parts of it: save on the ranks of one node, or leave "
                "validation out"
            )
        self._check_there(parts)
        folders = list(parts.values())
        if is_first is not False or any(Checkpoint(str(part)).get_metadata() for part in folders):
            self._add_metadata(folders)
        index = index if is_share else self.own_number(index)
        target = self.trial_dir / checkpoint_dirname(index)
        if is_share and is_ours(target):
            remove_tree(target)  # left by a report that was refused because of another node
        owners = owners_of(parts) if is_share else {}
        # Once is enough: a loop saves files of the same names each time.
        looks, self._has_looked = not self._has_looked, True
        merged = merge_parts(
            parts,
            target,
            refuse_clashes=self.job.group.refuses_clashes,
            look_for_clashes=looks,
        )
        aside = self._put_aside(merged.emptied)
        record = self._record(index, self.iteration, merged.staged, upload)
        if self._validation and self.validate is not None:
            self._send(["validated", *self.validate(Checkpoint(str(target)), self._validation)])
        files = {name: [rank, *facts_of(target / name, looks)] for name, rank in owners.items()}
        self._send(["merged", asdict(record), merged.clashes, *([files] if is_share else [])])
        _delete(aside)

    def _put_aside(self, emptied: Sequence[Path]) -> list[Path]:
        """Take the folders that a merge has emptied out of the staging root, and remove that.

        While a disk is busy with the files, ext4 takes 2 to 10 ms to remove a folder, and all
        ranks wait. Their next parts may be in the staging root as soon as they do not.
        """
        aside: list[Path | None] = []
        with suppress(OSError):  # the user's files may be there, too
            aside += [put_aside(part, self.trial_dir / STAGING) for part in emptied]
            self.staging_root.rmdir()
        return [folder for folder in aside if folder is not None]

    def _check_there(self, parts: Mapping[int, Path]) -> None:
        """Raises DirectoryMissing if the part of a rank is gone: the checkpoint would lack it."""
        for rank, part in parts.items():
            if not part.is_dir():
                raise DirectoryMissing(
                    "gather",
                    str(part),
                    f"rank {rank} has put its part of the checkpoint there, and it is gone",
                    f"Let nothing but holdfast change the folder {STAGING} of a trial",
                )

    def _add_metadata(self, parts: Sequence[Path]) -> None:
        """Add the trainer's metadata to the part whose metadata the merge keeps.

        That is the last part with metadata of the loop, which takes precedence; otherwise the
        first.
        """
        if self.job.metadata:
            checkpoints = [Checkpoint(str(part)) for part in parts]
            own = [checkpoint for checkpoint in checkpoints if checkpoint.get_metadata()]
            kept = own[-1] if own else checkpoints[0]
            kept.set_metadata({**self.job.metadata, **kept.get_metadata()})


def _delete(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # the next attempt removes what is left
            delete_tree(folder)


def current_rank(caller: str, *, instead: str = "") -> RankSession:
    """The session of this rank. Raises NotInTrial, naming `caller`, outside the loop of a trainer;
    `instead` ends the message."""
    session = current(caller)
    if not isinstance(session, RankSession):
        raise NotInTrial(
            f"{caller} works in the loop of a trainer, such as "
            f"train.DataParallelTrainer(loop){instead}"
        )
    return session


T = TypeVar("T")
# The text form of this is what the controller passes on at most (`claims.LONGEST_GATHERED`).
LARGEST_BYTES = 64 << 10


def barrier() -> None:
    """Wait until every rank has called this.

    Every rank must call it equally often. A rank that keeps the others waiting for longer than
    HOLDFAST_BARRIER_TIMEOUT_S, or that reports or returns meanwhile, ends the attempt with an
    error that names it. Raises NotInTrial outside the loop of a trainer.
    """
    current_rank("train.collective.barrier()").gather("")


def broadcast_from_rank_zero(data: T) -> T:
    """Rank 0's `data`, in every rank: a barrier, as `barrier()` is.

    It is pickled: at most 64 KiB, else ValueError. Larger values go through `holdfast.put()`,
    whose reference is small, or through torch. Raises what pickling raises, and NotInTrial outside
    the loop of a trainer.
    """
    session = current_rank("train.collective.broadcast_from_rank_zero()")
    texts = session.gather("" if session.assignment.rank else _as_text(data))
    shared: T = _from_text(texts[0])
    return shared


def _as_text(data: Any) -> str:
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(data)
    if len(pickled) > LARGEST_BYTES:
        raise ValueError(
            f"broadcast_from_rank_zero() takes at most {LARGEST_BYTES:,} bytes, and this "
            f"{type(data).__name__} has {len(pickled):,}: broadcast a holdfast.put() reference "
            f"instead"
        )
    return base64.b64encode(pickled).decode()


def _from_text(text: str) -> Any:
    """Rank 0 of this trial has pickled it, and runs the same code. The controller passes the text
    on and does not unpickle it."""
    import pickle

    return pickle.loads(base64.b64decode(text))


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """`deadline_ms`: when the attempt ends at the latest, in milliseconds since 1970; None if it
    is not known. `preempted_node_to_ranks`: the ranks that end, by the names of their nodes; ""
    is the machine of the script."""

    deadline_ms: int | None
    preempted_node_to_ranks: Mapping[str, Sequence[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The names of the nodes."""
        return list(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks of all nodes."""
        ranks = (rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)
        return sorted(ranks)


def get_preemption_info() -> PreemptionInfo | None:
    """The preemption that is under way, the same in all ranks; None if there is none.

    Like a barrier: every rank must call it equally often. With an answer, save: the next report
    with a checkpoint ends the attempt, and the trial later resumes from there. A SIGTERM to one
    rank reaches all of its trial. To look without a barrier, use
    `get_context().preemption_requested()`.

    Raises NotInTrial outside a trial.
    """
    session = current("train.get_preemption_info()")
    own = session.preempted_until
    if isinstance(session, RankSession):
        every = [json.loads(text) for text in session.gather(json.dumps(own))]
    else:
        every = [own]
    known = [until for until in every if until is not None]
    if not known:
        return None
    return PreemptionInfo(int(min(known) * 1000), _ranks_by_node(session))


def _ranks_by_node(session: Session) -> dict[str, list[int]]:
    """All ranks: they end together."""
    names = session.assignment.rank_nodes
    return {
        name: [rank for rank, at in enumerate(names) if at == name]
        for name in dict.fromkeys(names)
    }


class CheckpointConsistencyMode(StrEnum):
    """For Ray's scripts. Both mean the same here: when `report()` has returned, its checkpoint is
    complete, in the journal, and validated if that was asked for."""

    COMMITTED = "COMMITTED"
    VALIDATED = "VALIDATED"


class ReportedCheckpointStatus(StrEnum):
    """COMMITTED: no validation was asked for. VALIDATED: the metrics have those of the validation.
    VALIDATION_FAILED: the function raised. VALIDATION_TIMEOUT: it took too long.
    PENDING_VALIDATION does not occur: a validation is a part of its report."""

    COMMITTED = "COMMITTED"
    PENDING_VALIDATION = "PENDING_VALIDATION"
    VALIDATED = "VALIDATED"
    VALIDATION_FAILED = "VALIDATION_FAILED"
    VALIDATION_TIMEOUT = "VALIDATION_TIMEOUT"


@dataclass(frozen=True, slots=True)
class ReportedCheckpoint:
    """A checkpoint, the metrics of rank 0's report with those of its validation, and its
    status."""

    checkpoint: Checkpoint
    metrics: Mapping[str, Any]
    status: ReportedCheckpointStatus


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """The checkpoints of this training that are kept, of all attempts and restores, oldest first.

    Those that `CheckpointConfig(num_to_keep=...)` has superseded are missing. There is nothing to
    wait for, so both arguments have no effect.

    Raises NotInTrial outside the loop of a trainer.
    """
    CheckpointConsistencyMode(consistency_mode)
    session = current_rank(
        "train.get_all_reported_checkpoints()",
        instead=". In other trials, keep what you need in a checkpoint",
    )
    return [
        ReportedCheckpoint(
            session.checkpoint_named(dirname),
            metrics,
            _status(Validation(validation)),
        )
        for dirname, metrics, validation in session.ask_reported()
    ]


def _status(validation: Validation) -> ReportedCheckpointStatus:
    if validation is Validation.NONE:
        return ReportedCheckpointStatus.COMMITTED
    return ReportedCheckpointStatus(validation.value)
