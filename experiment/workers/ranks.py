"""Decisions about the ranks of one attempt. Pure: no I/O.

A report of the trial needs one of every rank: its row is rank 0's, and its checkpoint has the
files of all ranks that passed some. Ranks that are out of step can never meet again: the barrier
reports this as soon as it is certain, and names the rank.

On one node, one rank moves the files of all into one folder. On several nodes, a rank of each does
that for its node's share; the shares come together in storage. A file of several ranks is that of
the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.job import RankNode
from holdfast.names import inner_path, shown
from holdfast.runtime.wire import Message
from holdfast.trial.errors import Failure
from holdfast.trial.events import Reported
from holdfast.trial.resources import Place
from holdfast.trial.trial import CheckpointRecord, CheckpointUploadMode, Validation

_STRICTEST_FIRST = (
    CheckpointUploadMode.SYNC,
    CheckpointUploadMode.ASYNC,
    CheckpointUploadMode.NO_UPLOAD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReported:
    """All ranks have reported; `reports` has one of each rank, in order."""

    reports: tuple[Reported, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """The ranks with files of the checkpoint; empty if there is no checkpoint."""
        return tuple(rank for rank, one in enumerate(self.reports) if one.checkpoint is not None)

    @property
    def upload(self) -> CheckpointUploadMode:
        """The upload mode of the checkpoint: the strongest that a rank asked for."""
        asked = {one.checkpoint.upload for one in self.reports if one.checkpoint is not None}
        return next(mode for mode in _STRICTEST_FIRST if mode in asked)

    @property
    def other_keys(self) -> dict[int, tuple[str, ...]]:
        """By rank: the metrics that only it or only rank 0 has reported."""
        first = self.reports[0].metrics.keys()
        differing = [tuple(sorted(first ^ one.metrics.keys())) for one in self.reports]
        return {rank: keys for rank, keys in enumerate(differing) if keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReturned:
    """The trial's function has returned in every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfStep:
    """The ranks can never meet again because of `rank`."""

    rank: int
    text: str


Outcome = AllReported | AllReturned | OutOfStep


class _At(StrEnum):
    WORK = "work"
    BARRIER = "barrier"
    END = "end"


class Barrier:
    """The barrier at which `ranks` processes wait; `iteration` is the last that was answered."""

    def __init__(self, ranks: int, iteration: int) -> None:
        self.iteration = iteration
        self._at = [_At.WORK] * ranks
        self._reports: dict[int, Reported] = {}

    @property
    def waiting(self) -> tuple[int, ...]:
        """The ranks that wait in a report."""
        return tuple(self._where(_At.BARRIER))

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that the others wait for."""
        if _At.BARRIER not in self._at:
            return ()
        return tuple(rank for rank, at in enumerate(self._at) if at is _At.WORK)

    def reported(self, rank: int, report: Reported) -> Outcome | None:
        """Record a rank's report; with a `checkpoint`, it has staged its part of one.

        Raises ValueError if it is impossible: a rank that waits or has returned cannot report, and
        each rank counts its reports.
        """
        if self._at[rank] is not _At.WORK or report.iteration != self.iteration + 1:
            raise ValueError(f"rank {rank} must report iteration {self.iteration + 1}")
        self._at[rank] = _At.BARRIER
        self._reports[rank] = report
        return self._outcome()

    def returned(self, rank: int) -> Outcome | None:
        """Record that a rank's function has returned. Raises ValueError if that is impossible."""
        if self._at[rank] is not _At.WORK:
            raise ValueError(f"rank {rank} was not running")
        self._at[rank] = _At.END
        return self._outcome()

    def answered(self) -> None:
        """Let all ranks continue after a report."""
        self.iteration += 1
        self._at = [_At.WORK] * len(self._at)
        self._reports.clear()

    def _outcome(self) -> Outcome | None:
        waiting, ended = self._where(_At.BARRIER), self._where(_At.END)
        if waiting and ended:
            return OutOfStep(rank=ended[0], text=self._apart(waiting))
        if len(waiting) == len(self._at):
            return AllReported(reports=tuple(self._reports[rank] for rank in waiting))
        return AllReturned() if len(ended) == len(self._at) else None

    def _where(self, place: _At) -> list[int]:
        return [rank for rank, at in enumerate(self._at) if at is place]

    def _apart(self, waiting: list[int]) -> str:
        return (
            f"its function returned after report {self.iteration}, but {_named(waiting)} called "
            f"report() again: every rank must call report() equally often; a call that raised "
            f"does not count"
        )


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


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

    def __init__(self, reported: AllReported, nodes: Sequence[str]) -> None:
        """`nodes` has the node of each rank."""
        self._reported = reported
        parts: dict[str, list[int]] = {}
        for rank in reported.parts:
            parts.setdefault(nodes[rank], []).append(rank)
        # By the rank that merges on its node: the first one there.
        self._parts = {nodes.index(node): ranks for node, ranks in parts.items()}
        self._nodes = nodes
        self._merged: dict[int, MergedShare] = {}
        self._validation = Validation.NONE
        self._validated: Mapping[str, Any] = {}

    @property
    def is_shared(self) -> bool:
        """True if the files are on several nodes."""
        return len(self._parts) > 1

    @property
    def refusal(self) -> str:
        """Why the parts cannot be one checkpoint; "" if they can."""
        if not self.is_shared or self._reported.upload is not CheckpointUploadMode.NO_UPLOAD:
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
        upload = self._reported.upload
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
            metrics={**self._reported.reports[0].metrics, **self._validated},
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


OUT_OF_STEP = "RanksOutOfStep"


class RankFailures:
    """The failures of one attempt's ranks, in the order of their reports."""

    def __init__(self) -> None:
        self._failures: list[tuple[int, Failure]] = []
        self._is_taken = False

    @property
    def ranks(self) -> set[int]:
        """The ranks that have failed."""
        return {rank for rank, _ in self._failures}

    def add(self, rank: int, failure: Failure) -> None:
        self._failures.append((rank, failure))

    def take(self, hosts: Mapping[int, str], *, refused_by: int | None) -> Failure | None:
        """The failure of the trial, as in `cause_of`; once, and None if no rank has failed."""
        if self._is_taken or not self._failures:
            return None
        self._is_taken = True
        return cause_of(self._failures, hosts, refused_by=refused_by)


def cause_of(
    failures: Sequence[tuple[int, Failure]],
    hosts: Mapping[int, str],
    *,
    refused_by: int | None = None,
) -> Failure:
    """The failure that is the cause, naming its rank, with those of other ranks below it.

    The first one reported need not be the cause: user code that raises because a peer has died may
    report before the death is known. The rank `refused_by` has failed the report of all ranks, and
    the others may report its error first.
    """

    def is_consequence(ranked: tuple[int, Failure]) -> tuple[bool, bool]:
        rank, failure = ranked
        return _may_follow(failure), refused_by not in (None, rank)

    rank, first = min(failures, key=is_consequence)
    below = _below(first, [other for other in failures if other != (rank, first)])
    host = first.hostname or hosts.get(rank, "")
    # A node has its own field, so that failures on several nodes are seen to have one cause.
    where = f" on {host}" if host and not first.node else ""
    return replace(
        first,
        message=f"rank {rank}{where}: {first.message}",
        traceback=first.traceback + below,
        hostname=host,
        rank=rank,
    )


def _below(first: Failure, others: Sequence[tuple[int, Failure]]) -> str:
    """Each text once: a bug in the training loop fails all ranks alike."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, failure in others:
        is_same = _text(failure) == _text(first)
        ranks_by_text.setdefault("the same" if is_same else _text(failure), []).append(rank)
    return "".join(
        f"\n\nAfter it, rank{'s' if ranks[1:] else ''} {', '.join(map(str, ranks))}: {text}"
        for text, ranks in ranks_by_text.items()
    )


def _text(failure: Failure) -> str:
    return f"{failure.headline}\n{failure.traceback}"


def _may_follow(failure: Failure) -> bool:
    """True if the end of another rank may have caused it."""
    return failure.kind == "user" and failure.type_name != OUT_OF_STEP


class RankTexts:
    """The texts of one exchange at a time."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._texts: dict[int, str] = {}

    @property
    def waiting(self) -> list[int]:
        """The ranks that have sent theirs, and wait for the others."""
        return list(self._texts)

    def missing(self) -> list[int]:
        return [rank for rank in range(self._ranks) if rank not in self._texts]

    def add(self, rank: int, text: str) -> None:
        """Raises ValueError if this rank has sent one."""
        if rank in self._texts:
            raise ValueError("it has sent its text already")
        self._texts[rank] = text

    def take(self) -> list[str] | None:
        """The texts by rank, and the next exchange begins; None while some are missing."""
        if self.missing():
            return None
        texts = [self._texts[rank] for rank in range(self._ranks)]
        self._texts.clear()
        return texts


def apart(waiting: Iterable[int], where: str, rank: int, other: str) -> Failure:
    """The failure of ranks that can never meet: some wait `where`, and `rank` is elsewhere."""
    ranks = ", ".join(map(str, waiting))
    return Failure(
        kind="user",
        type_name=OUT_OF_STEP,
        message=f"rank {rank} is at {other} while rank {ranks} waits at {where}: every rank must "
        f"call report(), barrier() and the like in the same order",
    )


class NodeNames(Protocol):
    """What is known of a node."""

    @property
    def address(self) -> str: ...

    @property
    def gpus(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRanks:
    """The bundles of a trial in the order of its ranks, and the node of each rank.

    The first bundle is the coordinator's, or that of the only worker.
    """

    bundles: Sequence[Mapping[str, float]]
    nodes: Sequence[RankNode]


def place_worker(
    bundles: Sequence[Mapping[str, float]],
    places: Sequence[Place],
    known: Mapping[str, NodeNames],
) -> PlacedRanks:
    """A trial of one worker, which runs where its first bundle is."""
    return PlacedRanks(bundles=bundles, nodes=[_node(places[0].node, places, known)])


def place_ranks(
    bundles: Sequence[Mapping[str, float]],
    places: Sequence[Place],
    known: Mapping[str, NodeNames],
) -> PlacedRanks:
    """A trial with a rank for each bundle after the first.

    The ranks of a node have consecutive numbers, as under torchrun. The nodes keep the order of
    their first bundles.
    """
    order = list(dict.fromkeys(place.node for place in places[1:]))
    ranks = sorted(range(1, len(bundles)), key=lambda at: order.index(places[at].node))
    return PlacedRanks(
        bundles=[bundles[0], *(bundles[at] for at in ranks)],
        nodes=[_node(places[at].node, places[1:], known) for at in ranks],
    )


def _node(name: str, places: Sequence[Place], known: Mapping[str, NodeNames]) -> RankNode:
    """A node with all GPUs that the trial holds there."""
    found = known[name]
    held = {gpu for place in places if place.node == name for gpu in place.gpus}
    return RankNode(name, found.address, tuple(found.gpus[gpu] for gpu in sorted(held)))
