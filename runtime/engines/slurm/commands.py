"""What jobs are asked for, Slurm's commands, and what they print. Pure: no I/O.

No secret is in an argument, in a script or in the environment: Slurm shows all of them.
`squeue --json` needs plugins that many clusters do not have, and accounting (`sacct`) may be off.
"""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from holdfast.dataclass import dataclass
from holdfast.names import printable
from holdfast.runtime.engines import started
from holdfast.runtime.engines.engine import EngineFailed, NodeKind, Offer

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
        """True if it can never start as it is."""
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
    """True if a command has failed because Slurm does not know the job any more."""
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
    """True if a command has failed because the controller did not answer."""
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


KIND = "slurm"
# The options of sbatch that the engine sets itself, or that would change what it prints.
_OWN_LONG = (
    "--array", "--batch", "--error", "--export", "--help", "--input", "--job-name", "--nodes",
    "--ntasks", "--output", "--parsable", "--requeue", "--signal", "--test-only", "--usage",
    "--version", "--wait", "--wrap",
)  # fmt: skip
_OWN_SHORT = frozenset("aehiJnNoVW")
# Short options without a value, which getopt would take together with others.
_FLAGS = frozenset("HIkOQsv")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTerms:
    """What each node's job asks for, and how its agent is started.

    There are at most `nodes`. `resources` are those of every node, if they are known. Without
    `cpus` and `gpus`, a job gets the whole machine. `time` is Slurm's form of a time limit.
    `options` are further arguments of sbatch. `variables` are set for agents; everybody on the
    nodes can read them. Invitations and the output of jobs are
    below `folder`, which all nodes see. `python` is the
    command of their interpreter. Raises EngineFailed for an option that the engine sets itself.
    """

    nodes: int
    python: Sequence[str]
    folder: str
    resources: Mapping[str, float] | None = None
    partition: str = ""
    account: str = ""
    time: str = ""
    memory: str = ""
    cpus: int | None = None
    gpus: int | None = None
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    module: str = "holdfast.agent"

    def __post_init__(self) -> None:
        for option in self.options:
            if not is_free(option):
                raise EngineFailed(
                    f"Slurm: the option {option!r} cannot be passed to sbatch, because holdfast "
                    f"sets it itself, or because it is not one option (write --name=value)"
                )

    @property
    def offer(self) -> Offer:
        return Offer(kinds=[NodeKind(name=KIND, resources=self.resources, most=self.nodes)])


def is_free(option: str) -> bool:
    """True if the user may pass this option to sbatch."""
    if re.fullmatch(r"-[A-Za-z].*", option):
        is_flag = option[1] in _FLAGS
        return option[1] not in _OWN_SHORT and not (is_flag and len(option) > 2)
    name = option.partition("=")[0]
    # getopt accepts the beginning of an option's name, too.
    is_own = any(own.startswith(name) for own in _OWN_LONG)
    return bool(re.fullmatch(r"--[a-z][a-z-]+", name)) and not is_own


# The agent gets SIGTERM so long before its job's time limit. Slurm may send it a minute sooner, so
# a job with a shorter limit gets none.
_SIGNAL_S = 30
_SHORTEST_WITH_SIGNAL_S = 120
# The name of each srun's step.
STEP = "holdfast"
# For `scancel`: end at once, also the script itself.
KILL = ("--signal=KILL", "--full")
# What srun needs to find the allocation. It would take others for options, some of which change
# what it prints.
_OF_ALLOCATION = frozenset({"SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME"})
# Variables with which users change what the commands print or wait for.
_CHANGING = ("SQUEUE_", "SCANCEL_", "SBATCH_WAIT", "SBATCH_DEBUG", "SLURM_DEBUG")


def environ_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the commands: their answers are to be in English, and in full."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_CHANGING)}
    return {**kept, "LC_ALL": "C"}


def environ_of_step(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of an srun and its agent."""
    return {
        name: value
        for name, value in environ.items()
        if name in _OF_ALLOCATION or not name.startswith(("SLURM_", "SRUN_"))
    }


def srun(job: str, node: str, python: Sequence[str], module: str) -> list[str]:
    """Runs an agent on a node of the allocation `job`, with all that the job has there. The end of
    one agent ends no other, and not the job."""
    return [
        "srun", f"--jobid={job}", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--overlap",
        "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--mem=0", "--cpu-bind=none",
        # Otherwise what the agent writes would wait for the end of a line.
        "--unbuffered", "--export=ALL", f"--job-name={STEP}",
        *python, "-m", started.MODULE, module, "-",
    ]  # fmt: skip


def sbatch(terms: SlurmTerms, folder: str, name: str, count: int) -> list[str]:
    """Submits an array of jobs; the script is on stdin."""
    given = {
        "--partition": terms.partition,
        "--account": terms.account,
        "--time": terms.time,
        "--mem": terms.memory,
        "--cpus-per-task": terms.cpus,
        "--gpus-per-node": terms.gpus,
    }
    whole = [] if terms.cpus is not None or terms.gpus is not None else ["--exclusive"]
    limit_s = seconds_in(terms.time) if terms.time else None
    is_short = limit_s is not None and limit_s <= _SHORTEST_WITH_SIGNAL_S
    return [
        "sbatch",
        "--parsable",
        *terms.options,
        *(f"{option}={value}" for option, value in given.items() if value not in ("", None)),
        *whole,
        f"--array=0-{count - 1}" if count > 1 else "--array=0",
        "--nodes=1",
        "--ntasks=1",
        "--no-requeue",
        *([] if is_short else [f"--signal=B:TERM@{_SIGNAL_S}"]),
        "--export=NONE",
        f"--job-name={name}",
        f"--output={output_pattern(folder, name)}",
    ]


def output_pattern(folder: str, name: str) -> str:
    """Where Slurm writes what a job prints. It replaces %a by the number in the array."""
    return os.path.join(folder.replace("%", "%%"), f"{name}-%a.out")


def output_file(folder: str, name: str, number: int) -> str:
    return os.path.join(folder, f"{name}-{number}.out")


def invitation_file(name: str, number: int) -> str:
    """The name of the file with the invitation of one job."""
    return f"{name}-{number}.invitation"


def script(terms: SlurmTerms, folder: str, name: str) -> bytes:
    """The script of a job: it removes the invitation before the agent reads it. The agent takes
    the place of the shell, so that Slurm's signals reach it."""
    invitation = shlex.quote(os.path.join(folder, f"{name}-"))
    agent = shlex.join([*terms.python, "-m", started.MODULE, terms.module, "-"])
    variables = "".join(
        f"export {name}={shlex.quote(value)}\n" for name, value in terms.variables.items()
    )
    return f"""\
#!/bin/sh
umask 077
{variables}invitation={invitation}$SLURM_ARRAY_TASK_ID.invitation
exec 3<"$invitation" || exit 1
rm -f "$invitation"
exec {agent} <&3 3<&-
""".encode()


def squeue(uid: int) -> list[str]:
    """Lists the user's jobs, also those that have ended in the last minutes."""
    return [
        "squeue", "--noheader", "--array", "--states=all", f"--user={uid}",
        f"--format={'|'.join(FIELDS)}",
    ]  # fmt: skip


def squeue_of(job: str) -> list[str]:
    """Says how it stands with one job."""
    return ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%L"]


def show_job(job: str) -> list[str]:
    return ["scontrol", "--oneliner", "show", "job", job]


def show_hosts(listed: str) -> list[str]:
    """Expands a list such as `n[1-3],gpu-a`. It asks no other machine."""
    return ["scontrol", "show", "hostnames", listed]


def show_config() -> list[str]:
    return ["scontrol", "show", "config"]


def scancel(jobs: Iterable[str], *signal: str) -> list[str]:
    """Ends jobs: SIGTERM, and SIGKILL after the cluster's `KillWait`; or sends them a signal."""
    return ["scancel", *signal, *jobs]


def scancel_batch(name: str) -> list[str]:
    return ["scancel", f"--name={name}"]


def unpack(folder: str) -> list[str]:
    """Writes the invitations, which are a tar archive on stdin, into a folder of the user's."""
    make = 'umask 077 && mkdir -p "$1" && chmod 700 "$1" && exec tar --extract --directory="$1"'
    return ["sh", "-c", make, "sh", folder]


def find_sign(file: str) -> list[str]:
    """Succeeds if the agent has said in its output that it begins."""
    sign = started.SIGN.decode().strip("\0\n")
    return ["grep", "--quiet", "--text", "--fixed-strings", "--", sign, file]


def remove(folder: str) -> list[str]:
    return ["rm", "-rf", "--", folder]


def tail(file: str) -> list[str]:
    return ["tail", "--bytes=1000", "--", file]
