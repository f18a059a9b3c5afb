"""Trainables as classes."""

from __future__ import annotations

import json
import math
import os
import pickle
import tempfile
import time
from pathlib import Path
from typing import Any

from holdfast.experiment.worker.session import running
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import TuneError

# Holds the dict that save_checkpoint() may return instead of writing files.
STATE_FILE = "trainable_state.pkl"
# Holds the iteration and the training time of a checkpoint.
PROGRESS_FILE = ".trainable.json"


class Trainable:
    """Base class: `setup` once, `step` for each iteration, `save_checkpoint` and
    `load_checkpoint`.

    Outside a trial it works step by step: `train()`, `save()`, `restore()`.
    """

    def __init__(self, config: dict[str, Any] | None = None, storage: Any = None) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._iteration = 0
        self._time_total_s = 0.0
        self._began = time.time()
        self.setup(dict(self.config))

    # -- for the subclass ------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare to train with `config`."""

    def step(self) -> dict[str, Any]:
        """Do one iteration and return its metrics; `{"done": True}` among them ends the trial."""
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any] | None:
        """Write the state into `checkpoint_dir`, or return it as a dict."""
        raise NotImplementedError(f"{type(self).__name__} must define save_checkpoint()")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load the state from the directory, or from the dict that `save_checkpoint` returned."""
        raise NotImplementedError(f"{type(self).__name__} must define load_checkpoint()")

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start again with `new_config` in the same object. Return False if that is not
        possible."""
        return False

    def cleanup(self) -> None:
        """Release what `setup` acquired; called once at the end."""

    def log_result(self, result: dict[str, Any]) -> None:
        """Called in the worker with each result before it is reported."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> Any:
        """The resources that a trial with `config` needs; None for one CPU."""
        return None

    # -- facts -----------------------------------------------------------------------------------

    @property
    def iteration(self) -> int:
        """Iterations done, over all attempts."""
        return self._iteration

    @property
    def training_iteration(self) -> int:
        """The same as `iteration`."""
        return self._iteration

    @property
    def trial_id(self) -> str:
        """The id of the trial; "default" outside a trial."""
        session = running()
        return session.assignment.trial_id if session else "default"

    @property
    def trial_name(self) -> str:
        """The name of the trial; outside a trial the name of the class."""
        session = running()
        return session.assignment.trial_name if session else type(self).__name__

    @property
    def logdir(self) -> str:
        """The trial's directory; outside a trial the working directory."""
        session = running()
        return str(session.trial_dir) if session else os.getcwd()

    @property
    def trial_resources(self) -> Any:
        """The resources of the trial, a `PlacementGroupFactory`; None outside a trial."""
        session = running()
        return session.assignment.resources if session else None

    def get_config(self) -> dict[str, Any]:
        """The config of the trial: the dict itself, not a copy."""
        return self.config

    # -- for those who drive it ------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Do one iteration. Returns the result of `step` with `training_iteration` and times
        (seconds)."""
        began = time.perf_counter()
        result = self.step()
        if not isinstance(result, dict):
            raise TuneError(
                f"{type(self).__name__}.step() must return a dict of metrics, not {result!r:.80}"
            )
        elapsed = time.perf_counter() - began
        self._iteration += 1
        self._time_total_s += elapsed
        result = {
            "training_iteration": self._iteration,
            "time_this_iter_s": elapsed,
            "time_total_s": self._time_total_s,
            "done": False,
            **result,
        }
        self.log_result(result)
        return result

    def save(self, checkpoint_dir: str | None = None) -> Checkpoint:
        """Write a checkpoint into a directory (a new temporary one by default)."""
        directory = checkpoint_dir or tempfile.mkdtemp(prefix="holdfast-")
        os.makedirs(directory, exist_ok=True)
        state = self.save_checkpoint(directory)
        if isinstance(state, dict):
            with open(os.path.join(directory, STATE_FILE), "wb") as file:
                pickle.dump(state, file)
        progress = {"training_iteration": self._iteration, "time_total_s": self._time_total_s}
        Path(directory, PROGRESS_FILE).write_text(json.dumps(progress))
        return Checkpoint.from_directory(directory)

    def restore(self, checkpoint: Checkpoint | str) -> None:
        """Load the state of a checkpoint that `save` made, and its `iteration`."""
        given = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
        with given.as_directory() as directory:
            self.begin_at(*_progress(directory, self._iteration, self._time_total_s))
            state = Path(directory, STATE_FILE)
            if state.exists():
                session = running()
                if session is not None and not session.job.trusted:
                    raise TuneError(
                        f"the checkpoint {given.path} holds a pickled dict, but trusted=False "
                        f"unpickles nothing: have save_checkpoint() write files, or trust the "
                        f"experiment's folder"
                    )
                # The user's own object, written by their save_checkpoint() above.
                self.load_checkpoint(pickle.loads(state.read_bytes()))
            else:
                self.load_checkpoint(directory)

    def begin_at(self, iteration: int, time_total_s: float) -> None:
        """Continue counting from a restored checkpoint's iteration and training time."""
        self._iteration, self._time_total_s = iteration, time_total_s

    def reset(self, new_config: dict[str, Any], storage: Any = None) -> bool:
        """Call `reset_config` and, on success, reset the counts for a new trial."""
        if not self.reset_config(new_config):
            return False
        self.config = dict(new_config)
        self.begin_at(0, 0.0)
        return True

    def stop(self) -> None:
        """Call `cleanup`."""
        self.cleanup()


def _progress(directory: str, iteration: int, time_total_s: float) -> tuple[int, float]:
    """The iteration and time of a checkpoint; the arguments, for a checkpoint of a release that
    did not store them."""
    try:
        found = json.loads(Path(directory, PROGRESS_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return iteration, time_total_s
    match found:
        case {"training_iteration": int(known), "time_total_s": float() | int() as seconds} if (
            known >= 0 and math.isfinite(seconds)
        ):
            return known, float(seconds)
    return iteration, time_total_s
