"""Functions for user code about the trial that it runs in, also those of Ray up to 2.6."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, ParamSpec

from holdfast.compat import ray_path
from holdfast.experiment.worker.session import Session, TrialStopped, current, here, running
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trees import try_to_delete
from holdfast.trial.errors import InvalidMetrics
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import CheckpointUploadMode, checkpoint_number

if TYPE_CHECKING:
    import torch

    from holdfast.experiment.worker.train_loop import ValidationTaskConfig


def get_devices() -> list[torch.device]:
    """The devices of this rank: its GPUs, or the CPU if it has none."""
    import torch

    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own = range(visible)
    session = running()
    if session is not None and session.assignment.world_size > 1:
        share = session.assignment.bundles[1].get("GPU", 0)
        own = gpus_of(session.assignment.local_rank, share)
    found = [torch.device("cuda", index) for index in own if index < visible]
    return found or [torch.device("cpu")]


def gpus_of(rank: int, share: float) -> range:
    """The GPUs of the trial on this machine that the rank with this local number uses.

    Fractions of one GPU are given out in order.
    """
    first = int(rank * share)
    return range(first, max(int((rank + 1) * share), first + 1) if share else first)


def get_device() -> torch.device:
    """The device for this rank's model and data."""
    return get_devices()[0]


def sums(amounts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums by the names of resources."""
    total: dict[str, float] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def resources_of(session: Session) -> dict[str, float]:
    """The resources of this worker: a rank's own bundle, or all of its trial's."""
    assignment = session.assignment
    bundles = assignment.bundles if session.job.group is None else [assignment.own_bundle]
    return {name: amount for name, amount in sums(bundles).items() if amount}


def gpus_used(session: Session) -> list[str]:
    """The names of the GPUs that this worker uses: the trial's; a rank, which sees those of all
    ranks on its node, its part of them."""
    assignment = session.assignment
    if session.job.group is None:
        return list(assignment.gpus)
    own = gpus_of(assignment.local_rank, assignment.own_bundle.get("GPU", 0))
    return [assignment.gpus[at] for at in own if at < len(assignment.gpus)]


_PARAMETER: Final = "checkpoint_dir"


@contextmanager
def checkpoint_dir(step: Any) -> Iterator[str]:
    """A new directory. With the files that the block writes there, it is the checkpoint of the
    next report, unless that report has one of its own. `step` has no effect.

    Raises NotInTrial outside a trial.
    """
    if (session := here("tune.checkpoint_dir()")) is None:
        with TemporaryDirectory() as unused:
            yield unused
        return
    folder = str(session.staging_directory())
    yield folder
    session.waiting = Checkpoint.from_directory(folder)


def is_session_enabled() -> bool:
    """True if the caller runs in a trial."""
    return running() is not None


@contextmanager
def older_arguments(trainable: Any, session: Session) -> Iterator[dict[str, str]]:
    """`checkpoint_dir=`, the files to resume from, for a function with such a parameter whose
    default is None; they are there until the block ends."""
    start = session.checkpoint() if ray_path.is_active() and _takes_it(trainable) else None
    if start is None:
        yield {}
        return
    with start.as_directory() as folder:
        yield {_PARAMETER: folder}


def _takes_it(trainable: Any) -> bool:
    try:
        found = inspect.signature(trainable).parameters.get(_PARAMETER)
    except ValueError:  # a builtin without a signature
        return False
    return found is not None and found.default is None


P = ParamSpec("P")
_KEYWORDS = (
    *("metrics", "checkpoint", "checkpoint_dir_name", "checkpoint_upload_mode", "validation"),
    *("delete_local_checkpoint_after_upload", "checkpoint_upload_fn"),
)
UploadFn = Callable[[Checkpoint, str], Checkpoint]
_has_told: list[bool] = []


def get_context() -> TuneContext:
    """Facts about the running trial. Raises NotInTrial outside a trial."""
    session = here("tune.get_context()")
    return _Outside() if session is None else TuneContext(session)


class TrainContext:
    """Facts about the trial that this process runs, alone or as one of several ranks."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_trial_id(self) -> str:
        """The same over all attempts and restores: a key for trackers."""
        return self._session.assignment.trial_id

    def get_trial_name(self) -> str:
        """The name of the trial, as the progress table and the logs show it."""
        return self._session.assignment.trial_name

    def get_trial_dir(self) -> str:
        """The trial's local directory; also its working directory unless that is turned off."""
        return str(self._session.trial_dir)

    def get_trial_resources(self) -> PlacementGroupFactory:
        """The CPUs, GPUs and custom resources that the trial holds."""
        return self._session.assignment.resources

    def get_experiment_name(self) -> str:
        """The name of the experiment: `RunConfig.name`, or a generated one."""
        return self._session.job.experiment_name

    def get_storage(self) -> str:
        """The experiment's storage, without credentials."""
        return self._session.job.storage

    def get_original_working_dir(self) -> str:
        """The directory in which the script was started."""
        return self._session.job.working_dir

    def get_attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._session.assignment.attempt

    def preemption_requested(self) -> bool:
        """True if this trial is being preempted (SIGTERM): report a checkpoint now.

        That report does not return. Without one, the attempt ends after
        `FailureConfig.preemption_grace_s` seconds. In both cases the trial later resumes from its
        newest checkpoint.
        """
        return self._session.is_preempted

    def get_metadata(self) -> Mapping[str, Any]:
        """A copy of the trainer's `metadata`; empty if it has none."""
        return dict(self._session.job.metadata)

    def get_world_size(self) -> int:
        """The number of workers that train this trial together."""
        return self._session.assignment.world_size

    def get_world_rank(self) -> int:
        """The number of this worker among them, from 0."""
        return self._session.assignment.rank

    def get_local_rank(self) -> int:
        """The number of this worker among those on this machine, from 0."""
        return self._session.assignment.local_rank

    def get_local_world_size(self) -> int:
        """The number of them on this machine."""
        return self._session.assignment.local_world_size

    def get_node_rank(self) -> int:
        """The number of this worker's machine among those of the trial, from 0."""
        return self._session.assignment.node_rank


class TuneContext(TrainContext):
    """Facts about the running trial: `TrainContext` under the name that Tune uses."""


class _Outside(TuneContext):
    """The context of a script for Ray outside a trial: one rank, and None for any other fact."""

    def __init__(self) -> None:
        """Without a session."""

    def __getattribute__(self, name: str) -> Any:
        if not hasattr(TuneContext, name) or name.startswith("_"):
            return super().__getattribute__(name)
        return lambda: 1 if name.endswith("_size") else 0 if name.endswith("_rank") else None


def _with_a_dict(call: Callable[P, None]) -> Callable[P, None]:
    """Explain a call such as `report(loss=0.3)` or `report(0.3, step)`, which other libraries
    have. In a script that imports `ray`, `report(loss=0.3)` is `report({"loss": 0.3})`, as it was
    up to Ray 2.6."""

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            if not args and (older := _older_metrics(kwargs)):
                rest: Any = {name: value for name, value in kwargs.items() if name not in older}
                report(older, **rest)
            else:
                call(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # not of this call, but of the code behind it
            names = [name for name in kwargs if name not in _KEYWORDS] or ["loss"]
            metrics = ", ".join(f"{name!r}: ..." for name in names[:3])
            raise InvalidMetrics(
                f"{error}. Pass all metrics in one dict: report({{{metrics}}})"
            ) from None

    return called


def _older_metrics(given: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics among the keywords of a report; none if they are in a dict, and none where
    `import ray` does not mean holdfast."""
    if "metrics" in given or not ray_path.is_active():
        return {}
    return {name: value for name, value in given.items() if name not in _KEYWORDS}


@_with_a_dict
def report(
    metrics: Mapping[Any, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode | str = CheckpointUploadMode.ASYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: UploadFn | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Report one iteration of the trial, and optionally a checkpoint of it.

    Returns once the row is in the journal on the local disk and the checkpoint is complete next to
    it: then no crash of a process loses them. NumPy and torch scalars become numbers, keys text,
    dates and times ISO text, durations seconds (see `plain_metrics`). The checkpoint's directory
    is copied, unless it came from `staging_directory()`; you may delete it afterwards.
    `checkpoint_upload_mode` says whether to wait for storage too, or not to upload the checkpoint.
    Checkpoints are numbered (`checkpoint_000000` and so on), which shows what a crash has cut off;
    so `checkpoint_dir_name` does not name the folder, which is said once.

    `delete_local_checkpoint_after_upload=True` removes the checkpoint's directory before this
    returns: by then holdfast has its own copy. `checkpoint_upload_fn(checkpoint, name)` is called
    first, and the Checkpoint that it returns is reported; not with NO_UPLOAD. `validation`, in the
    loop of a trainer with a `validation_config`: True, or a ValidationTaskConfig; the metrics of
    the validation function are added to the row.

    Raises NotInTrial outside a trial, InvalidMetrics for values that cannot be stored, and
    TuneError if a SYNC checkpoint does not reach storage (it stays on this machine). If the trial
    must stop, it unwinds the function with a SystemExit.
    """
    if checkpoint is not None and not isinstance(metrics, Mapping):
        raise InvalidMetrics(
            f"report() takes one dict of metrics, not {metrics!r:.100}. Pass all metrics in one "
            f"dict: report({{'loss': ...}})"
        )
    if (session := here("tune.report()")) is None:
        return
    given = checkpoint
    if checkpoint is None and session.waiting is not None:
        checkpoint, session.waiting = session.waiting, None
    if isinstance(checkpoint, Checkpoint):
        if checkpoint_dir_name is not None and checkpoint_upload_fn is None:
            tell_numbered(session, checkpoint_dir_name)
        checkpoint = uploaded(
            session, checkpoint, checkpoint_dir_name, checkpoint_upload_fn, checkpoint_upload_mode
        )
    try:
        session.report(metrics, checkpoint, checkpoint_upload_mode, validation)
    except TrialStopped:
        _delete(session, given, delete_local_checkpoint_after_upload)
        raise
    _delete(session, given, delete_local_checkpoint_after_upload)


def _delete(session: Session, checkpoint: object, wanted: bool | None) -> None:
    if wanted and isinstance(checkpoint, Checkpoint):
        delete_local(session, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """The checkpoint to resume from, or the newest one reported since; None if there is none.

    With `num_to_keep`, the checkpoint that the trial resumed from stays until a later one is
    committed, soon after its report. To read from it for longer, as mapped weights do, keep it
    open in `with checkpoint.as_directory()`: an open checkpoint is not removed.

    Raises NotInTrial outside a trial.
    """
    session = here("tune.get_checkpoint()")
    return None if session is None else session.checkpoint()


def staging_directory() -> str:
    """A new directory for a checkpoint, which `report` renames instead of copying.

    Write the files there and pass `Checkpoint.from_directory(path)` to `report`; from then on the
    directory is the checkpoint, and you must not change it. It is on the trial's disk, next to its
    checkpoints. One that was never reported is removed before the trial runs again. Raises
    NotInTrial outside a trial.
    """
    return str(current("tune.staging_directory()").staging_directory())


def uploaded(
    session: Session,
    checkpoint: Checkpoint,
    name: str | None,
    upload: Any,
    mode: CheckpointUploadMode | str,
) -> Checkpoint:
    """The checkpoint that the user's `checkpoint_upload_fn` returns, or else the same.

    Raises InvalidMetrics if the function returns anything else, and what it raises.
    """
    if upload is None or mode == CheckpointUploadMode.NO_UPLOAD:
        return checkpoint
    found = upload(checkpoint, name or session.next_dirname)
    if not isinstance(found, Checkpoint):
        raise InvalidMetrics(
            f"checkpoint_upload_fn must return the Checkpoint that it has made, not {found!r:.100}"
        )
    return found


def tell_numbered(session: Session, name: str) -> None:
    """Say once, in one rank, that folders of checkpoints have no other names."""
    if not _has_told and session.assignment.rank == 0:
        _has_told.append(True)
        print(
            f"holdfast: checkpoint_dir_name={name!r} is not used: folders of checkpoints are "
            f"numbered, so that a restore knows what a crash has cut off",
            file=sys.stderr,
        )


def delete_local(session: Session, checkpoint: Checkpoint) -> None:
    """Remove the directory that a checkpoint was reported from, unless it is one that the trial
    keeps."""
    local = checkpoint.location.local_path
    if local is None:
        return
    path, own = Path(local).resolve(), session.trial_dir.resolve()
    inside = path.relative_to(own).parts if path.is_relative_to(own) else ("",)
    if inside and checkpoint_number(inside[0]) is None:
        try_to_delete(local)  # of a link, only the link
