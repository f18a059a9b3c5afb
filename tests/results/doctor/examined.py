"""An experiment as the doctor sees it, and what its report says."""

from __future__ import annotations

from pathlib import Path

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.results.doctor.findings import DoctorReport
from holdfast.results.reading import ExperimentSite

SETTINGS = Settings(local_dir=Path("/nowhere"))


def case(root: Path) -> ExperimentSite:
    return ExperimentSite(shown=str(root), layout=Layout(root), remote=None)


def kinds(report: DoctorReport) -> list[str]:
    return [finding.kind for finding in report.findings]


def facts(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything that reading must not change: names, modes, times, bytes."""
    found = {}
    for path in [root, *root.rglob("*")]:
        told = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (told.st_mode, told.st_mtime_ns, content)
    return found


def newest_checkpoint(root: Path) -> Path:
    return sorted(root.glob("*_00000_*/checkpoint_*"))[-1]
