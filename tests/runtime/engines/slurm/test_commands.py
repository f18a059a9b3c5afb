"""The command lines, and what they must not contain."""

import shlex
import subprocess
from pathlib import Path

import pytest

from holdfast.runtime.engines import started
from holdfast.runtime.engines.engine import EngineFailed, NodeKind
from holdfast.runtime.engines.slurm import commands
from holdfast.runtime.engines.slurm.commands import SlurmTerms


def terms(**given: object) -> SlurmTerms:
    return SlurmTerms(**{"nodes": 4, "python": ("python3",), "folder": "/home/me", **given})  # type: ignore[arg-type]


def test_a_job_asks_for_what_the_terms_say() -> None:
    command = commands.sbatch(
        terms(partition="gpu", gpus=4, cpus=8, time="08:00:00", options=["--qos=long"]),
        "/home/me/x",
        "holdfast-ab-1",
        4,
    )
    assert shlex.join(command) == (
        "sbatch --parsable --qos=long --partition=gpu --time=08:00:00 --cpus-per-task=8 "
        "--gpus-per-node=4 --array=0-3 --nodes=1 --ntasks=1 --no-requeue --signal=B:TERM@30 "
        "--export=NONE --job-name=holdfast-ab-1 --output=/home/me/x/holdfast-ab-1-%a.out"
    )


def test_a_job_gets_the_whole_machine_unless_its_share_is_said() -> None:
    assert "--exclusive" in commands.sbatch(terms(), "/x", "name", 1)
    assert "--exclusive" not in commands.sbatch(terms(cpus=2), "/x", "name", 1)
    assert "--exclusive" not in commands.sbatch(terms(gpus=0), "/x", "name", 1)


@pytest.mark.parametrize(("time", "signals"), [("", True), ("3", True), ("2", False)])
def test_a_job_that_would_be_signalled_at_its_start_is_not(time: str, signals: bool) -> None:
    command = commands.sbatch(terms(time=time), "/x", "name", 1)
    assert ("--signal=B:TERM@30" in command) == signals


def test_a_folder_with_a_percent_sign_is_not_a_pattern() -> None:
    assert "--output=/100%%/name-%a.out" in commands.sbatch(terms(), "/100%", "name", 1)


@pytest.mark.parametrize(
    "option", ["--qos=long", "-q", "-qlong", "--nodelist=n1", "--nice", "-Cx"]
)
def test_options_of_the_user_are_passed_on(option: str) -> None:
    assert option in commands.sbatch(terms(options=[option]), "/x", "name", 1)


@pytest.mark.parametrize(
    "option",
    [
        "--array=0-9", "--arr=1", "-a0-9", "--export=ALL", "--wrap=true", "--output=x", "-o",
        "-N2", "--requeue", "--wait", "-W", "--job-name=x", "-HW", "script.sh", "", "-", "--",
        "--nodes=2", "--signal=USR1", "--parsable", "-n4", "--test-only", "--x y", "-x\ny",
    ],
)  # fmt: skip
def test_options_that_the_engine_sets_are_refused(option: str) -> None:
    with pytest.raises(EngineFailed, match="cannot be passed to sbatch"):
        terms(options=[option])


def test_the_offer() -> None:
    (kind,) = terms(resources={"CPU": 8}).offer.kinds
    assert kind == NodeKind(name="slurm", resources={"CPU": 8}, most=4)


def test_variables_that_change_answers_are_left_out() -> None:
    given = {"SQUEUE_FORMAT": "%i", "SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "a", "LC_ALL": "de_DE"}
    assert commands.environ_of(given) == {"SBATCH_ACCOUNT": "a", "LC_ALL": "C"}


def test_the_script_removes_its_invitation_and_becomes_the_agent(tmp_path: Path) -> None:
    folder = tmp_path / "a 'quoted' folder"
    folder.mkdir()
    invitation = folder / commands.invitation_file("name", 3)
    invitation.write_text("secret")
    program = tmp_path / "a python"
    program.write_text('#!/bin/sh\necho "$@"; cat; echo " $$ $WHERE"; ls "$FOLDER"\n')
    program.chmod(0o700)
    process = subprocess.Popen(
        ["sh"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"SLURM_ARRAY_TASK_ID": "3", "PATH": "/usr/bin:/bin", "FOLDER": str(folder)},
    )
    given = terms(python=(str(program), "-X", "dev"), variables={"WHERE": "a b"})
    script = commands.script(given, str(folder), "name")
    assert process.communicate(script)[0].decode().split() == [
        "-X", "dev", "-m", started.MODULE, "holdfast.agent", "-", "secret", str(process.pid),
        "a", "b",
    ]  # fmt: skip
