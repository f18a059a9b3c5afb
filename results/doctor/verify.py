"""`holdfast doctor verify`: checks everything and changes nothing."""

from __future__ import annotations

import time
from enum import StrEnum

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import LOCK, MIRROR_OF
from holdfast.results.doctor import examination, storage
from holdfast.results.doctor.findings import DoctorReport, Finding, note, ordered
from holdfast.results.doctor.storage import StorageTree
from holdfast.results.doctor.tree import Tree
from holdfast.results.reading import ExperimentSite
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.lock import current_holder


class Depth(StrEnum):
    """The extent of a verification."""

    QUICK = "quick"  # names and sizes
    CHECKSUMS = "checksums"  # every byte on this machine
    DOWNLOAD = "download"  # and every byte in storage


@dataclass(slots=True)
class Examined:
    """The contents of this machine and of storage; None for a side that has none."""

    tree: Tree | None
    stored: StorageTree | None
    findings: tuple[Finding, ...]
    looked_at: dict[str, int]


def verify(target: ExperimentSite, *, depth: Depth = Depth.CHECKSUMS) -> DoctorReport:
    """Check an experiment without changing a byte, creating a file or taking a lock.

    The experiment may be running. Raises OSError or StorageError if a side cannot be read at all.
    """
    began = time.monotonic()
    user = current_holder(target.layout.lock) if target.layout is not None else ""
    examined = examine(target, depth=depth, user=user)
    if target.layout is not None and not user and (user := current_holder(target.layout.lock)):
        # A run started meanwhile: what was read may be incomplete.
        examined = examine(target, depth=depth, user=user)
    return DoctorReport(
        path=target.shown,
        findings=examined.findings,
        looked_at=examined.looked_at,
        seconds=time.monotonic() - began,
    )


def examine(
    target: ExperimentSite,
    *,
    depth: Depth = Depth.CHECKSUMS,
    user: str = "",
) -> Examined:
    """Check this machine and storage. `user` names the process that runs the experiment."""
    findings: list[Finding] = []
    looked_at: dict[str, int] = {}
    here = stored = None
    if user:
        findings.append(_in_use(user))
    if target.layout is not None:
        here = examination.examine(
            target.layout,
            in_use=bool(user),
            with_checksums=depth is not Depth.QUICK,
            is_mirror=target.remote is not None or bool(target.kept_in),
        )
        findings += here.findings
        looked_at |= here.looked_at
    if target.kept_in:
        findings.append(_not_named(target.kept_in, here))
    if target.remote is not None:
        stored = storage.gather(target.remote, target.layout)
        if depth is Depth.DOWNLOAD:
            _download(target.remote, stored, looked_at)
        findings += storage.storage_findings(stored, here, in_use=bool(user))
        if not user:
            findings += _garbage(stored, here)
        looked_at |= _counts(stored, alone=here is None)
    return Examined(tree=here, stored=stored, findings=ordered(findings), looked_at=looked_at)


def _download(remote: Location, stored: StorageTree, looked_at: dict[str, int]) -> None:
    committed = (checkpoint.folder for checkpoint in storage.committed(stored))
    whole = [folder for folder in committed if not stored.fault(folder)]
    looked_at["downloaded_bytes"] = storage.download_all(remote, stored, whole)


def _garbage(stored: StorageTree, here: Tree | None) -> list[Finding]:
    findings = examination.garbage_findings(storage.storage_garbage(stored, here))
    return [storage.in_storage(finding) for finding in findings]


def _counts(stored: StorageTree, *, alone: bool) -> dict[str, int]:
    counts = {"objects": len(stored.entries)}
    if alone:
        checkpoints = storage.committed(stored)
        counts |= stored.published.looked_at
        counts |= {
            "checkpoints": len(checkpoints),
            "checkpoint_bytes": sum(one.record.size_bytes for one in checkpoints),
        }
    return counts


def _in_use(user: str) -> Finding:
    return note(
        "in-use",
        LOCK,
        f"{user} is running it now: files that are being written (row files, the newest "
        "checkpoints) are not checked",
    )


def _not_named(kept_in: str, here: Tree | None) -> Finding:
    missing = 0 if here is None else sum(not (here.layout.root / f).is_dir() for f in here.broken)
    only = f"; {missing} checkpoints are not on this machine" if missing else ""
    return note(
        "storage-not-named",
        MIRROR_OF,
        f"it is also stored in {kept_in}, which was not checked{only}",
        advice="Pass the URI of the experiment there as PATH, or as --storage",
    )
