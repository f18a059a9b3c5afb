"""Creates an experiment on the disk as a run leaves it, event by event, without a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.journal import pack
from holdfast.scheduler.events import (
    FORMAT,
    Begun,
    Event,
    Exited,
    ExperimentSpec,
    NodeJoined,
    Outlook,
    Raised,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import TrialScheduler
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.checkpoint.manifest import TrialProgress
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.stores.location import Location
from holdfast.trial.errors import Failure
from holdfast.trial.events import Committed, Reported, Returned, Started
from holdfast.trial.resources import NodeKind
from holdfast.trial.trial import CheckpointRecord, Trial, TrialSpec, checkpoint_dirname

_BEGAN = 1_700_000_000.0
_TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 7, in train
    raise {headline}
{headline}
"""


class RecordedExperiment:
    """Writes the journal through the machine, and all other files through the projector.

    Each event happens `step_s` after the one before. `boot` names the boot of the system that it
    ran in, `version` the format of the journal, `offer` the nodes that may join; `policy` decides,
    FIFO by default. `spec` has fields of ExperimentSpec.
    """

    def __init__(
        self,
        root: Path,
        *,
        run: str = "d2a66",
        step_s: float = 1.0,
        boot: str = "",
        tensorboard: bool = False,
        version: int = FORMAT,
        offer: Sequence[NodeKind] = (),
        policy: TrialScheduler | None = None,
        **spec: Any,
    ) -> None:
        self.layout = Layout(root)
        self.machine = Machine(policy)
        self.now = _BEGAN
        self._run = run
        self._step_s = step_s
        self._journal = Journal(self.layout.journal, fresh=True)
        self.layout.lock.touch()
        self._made = 0
        self.add(
            Begun(
                spec=ExperimentSpec(
                    experiment_id=f"experiment-{run}", run=run, trainable="train", seed=0, **spec
                ),
                capacity={"CPU": 1000},
                offer=offer,
                boot_id=boot,
                version=version,
            )
        )
        self._projector = Projector(
            self.layout, ProjectorSettings(tensorboard=tensorboard), lambda: self.now, boot="boot"
        )

    @property
    def location(self) -> Location:
        return Location.resolve(self.layout.root, None, {})

    def add(self, event: Event) -> None:
        """Append to the journal and pass the event to the machine."""
        self.now += self._step_s
        self.machine.handle(event, now=self.now)
        self._journal.append([pack(event, self.now, self.machine.answers)])

    def joins(self, node: str, resources: Mapping[str, float], **facts: str) -> None:
        """A node joins; `facts` are its kind, host and address."""
        self.add(NodeJoined(node=node, resources=resources, **facts))

    def trial(self, trial_id: str) -> Trial:
        return self.machine.trials[trial_id]

    def folder(self, trial_id: str) -> Path:
        return self.layout.trial(self.trial(trial_id).spec)

    def suggest(
        self,
        config: Mapping[str, Any] | None = None,
        tag: str = "",
        outlook: Outlook | None = None,
        confirms: str = "",
    ) -> str:
        """The next trial, which waits for its worker; returns its id."""
        index, self._made = self._made, self._made + 1
        trial_id, tag = f"{self._run}_{index:05d}", tag or f"{index}"
        spec = TrialSpec(
            trial_id=trial_id,
            index=index,
            name=f"train_{trial_id}",
            dirname=f"train_{trial_id}_{tag}_2026-11-20_22-57-57",
            config=config or {},
            tag=tag,
            is_added=bool(confirms),
            confirms=confirms,
        )
        self.add(Suggested(spec=spec, outlook=outlook))
        return trial_id

    def start(self, trial_id: str) -> None:
        """Its worker has started; each attempt has its own process."""
        trial = self.trial(trial_id)
        pid = 1000 + 100 * trial.spec.index + trial.attempt
        held = self.machine.placement.holds.get(trial_id)
        self.add(
            Started(
                trial_id=trial_id,
                attempt=trial.attempt,
                pid=pid,
                hostname="host",
                node_ip="127.0.0.1",
                nodes=held.nodes if held else (),
            )
        )

    def begin(self, config: Mapping[str, Any] | None = None, tag: str = "") -> str:
        """The next trial, running; returns its id."""
        trial_id = self.suggest(config, tag)
        self.start(trial_id)
        return trial_id

    def report(self, trial_id: str, metrics: Mapping[str, Any], *, checkpoint: str = "") -> None:
        """Report the next row. `checkpoint` is "", "staged" (only here) or "committed"."""
        trial = self.trial(trial_id)
        record = self._stage(trial) if checkpoint else None
        self.add(
            Reported(
                trial_id=trial_id,
                attempt=trial.attempt,
                iteration=trial.iteration + 1,
                metrics=metrics,
                timestamp=self.now + self._step_s,
                time_this_iter_s=0.5,
                time_total_s=trial.time_total_s + 0.5,
                checkpoint=record,
            )
        )
        if record is not None and checkpoint == "committed":
            progress = TrialProgress(
                trial_id=trial_id,
                iteration=record.iteration,
                time_total_s=record.time_total_s,
            )
            manifest.write(self.layout.checkpoint(trial.spec, record), progress=progress)
            self.add(Committed(trial_id=trial_id, index=record.index))

    def finish(self, trial_id: str) -> None:
        """The function returns and the worker ends."""
        attempt = self.trial(trial_id).attempt
        self.add(Returned(trial_id=trial_id, attempt=attempt))
        self.add(Exited(trial_id=trial_id, attempt=attempt, cause="ended"))

    def fail(
        self,
        trial_id: str,
        type_name: str = "ValueError",
        message: str = "oh no",
        *,
        exits: bool = True,
    ) -> None:
        """The function raises and the worker ends; the machine says whether it is retried."""
        trial = self.trial(trial_id)
        failure = Failure(
            kind="user",
            type_name=type_name,
            message=message,
            traceback=_TRACEBACK.format(headline=f"{type_name}: {message}"),
            pid=trial.place.pid,
            hostname=trial.place.hostname,
            node=trial.place.node,
        )
        self.add(Raised(trial_id=trial_id, attempt=trial.attempt, failure=failure))
        if exits:
            self.add(Exited(trial_id=trial_id, attempt=trial.attempt, cause="ended"))

    def write_files(self, *, snapshot: bool = False) -> None:
        """Let the projector write the trials' files, and a snapshot if wanted."""
        self._projector.catch_up()
        if snapshot:
            self._projector.snapshot()

    def ends(self, *, snapshot: bool = False) -> None:
        """Write the files, as `write_files` does, and close the journal."""
        self.write_files(snapshot=snapshot)
        self.close()

    def close(self) -> None:
        """The folder, also if the test has moved it."""
        self._journal.abandon()

    def _stage(self, trial: Trial) -> CheckpointRecord:
        folder = self.layout.trial(trial.spec) / checkpoint_dirname(trial.next_checkpoint)
        folder.mkdir(parents=True)
        content = f"model of iteration {trial.iteration + 1}".encode()
        (folder / "model.txt").write_bytes(content)
        (folder / ".holdfast-staged").touch()
        return CheckpointRecord(
            index=trial.next_checkpoint,
            iteration=trial.iteration + 1,
            attempt=trial.attempt,
            files=1,
            size_bytes=len(content),
            time_total_s=trial.time_total_s + 0.5,
        )
