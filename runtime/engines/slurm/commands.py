"""The commands for Slurm, and the script of a job. Pure: no I/O.

No secret is in an argument, in a script or in the environment: Slurm shows all of them.
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterable, Mapping, Sequence

from holdfast.runtime.engines import started
from holdfast.runtime.engines.slurm.parsing import FIELDS, seconds_in
from holdfast.runtime.engines.slurm.terms import SlurmTerms

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
