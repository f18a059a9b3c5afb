"""The doctor's output: findings and actions, for people and scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from enum import StrEnum
from functools import partial
from typing import Any

from holdfast.dataclass import dataclass


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"  # something is lost or unreliable
    WARNING = "warning"  # something is wrong, but nothing is lost
    NOTE = "note"  # information; nothing is wrong


class Remedy(StrEnum):
    """The command that repairs it."""

    NONE = ""
    REPAIR = "repair"
    SYNC = "sync"
    GC = "gc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    `kind` is a stable name for scripts. `where` is a path inside the experiment, or a place in
    storage. `advice` says what to do if no command of the doctor does it.
    """

    kind: str
    severity: Severity
    where: str
    what: str
    advice: str = ""
    remedy: Remedy = Remedy.NONE

    @property
    def is_wrong(self) -> bool:
        return self.severity is not Severity.NOTE


def _finding(
    severity: Severity,
    kind: str,
    where: str,
    what: str,
    *,
    advice: str = "",
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    return Finding(
        kind=kind, severity=severity, where=where, what=what, advice=advice, remedy=remedy
    )


# `problem("journal-torn", where, what)`: a Finding of this severity.
problem = partial(_finding, Severity.ERROR)
warning = partial(_finding, Severity.WARNING)
note = partial(_finding, Severity.NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One change that was made or, if `is_done` is false, would be made."""

    what: str
    where: str
    is_done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """The result of a doctor command. `looked_at` counts what was checked."""

    path: str
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()
    looked_at: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not any(finding.is_wrong for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "path": self.path,
            "sound": self.is_sound,
            "findings": [asdict(finding) for finding in self.findings],
            "done": [asdict(action) for action in self.actions],
            "looked_at": dict(self.looked_at),
            "seconds": round(self.seconds, 3),
        }


_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without duplicates, the most serious first."""
    return tuple(
        sorted(dict.fromkeys(findings), key=lambda f: (_ORDER[f.severity], f.where, f.kind))
    )
