"""An experiment from its first process to its last: everything is started, run and ended here.

The loop runs in a thread of its own that lives as long as the experiment and alone starts
processes, because the kernel kills them when the thread that started them ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.experiment import callback_states
from holdfast.experiment import layout as names
from holdfast.experiment.archive import Archive
from holdfast.experiment.callback_thread import CallbackThread
from holdfast.experiment.cluster import Machinery
from holdfast.experiment.controller import Controller, Parts, StopFunction
from holdfast.experiment.job import Job
from holdfast.experiment.layout import Layout
from holdfast.experiment.ledger import Ledger
from holdfast.experiment.pickling import NotPicklable, dumps, users_config
from holdfast.experiment.proposer import Proposer
from holdfast.experiment.recovery import lost_checkpoints, lost_notice
from holdfast.experiment.rows import result_metrics, result_row
from holdfast.experiment.settings import Settings
from holdfast.experiment.summarizer import Summarizer
from holdfast.experiment.summary import RunFacts, StorageAge, Summary
from holdfast.experiment.trial_view import Surroundings, Views
from holdfast.runtime.lasting import LastingService
from holdfast.runtime.launcher import Launcher, LocalLauncher
from holdfast.runtime.service import Beside, Service, ThreadService
from holdfast.scheduler.effects import Finish
from holdfast.scheduler.events import Begun, Event, ExperimentSpec, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint import Checkpoint
from holdfast.syncer.journal import Journal
from holdfast.syncer.keeper import Orders
from holdfast.syncer.keeper_process import main as keep
from holdfast.syncer.location import Location
from holdfast.syncer.lock import ExperimentLock
from holdfast.trial.config import SyncConfig
from holdfast.trial.trial import Trial

ENTRY = "holdfast.experiment.host:HOST"
SCRIBE = "holdfast.experiment.scribe_process:main"
KEEPER = "holdfast.syncer.keeper_process:main"
_FLUSH_AFTER_FAULT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before the first process starts.

    `remote` is where the experiment is persisted, None where `layout` lies in the storage itself.
    `first` is Begun or Resumed; `machine` is empty, or what a restore has folded.
    """

    settings: Settings
    machinery: Machinery
    layout: Layout
    location: Location
    remote: Location | None
    job: Job
    machine: Machine
    first: Begun | Resumed
    begins: int
    fresh: bool
    proposer: Proposer
    lock: ExperimentLock
    sync: SyncConfig
    stopper: StopFunction | None = None
    callbacks: Sequence[Any] = ()
    callback_setup: Mapping[str, Any] | None = None
    policy: bytes | None = None
    launcher: Launcher | None = None

    @property
    def spec(self) -> ExperimentSpec:
        return self.first.spec if isinstance(self.first, Begun) else self.machine.spec


class Run:
    """One incarnation of an experiment, in its own thread; watched from the thread of `fit()`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.machine = plan.machine
        self.done = threading.Event()
        self.lines: deque[tuple[str, str]] = deque(maxlen=10_000)
        self.messages: deque[tuple[str, str]] = deque()
        self.outcome: Finish | None = None
        self.fault: BaseException | None = None
        self.unsaved: list[str] = []
        self._summarizer = Summarizer(plan.machine)
        self._controller: Controller | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-controller", daemon=True)

    # -- from the thread of fit() ---------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether everything has ended, after at most so long."""
        return self.done.wait(timeout_s)

    def join(self) -> None:
        self._thread.join()

    def interrupt(self) -> None:
        """Stop all trials so that they can be resumed; returns at once."""
        self._soon(lambda: self._controller.interrupt() if self._controller else self._cancel())

    def abort(self) -> None:
        """Kill everything now; what is in the journal stays."""
        self._soon(self._cancel)

    def summary(self, facts: RunFacts) -> Summary:
        # Until a restore has begun, the machine is where the incarnation before left it.
        now = time.time() if self._controller else self.machine.now
        return self._summarizer.look(facts=facts, now=now, storage=self._storage_age())

    def _storage_age(self) -> StorageAge | None:
        archive = self._controller.archive if self._controller else None
        return None if archive is None else archive.age(time.time())

    def _soon(self, act: Any) -> None:
        if self._loop is not None and not self.done.is_set():
            self._loop.call_soon_threadsafe(act)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def tell(self, text: str, level: str = "warning") -> None:
        self.messages.append((text, level))

    # -- in the thread of the loop --------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self._conduct())
        except asyncio.CancelledError:
            self.fault = self.fault or KeyboardInterrupt()
        except BaseException as error:  # raised again by fit(), in the user's thread
            self.fault = error
        finally:
            self.done.set()

    async def _conduct(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        plan = self.plan
        # The user's code first: when it raises, nothing has to be ended yet.
        job = dumps(plan.job, "the trainable") if plan.job.capture else b""
        callbacks = self._open_callbacks()
        launcher = plan.launcher or LocalLauncher(
            environ=self._environ(), inherited_fds=[plan.lock.fileno()]
        )
        loading = asyncio.ensure_future(launcher.open(ENTRY, job))
        try:
            ledger = self._open_ledger(self._open_journal())
        except BaseException:
            loading.cancel()
            await launcher.close()
            callbacks.close(plan.settings.callback_deadline_s)
            raise
        controller = Controller(self._parts(launcher, ledger, callbacks))
        try:
            if plan.remote is not None:
                controller.archive = self._open_archive(controller)
                await self._until(controller, controller.archive.opened())
            notice = await loading
            if notice:
                self.tell(notice, "info")
            self._controller = controller
            controller.begin(self._first_events())
            if plan.remote is not None and controller.archive is not None:
                controller.archive.publish()
            await controller.finished.wait()
            self.outcome = controller.outcome
        finally:
            loading.cancel()
            await self._end(launcher, ledger, controller, callbacks)
        # One that came while everything ended counts as well: another incarnation may own it now.
        if controller.fault is not None:
            raise controller.fault

    def _open_journal(self) -> Journal:
        journal = Journal(self.plan.layout.journal, fresh=self.plan.fresh)
        for cut in journal.cuts:
            self.tell(str(cut))
        return journal

    async def _until(self, controller: Controller, ready: Any) -> None:
        """Wait for `ready`, or raise the fault that makes it impossible."""
        waiting = asyncio.ensure_future(ready)
        failing = asyncio.ensure_future(controller.finished.wait())
        await asyncio.wait([waiting, failing], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        failing.cancel()
        if controller.fault is not None:
            raise controller.fault

    def _first_events(self) -> list[Event]:
        plan = self.plan
        if isinstance(plan.first, Begun):
            return [plan.first]
        lost = list(
            lost_checkpoints(
                plan.machine,
                plan.layout,
                is_remote=plan.remote is not None,
                also_final=plan.first.errored == "resume" or plan.first.finished == "resume",
            )
        )
        for event in lost:
            self.tell(lost_notice(event.trial_id, event.index, event.reason))
        return [*lost, plan.first]

    def _environ(self) -> dict[str, str]:
        return {**os.environ, **self.plan.machinery.env_vars}

    def _open_ledger(self, journal: Journal) -> Ledger:
        plan = self.plan
        ledgers: list[Ledger] = []

        def on_scribe(message: list[Any]) -> None:
            text = ledgers[0].on_scribe(message)
            if text:
                self.tell(text)

        opening = [
            "open",
            str(plan.layout.root),
            {
                "tensorboard": plan.settings.tensorboard,
                "config_in_rows": plan.settings.config_in_rows,
                "snapshot_period_s": plan.settings.snapshot_period_s,
            },
            plan.policy,
        ]
        scribe = LastingService(
            "scribe (it writes result.json and its like)",
            lambda: self._start(SCRIBE, on_scribe),
            first=[opening],
            again=lambda: ledgers[0].brief_again(),
            tell=self.tell,
            given_up=lambda text: self.tell(
                f"{text}: result.json, progress.csv and snapshots stay behind. The journal is "
                f"complete, and a restore writes them from it"
            ),
        )
        ledger = Ledger(
            journal,
            scribe,
            fsync_period_s=plan.settings.fsync_period_s,
            on_fault=lambda error: self.tell(f"the journal could not be synced: {error}"),
        )
        ledgers.append(ledger)
        return ledger

    def surroundings(self) -> Surroundings:
        plan = self.plan
        return Surroundings(
            trainable_name=plan.spec.trainable,
            experiment_path=plan.location.path,
            local_experiment_path=str(plan.layout.root),
            config_of=lambda spec: users_config(spec.config, plan.job.param_space),
            row_of=_newest_row,
            checkpoint_of=lambda spec, record: Checkpoint(
                str(plan.layout.checkpoint(spec, record))
            ),
        )

    def _open_callbacks(self) -> CallbackThread:
        plan = self.plan
        thread = CallbackThread(
            plan.callbacks,
            Views(self.surroundings()),
            row=_newest_row,
            tell=self.tell,
            setup=plan.callback_setup,
            keep=self._keep_states,
            states_period_s=plan.settings.snapshot_period_s,
        )
        thread.start(plan.machine.trials.values(), self._kept_states())
        return thread

    def _kept_states(self) -> dict[str, bytes]:
        if isinstance(self.plan.first, Begun):
            return {}
        try:
            return callback_states.read(self.plan.layout.callbacks)
        except (OSError, ValueError, KeyError) as error:
            self.tell(f"callbacks start without their states: {names.CALLBACKS}: {error}")
            return {}

    def _keep_states(self, states: Mapping[str, Any]) -> None:
        try:
            callback_states.write(self.plan.layout.callbacks, states)
        except (OSError, NotPicklable) as error:
            self.tell(f"the states of callbacks are not kept: {error}")

    def _open_archive(self, controller: Controller) -> Archive:
        plan = self.plan
        archives: list[Archive] = []
        orders = Orders(
            root=plan.layout.root,
            storage=plan.remote,
            experiment_id=plan.spec.experiment_id,
            journal=names.JOURNAL,
            head=names.HEAD,
            is_record=partial(_is_record, plan.job.log_names),
            checkpoint_prefix=names.CHECKPOINT_PREFIX,
            private=(names.JOURNAL, names.LOCK, names.STAGING),
            artifacts=plan.sync.sync_artifacts,
            timeout_s=plan.sync.sync_timeout,
        )
        epochs: list[str] = []

        def on_keeper(message: list[Any]) -> None:
            if message[0] == "opened":
                # One that takes its place goes on in this epoch: claiming another could
                # take the experiment away from a restore elsewhere.
                epochs[:] = [message[1]]
            archives[0].on_keeper(message)

        keeper = LastingService(
            "keeper (it commits and uploads checkpoints)",
            lambda: self._start_keeper(
                replace(orders, epoch=epochs[0] if epochs else ""), on_keeper
            ),
            first=[],
            again=lambda: self._brief_keeper(archives[0], controller),
            tell=self.tell,
            given_up=lambda text: controller.forsaken(
                f"{text}. Nothing local is deleted: restore the experiment to go on"
            ),
        )
        archive = Archive(
            keeper,
            controller.ledger,
            post=controller.post,
            tell=self.tell,
            lost=controller.lose,
            refused=controller.usurped,
            begins=plan.begins,
            is_remote=plan.remote is not None,
            sync_period_s=plan.sync.sync_period,
        )
        archives.append(archive)
        return archive

    def _start(self, entry: str, on_message: Callable[[list[Any]], None]) -> Service:
        return Service(
            entry,
            on_message,
            environ=self._environ(),
            inherited_fds=[self.plan.lock.fileno()],
        )

    def _start_keeper(self, orders: Orders, on_message: Callable[[list[Any]], None]) -> Beside:
        """In a process of its own, or in a thread where a given filesystem cannot travel."""
        if orders.storage is not None and not orders.storage.is_picklable:
            return ThreadService(partial(keep, orders=orders), on_message, name="holdfast-keeper")
        keeper = self._start(KEEPER, on_message)
        keeper.send(["open", dumps(orders, "the storage_filesystem")])
        return keeper

    def _brief_keeper(self, archive: Archive, controller: Controller) -> None:
        archive.brief_again()
        controller.sweep()

    def _parts(self, launcher: Launcher, ledger: Ledger, callbacks: CallbackThread) -> Parts:
        plan = self.plan
        return Parts(
            machine=plan.machine,
            layout=plan.layout,
            settings=plan.settings,
            launcher=launcher,
            ledger=ledger,
            proposer=plan.proposer,
            callbacks=callbacks,
            stopper=plan.stopper,
            open_archive=self._open_archive,
            gpu_names=plan.machinery.gpu_names,
            full_row_of=_newest_row,
            show_line=self._show_line,
            warn=self.tell,
        )

    def _show_line(self, trial_name: str, pid: int, stream: str, text: str) -> None:
        self.lines.append((f"{trial_name} pid={pid}", text))

    async def _end(
        self,
        launcher: Launcher,
        ledger: Ledger,
        controller: Controller,
        callbacks: CallbackThread,
    ) -> None:
        """End every process, then flush; each step has a deadline."""
        settings = self.plan.settings
        # After a fault everything is on this disk, and a restore goes on with what waits.
        flush_s = settings.flush_deadline_s
        flush_s = flush_s if controller.fault is None else min(flush_s, _FLUSH_AFTER_FAULT_S)
        controller.close()
        await launcher.close()
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(None, callbacks.close, settings.callback_deadline_s)
        archive = controller.archive
        if archive is not None and controller.is_usurped:
            await archive.abandon()
            archive = None
        if archive is not None:
            flush_by = loop.time() + flush_s
            await archive.drain(flush_s)
            # What the last commits superseded is removed once that is on the disk.
            await ledger.sync()
        told = await ledger.finish(flush_s)
        if archive is not None:
            if self.plan.remote is not None:
                archive.publish()
            self.unsaved = await archive.close(max(1.0, flush_by - loop.time()))
        ledger.close()
        unheard = await controller.search_told(settings.callback_deadline_s)
        for text in (told, unheard):
            if text:
                self.tell(text)
        await closing


def _newest_row(trial: Trial) -> dict[str, Any]:
    return result_metrics(trial, result_row(trial))


def _is_record(log_names: Sequence[str], key: str) -> bool:
    """Which files are persisted without `sync_artifacts`."""
    folder, _, name = key.rpartition("/")
    return not folder or names.is_ours(name) or name in log_names


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
