"""What is known of each job, and what follows from it. Pure: no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from holdfast.dataclass import dataclass
from holdfast.runtime.engines.slurm.commands import Row

# The end of a job is announced so long before its time limit, but not in the first three quarters
# of a short job.
NOTICE_S = 60.0
_NOTICE_PART = 0.25
# A job that squeue does not list so many times in a row has ended: one answer may be incomplete.
_UNSEEN = 2
# A new job may have a reason that the scheduler has not judged yet.
_HOPELESS = 2
# An agent that ends sooner by itself has not worked.
SOON_S = 10.0
# If so many jobs have failed, it is not one bad node; if some were cancelled so often, somebody
# does not want them.
ATTEMPTS = 3
_BY_SLURM = frozenset({"CANCELLED", "DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
# The reasons of jobs whose agent was killed, by somebody else.
_KILLED = frozenset({"RaisedSignal:9(Killed)", "RaisedSignal:15(Terminated)"})
_ENDS = {
    "BOOT_FAIL": "could not start: its node did not boot",
    "CANCELLED": "was cancelled (scancel)",
    "COMPLETED": "ended",
    "DEADLINE": "reached its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "lost its node, which failed or was taken down",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted by another job",
    "TIMEOUT": "reached its time limit",
}
# What the user can do about a reason for which a job never starts.
_REMEDIES = {
    "PartitionTimeLimit": "the time limit is longer than the partition allows",
    "PartitionNodeLimit": "the partition has no node for it",
    "BadConstraints": "no node has what the job asks for",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
}


@dataclass(slots=True, kw_only=True)
class Job:
    """A job of ours: member `number` of the batch `name`. `array` is Slurm's id of the batch; ""
    until it is known. `ordered` says why holdfast ends it; "" if it does not. `is_cancelled`:
    Slurm was asked to end it. `is_useless`: it would never be a node. `is_leaving`: its end was
    announced. `is_unreached`: its agent could not reach this machine. `has_answered`: its agent
    has begun. `unseen` and `hopeless` count answers of squeue in a row.
    """

    ticket: str
    name: str
    number: int
    array: str = ""
    row: Row | None = None
    ordered: str = ""
    is_cancelled: bool = False
    is_useless: bool = False
    is_unreached: bool = False
    is_leaving: bool = False
    has_answered: bool = False
    unseen: int = 0
    hopeless: int = 0

    @property
    def id(self) -> str:
        """Slurm's id."""
        return f"{self.array}_{self.number}"

    @property
    def is_held(self) -> bool:
        """True if it counts as one of the nodes that are wanted."""
        return not self.ordered and not self.is_leaving

    @property
    def is_pending(self) -> bool:
        return self.row is None or self.row.is_pending

    @property
    def is_over(self) -> bool:
        return self.unseen >= _UNSEEN or (self.row is not None and self.row.is_over)

    @property
    def is_hopeless(self) -> bool:
        return self.hopeless >= _HOPELESS

    @property
    def was_cancelled(self) -> bool:
        """True if somebody else has cancelled it."""
        return self.row is not None and self.row.state == "CANCELLED" and not self.is_cancelled

    @property
    def has_worked(self) -> bool:
        """True if its agent ran, as far as one can see after its end."""
        row = self.row
        if row is None or not row.node or self.is_useless:
            return False
        return row.state in _BY_SLURM or row.reason in _KILLED or row.used_s >= SOON_S

    @property
    def is_certain(self) -> bool:
        """True if another attempt would fail, too: Slurm has said that it will not run it, or its
        agent has tried for long to reach this machine."""
        return self.is_useless and (self.is_pending or self.is_unreached)

    @property
    def is_steady(self) -> bool:
        """True if it runs for long enough to say that it works."""
        row = self.row
        return row is not None and not row.is_over and row.used_s >= SOON_S

    @property
    def has_failed(self) -> bool:
        """True if its agent was of no use, as far as one can see after its end."""
        return self.is_useless or not (self.has_worked or self.ordered or self.was_cancelled)

    @property
    def seconds_left(self) -> float | None:
        return None if self.row is None or self.row.is_over else self.row.left_s

    def see(self, row: Row | None) -> None:
        """Take its state from an answer of squeue; None if it is not listed."""
        if not self.array:
            return
        if row is None:
            self.unseen += 1
        else:
            self.row, self.unseen = row, 0
            self.hopeless = self.hopeless + 1 if row.is_hopeless else 0

    def order(self, why: str) -> None:
        """holdfast ends it."""
        self.ordered = self.ordered or why

    def give_up(self, why: str) -> None:
        """holdfast ends it, because it would never be a node."""
        self.order(why)
        self.is_useless = True

    def is_silent(self, answer_s: float) -> bool:
        """True if it runs for so long that its agent should have begun."""
        row = self.row
        if row is None or row.is_pending or row.is_over or self.ordered or self.has_answered:
            return False
        return row.used_s >= answer_s

    def ends_soon(self, notice_s: float = NOTICE_S) -> bool:
        """True if its end should be announced now."""
        left_s = self.seconds_left
        if left_s is None or self.row is None or self.is_leaving or self.ordered:
            return False
        return left_s <= min(notice_s, _NOTICE_PART * (left_s + self.row.used_s))


def adopted(jobs: Iterable[Job], rows: Iterable[Row]) -> dict[str, str]:
    """The arrays of batches whose submission was never answered, by the batch's name."""
    unknown = {job.name for job in jobs if not job.array}
    return {row.name: row.array for row in rows if row.name in unknown and not row.is_over}


def strays(ours: str, arrays: Mapping[str, str], rows: Iterable[Row]) -> list[str]:
    """The ids of jobs that nobody waits for: their submission was not answered, and was tried
    again or given up. The names of all our batches begin with `ours`."""
    return [
        f"{row.array}_{row.number}"
        for row in rows
        if row.name.startswith(ours) and arrays.get(row.name) != row.array and not row.is_over
    ]


def surplus(jobs: Iterable[Job], wanted: int) -> list[Job]:
    """The jobs in the queue that are not needed any more, the newest first."""
    held = [job for job in jobs if job.is_held]
    waiting = [job for job in reversed(held) if job.is_pending]
    return waiting[: max(0, len(held) - wanted)]


def end_of(job: Job, exit_told: str = "", last_lines: str = "") -> str:
    """Why the job has ended, in one line."""
    row = job.row
    where = f" on {row.node}" if row is not None and row.node else ""
    if not job.array:
        return f"its Slurm job was not submitted: {job.ordered}"
    if job.is_cancelled or (job.ordered and row is not None and row.state == "COMPLETED"):
        how = f"was ended by holdfast: {job.ordered}"
    elif job.unseen >= _UNSEEN or row is None:
        how = "is not known to Slurm any more"
    else:
        how = end_in(row.state)
        how += f" ({exit_told})" if exit_told else ""
        is_early = job.is_leaving and row.state in ("COMPLETED", "FAILED")
        how += ", shortly before its time limit" if is_early else ""
    told = f". Its last lines: {last_lines}" if last_lines else ""
    return f"Slurm job {job.id}{where} {how}{told}"


def end_in(state: str) -> str:
    """The end of a job in words that follow "it"."""
    return _ENDS.get(state, f"ended ({state})")


def never_starts(job: Job) -> str:
    """Why the job was removed from the queue, in one line."""
    reason = job.row.reason if job.row is not None else ""
    remedy = _REMEDIES.get(reason)
    return f"Slurm would never start it: {reason}{f' ({remedy})' if remedy else ''}"


def queue_text(jobs: Iterable[Job]) -> str:
    """What the user waits for; "" if nothing is in the queue."""
    ours = [job for job in jobs if job.is_held]
    pending = [job for job in ours if job.is_pending]
    if not pending:
        return ""
    found = Counter(job.row.reason for job in pending if job.row is not None and job.row.reason)
    reasons = ", ".join(reason for reason, _ in found.most_common())
    count = f"{len(pending)} of {len(ours)} nodes" if len(ours) > 1 else "the node"
    wait = "waits" if len(pending) == 1 else "wait"
    return f"{count} {wait} in Slurm's queue{f' ({reasons})' if reasons else ''}"


def left_text(jobs: Iterable[Job]) -> str:
    """The warning that names the jobs which may still run."""
    known = list(jobs)
    ids = " ".join(job.id for job in known if job.array)
    names = sorted({f"--name={job.name}" for job in known if not job.array})
    ends = ", ".join(f"`scancel {which}`" for which in (ids, *names) if which)
    return f"Slurm jobs may still run; end them with {ends}" if ends else ""


def replaced_text(cause: str) -> str:
    """What follows when somebody has cancelled jobs."""
    return (
        f"{_first_sentence(cause)}, and not by holdfast, which submits another job in its place. "
        f"To end the run, interrupt the script (Ctrl-C): it cancels its jobs itself"
    )


def unwanted_text(cause: str) -> str:
    """Why no more jobs are submitted."""
    return (
        f"Slurm: jobs of this run were cancelled {ATTEMPTS} times without all of them running "
        f"for {SOON_S:g} s in between, so holdfast submits no more ({_first_sentence(cause)}). "
        f"Restore the run to continue it"
    )


def _first_sentence(cause: str) -> str:
    """The cause without the last lines of the job."""
    return cause.partition(". Its last lines")[0]
