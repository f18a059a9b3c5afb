"""`holdfast doctor sync`: commits and uploads what a run could not, without running any trial.

It performs the end of a run with a run's uploader: checkpoints first, then artifacts if the run
uploads them, then the records, then the head. Like a restore, it claims the storage for itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby

from holdfast.experiment.folder import layout as names
from holdfast.experiment.folder.contents import check_enclosed_trials, uploader_settings
from holdfast.experiment.folder.layout import Layout, log_names_of
from holdfast.experiment.records.journal import pack
from holdfast.experiment.records.opened import locked
from holdfast.results.doctor import examination, storage
from holdfast.results.doctor.findings import Action, DoctorReport
from holdfast.results.doctor.repair import NothingHere
from holdfast.results.doctor.storage import StorageTree, bytes_of
from holdfast.results.doctor.tree import Tree
from holdfast.results.doctor.verify import Depth, Examined, examine, verify
from holdfast.results.reading import ExperimentSite
from holdfast.scheduler.effects import Discard
from holdfast.scheduler.events import CheckpointLost
from holdfast.scheduler.machine import Machine
from holdfast.syncer.artifacts.mirror import may_be_behind
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.journal.journal import MAGIC, Journal, Position
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.owned_store import Claim, OwnedStore
from holdfast.syncer.stores.store import for_each
from holdfast.syncer.uploader.messages import (
    Answer,
    Commit,
    Failed,
    NotCommitted,
    Notice,
    Progress,
    Published,
    Sign,
)
from holdfast.syncer.uploader.messages import Committed as Stored
from holdfast.syncer.uploader.uploader import Uploader
from holdfast.trial.errors import TuneError
from holdfast.trial.events import Committed

_AT_ONCE = 4
TIMEOUT_S = 300.0


class NotFit(TuneError):
    """The local files must not be uploaded in this state; the message says why, and what to do
    first."""


def sync(
    target: ExperimentSite,
    *,
    timeout_s: float = TIMEOUT_S,
    downloads: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DoctorReport:
    """Upload everything. Each operation is retried for `timeout_s`.

    `downloads`: also check the bytes that are in storage. `tell` is called with messages about
    problems, `progress` with the number of checkpoints that are done.

    Raises Locked while a process runs the experiment, NothingHere, NotFit, Usurped, OSError,
    StorageError.
    """
    if target.layout is None:
        raise NothingHere(target, "sync")
    if target.kept_in:
        raise NotFit(
            f"{target.layout.root} is uploaded to {target.kept_in}: pass the URI of the "
            "experiment there as PATH, or as --storage"
        )
    began = time.monotonic()
    with locked(target.layout):
        depth = Depth.DOWNLOAD if downloads else Depth.CHECKSUMS
        examined = examine(target, depth=depth)
        if examined.tree is not None and examined.tree.replayed is not None:
            check_enclosed_trials(target.layout, examined.tree.replayed.machine)
        actions = _Upload(target, examined, timeout_s, tell, progress).run()
    after = verify(target, depth=Depth.QUICK)
    return replace(after, actions=tuple(actions), seconds=time.monotonic() - began)


class _Upload:
    """One session with the storage, under the experiment's lock."""

    def __init__(
        self,
        target: ExperimentSite,
        examined: Examined,
        timeout_s: float,
        tell: Callable[[str], None],
        progress: Callable[[int, int], None],
    ) -> None:
        assert target.layout is not None
        assert examined.tree is not None
        self._layout: Layout = target.layout
        self._remote: Location | None = target.remote
        self._tree: Tree = examined.tree
        self._stored: StorageTree | None = examined.stored
        self._timeout_s = timeout_s
        self._tell = tell
        self._progress = progress
        self._done = self._total = 0
        self._actions: list[Action] = []
        self._discards: list[str] = []
        self._machine = _sound_machine(examined)
        self._begins = self._tree.chapters[-1].segments[0].number

    def run(self) -> list[Action]:
        waiting = self._waiting()
        self._total = len(waiting)
        if waiting or self._is_behind() or (self._remote and may_be_behind(self._settings())):
            asyncio.run(self._session(waiting))
        return self._actions

    def _waiting(self) -> list[examination.NamedCheckpoint]:
        """Complete checkpoints that are not committed, or that storage does not have completely,
        trial by trial."""
        assert self._tree.replayed is not None
        return [
            checkpoint
            for checkpoint in examination.named_checkpoints(self._tree.replayed)
            if storage.has_whole(self._tree, checkpoint)
            and (not checkpoint.record.committed or self._is_missing(checkpoint))
        ]

    def _is_missing(self, checkpoint: examination.NamedCheckpoint) -> bool:
        if self._stored is None or checkpoint.record.stays_here:
            return False
        return bool(self._stored.fault(checkpoint.folder))

    def _is_behind(self) -> bool:
        stored = self._stored
        if stored is None:
            return False
        findings = storage.storage_findings(stored, self._tree, in_use=False)
        return any(finding.remedy == "sync" for finding in findings)

    async def _session(self, waiting: list[examination.NamedCheckpoint]) -> None:
        is_remote = self._remote is not None
        journal = Journal(self._layout.journal, fresh=is_remote, begins=self._begins)
        uploader = Uploader(self._settings(), partial(self._on_answer, journal))
        try:
            claimed = await uploader.open()
            if self._remote is not None and self._stored is not None:
                await self._clear(self._remote, self._stored, claimed, waiting)
            by_trial = groupby(waiting, key=lambda checkpoint: checkpoint.trial.trial_id)
            await for_each(
                lambda of_trial: _commit(uploader, of_trial),
                [list(of_trial) for _, of_trial in by_trial],
                at_once=_AT_ONCE,
            )
            await self._send_artifacts(uploader)
            await self._publish(uploader, journal)
        finally:
            journal.close()
            await uploader.close()

    async def _send_artifacts(self, uploader: Uploader) -> None:
        if sent := await uploader.send_artifacts(None):
            self._actions.append(Action(what=f"uploaded {sent} artifacts", where="."))
        if left_out := uploader.left_out:
            self._tell(left_out)

    async def _publish(self, uploader: Uploader, journal: Journal) -> None:
        end = journal.sync()
        # Superseded checkpoints are removed once the records that drop them are durable and
        # published.
        await uploader.remove_here(self._discards)
        uploader.mark_for_removal(self._discards)
        if end > Position(self._begins, len(MAGIC)):
            await uploader.publish(end, self._begins)
            await uploader.remove_stored(uploader.take_pending_removals())

    async def _clear(
        self,
        remote: Location,
        stored: StorageTree,
        claimed: Claim | None,
        waiting: list[examination.NamedCheckpoint],
    ) -> None:
        """Delete manifests that would make old files look complete, and replace damaged
        segments."""
        owned = OwnedStore(
            remote.open_store(),
            where=remote.public,
            experiment_id=self._machine.spec.experiment_id,
            parallel=8,
            claimed=claimed,
        )
        try:
            await owned.delete(
                [
                    f"{checkpoint.folder}/{MANIFEST_NAME}"
                    for checkpoint in waiting
                    if f"{checkpoint.folder}/{MANIFEST_NAME}" in stored.entries
                ]
            )
            for name in stored.bad_segments:
                data = bytes_of(self._layout, stored.segments[name])
                await owned.put(f"{names.JOURNAL}/{name}", data)
                self._actions.append(
                    Action(what="uploaded again", where=f"{names.JOURNAL}/{name}")
                )
        finally:
            await owned.close()

    def _on_answer(self, journal: Journal, message: Answer) -> None:
        match message:
            case Stored(trial=trial_id, index=index):
                self._record(journal, Committed(trial_id=trial_id, index=index))
                verb = "committed" if self._remote is None else "uploaded"
                self._note(trial_id, f"checkpoint {index} is {verb}")
            case NotCommitted(name="lost", trial=trial_id, index=index, why=reason):
                event = CheckpointLost(trial_id=trial_id, index=index, reason=reason)
                self._record(journal, event)
                self._note(trial_id, f"checkpoint {index} dropped from the records: {reason}")
            case Published(segment=segment):
                what = f"the records up to segment {segment} are published"
                self._actions.append(Action(what=what, where=names.HEAD))
            case Notice(name="trouble" | "warning", text=text):
                self._tell(text)
            case Failed(name="stuck", what=where, why=why):
                self._tell(f"Cannot delete the superseded checkpoint {where}: {why}")
            case Progress() | Sign():
                pass  # artifacts, which are not counted; signs that a wait goes on
            case _:
                raise ValueError(f"not expected of the uploader: {message!r:.100}")

    def _note(self, trial_id: str, text: str) -> None:
        where = self._machine.trials[trial_id].spec.dirname
        self._actions.append(Action(what=text, where=where))
        self._done += 1
        self._progress(self._done, self._total)

    def _record(self, journal: Journal, event: Committed | CheckpointLost) -> None:
        """Append with the time of the last record, so that the time since then is not added to the
        run's."""
        now = self._machine.now
        journal.append([pack(event, now)])
        for effect in self._machine.handle(event, now=now):
            if isinstance(effect, Discard):
                trial = self._machine.trials[effect.trial_id]
                self._discards.append(f"{trial.spec.dirname}/{effect.checkpoint.dirname}")

    def _settings(self) -> UploaderSettings:
        options = self._machine.spec.options
        return uploader_settings(
            self._layout,
            self._remote,
            experiment_id=self._machine.spec.experiment_id,
            log_names=log_names_of(options.get("log_to_file", False)),
            artifacts=bool(options.get("sync", {}).get("sync_artifacts", False)),
            timeout_s=self._timeout_s,
        )


async def _commit(uploader: Uploader, of_trial: list[examination.NamedCheckpoint]) -> None:
    """Commit the checkpoints of one trial in order, because each may supersede earlier ones."""
    for named in of_trial:
        await uploader.commit(
            Commit(
                trial=named.trial.trial_id,
                index=named.record.index,
                folder=named.folder,
                iteration=named.record.iteration,
                time_total_s=named.record.time_total_s,
                stays_here=named.record.stays_here,
            )
        )


def _sound_machine(examined: Examined) -> Machine:
    """The machine of the journal.

    Raises NotFit if records cannot be read, or if storage is ahead of this machine.
    """
    assert examined.tree is not None
    replayed = examined.tree.replayed
    if replayed is None or examined.tree.is_damaged:
        raise NotFit("the journal cannot be read to its end: run doctor repair first")
    for finding in examined.findings:
        if finding.kind in ("storage-other", "storage-ahead"):
            raise NotFit(f"{finding.what}. {finding.advice}")
    return replayed.machine
