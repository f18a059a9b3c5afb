"""Describes why an attempt failed: the frame in the user's code, log and cause. Pure: no I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from holdfast.experiment.folder.layout import ERROR, STDERR, STDOUT, rank_log
from holdfast.trial.errors import OF_THE_PROCESS, Failure
from holdfast.trial.trial import Status, Trial

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)', re.M)
# In a checkout, holdfast's own files are in none of the other places.
_OURS = os.path.join(Path(__file__).parents[2], "")
_LIBRARY = ("site-packages", "dist-packages", "/lib/python3", "<frozen", _OURS)
# What `rank_failures.cause_of` puts before the message of a rank.
_RANK = re.compile(r"^rank (\d+)\b")
_AFTER_IT = "\n\nAfter it, rank"


def user_frame(failure: Failure) -> str:
    """`train.py:42 in train`: the innermost frame outside of installed libraries and holdfast, or
    of such a library if there is none. "" if all are holdfast's: the message says more."""
    first = failure.traceback.partition(_AFTER_IT)[0]
    frames = list(_FRAME.finditer(first))
    own = [frame for frame in frames if not any(mark in frame["file"] for mark in _LIBRARY)]
    others = own or [frame for frame in frames if not is_holdfast_file(frame["file"])]
    if not others:
        return ""
    frame = others[-1]
    return f"{frame['file'].rpartition('/')[2]}:{frame['line']} in {frame['name']}"


def is_holdfast_file(file: str) -> bool:
    """Whether code in this file is holdfast's."""
    return file.startswith(_OURS)


def logs_of(failure: Failure, names: tuple[str, str] = (STDOUT, STDERR)) -> tuple[str, str]:
    """The file in the trial's folder with the most information, and where to look if it is empty
    ("" for nowhere).

    error.txt has the traceback. A process that was killed leaves none, but its output has its last
    lines. `names` are those of stdout and stderr.
    """
    if failure.kind not in OF_THE_PROCESS:
        return ERROR, ""
    found = _RANK.match(failure.message)
    rank = int(found[1]) if found else 0
    out, err = (rank_log(name, rank) if rank else name for name in names)
    return err, out if out != err else ""


def path_of(below: str, here: str, stored: str, *, on_node: bool) -> str:
    """The path of a file of a trial, by its path inside the experiment: `here` is the experiment's
    folder on this machine, `stored` its place. The output of a trial on a node is only there."""
    if not (below and on_node) or stored in ("", here) or below.endswith(f"/{ERROR}"):
        return below and f"{here}/{below}"
    base, mark, query = stored.partition("?")
    return f"{base}/{below}{mark}{query}"


def retry_way(failed: Iterable[Trial]) -> str:
    """How failed trials run again: "resume" if one of them has a checkpoint, else "restart"."""
    return "resume" if any(trial.checkpoints for trial in failed) else "restart"


def retry_options(failed: Iterable[Trial], code: str = "") -> tuple[str, ...]:
    """The options of `holdfast resume` that run failed trials again: with the script's trainable
    that `code` names, or with the stored one."""
    return (f"--{retry_way(failed)}-errored", *(("--trainable", code) if code else ()))


def retry_advice(trials: Iterable[Trial]) -> str:
    """What to add to a command that resumes a run after a full disk, so that it also runs the
    trials that failed for it; "" if there are none."""
    failed = [trial for trial in trials if trial.error is not None and trial.error.is_no_room]
    failed = [trial for trial in failed if trial.status is Status.ERROR]
    if not failed:
        return ""
    count, they = (f"{len(failed)} trials", "them") if len(failed) > 1 else ("1 trial", "it")
    (option,) = retry_options(failed)
    return f" {option} ({count} failed because a disk was full; {option} runs {they} again)"


def cause(headline: str, where: str) -> tuple[str, str]:
    """A key that is equal for failures of one cause: numbers, as of processes and steps, are
    ignored."""
    return re.sub(r"\d+", "#", headline), where
