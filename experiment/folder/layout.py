"""The names of all files that an experiment writes, on a disk or in a bucket. All are relative."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.syncer.checkpoint.reading import JOURNAL as JOURNAL
from holdfast.syncer.checkpoint.reading import LOCK as LOCK
from holdfast.syncer.checkpoint.reading import LOCK_WORKERS as LOCK_WORKERS
from holdfast.syncer.files.tree import OF_SCRIPT as OF_SCRIPT
from holdfast.trial.trial import (
    CheckpointRecord,
    TrialSpec,
    checkpoint_dirname,
    checkpoint_number,
    number_past,
)

TUNER = "tuner.pkl"
TRAINER = "trainer.pkl"
CALLBACKS = "callbacks.msgpack"
CURSOR_PREFIX = "tracker-"
UNDELIVERED_PREFIX = "undelivered-"
POLICY_LOG = "pbt_global.txt"
POLICY_LOG_PREFIX, POLICY_LOG_SUFFIX = "pbt_policy_", ".txt"
# The socket on which a live run takes orders.
CONTROL = "control.sock"
MIRROR_OF = ".mirror-of"
MIRROR_AT = ".mirror-at"
# In the name of a tree that a newer one from storage has replaced.
SET_ASIDE = ".before-"
STAGING = ".staging"
# The experiment's tree in the scratch folder of an agent.
ON_NODE = "experiment"
HEAD = "head.json"
NODES = "nodes.json"
# A copy of the file that `holdfast run` has read.
SWEEPS = ("sweep.yaml", "sweep.json", "sweep.toml")
SNAPSHOT_PREFIX = "experiment_state-"
VARIANTS_PREFIX = "basic-variant-state-"
PARAMS = "params.json"
RESULTS = "result.json"
PROGRESS = "progress.csv"
ERROR = "error.txt"
STDOUT = "stdout"
STDERR = "stderr"
EVENTS_PREFIX = "events.out.tfevents."
# Users' scripts may write event files into the same directory; this suffix marks holdfast's.
EVENTS_SUFFIX = ".holdfast"
CHECKPOINT_PREFIX = "checkpoint_"
# The files that holdfast writes into a trial's directory; all others there are artifacts.
TRIAL_FILES = (PARAMS, RESULTS, PROGRESS, ERROR, STDOUT, STDERR)


def is_trial_record(name: str) -> bool:
    """True if a file in a trial's directory is a record of holdfast rather than an artifact."""
    is_events = name.startswith(EVENTS_PREFIX) and name.endswith(EVENTS_SUFFIX)
    return is_events or name in TRIAL_FILES


def log_names_of(log_to_file: bool | str | Sequence[str]) -> tuple[str, str]:
    """The names of the output files. Output is always stored; the setting only names the files."""
    if isinstance(log_to_file, str):
        return log_to_file, log_to_file
    if isinstance(log_to_file, bool):
        return STDOUT, STDERR
    return log_to_file[0], log_to_file[1]


def rank_log(name: str, rank: int) -> str:
    """The output file of a rank after the first, next to the trial's own."""
    return f"{name}.rank-{rank}"


def of_rank_0(name: str) -> str:
    """The trial's own file for the file of a later rank; other names unchanged."""
    base, mark, rank = name.rpartition(".rank-")
    return base if mark and rank.isdecimal() else name


def is_the_experiments(name: str) -> bool:
    """True if a file in the experiment's own folder is one that holdfast writes."""
    if name in (TUNER, TRAINER, CALLBACKS, NODES, *SWEEPS) or is_policy_log(name):
        return True
    return name.startswith((SNAPSHOT_PREFIX, VARIANTS_PREFIX, CURSOR_PREFIX, UNDELIVERED_PREFIX))


def is_policy_log(name: str) -> bool:
    """True if a file in the experiment's folder logs which trial was cloned from which."""
    is_of_trial = name.startswith(POLICY_LOG_PREFIX) and name.endswith(POLICY_LOG_SUFFIX)
    return name == POLICY_LOG or is_of_trial


def is_checkpoint(name: str) -> bool:
    """True if a folder in a trial's directory has the name of a checkpoint."""
    return checkpoint_number(name) is not None


def free_number(folder: str, index: int) -> int:
    """The number from `index` on that a new checkpoint in a trial's folder may have."""
    while os.path.lexists(f"{folder}/{checkpoint_dirname(index)}"):
        index = number_past(index)
    return index


@dataclass(frozen=True, slots=True)
class Layout:
    """The tree of one experiment under its local directory `root`."""

    root: Path

    @property
    def journal(self) -> Path:
        return self.root / JOURNAL

    @property
    def tuner(self) -> Path:
        return self.root / TUNER

    @property
    def trainer(self) -> Path:
        """The file with the trainable of a training on several workers, next to tuner.pkl."""
        return self.root / TRAINER

    @property
    def callbacks(self) -> Path:
        return self.root / CALLBACKS

    @property
    def nodes(self) -> Path:
        """When the nodes of a live run were last heard from."""
        return self.root / NODES

    def tracker_cursor(self, file: str) -> Path:
        """A tracker's position in the journal."""
        return self.root / f"{CURSOR_PREFIX}{file}.json"

    def undelivered(self, file: str) -> Path:
        """The reports that a tracker had not received when the experiment ended; missing if there
        are none."""
        return self.root / f"{UNDELIVERED_PREFIX}{file}.json"

    @property
    def policy_log(self) -> Path:
        """The log of which trial was cloned from which."""
        return self.root / POLICY_LOG

    def policy_log_of(self, trial_id: str) -> Path:
        """The part of the policy's log that led to one trial's state."""
        return self.root / f"{POLICY_LOG_PREFIX}{trial_id}{POLICY_LOG_SUFFIX}"

    @property
    def lock(self) -> Path:
        return self.root / LOCK

    @property
    def locks(self) -> tuple[Path, Path]:
        """The locks that are held while anything runs in this folder."""
        return self.lock, self.root / LOCK_WORKERS

    @property
    def control(self) -> Path:
        """The socket on which a live run takes orders."""
        return self.root / CONTROL

    @property
    def mirror_of(self) -> Path:
        return self.root / MIRROR_OF

    @property
    def mirror_at(self) -> Path:
        return self.root / MIRROR_AT

    def trial(self, spec: TrialSpec) -> Path:
        return self.root / spec.dirname

    def checkpoint(self, spec: TrialSpec, record: CheckpointRecord) -> Path:
        return self.root / spec.dirname / record.dirname

    def staging(self, spec: TrialSpec) -> Path:
        """The folder in which a trial's checkpoints are assembled: next to them, on the same
        filesystem."""
        return self.root / spec.dirname / STAGING
