"""Reads what Slurm's commands print. Pure: no I/O.

`squeue --json` needs plugins that many clusters do not have, and accounting (`sacct`) may be off.
"""

from __future__ import annotations

import re

from holdfast.dataclass import dataclass
from holdfast.names import printable

# The fields of a row, in squeue's letters: id, name, state, reason, time used, time left, node.
FIELDS = ("%i", "%j", "%T", "%r", "%M", "%L", "%N")

_ID = re.compile(r"(\d+)_(\d+)")
_SUBMITTED = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)
_TIME = re.compile(r"(?:(\d+)-)?(\d+(?::\d+){0,2})")
_EXIT = re.compile(r"\bExitCode=(\d+):(\d+)\b")
_KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+) sec", re.MULTILINE)
# What the commands print if the controller did not answer: nobody knows what it has done.
_UNREACHABLE = re.compile(
    r"Unable to contact|timed out|Socket|Connection |Zero Bytes|Transport|Slurm temporarily"
    r"|backup controller|still in standby|fully initialized|Resource temporarily unavailable",
    re.IGNORECASE,
)
_OVER = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "REVOKED", "SPECIAL_EXIT", "TIMEOUT",
    }
)  # fmt: skip
# Reasons of pending jobs that no waiting changes.
_HOPELESS = re.compile(
    r"PartitionTimeLimit|PartitionNodeLimit|AccountNotAllowed|QOSNotAllowed|InvalidAccount"
    r"|InvalidQOS|BadConstraints|(Assoc|QOS)Max\w+PerJob(Limit)?|DependencyNeverSatisfied"
    r"|(Assoc|QOS)MaxWallDurationPerJob(Limit)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job in squeue's list: member `number` of the array `array`. Times are in seconds;
    `left_s` is None if the job has no limit, or has not begun."""

    array: str
    number: int
    name: str
    state: str
    reason: str = ""
    used_s: float = 0.0
    left_s: float | None = None
    node: str = ""

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def is_hopeless(self) -> bool:
        """Whether it can never start as it is."""
        return self.is_pending and bool(_HOPELESS.fullmatch(self.reason))


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with one job; `left_s` as in `Row`."""

    state: str
    left_s: float | None = None

    @property
    def is_over(self) -> bool:
        return self.state in _OVER


def standing_in(text: str) -> Standing | None:
    """The answer of squeue about one job; None if there is none."""
    lines = [line.split("|") for line in text.splitlines()]
    found = [line for line in lines if len(line) == 2]
    return Standing(printable(found[0][0].strip()), seconds_in(found[0][1])) if found else None


def is_unknown(text: str) -> bool:
    """Whether a command has failed because Slurm does not know the job any more."""
    return "Invalid job id" in text


def rows_in(text: str) -> list[Row]:
    """The rows of an answer of squeue, without those of jobs that are not in an array."""
    return [row for line in text.splitlines() if (row := _row(line.strip().split("|")))]


def _row(fields: list[str]) -> Row | None:
    # Another job's name may contain a bar. Ours does not.
    if len(fields) != len(FIELDS) or not (job := _ID.fullmatch(fields[0])):
        return None
    _, name, state, reason, used, left, node = map(printable, fields)
    return Row(
        array=job[1],
        number=int(job[2]),
        name=name,
        state=state,
        reason="" if reason == "None" else reason,
        used_s=seconds_in(used) or 0.0,
        left_s=None if state == "PENDING" else seconds_in(left),
        node=node,
    )


def seconds_in(text: str) -> float | None:
    """The seconds of `[days-]hours:minutes:seconds` and its shorter forms, as Slurm's options
    read them, and as squeue prints them. None for UNLIMITED, INVALID and the like."""
    if not (found := _TIME.fullmatch(text.strip())):
        return None
    days, parts = found[1], [float(part) for part in found[2].split(":")]
    # 5 is minutes, 5:30 is minutes and seconds; after days, the first part is hours.
    if days is not None:
        hours, minutes, seconds = [*parts, 0.0, 0.0][:3]
        return float(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(parts) == 1:
        return parts[0] * 60
    hours, minutes, seconds = [0.0, *parts][-3:]
    return hours * 3600 + minutes * 60 + seconds


def submitted_in(text: str) -> str | None:
    """The id that `sbatch --parsable` prints, which a site's own messages may surround."""
    found = _SUBMITTED.findall(text)
    return found[-1] if found else None


def is_unreachable(text: str) -> bool:
    """Whether a command has failed because the controller did not answer."""
    return bool(_UNREACHABLE.search(text))


def kill_wait_in(text: str) -> float | None:
    """The seconds from SIGTERM to SIGKILL, from `scontrol show config`."""
    found = _KILL_WAIT.search(text)
    return None if found is None else float(found[1])


def exit_in(text: str) -> str:
    """How a job has ended, from `scontrol show job`; "" if it does not say."""
    found = _EXIT.search(text)
    if found is None:
        return ""
    code, signum = int(found[1]), int(found[2])
    return f"signal {signum}" if signum else exit_status(code)


def exit_status(code: int) -> str:
    return f"exit status {code}"
