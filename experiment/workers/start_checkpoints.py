"""Prepares the start of an attempt: a readable checkpoint, and the trial's files.

Each node has a tree of its own. A checkpoint is where it was written and, once it is committed, in
storage, from where other nodes fetch it: once per node, however many ranks run there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout, free_number, log_names_of
from holdfast.experiment.records.recovery import changed_checkpoint
from holdfast.experiment.uploads.unrecorded_checkpoints import (
    found_notice,
    lacks_newest,
    newest_beyond,
)
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.runtime.tasks import TaskScope
from holdfast.scheduler.effects import Launch
from holdfast.scheduler.events import Event, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.resuming import restarts
from holdfast.syncer.checkpoint.staging import Staged, copy_checkpoint, put_in_place
from holdfast.syncer.errors import StorageError, StorageRefused, innermost
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import unique
from holdfast.text.errors import message_of, named, type_name
from holdfast.trial.errors import Failure, FailureKind
from holdfast.trial.events import Adopted, Saved
from holdfast.trial.trial import (
    CheckpointRecord,
    CheckpointUploadMode,
    Origin,
    Trial,
    TrialSpec,
    checkpoint_dirname,
)

Nodes = tuple[str, ...]


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
        """True if a node may not have yet what the attempt needs."""
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
        """True if one of them has left."""
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
                problem = await questions.check(spec, record, node)
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
            await _each(seeing, lambda node: uploads.download(spec, node))
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


class Experiment(Protocol):
    """The facts about the run that are needed to find a checkpoint."""

    machine: Machine
    uploads: Uploads | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of `verify`.

    `lost` says why the checkpoint in the records cannot be used, "" if it can. `found` is a newer
    one that no record names.
    """

    lost: str = ""
    found: CheckpointRecord | None = None


class CannotPrepare(Exception):
    """`what` failed because of `cause`, which is not a fault of the checkpoint. The `kind` of the
    failure is "lost" if a node of the attempt has left."""

    def __init__(self, what: str, cause: Exception) -> None:
        super().__init__(what)
        self.what, self.cause = what, cause
        self.kind: FailureKind = "setup"


class CannotClone(Exception):
    """The checkpoint of the other trial is gone or broken."""


class StartCheckpoints:
    """Checks checkpoints of earlier incarnations before they are used: they may have changed."""

    def __init__(self, experiment: Experiment, layout: Layout, *, has_ranks: bool = False) -> None:
        """`has_ranks`: several workers train each trial."""
        self._experiment = experiment
        self._layout = layout
        self._has_ranks = has_ranks
        self._on_nodes = NodeCheckpoints(experiment)
        self._inherited: dict[str, int] = {}  # by trial: its first checkpoint of this incarnation
        self._unsearched: set[str] = set()
        self._unvisited: set[str] = set()

    def inherit(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Remember that these trials come from an earlier incarnation.

        For each, `verify` also looks for checkpoints that no record names, unless the trial starts
        from the beginning.
        """
        known = list(trials)
        self._inherited = {trial.trial_id: trial.next_checkpoint for trial in known}
        self._unvisited = set(self._inherited)
        if resumed is not None:
            self._unsearched = {t.trial_id for t in known if not restarts(t, resumed)}

    def has_to_look(self, effect: Launch, trial: Trial) -> bool:
        """True if the attempt must wait for `verify`."""
        if self._to_read(effect, trial) is not None or self._may_have_more(trial):
            return True
        nodes = nodes_of(effect, has_ranks=self._has_ranks)
        if nodes:
            return self._on_nodes.has_to_look(effect, trial, nodes)
        return self._may_miss_files(trial)

    async def verify(self, effect: Launch, trial: Trial) -> Verified:
        """Prepare an attempt. Raises CannotPrepare.

        Checks the checkpoint of `effect`, looks for a newer one that no record names, and
        downloads the trial's files.
        """
        nodes = nodes_of(effect, has_ranks=self._has_ranks)
        if nodes:
            try:
                return await self._verify_on(nodes, effect, trial)
            except CannotPrepare as failed:
                failed.kind = "lost" if self._on_nodes.have_left(nodes) else "setup"
                raise
        checkpoint, problem, found = self._to_read(effect, trial), "", None
        if checkpoint is not None:
            with _naming(f"{checkpoint.dirname}, to resume from, cannot be read"):
                problem = await self._problem_with(trial.spec, checkpoint)
        if problem or self._may_have_more(trial):
            with _naming("the search for checkpoints that no record names failed"):
                found = await self._search(trial)
        if found is not None or not problem:
            with _naming("the files of the trial cannot be downloaded"):
                await self._bring_what_is_missing(trial)
        return Verified(lost=problem, found=found)

    async def _verify_on(self, nodes: Nodes, effect: Launch, trial: Trial) -> Verified:
        """The same, for an attempt on nodes."""
        where, checkpoint, problem, found = ", ".join(nodes), effect.checkpoint, "", None
        await self._on_nodes.settled(nodes)
        if checkpoint is not None:
            doubted = self._to_read(effect, trial) is not None
            with _naming(f"{checkpoint.dirname}, to resume from, cannot be read on {where}"):
                problem = await self._on_nodes.problem_with(
                    trial.spec, checkpoint, nodes, is_doubted=doubted
                )
        if problem or self._may_have_more(trial):
            with _naming("the search for checkpoints that no record names failed"):
                found = await self._search(trial, nodes)
        if found is not None or not problem:
            with _naming(f"the files of the trial cannot be downloaded to {where}"):
                await self._bring_to(nodes, trial)
        return Verified(lost=problem, found=found)

    async def adopt(self, origin: Origin, trial: Trial, effect: Launch) -> CheckpointRecord:
        """Give a clone its copy of the other trial's checkpoint. Raises CannotClone, StorageError
        or OSError."""
        source = self._experiment.machine.trials[origin.trial_id].spec
        attempt = effect.attempt
        if nodes := nodes_of(effect, has_ranks=self._has_ranks):
            return await self._adopt_on(nodes, origin, trial, attempt)
        if origin.checkpoint.index < self._inherited.get(origin.trial_id, 0) and (
            problem := await self._problem_with(source, origin.checkpoint)
        ):
            raise CannotClone(problem)
        folder = self._layout.trial(trial.spec)
        index = free_number(str(folder), trial.next_checkpoint)
        original = self._layout.checkpoint(source, origin.checkpoint)
        if original.parent.is_symlink():
            raise CannotClone(f"{original.parent} is a link, which may lead elsewhere")
        copy = self._layout.staging(trial.spec) / unique()
        staged = await threads.call(lambda: copy_checkpoint(original, copy))
        put_in_place(copy, folder / checkpoint_dirname(index))
        await self._bring_what_is_missing(trial)
        return record_of(origin.checkpoint, staged, index=index, attempt=attempt)

    async def _adopt_on(
        self, nodes: Nodes, origin: Origin, trial: Trial, attempt: int
    ) -> CheckpointRecord:
        source = self._experiment.machine.trials[origin.trial_id].spec
        await self._on_nodes.settled(nodes)
        if problem := await self._on_nodes.problem_with(
            source, origin.checkpoint, nodes, is_doubted=False
        ):
            raise CannotClone(problem)
        index = trial.next_checkpoint
        target = f"{trial.spec.dirname}/{checkpoint_dirname(index)}"
        staged = await self._on_nodes.copy(source, origin.checkpoint, target, nodes)
        await self._bring_to(nodes, trial)
        made = record_of(origin.checkpoint, staged, index=index, attempt=attempt)
        return replace(made, node=nodes[0])

    def _to_read(self, effect: Launch, trial: Trial) -> CheckpointRecord | None:
        """The checkpoint that must be checked, or None.

        None is needed for one that this incarnation made, unless an attempt has failed since: the
        checkpoint may be the reason.
        """
        checkpoint, inherited = effect.checkpoint, self._inherited.get(trial.trial_id, 0)
        is_known = checkpoint is not None and checkpoint.index >= inherited
        return None if is_known and not trial.setbacks else checkpoint

    def _may_miss_files(self, trial: Trial) -> bool:
        """True if storage may have files that the trial wrote on another machine."""
        uploads = self._experiment.uploads
        if uploads is None or not uploads.is_remote or trial.trial_id not in self._unvisited:
            return False
        return uploads.downloads_artifacts or self._may_miss_output(trial)

    def _may_miss_output(self, trial: Trial) -> bool:
        """Whether earlier attempts have printed on another machine. The next one appends to that:
        the files here replace those in storage."""
        options, folder = self._experiment.machine.spec.options, self._layout.trial(trial.spec)
        names = log_names_of(options.get("log_to_file", False))
        is_here = not self._has_ranks and all((folder / name).exists() for name in names)
        return trial.attempt > 1 and not is_here

    def _may_have_more(self, trial: Trial) -> bool:
        """True if the trial has lost its newest checkpoint, or would begin from nothing."""
        return trial.trial_id in self._unsearched and lacks_newest(trial)

    async def _search(self, trial: Trial, nodes: Nodes = ()) -> CheckpointRecord | None:
        """Look once for a newer checkpoint that no record names.

        If the records never named a checkpoint, storage is only ahead of the published records:
        their rows are missing, and the trial repeats them.
        """
        uploads, storage = self._experiment.uploads, None
        if uploads is not None and uploads.is_remote and trial.next_checkpoint > 0:
            storage = uploads.questions
        fetch = partial(self._reach, trial, nodes) if nodes else None
        found = await newest_beyond(trial, self._layout, storage, fetch)
        if found is not None and nodes and await self._reach(trial, nodes, found):
            found = None
        self._unsearched.discard(trial.trial_id)
        return found

    async def _reach(self, trial: Trial, nodes: Nodes, found: CheckpointRecord) -> str:
        """Bring a checkpoint that was found to the nodes. Returns why that is impossible, or
        ""."""
        assert self._experiment.uploads is not None
        self._experiment.uploads.commit(trial.spec, found)  # it may be in this tree only
        return await self._on_nodes.problem_with(trial.spec, found, nodes, is_doubted=False)

    async def _bring_to(self, nodes: Nodes, trial: Trial) -> None:
        is_inherited = trial.trial_id in self._unvisited
        await self._on_nodes.bring(trial, nodes, is_inherited=is_inherited)
        self._unvisited.discard(trial.trial_id)
        self._on_nodes.release(self._experiment.machine.trials, nodes)

    async def _bring_what_is_missing(self, trial: Trial) -> None:
        if self._may_miss_files(trial):
            uploads = self._experiment.uploads
            assert uploads is not None
            await uploads.questions.download(trial.spec, artifacts=uploads.downloads_artifacts)
            self._unvisited.discard(trial.trial_id)

    async def _problem_with(self, spec: TrialSpec, checkpoint: CheckpointRecord) -> str:
        """Why a checkpoint of an earlier incarnation cannot be used; "" if it can.

        Reads every byte; the trial is about to read them anyway.
        """
        folder = self._layout.checkpoint(spec, checkpoint)
        problem = await threads.call(lambda: changed_checkpoint(folder, checkpoint))
        uploads = self._experiment.uploads
        if problem and uploads is not None and uploads.is_remote:
            return await uploads.questions.fetch(spec, checkpoint)
        return problem


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # only this trial is concerned
        raise CannotPrepare(what, error) from error


def record_of(
    known: CheckpointRecord, staged: Staged, *, index: int, attempt: int
) -> CheckpointRecord:
    """The record of the copy: like that of the original, but not committed yet."""
    stays = CheckpointUploadMode.NO_UPLOAD if known.stays_here else CheckpointUploadMode.ASYNC
    return replace(
        known,
        index=index,
        attempt=attempt,
        files=staged.files,
        size_bytes=staged.bytes,
        committed=False,
        upload=stays,
        node="",
    )


class PreparationHost(Experiment, Protocol):
    """The owner of the run's events and tasks."""

    tasks: TaskScope

    def post(self, event: Event) -> None: ...

    def lose(self, trial_id: str, index: int, reason: str) -> None: ...

    def warn(self, text: str) -> None: ...


class Preparation:
    """Prepares attempts that have their resources: then `start` begins one, or `fail` ends it."""

    def __init__(
        self,
        host: PreparationHost,
        checkpoints: StartCheckpoints,
        *,
        start: Callable[[Launch, Trial], None],
        fail: Callable[[Launch, Failure], None],
    ) -> None:
        self._host = host
        self._checkpoints = checkpoints
        self._start = start
        self._fail = fail
        self._verifying: dict[str, asyncio.Task[Any]] = {}

    def inherit(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Remember that these trials come from an earlier incarnation."""
        self._checkpoints.inherit(trials, resumed)

    def begin(self, effect: Launch) -> None:
        """Start the attempt, or first a task that gets its checkpoint."""
        trial = self._host.machine.trials[effect.trial_id]
        if effect.origin is not None:
            work = self._adopt_and_start(effect, effect.origin, trial)
        elif self._checkpoints.has_to_look(effect, trial):
            work = self._verify_and_start(effect, trial)
        else:
            self._start(effect, trial)
            return
        self._verifying[effect.trial_id] = self._host.tasks.start(work)

    def cancel(self, trial_id: str) -> bool:
        """Give up the trial's attempt. Returns whether its checkpoint was still being read."""
        verifying = self._verifying.pop(trial_id, None)
        if verifying is not None:
            verifying.cancel()
        return verifying is not None

    async def _adopt_and_start(self, effect: Launch, origin: Origin, trial: Trial) -> None:
        """Start a clone from its copy of another trial's checkpoint, or from its own if that
        fails."""
        record, problem = None, ""
        try:
            record = await self._checkpoints.adopt(origin, trial, effect)
        except (CannotClone, StorageError, OSError) as error:
            problem = str(error)
        except Exception as error:  # only this trial is concerned
            problem = named(error)
        del self._verifying[trial.trial_id]
        if record is None:
            source = self._host.machine.trials[origin.trial_id].spec
            self._host.warn(
                f"{trial.spec.name} cannot resume from checkpoint {origin.checkpoint.index} of "
                f"{source.name} and uses its own instead: {problem}"
            )
            self._fail(effect, _lost_checkpoint(problem))
            return
        adopted = Adopted(trial_id=trial.trial_id, attempt=effect.attempt, checkpoint=record)
        self._host.post(adopted)
        effect = replace(effect, checkpoint=record, origin=None)
        self._start(effect, self._host.machine.trials[trial.trial_id])

    async def _verify_and_start(self, effect: Launch, trial: Trial) -> None:
        """Drop a checkpoint that is lost: the trial resumes from a newer one that no record names,
        or from the one before."""
        try:
            verified = await self._checkpoints.verify(effect, trial)
        except CannotPrepare as failed:
            del self._verifying[trial.trial_id]
            self._fail(effect, setup_failure(failed.what, failed.cause, failed.kind))
            return
        del self._verifying[trial.trial_id]
        if verified.lost and effect.checkpoint is not None:
            self._host.lose(trial.trial_id, effect.checkpoint.index, verified.lost)
        if verified.found is not None:
            saved = Saved(
                trial_id=trial.trial_id, attempt=effect.attempt, checkpoint=verified.found
            )
            self._host.warn(found_notice(saved))
            self._host.post(saved)
            effect = replace(effect, checkpoint=verified.found)
        elif verified.lost:
            self._fail(effect, _lost_checkpoint(verified.lost))
            return
        self._start(effect, self._host.machine.trials[trial.trial_id])


def setup_failure(what: str, error: Exception, kind: FailureKind = "setup") -> Failure:
    """The failure of one trial. Its checkpoint is not at fault, and stays."""
    message = f"{what}: {message_of(error)}"
    return Failure(kind=kind, type_name=type_name(error), message=message)


def _lost_checkpoint(problem: str) -> Failure:
    """The failure of an attempt whose checkpoint cannot be used. The next attempt looks for
    another one."""
    return Failure(kind="checkpoint", type_name="CheckpointLost", message=problem)
