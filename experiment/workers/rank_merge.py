"""Decides how the parts of several ranks become one checkpoint. Pure: no I/O.

On one node, one rank moves the files of all into one folder. On several nodes, a rank of each does
that for its node's share; the shares come together in storage. A file of several ranks is that of
the last of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.names import inner_path, shown
from holdfast.runtime.wire import Message
from holdfast.scheduler.barrier import Met
from holdfast.trial.checkpoint import CheckpointRecord, CheckpointUploadMode, Validation


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFile:
    """A file in a node's share: the rank that has saved it, its size, and a fingerprint of its
    content, "" if nobody has looked."""

    rank: int
    size: int
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedShare:
    """What one node has: the record, files of the same name in it, and for a share its files."""

    record: CheckpointRecord
    clashes: Mapping[str, list[int]]
    files: Mapping[str, SharedFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRanks:
    """One checkpoint of all ranks. `left_out` has a list for each node that has a share of it: the
    files that another node has, too, and whose are used; it is empty if one node has all."""

    record: CheckpointRecord
    clashes: Mapping[str, list[int]]
    left_out: Mapping[str, list[str]]


class RankMerge:
    """The merge of the parts in one report."""

    def __init__(self, met: Met, nodes: Sequence[str]) -> None:
        """`nodes` has the node of each rank."""
        self._met = met
        parts: dict[str, list[int]] = {}
        for rank in met.parts:
            parts.setdefault(nodes[rank], []).append(rank)
        # By the rank that merges on its node: the first one there.
        self._parts = {nodes.index(node): ranks for node, ranks in parts.items()}
        self._nodes = nodes
        self._merged: dict[int, MergedShare] = {}
        self._validation = Validation.NONE
        self._validated: Mapping[str, Any] = {}

    @property
    def is_shared(self) -> bool:
        """Whether the files are on several nodes."""
        return len(self._parts) > 1

    @property
    def refusal(self) -> str:
        """Why the parts cannot be one checkpoint; "" if they can."""
        if not self.is_shared or self._met.upload is not CheckpointUploadMode.NO_UPLOAD:
            return ""
        nodes = ", ".join(self._nodes[rank] for rank in self._parts)
        return (
            f"NO_UPLOAD keeps a checkpoint on its node, but the parts of this one are on {nodes}, "
            f"and come together in storage only. Leave checkpoint_upload_mode as it is, or save "
            f"on one rank only"
        )

    @property
    def missing(self) -> list[int]:
        """The ranks that have not merged their node's parts yet."""
        return [rank for rank in self._parts if rank not in self._merged]

    def orders(self, index: int) -> dict[int, Message]:
        """The order for each rank that merges."""
        upload = self._met.upload
        orders: dict[int, Message] = {}
        for rank, ranks in self._parts.items():
            # Shares also say which one is the first: it gets the metadata of the trainer.
            first = [rank == min(self._parts)] if self.is_shared else []
            orders[rank] = ["merge", index, ranks, upload.value, *first]
        return orders

    def add(self, rank: int, share: MergedShare) -> None:
        """A rank has merged its node's parts. Raises ValueError if it was not asked to."""
        if rank not in self.missing:
            raise ValueError(f"rank {rank} was not asked to merge")
        self._merged[rank] = share

    def validated(self, validation: Validation, metrics: Mapping[str, Any]) -> None:
        """The rank that merges has validated the checkpoint, with these metrics."""
        self._validation, self._validated = validation, metrics

    def clash(self) -> str:
        """Why it is refused if files of the same name are: "" if there are none on different
        nodes."""
        for name, ranks in self._common().items():
            return (
                f"{name}: ranks {' and '.join(map(str, ranks))} each saved a file with this name "
                f"in one checkpoint. Use different names on each rank, or save common files on "
                f"one rank only"
            )
        return ""

    def whole(self) -> MergedRanks:
        """The checkpoint; call it when none is missing."""
        if not self.is_shared:
            [(rank, share)] = self._merged.items()
            return MergedRanks(record=self._record(rank), clashes=share.clashes, left_out={})
        files: dict[str, SharedFile] = {}
        for share in self._merged.values():
            for name, file in share.files.items():
                if name not in files or files[name].rank < file.rank:
                    files[name] = file
        first = self._record(min(self._merged))
        size = sum(file.size for file in files.values())
        return MergedRanks(
            record=replace(first, files=len(files), size_bytes=size),
            clashes={**self._clashes_inside(), **self._differing()},
            left_out={
                self._nodes[rank]: [n for n, f in share.files.items() if files[n] is not f]
                for rank, share in self._merged.items()
            },
        )

    def _record(self, rank: int) -> CheckpointRecord:
        """That of the rank, with its node, the metrics of the report and of the validation."""
        return replace(
            self._merged[rank].record,
            node=self._nodes[rank],
            metrics={**self._met.reports[0].metrics, **self._validated},
            validation=self._validation,
        )

    def _clashes_inside(self) -> dict[str, list[int]]:
        return {n: r for share in self._merged.values() for n, r in share.clashes.items()}

    def _common(self) -> dict[str, list[int]]:
        """The files that several nodes have, with ranks that have saved them."""
        ranks: dict[str, list[int]] = {}
        for share in self._merged.values():
            for name, file in share.files.items():
                ranks.setdefault(name, []).append(file.rank)
        return {name: sorted(found) for name, found in ranks.items() if len(found) > 1}

    def _differing(self) -> dict[str, list[int]]:
        """The files of several nodes whose content is known to differ."""
        found: dict[str, list[int]] = {}
        for name, ranks in self._common().items():
            shares = [share.files[name] for share in self._merged.values() if name in share.files]
            if len({(file.size, file.fingerprint) for file in shares}) > 1:
                found[name] = ranks
        return found


def shared_files(value: object, ranks: int) -> dict[str, SharedFile]:
    """The files of a share as a worker names them. Raises ValueError."""
    if type(value) is not dict:
        raise ValueError(f"the files of a share must be a dict, not {shown(value)}")
    return {inner_path(name, "the file"): _file(found, ranks) for name, found in value.items()}


def _file(value: object, ranks: int) -> SharedFile:
    match value:
        case [int(rank), int(size), str(fingerprint)] if (
            type(rank) is int
            and type(size) is int
            and 0 <= rank < ranks
            and 0 <= size < 1 << 63
            and len(fingerprint) <= 64
        ):
            return SharedFile(rank=rank, size=size, fingerprint=fingerprint)
        case _:
            raise ValueError(f"not a file of a share: {shown(value)}")
