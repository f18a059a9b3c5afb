"""The plan of a run: everything that is decided before its first process starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.control.machine_resources import MachineResources
from holdfast.experiment.control.proposer import Proposer
from holdfast.experiment.control.user_threads import SchedulerCalls, StopFunction
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import SHARE, WEB, Settings
from holdfast.experiment.queue.job_experiments import JOB
from holdfast.experiment.trackers.delivery import TrackerJob
from holdfast.experiment.user_objects.pickling import users_config
from holdfast.experiment.worker.job import Job
from holdfast.experiment.worker.objects import ObjectRef, references_in
from holdfast.experiment.worker.train_loop import TrainLoop
from holdfast.scheduler.events import Begun, ExperimentSpec, Resumed
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.resuming import has_work, is_selected
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.config import RunConfig, RuntimeEnv, SyncConfig
from holdfast.trial.search_space.spaces import separated, spaces_of

if TYPE_CHECKING:
    from holdfast.experiment.nodes.engines import PlannedEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The plan of one run.

    `remote` is the storage of the experiment; None if `layout` is in the storage itself. `first`
    is Begun or Resumed. `machine` is empty, or has the state that a restore read. `engine`
    supplies the nodes of a cluster; without one, trials run on this machine. `read_until` is where
    the restore's reading of the journal ended, None if nothing was read. `scheduler_calls` are
    those of a scheduler in Ray's style.
    """

    settings: Settings
    host_resources: MachineResources
    layout: Layout
    location: Location
    remote: Location | None
    job: Job
    machine: Machine
    first: Begun | Resumed
    begins: int
    read_until: Position | None
    fresh: bool
    proposer: Proposer
    lock: ExperimentLock
    sync: SyncConfig
    stopper: StopFunction | None = None
    callbacks: Sequence[Any] = ()
    tracker_jobs: Sequence[TrackerJob] = ()
    callback_setup: Mapping[str, Any] | None = None
    engine: PlannedEngine | None = None
    environment: RuntimeEnv = field(default_factory=RuntimeEnv)
    scheduler_calls: SchedulerCalls | None = None
    run_config: RunConfig | None = None

    @property
    def spec(self) -> ExperimentSpec:
        return self.first.spec or self.machine.spec

    @property
    def has_page(self) -> bool:
        """True if it serves a page."""
        asked = self.run_config is not None and self.run_config.web
        return asked or self.settings.web

    @property
    def runs_trials(self) -> bool:
        """True if any trial is left to run."""
        return isinstance(self.first, Begun) or has_work(self.machine, self.first)

    def references_used(self, references: Iterable[ObjectRef]) -> list[ObjectRef]:
        """The references that trials will get.

        Of earlier search spaces, only the values that unfinished trials need count.
        """
        spaces = separated(self.job.param_space)
        used = {self.spec.space_number, *self._spaces_needed()}
        former = {ref for n, space in spaces.items() if n not in used for ref in _refs(space)}
        former -= {ref for number in used for ref in _refs(spaces.get(number, {}))}
        return [ref for ref in references if ref not in former]

    def _spaces_needed(self) -> Iterator[int]:
        """The numbers of the search spaces that unfinished trials take values from."""
        if isinstance(self.first, Resumed) and self.first.config is None:
            for trial in self.machine.trials.values():
                if not trial.status.is_final or is_selected(trial, self.first, self.spec):
                    yield from spaces_of(trial.spec.config)

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables of every process.

        A `fit()` in a trial uses what the trial holds: if it shared the machine, it could wait for
        its own trial. Nor is it one that a job of the queue has begun, or has a page of its own.
        """
        return {**os.environ, SHARE: "0", JOB: "", WEB: "", **self.environment.env_vars}

    @property
    def surroundings(self) -> Surroundings:
        """The facts that views of trials show to callbacks and reporters."""
        loop = self.job.trainable
        return Surroundings.of(
            self.layout,
            trainable_name=self.spec.trainable,
            experiment_path=self.location.path,
            config_of=lambda trial: users_config(trial.config, self.job.param_space),
            space=self.spec.space,
            run_id=self.spec.experiment_id,
            run_config=self.run_config,
            scaling_of=loop.scaling_of if isinstance(loop, TrainLoop) else None,
        )


def _refs(values: Any) -> set[ObjectRef]:
    return {ref for _, ref in references_in(values)}
