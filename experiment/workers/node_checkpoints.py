"""Gets checkpoints and files to the nodes on which an attempt will run.

Each node has a tree of its own. A checkpoint is where it was written and, once it is committed, in
storage, from where other nodes fetch it: once per node, however many ranks run there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from holdfast.experiment.uploads.uploads import Uploads
from holdfast.scheduler.effects import Launch
from holdfast.syncer.checkpoint.staging import Staged
from holdfast.syncer.errors import StorageRefused, innermost
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.trial import Trial, TrialSpec

Nodes = tuple[str, ...]


class Experiment(Protocol):
    """The owner of the uploads, which are there before the first attempt on a node."""

    uploads: Uploads | None


def nodes_of(effect: Launch, *, has_ranks: bool) -> Nodes:
    """The nodes on which the workers of an attempt run; none if it runs on the controller's
    machine. The first bundle is that of the only worker, or of the coordinator of ranks."""
    places = effect.allocation.places
    used = places[1:] if has_ranks else places[:1]
    return tuple(dict.fromkeys(place.node for place in used))


class NodeCheckpoints:
    """Knows on which nodes each trial ran last."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._homes: dict[str, Nodes] = {}

    @property
    def _uploads(self) -> Uploads:
        uploads = self._experiment.uploads
        assert uploads is not None
        return uploads

    def has_to_look(self, effect: Launch, trial: Trial, nodes: Nodes) -> bool:
        """Whether a node may not have yet what the attempt needs."""
        known, record = self._uploads.nodes, effect.checkpoint
        if self._homes.get(trial.trial_id) != nodes:
            return True
        if any(known.sees_storage(node) is None for node in nodes):
            return True
        if record is None:
            return False
        folder = f"{trial.spec.dirname}/{record.dirname}"
        return not all(known.has_copy(node, folder) for node in nodes)

    def have_left(self, nodes: Nodes) -> bool:
        """Whether one of them has left."""
        return any(node not in self._uploads.nodes for node in nodes)

    async def settled(self, nodes: Nodes) -> None:
        """Wait until it is known which of them see the storage."""
        await _each(nodes, self._uploads.nodes.settled)

    async def problem_with(
        self, spec: TrialSpec, record: CheckpointRecord, nodes: Nodes, *, is_doubted: bool
    ) -> str:
        """Let each node have the checkpoint. Returns why that is impossible, "" if all have it.

        Reads every byte of a copy that a node has, if it `is_doubted`; one that is fetched is
        always read. Raises StorageError.
        """

        async def make_whole(node: str) -> str:
            return await self._make_whole(spec, record, node, is_doubted=is_doubted)

        problems = await _each(nodes, make_whole)
        return next((f"on node {n}: {why}" for n, why in problems.items() if why), "")

    async def _make_whole(
        self, spec: TrialSpec, record: CheckpointRecord, node: str, *, is_doubted: bool
    ) -> str:
        uploads, questions = self._uploads, self._uploads.questions
        folder, problem = f"{spec.dirname}/{record.dirname}", ""
        if uploads.nodes.has_copy(node, folder):
            if is_doubted:
                problem = await questions.have(spec, record, node)
            if not problem:
                return ""
        if record.stays_here:
            there = f"node {record.node}" if record.node else "the controller's machine"
            return problem or f"it is only on {there}, because it was reported with NO_UPLOAD"
        await uploads.committed(spec, record)
        if refusal := uploads.nodes.refusal(node):
            raise StorageRefused("fetch", folder, refusal)
        if not (problem := await questions.fetch(spec, record, node)):
            uploads.nodes.note_copy(node, folder)
        return problem

    async def copy(
        self, spec: TrialSpec, record: CheckpointRecord, target: str, nodes: Nodes
    ) -> Staged:
        """Copy a checkpoint that each node has to the folder `target`, for a clone. Raises
        StorageError."""
        uploads, source = self._uploads, f"{spec.dirname}/{record.dirname}"

        async def copy(node: str) -> Staged:
            files, size = await uploads.questions.copy(source, target, node)
            uploads.nodes.note_copy(node, target)
            return Staged(files=files, bytes=size)

        copies: dict[str, Staged] = await _each(nodes, copy)
        return copies[nodes[0]]

    async def bring(self, trial: Trial, nodes: Nodes, *, is_inherited: bool) -> None:
        """Let each node have the trial's files, and be the one that sends them to storage from now
        on. `is_inherited`: the trial may have run before this incarnation. Raises StorageError."""
        uploads, spec = self._uploads, trial.spec
        before = self._homes.get(trial.trial_id, ())
        leaving = [node for node in before if node not in nodes and node in uploads.nodes]
        await _each(leaving, lambda node: uploads.hand_over(spec, node))
        if is_inherited and not before:
            await uploads.hand_over(spec)
        if is_inherited or before:
            arriving = [node for node in nodes if node not in before]
            seeing = [node for node in arriving if uploads.nodes.sees_storage(node)]
            await _each(seeing, lambda node: uploads.bring(spec, node))
        self._homes[trial.trial_id] = nodes
        for node in nodes:
            uploads.nodes.note_trial(node, spec.dirname, spec.trial_id)

    def release(self, trials: Mapping[str, Trial], nodes: Nodes) -> None:
        """Let these nodes remove trials that have ended, before their disks are full."""

        def has_ended(trial_id: str) -> bool:
            trial = trials[trial_id]
            is_only_there = any(record.stays_here for record in trial.checkpoints)
            return trial.status.is_final and not is_only_there

        self._uploads.release(has_ended, nodes)


async def _each(
    nodes: Sequence[str], act: Callable[[str], Coroutine[Any, Any, Any]]
) -> dict[str, Any]:
    """Act on all nodes at once. Returns the results; raises the first error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {node: group.create_task(act(node)) for node in nodes}
    except BaseExceptionGroup as errors:
        raise innermost(errors) from errors
    return {node: task.result() for node, task in tasks.items()}
