"""What the doctor says: findings and deeds, as values that people and scripts read alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"  # something is lost, or cannot be relied on
    WARNING = "warning"  # it is not as it should be, and nothing is lost by that
    NOTE = "note"  # worth knowing; nothing is wrong


class Remedy(StrEnum):
    """Which command mends it."""

    NONE = ""
    REPAIR = "repair"
    SYNC = "sync"
    GC = "gc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found.

    `kind` is a name that does not change, for scripts. `where` is a path inside the experiment, or
    a place in storage; `advice` is what to do where no command of the doctor's does it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One thing that was done, or would be: `is_done` tells."""

    what: str
    where: str
    is_done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """What a command of the doctor's has come to. `looked_at` counts what was looked at."""

    path: str
    findings: tuple[Finding, ...] = ()
    deeds: tuple[Deed, ...] = ()
    looked_at: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_sound(self) -> bool:
        return not any(finding.is_wrong for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "path": self.path,
            "sound": self.is_sound,
            "findings": [asdict(finding) for finding in self.findings],
            "done": [asdict(deed) for deed in self.deeds],
            "looked_at": dict(self.looked_at),
            "seconds": round(self.seconds, 3),
        }


_ORDER = {severity: rank for rank, severity in enumerate(Severity)}


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, each once."""
    return tuple(
        sorted(dict.fromkeys(findings), key=lambda f: (_ORDER[f.severity], f.where, f.kind))
    )
