"""`holdfast doctor preflight`: tests a storage, and this machine, before a long run."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import LARGE_BYTES, ProbeOutcome, Step, probe
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.text.values import size

_SCARCE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightReport:
    """The result; `path` has no credentials."""

    path: str
    steps: tuple[Step, ...]

    @property
    def is_sound(self) -> bool:
        """Whether a run can use this storage, perhaps with fewer guarantees."""
        return all(step.outcome in (ProbeOutcome.OK, ProbeOutcome.WEAK) for step in self.steps)

    def plain(self) -> dict[str, Any]:
        """The report as JSON values."""
        steps = [
            {
                **asdict(step),
                "seconds": round(step.seconds, 4),
                "mib_per_s": None if step.mib_per_s is None else round(step.mib_per_s, 1),
            }
            for step in self.steps
        ]
        return {"path": self.path, "sound": self.is_sound, "steps": steps}


def preflight(uri: str, settings: Settings, *, large_bytes: int = LARGE_BYTES) -> PreflightReport:
    """Test a `storage_path` and the local directory. Raises InvalidLocation."""
    location = Location.resolve(uri, None, {})
    local = location.local_path
    is_direct = local is not None and not settings.explicit_local_dir
    work = Path(local) if local is not None and is_direct else settings.local_dir
    existed = local is None or os.path.isdir(local)
    try:
        steps = with_store(location, lambda store: probe(store, large_bytes=large_bytes))
    finally:
        if local is not None and not existed:
            _remove_if_empty(Path(local))
    # The directory in which a run writes its journal and checkpoints first.
    folder = next(path for path in (work, *work.parents) if path.is_dir())
    return PreflightReport(
        path=location.public, steps=(*steps, _try_lock(folder), _look_at_space(folder))
    )


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder that the test created, unless it has files."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _try_lock(folder: Path) -> Step:
    began = time.perf_counter()
    result, meaning = f"in {folder}", ""
    try:
        with tempfile.TemporaryDirectory(prefix=".holdfast-preflight-", dir=folder) as made:
            ExperimentLock(Path(made) / "lock", deadline_s=0).release()
    except StorageError as error:
        result, meaning = error.cause, error.advice
    except OSError as error:
        result = f"{error.strerror}: {error.filename}"
        meaning = "Set RAY_AIR_LOCAL_CACHE_DIR to a directory that you may write to"
    return Step(
        name="lock",
        outcome=ProbeOutcome.FAILED if meaning else ProbeOutcome.OK,
        seconds=time.perf_counter() - began,
        told=result,
        meaning=meaning,
    )


def _look_at_space(folder: Path) -> Step:
    free = shutil.disk_usage(folder).free
    is_scarce = free < _SCARCE_BYTES
    return Step(
        name="space",
        outcome=ProbeOutcome.WEAK if is_scarce else ProbeOutcome.OK,
        told=f"{size(free)} free in {folder}",
        meaning="Checkpoints are written here first, even if they are stored elsewhere."
        if is_scarce
        else "",
    )
