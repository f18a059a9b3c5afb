"""Summaries of a run, and the streams and clocks with which a test shows them."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from holdfast.experiment.progress.summary import (
    BestTrial,
    FailedTrial,
    StorageAge,
    Summary,
    TrialRow,
    UploadProgress,
)
from holdfast.trial.trial import Status

FAILURE = FailedTrial(
    trial_id="aaaaa_00004",
    attempt=1,
    name="train_aaaaa_00004",
    headline="ValueError: loss is nan",
    where="train.py:42 in train",
    error_file="/results/exp/dir_4/error.txt",
    retries=0,
    final=True,
)


def row(index: int, status: Status, acc: float = 0.5) -> TrialRow:
    return TrialRow(
        trial_id=f"aaaaa_{index:05}",
        name=f"train_aaaaa_{index:05}",
        status=status,
        params={"lr": 0.01, "net/width": 8},
        iteration=3,
        time_total_s=80.0,
        metrics={"acc": acc, "loss": 0.25},
    )


SUMMARY = Summary(
    name="digits",
    path="s3://bucket/digits",
    counts={Status.RUNNING: 1, Status.TERMINATED: 1, Status.ERROR: 1},
    total=6,
    rows=(row(1, Status.RUNNING), row(0, Status.TERMINATED, 0.9)),
    hidden={Status.ERROR: 1},
    metrics=("acc", "loss"),
    params=("lr", "net/width"),
    best=BestTrial(
        trial_id="aaaaa_00000",
        name="train_aaaaa_00000",
        metric="acc",
        value=0.9,
        params={"lr": 0.01},
        iteration=3,
    ),
    failures=(FAILURE,),
    elapsed_s=80.0,
    left_s=130.0,
    share=0.4,
    storage=StorageAge(
        oldest_s=12.0,
        checkpoints=3,
        files=7,
        pending_bytes=12_300_000,
        upload=UploadProgress(
            name="4 of 9 artifacts", done_bytes=3_400_000, total_bytes=50_000_000
        ),
    ),
)
DONE = replace(
    SUMMARY, counts={Status.TERMINATED: 23, Status.ERROR: 1}, done=True, storage=StorageAge()
)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that claims to be a terminal; `screen` is what its reader would see."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        """The lines after all cursor movements and erasures that rich uses."""
        lines, at = [""], 0
        for sign in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[\d;?]*[a-z]|.|\n|\r", self.getvalue()):
            if sign == "\x1b[2K" or sign == "\r":
                lines[at] = "" if sign == "\x1b[2K" else lines[at]
            elif sign == "\n":
                at += 1
                lines += [""] * (at == len(lines))
            elif re.fullmatch(r"\x1b\[\d*A", sign):
                at -= int(sign[2:-1] or 1)
            elif not sign.startswith("\x1b"):
                lines[at] += sign
        return [line.rstrip() for line in lines]


CALM = replace(SUMMARY, failures=())


def plain_lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()
