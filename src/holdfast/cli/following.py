"""`holdfast logs --follow`: prints lines as they come, as text or as JSON."""

from __future__ import annotations

import argparse
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from holdfast.cli.printing import INTERRUPTED, SOUND, complain, json_text
from holdfast.experiment.browse.following import (
    INTERVAL_HERE_S,
    INTERVAL_STORAGE_S,
    Follower,
    TrialLog,
)
from holdfast.experiment.browse.locate import LocatedExperiment
from holdfast.experiment.browse.logs import check_reachable, last_lines, layout_of, written
from holdfast.trial.trial import Trial


def follow_log(
    given: argparse.Namespace,
    experiment: LocatedExperiment,
    trial: Trial,
    name: str,
    *,
    find: Callable[[], LocatedExperiment],
) -> int:
    """Returns the exit code. Raises NoSuchLog if the trial ends without output, BrokenPipeError if
    nobody reads any more, and the errors of `find`."""
    check_reachable(experiment, trial, name)
    is_here = layout_of(experiment, trial, name) is not None
    usual = INTERVAL_HERE_S if is_here else INTERVAL_STORAGE_S
    follower = Follower(
        TrialLog(experiment, trial, name, find=find, now=time.time, rank=given.rank),
        given.interval or usual,
        wait=wait_for_reader,
        tell=complain,
        clock=time.monotonic,
        cpu=time.process_time,
    )
    write = partial(_write_json, trial.trial_id) if given.json else _write
    try:
        write(_pieces(follower, given.tail))
    except KeyboardInterrupt:
        return INTERRUPTED  # the usual end: print nothing
    if not follower.found_file:
        written(experiment, trial, name)  # raises, and names the existing files
    return SOUND


def _pieces(follower: Follower, tail: int | None) -> Iterator[bytes]:
    there = follower.news()
    yield from there if tail is None else [last_lines(there, tail)]
    yield from follower.until_ended()


def _write(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _write_json(trial_id: str, pieces: Iterable[bytes]) -> None:
    for line in _lines(pieces):
        plain = {"trial_id": trial_id, "line": line.decode(errors="replace")}
        print(json_text(plain, in_a_line=True), flush=True)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each complete line; at the end also an incomplete one."""
    begun: list[bytes] = []
    for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line))
            begun.clear()
        begun.append(rest)
    if last := b"".join(begun):
        yield last


def wait_for_reader(seconds: float) -> None:
    """Raises BrokenPipeError if the reader of the output goes away meanwhile."""
    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)
    for _, what in reader.poll(1000 * seconds):
        if what & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        time.sleep(seconds)  # macOS does not watch a terminal
