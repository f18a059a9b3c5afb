"""Prepares the start of an attempt: a readable checkpoint, and the trial's files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout, free_number, log_names_of
from holdfast.experiment.records.recovery import changed_checkpoint
from holdfast.experiment.uploads.unrecorded_checkpoints import (
    found_notice,
    lacks_newest,
    newest_beyond,
)
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

if TYPE_CHECKING:
    from holdfast.experiment.uploads.uploads import Uploads

Nodes = tuple[str, ...]


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


@dataclass(slots=True, kw_only=True)
class Homes:
    """Where trials have run: `nodes` are those of their last attempts, `unvisited` the trials
    of an earlier incarnation that this one has not brought anywhere."""

    nodes: dict[str, Nodes] = field(default_factory=dict)
    unvisited: set[str] = field(default_factory=set)


class OnThisMachine:
    """The controller's machine, with the experiment's own tree.

    As of `OnNodes`: `where` names the place in messages, `node` is the one whose uploader commits
    a copy, "" for the controller's, and `lacks_node` is true if a node of it has left.
    """

    where = node = ""
    lacks_node = False

    def __init__(
        self, experiment: Experiment, layout: Layout, homes: Homes, *, has_ranks: bool
    ) -> None:
        self._experiment = experiment
        self._layout = layout
        self._homes = homes
        self._has_ranks = has_ranks

    @property
    def _storage(self) -> Uploads | None:
        """The uploads, if storage is elsewhere."""
        uploads = self._experiment.uploads
        return uploads if uploads is not None and uploads.is_remote else None

    def may_lack(self, trial: Trial, record: CheckpointRecord | None) -> bool:
        """True if the checkpoint or the trial's files may not be here."""
        uploads = self._storage
        if uploads is None or trial.trial_id not in self._homes.unvisited:
            return False
        return uploads.downloads_artifacts or self._may_miss_output(trial)

    def _may_miss_output(self, trial: Trial) -> bool:
        """True if earlier attempts have printed on another machine. The next one appends to that:
        the files here replace those in storage."""
        options, folder = self._experiment.machine.spec.options, self._layout.trial(trial.spec)
        names = log_names_of(options.get("log_to_file", False))
        is_here = not self._has_ranks and all((folder / name).exists() for name in names)
        return trial.attempt > 1 and not is_here

    async def settled(self) -> None:
        """Returns at once: the uploader reports a storage that it does not see."""

    async def problem_with(
        self, spec: TrialSpec, record: CheckpointRecord, *, is_doubted: bool
    ) -> str:
        """Check the checkpoint if it `is_doubted`; it is fetched if it has changed. Returns why
        it cannot be used, "" if it can. Raises StorageError."""
        if not is_doubted:
            return ""
        folder = self._layout.checkpoint(spec, record)
        problem = await threads.call(lambda: changed_checkpoint(folder, record))
        if problem and self._storage is not None:
            return await self._storage.questions.fetch(spec, record)
        return problem

    async def fetch(self, trial: Trial, found: CheckpointRecord) -> str:
        """Bring a checkpoint that no record names. Returns why that is impossible, or ""."""
        assert self._storage is not None
        return await self._storage.questions.fetch(trial.spec, found)

    async def copy(
        self, source: TrialSpec, record: CheckpointRecord, clone: Trial
    ) -> tuple[int, Staged]:
        """Copy a checkpoint for a clone. Returns its number. Raises StorageError or OSError."""
        folder = self._layout.trial(clone.spec)
        index = free_number(str(folder), clone.next_checkpoint)
        original = self._layout.checkpoint(source, record)
        if original.parent.is_symlink():
            raise CannotClone(f"{original.parent} is a link, which may lead elsewhere")
        copy = self._layout.staging(clone.spec) / unique()
        staged = await threads.call(lambda: copy_checkpoint(original, copy))
        put_in_place(copy, folder / checkpoint_dirname(index))
        return index, staged

    async def bring(self, trial: Trial) -> None:
        """Bring the trial's files if they are missing. Raises StorageError."""
        uploads = self._storage
        if uploads is not None and self.may_lack(trial, None):
            await uploads.questions.download(trial.spec, artifacts=uploads.downloads_artifacts)
            self._homes.unvisited.discard(trial.trial_id)


class OnNodes:
    """Nodes of the cluster, each with a tree of its own.

    A checkpoint is where it was written and, once it is committed, in storage, from where other
    nodes fetch it: once per node, however many ranks run there.
    """

    def __init__(self, experiment: Experiment, nodes: Nodes, homes: Homes) -> None:
        self._experiment = experiment
        self._nodes = nodes
        self._homes = homes
        self.where = f" on {', '.join(nodes)}"
        self.node = nodes[0]

    @property
    def _uploads(self) -> Uploads:
        uploads = self._experiment.uploads
        assert uploads is not None
        return uploads

    @property
    def lacks_node(self) -> bool:
        return any(node not in self._uploads.nodes for node in self._nodes)

    def may_lack(self, trial: Trial, record: CheckpointRecord | None) -> bool:
        known = self._uploads.nodes
        if self._homes.nodes.get(trial.trial_id) != self._nodes:
            return True
        if any(known.sees_storage(node) is None for node in self._nodes):
            return True
        if record is None:
            return False
        has_copy = partial(self._uploads.has_copy, trial.spec, record.index)
        return not all(map(has_copy, self._nodes))

    async def settled(self) -> None:
        """Wait until it is known which of them see the storage."""
        await _each(self._nodes, self._uploads.nodes.settled)

    async def problem_with(
        self, spec: TrialSpec, record: CheckpointRecord, *, is_doubted: bool
    ) -> str:
        """Have the checkpoint on each node. Returns why that is impossible, "" if it is there.

        Reads every byte of a copy that is there, if it `is_doubted`; one that is fetched is always
        read. Raises StorageError.
        """

        async def make_whole(node: str) -> str:
            return await self._make_whole(spec, record, node, is_doubted=is_doubted)

        problems = await _each(self._nodes, make_whole)
        return next((f"on node {n}: {why}" for n, why in problems.items() if why), "")

    async def _make_whole(
        self, spec: TrialSpec, record: CheckpointRecord, node: str, *, is_doubted: bool
    ) -> str:
        uploads, questions = self._uploads, self._uploads.questions
        folder, problem = f"{spec.dirname}/{record.dirname}", ""
        if uploads.has_copy(spec, record.index, node):
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
            uploads.note_copy(spec, record.index, node)
        return problem

    async def fetch(self, trial: Trial, found: CheckpointRecord) -> str:
        self._uploads.commit(trial.spec, found)  # it may be in the controller's tree only
        return await self.problem_with(trial.spec, found, is_doubted=False)

    async def copy(
        self, source: TrialSpec, record: CheckpointRecord, clone: Trial
    ) -> tuple[int, Staged]:
        uploads, index = self._uploads, clone.next_checkpoint
        original = f"{source.dirname}/{record.dirname}"
        target = f"{clone.spec.dirname}/{checkpoint_dirname(index)}"

        async def copy(node: str) -> Staged:
            files, size = await uploads.questions.copy(original, target, node)
            uploads.note_copy(clone.spec, index, node)
            return Staged(files=files, bytes=size)

        copies: dict[str, Staged] = await _each(self._nodes, copy)
        return index, copies[self.node]

    async def bring(self, trial: Trial) -> None:
        """Bring the trial's files, which are sent to storage from there from now on. Raises
        StorageError."""
        uploads, spec = self._uploads, trial.spec
        before = self._homes.nodes.get(trial.trial_id, ())
        is_inherited = trial.trial_id in self._homes.unvisited
        leaving = [node for node in before if node not in self._nodes and node in uploads.nodes]
        await _each(leaving, lambda node: uploads.hand_over(spec, node))
        if is_inherited and not before:
            await uploads.hand_over(spec)
        if is_inherited or before:
            arriving = [node for node in self._nodes if node not in before]
            seeing = [node for node in arriving if uploads.nodes.sees_storage(node)]
            await _each(seeing, lambda node: uploads.download(spec, node))
        self._homes.nodes[trial.trial_id] = self._nodes
        self._homes.unvisited.discard(trial.trial_id)
        for node in self._nodes:
            uploads.nodes.trials_on(node).note(spec.dirname, spec.trial_id)
        self._release()

    def _release(self) -> None:
        """Let these nodes remove trials that have ended, before their disks are full."""
        trials = self._experiment.machine.trials

        def has_ended(trial_id: str) -> bool:
            trial = trials[trial_id]
            is_only_there = any(record.stays_here for record in trial.checkpoints)
            return trial.status.is_final and not is_only_there

        self._uploads.release(has_ended, self._nodes)


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


StartPlace = OnThisMachine | OnNodes


class StartCheckpoints:
    """Checks checkpoints of earlier incarnations before they are used: they may have changed."""

    def __init__(self, experiment: Experiment, layout: Layout, *, has_ranks: bool = False) -> None:
        """`has_ranks`: several workers train each trial."""
        self._experiment = experiment
        self._layout = layout
        self._has_ranks = has_ranks
        self._homes = Homes()
        self._here = OnThisMachine(experiment, layout, self._homes, has_ranks=has_ranks)
        self._inherited: dict[str, int] = {}  # by trial: its first checkpoint of this incarnation
        self._unsearched: set[str] = set()

    def inherit(self, trials: Iterable[Trial], resumed: Resumed | None) -> None:
        """Remember that these trials come from an earlier incarnation.

        For each, `verify` also looks for checkpoints that no record names, unless the trial starts
        from the beginning.
        """
        known = list(trials)
        self._inherited = {trial.trial_id: trial.next_checkpoint for trial in known}
        self._homes.unvisited = set(self._inherited)
        if resumed is not None:
            self._unsearched = {t.trial_id for t in known if not restarts(t, resumed)}

    def _place(self, effect: Launch) -> StartPlace:
        """The workers of an attempt run there. The first bundle is that of the only worker, or of
        the coordinator of ranks."""
        places = effect.allocation.places
        used = places[1:] if self._has_ranks else places[:1]
        nodes = tuple(dict.fromkeys(place.node for place in used))
        return OnNodes(self._experiment, nodes, self._homes) if nodes else self._here

    def has_to_look(self, effect: Launch, trial: Trial) -> bool:
        """True if the attempt must wait for `verify`."""
        if self._is_doubted(effect, trial) or self._may_have_more(trial):
            return True
        return self._place(effect).may_lack(trial, effect.checkpoint)

    async def verify(self, effect: Launch, trial: Trial) -> Verified:
        """Prepare an attempt. Raises CannotPrepare.

        Checks the checkpoint of `effect`, looks for a newer one that no record names, and
        downloads the trial's files.
        """
        place, checkpoint, problem, found = self._place(effect), effect.checkpoint, "", None
        try:
            await place.settled()
            if checkpoint is not None:
                is_doubted = self._is_doubted(effect, trial)
                with _naming(f"{checkpoint.dirname}, to resume from, cannot be read{place.where}"):
                    problem = await place.problem_with(
                        trial.spec, checkpoint, is_doubted=is_doubted
                    )
            if problem or self._may_have_more(trial):
                with _naming("the search for checkpoints that no record names failed"):
                    found = await self._search(trial, place)
            if found is not None or not problem:
                with _naming(f"the files of the trial cannot be downloaded{place.where}"):
                    await place.bring(trial)
        except CannotPrepare as failed:
            failed.kind = "lost" if place.lacks_node else "setup"
            raise
        return Verified(lost=problem, found=found)

    async def adopt(self, origin: Origin, trial: Trial, effect: Launch) -> CheckpointRecord:
        """Give a clone its copy of the other trial's checkpoint. Raises CannotClone, StorageError
        or OSError."""
        place, known = self._place(effect), origin.checkpoint
        source = self._experiment.machine.trials[origin.trial_id].spec
        is_inherited = known.index < self._inherited.get(origin.trial_id, 0)
        await place.settled()
        if problem := await place.problem_with(source, known, is_doubted=is_inherited):
            raise CannotClone(problem)
        index, staged = await place.copy(source, known, trial)
        await place.bring(trial)
        mode = CheckpointUploadMode
        return replace(
            known,
            index=index,
            attempt=effect.attempt,
            files=staged.files,
            size_bytes=staged.bytes,
            committed=False,
            upload=mode.NO_UPLOAD if known.stays_here else mode.ASYNC,
            node=place.node,
        )

    def _is_doubted(self, effect: Launch, trial: Trial) -> bool:
        """True if the checkpoint must be checked: it is of an earlier incarnation, or an attempt
        has failed since this one made it, and it may be the reason."""
        checkpoint, inherited = effect.checkpoint, self._inherited.get(trial.trial_id, 0)
        return checkpoint is not None and (checkpoint.index < inherited or bool(trial.setbacks))

    def _may_have_more(self, trial: Trial) -> bool:
        """True if the trial has lost its newest checkpoint, or would begin from nothing."""
        return trial.trial_id in self._unsearched and lacks_newest(trial)

    async def _search(self, trial: Trial, place: StartPlace) -> CheckpointRecord | None:
        """Look once for a newer checkpoint that no record names.

        If the records never named a checkpoint, storage is only ahead of the published records:
        their rows are missing, and the trial repeats them.
        """
        uploads, storage = self._experiment.uploads, None
        if uploads is not None and uploads.is_remote and trial.next_checkpoint > 0:
            storage = uploads.questions
        fetch = partial(place.fetch, trial)
        found = await newest_beyond(trial, self._layout, storage, fetch)
        if found is not None and place.node and await fetch(found):
            found = None
        self._unsearched.discard(trial.trial_id)
        return found


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # only this trial is concerned
        raise CannotPrepare(what, error) from error


class PreparationHost(Experiment, Protocol):
    """The owner of the run's events and tasks."""

    tasks: TaskScope

    def post(self, event: Event) -> None: ...

    def lose(self, trial_id: str, index: int, reason: str) -> None: ...

    def remove_superseded(self) -> None: ...

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
            self._host.remove_superseded()  # no record names the ones before it either
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
