"""What Slurm's commands print, as they printed it (22.05), and what sites print around it."""

import pytest

from holdfast.runtime.engines.slurm.commands import (
    Row,
    exit_in,
    is_unreachable,
    kill_wait_in,
    rows_in,
    seconds_in,
    submitted_in,
)

SQUEUE = """\
1_4|holdfast-ab-1|PENDING|Resources|0:00|2:00|
1_0|holdfast-ab-1|RUNNING|None|0:05|1:55|n2
1_2|holdfast-ab-1|NODE_FAIL|NodeDown|1:24|0:36|n3
2_[0-3]|holdfast-ab-2|PENDING|Priority|0:00|2:00|
6|a job of the user's|RUNNING|None|1-02:03:04|UNLIMITED|n4
7_1|of | others|RUNNING|None|0:05|1:55|n2

slurm_load_jobs error: Socket timed out on send/recv operation
"""


def test_rows_of_arrays_are_read_and_other_lines_are_not() -> None:
    pending, running, lost = rows_in(SQUEUE)
    assert pending == Row(
        array="1", number=4, name="holdfast-ab-1", state="PENDING", reason="Resources"
    )
    assert running == Row(
        array="1",
        number=0,
        name="holdfast-ab-1",
        state="RUNNING",
        used_s=5.0,
        left_s=115.0,
        node="n2",
    )
    assert (lost.is_over, lost.is_pending, lost.node) == (True, False, "n3")


def test_text_of_a_terminal_does_not_pass() -> None:
    (row,) = rows_in("1_4|x|PENDING|\x1b[31mPriority|0:00|2:00|")
    assert row.reason == "\\x1b[31mPriority"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:37", 37.0),
        ("8:20:00", 30_000.0),
        ("1-02:03:04", 93_784.0),
        ("2-12", 216_000.0),
        ("1-02:03", 93_780.0),
        ("90", 5_400.0),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("", None),
        ("1:2:3:4", None),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    ("reason", "is_hopeless"),
    [
        ("Priority", False),
        ("Resources", False),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", False),
        ("QOSMaxCpuPerUserLimit", False),
        ("AssocGrpCPUMinutesLimit", False),
        ("JobHeldUser", False),
        ("PartitionTimeLimit", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("AssocMaxCpuPerJobLimit", True),
        ("BadConstraints", True),
    ],
)
def test_some_reasons_never_pass(reason: str, is_hopeless: bool) -> None:
    (row,) = rows_in(f"1_4|x|PENDING|{reason}|0:00|2:00|")
    assert row.is_hopeless == is_hopeless
    (row,) = rows_in(f"1_4|x|RUNNING|{reason}|0:00|2:00|n1")
    assert not row.is_hopeless


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("42\n", "42"),
        ("42;cluster\n", "42"),
        ("Welcome to the cluster!\n2 projects\n42\n", "42"),
        ("Submitted batch job 42\n", None),
        ("", None),
    ],
)
def test_the_id_that_sbatch_prints(text: str, array: str | None) -> None:
    assert submitted_in(text) == array


@pytest.mark.parametrize(
    ("text", "unreachable"),
    [
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv", True),
        ("Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("Batch job submission failed: Invalid partition name specified", False),
        ("Batch job submission failed: Invalid account or account/partition combination", False),
        ("Batch job submission failed: Requested node configuration is not available", False),
    ],
)
def test_no_answer_is_not_a_refusal(text: str, unreachable: bool) -> None:
    assert is_unreachable(text) == unreachable


def test_the_time_from_sigterm_to_sigkill() -> None:
    assert kill_wait_in("KillOnBadExit           = 0\nKillWait                = 2 sec\n") == 2.0
    assert kill_wait_in("slurm_load_ctl_conf error: Unable to contact slurm controller") is None


def test_the_exit_of_a_job() -> None:
    assert exit_in("JobId=3 Reboot=0 ExitCode=3:0 DerivedExitCode=0:0") == "exit status 3"
    assert exit_in("JobId=3 ExitCode=0:9 RunTime=00:01:27") == "signal 9"
    assert exit_in("slurm_load_jobs error: Invalid job id specified") == ""
