"""A run without workers that takes orders: its machine and journal are a recorded experiment's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from holdfast.experiment.control.person_orders import PersonOrders
from holdfast.experiment.records.journal import read_events
from holdfast.experiment.steering.socket import keep_socket
from holdfast.runtime.tasks import RunTasks
from holdfast.scheduler.events import EndOrdered, Event
from holdfast.scheduler.machine import Machine
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.recorded import RecordedExperiment


class SteeredRun:
    """What `PersonOrders` needs of a run, and what it was asked for.

    `posts` are the sizes of the writes, `told` the messages of its output. After `fails_after`
    writes the disk is full. `controller` is None while it has not begun. The search makes
    `per_sample` trials of a sample, and lets `own_limit` run at once.
    """

    def __init__(self, recorded: RecordedExperiment) -> None:
        self._recorded = recorded
        self.fault: BaseException | None = None
        self.controller: SteeredRun | None = self
        self.posts: list[int] = []
        self.told: list[str] = []
        self.ended_by: list[str] = []
        self.fails_after = 1 << 30
        self.per_sample = 1
        self.own_limit: int | None = None

    @property
    def machine(self) -> Machine:
        return self._recorded.machine

    def post_all(self, several: Sequence[Event]) -> None:
        if len(self.posts) >= self.fails_after:
            self.fault = OSError("no space left for the journal")
            return
        self.posts.append(len(several))
        for event in several:
            self._recorded.add(event)

    def end_for(self, by: str) -> None:
        self.ended_by.append(by)
        self.post_all([EndOrdered(reason="interrupt", message=f"stopped by {by}")])

    @property
    def user_code(self) -> SteeredRun:
        return self

    def total_with(self, count: int) -> int | None:
        samples = self.machine.spec.num_samples
        return None if samples < 0 else self.per_sample * (samples + count)

    def checked_config(self, config: Any) -> tuple[dict[str, Any], list[str]]:
        if "lrr" in config:
            raise InvalidConfig("there is no parameter 'lrr'")
        return dict(config), ["its domain has no lr=7"] if config["lr"] == 7 else []

    def tell(self, text: str, level: str) -> None:
        assert level == "info"
        self.told.append(text)

    def recorded(self, by: str) -> list[Event]:
        """The orders of a person in the journal."""
        found = read_events(self._recorded.layout.journal)
        return [one.event for one, _ in found if getattr(one.event, "by", "") == by]

    @contextmanager
    def live(self) -> Iterator[None]:
        """It holds the experiment's lock, and takes orders in a thread."""
        lock = ExperimentLock(self._recorded.layout.lock)
        begun, loop = threading.Event(), asyncio.new_event_loop()
        over = asyncio.Event()

        async def run() -> None:
            async with RunTasks() as tasks:
                root = self._recorded.layout.root
                keep_socket(root, PersonOrders(cast(Any, self)).perform, tasks, self.tell)
                begun.set()
                await over.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
        thread.start()
        try:
            assert begun.wait(60)
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join(60)
            loop.close()
            lock.release()
