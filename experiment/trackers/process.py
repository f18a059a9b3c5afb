"""The main function of a tracker process: the tracker in the main thread, the loop in another."""

from __future__ import annotations

import os
import queue
import random
import sys
import threading
import time
import traceback
import warnings
from contextlib import suppress
from typing import Any

from holdfast.experiment.callbacks.trial_view import Surroundings
from holdfast.experiment.records.rows import shown_config
from holdfast.experiment.trackers.calls import TrackerCalls
from holdfast.experiment.trackers.delivery import RetryDelays
from holdfast.experiment.trackers.delivery_loop import DeliveryLoop
from holdfast.experiment.trackers.job import TrackerJob
from holdfast.experiment.trackers.tracker import Tracker
from holdfast.forked import children_end_here
from holdfast.runtime.priority import children_give_way, give_way
from holdfast.runtime.safe_text import named
from holdfast.runtime.transport import Channel

_NICE = 10


class _Watch:
    now = staticmethod(time.monotonic)
    chance = staticmethod(random.random)


def main(channel: Channel) -> None:
    """Main function of a tracker process."""
    give_way(_NICE)
    # The user's settings may turn warnings into errors, also those of a tracker's library.
    warnings.simplefilter("ignore")
    opening = channel.receive()
    if opening is None:
        return
    job = TrackerJob(**opening[1])
    inbox: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, inbox), daemon=True).start()
    try:
        with children_end_here():
            tracker = _tracker(job)
        surroundings = Surroundings.of(
            job.layout,
            trainable_name=job.trainable,
            experiment_path=job.experiment_path,
            config_of=lambda trial: shown_config(trial.config),
            space=job.space,
        )
        calls = TrackerCalls(tracker, surroundings, job.experiment_id, inbox.put, job.tags)
    except Exception as error:  # the controller reports it
        channel.send(["unfit", named(error)])
        _leave(0)
    decides = threading.Thread(
        target=_serve, args=(channel, job, calls, inbox, tracker.delays), daemon=True
    )
    decides.start()
    calls.work()
    decides.join()


def _tracker(job: TrackerJob) -> Tracker:
    import cloudpickle

    tracker: Tracker = cloudpickle.loads(job.tracker)
    for name, value in cloudpickle.loads(job.secrets).items():
        setattr(tracker, name, value)
    tracker.setup(num_samples=job.samples, total_num_samples=job.total_samples)
    return tracker


def _listen(channel: Channel, inbox: queue.SimpleQueue[list[Any] | None]) -> None:
    while (message := channel.receive()) is not None:
        inbox.put(message)
    inbox.put(None)


def _serve(
    channel: Channel,
    job: TrackerJob,
    calls: TrackerCalls,
    inbox: queue.SimpleQueue[list[Any] | None],
    delays: RetryDelays,
) -> None:
    """Serve until the end, then end the process at once.

    The tracker may be in the middle of a call, and its library may do more at exit: all of it was
    delivered or given up.
    """
    try:
        loop = DeliveryLoop(job, calls, _Watch(), channel.send, delays=delays)
        has_answered = False
        while True:
            loop.act()
            if loop.is_done:
                break
            with suppress(queue.Empty):
                message = inbox.get(timeout=loop.wait_s)
                if message is None:  # the controller is gone: a restore delivers the rest
                    break
                loop.hear(message)
                if message[0] == "outcome" and not has_answered:
                    has_answered = True
                    channel.send(["answered"])
                    children_give_way()  # a tracker may start a service process, as W&B does
        _leave(0)
    except ConnectionError:  # the controller is gone
        _leave(0)
    except (
        BaseException
    ):  # a bug in holdfast: the exit code shows it, and the next process continues
        traceback.print_exc()
        _leave(1)


def _leave(status: int) -> None:
    """End this process and the processes of the tracker's library."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
