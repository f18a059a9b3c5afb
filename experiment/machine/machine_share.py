"""The share of this machine that one experiment has, if it shares the machine with others.

It answers like `SharedCapacity`, which counts for the experiments of one process. A thread of its
own reads and writes the files, because a lock on them may take long, and waits for news of the
others: their bell, or the end of their process.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from holdfast.dataclass import dataclass
from holdfast.experiment.machine.fair_share import (
    CapacityRequest,
    Claim,
    Due,
    Sharer,
    Wish,
    due,
    has_room,
    yields,
)
from holdfast.experiment.machine.members import MachineFolder, Member, Membership, Seen
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Allocation

# Also without news they are looked at so often; it keeps cleaners of old files away, too.
_LOOK_S = 60.0
_CLOSES_WITHIN_S = 10.0

Tell = Callable[[str], None]
Fail = Callable[[BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a look has led to, for this experiment and for the others."""

    granted: Sequence[tuple[CapacityRequest, Allocation]]
    others: Sequence[Seen]


class MachineShare:
    """Requests are granted by `fair_share.due`, each in the thread of this object."""

    def __init__(
        self, folder: MachineFolder, member: Member, tell: Tell, fail: Fail | None = None
    ) -> None:
        """Raises OSError. `tell` is called in any thread, at most once, when a request waits, and
        `fail` with an error that is a bug in holdfast: no request is granted any more."""
        self._folder = folder
        self._member = member
        self._tell: Tell | None = tell
        self._fail = fail
        self._membership = Membership(folder, member)
        # This process wakes the thread by a pipe of its own.
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[CapacityRequest, float]] = {}
        self._held: dict[int, tuple[Allocation, Claim]] = {}
        self._next = 0
        self._closing = False
        self._changed = True
        # The pipes of others that end with them, by id, and those whose last workers end.
        self._alive: dict[str, int] = {}
        self._ending: set[str] = set()
        self._thread = threading.Thread(target=self._serve, name="holdfast-share", daemon=True)
        self._thread.start()

    @property
    def workers(self) -> str:
        """The file on which each process that runs trials holds a shared lock."""
        return str(self._folder.workers_file(self._membership.name))

    @property
    def has_gpus(self) -> bool:
        """True if the machine has GPUs."""
        return "GPU" in self._member.total

    def take(
        self, amounts: Mapping[str, float], granted: Callable[[Allocation], None]
    ) -> Allocation | CapacityRequest:
        """The request, which `granted` answers later, in any thread; for nothing an answer at
        once."""
        if not any(amounts.values()):
            return Allocation(amounts=dict(amounts))
        request = CapacityRequest(amounts, granted)
        with self._lock:
            self._waiting[self._next] = (request, time.monotonic())
            self._next += 1
        self._ring()
        return request

    def give_back(self, allocation: Allocation) -> None:
        with self._lock:
            number = next((n for n, (held, _) in self._held.items() if held is allocation), None)
            if number is not None:
                del self._held[number]
        if number is not None:
            self._ring()

    def cancel(self, waiting: CapacityRequest) -> bool:
        """Withdraw a request. Returns False if it has been, or is being, granted."""
        with self._lock:
            number = next((n for n, one in self._waiting.items() if one[0] is waiting), None)
            if number is not None:
                del self._waiting[number]
        if number is not None:
            self._ring()
        return number is not None

    def has_room(self, amounts: Mapping[str, float]) -> bool:
        """True if these resources are free now, and nobody waits."""
        return has_room(self._look(), self._membership.name, amounts)

    @property
    def keeps_idle(self) -> bool:
        """No: two experiments could wait for each other's idle workers for ever."""
        return False

    def yields(self) -> bool:
        """True if an idle worker should end, because another experiment has less and waits."""
        return yields(self._look(), self._membership.name)

    def waits_text(self, wanted: Allocation) -> str:
        """Nothing: the thread tells it, once it knows who holds them."""
        return ""

    def close(self) -> None:
        """Leave: this experiment holds nothing any more."""
        with self._lock:
            self._closing = True
        self._ring()
        self._thread.join(_CLOSES_WITHIN_S)

    def _ring(self) -> None:
        with self._lock:
            self._changed = True
            if self._wake >= 0:
                with suppress(BlockingIOError):  # it will wake anyway
                    os.write(self._wake, b"!")

    def _look(self) -> list[Sharer]:
        """What is known without a lock; a request decides later."""
        seen = self._folder.peek()
        others = [one.member.sharer(one.name) for one in seen if one.name != self._membership.name]
        with self._lock:
            return [*others, self._own().sharer(self._membership.name)]

    def _own(self) -> Member:
        """What the others should see. The caller has the lock."""
        waits = [
            Wish(number=number, amounts=request.amounts, since=since)
            for number, (request, since) in self._waiting.items()
        ]
        holds = [claim for _, claim in self._held.values()]
        return replace(self._member, holds=holds, waits=waits)

    # -- in the thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._is_closing():
                try:
                    outcome = self._turn()
                except (OSError, InvalidConfig) as error:
                    self._say(f"cannot share this machine at the moment: {error}")
                    outcome = _Outcome(granted=(), others=())
                for request, allocation in outcome.granted:
                    request.granted(allocation)
                self._tell_who_holds(outcome.others)
                self._wait()
        except Exception as error:  # a bug in holdfast: the run ends with it
            if self._fail is None:
                raise
            self._fail(error)
        finally:
            self._leave()

    def _is_closing(self) -> bool:
        with self._lock:
            return self._closing

    def _turn(self) -> _Outcome:
        """Take what is due, and let the others know."""
        name = self._membership.name
        with self._folder.changing():
            seen = [one for one in self._folder.seen() if one.member.shares]
            others = [one for one in seen if one.name != name]
            with self._lock:
                has_changed, self._changed = self._changed, False
                mine = self._own().sharer(name)
                all_due = due([*(one.member.sharer(one.name) for one in others), mine])
                before = dict(self._waiting)
                granted = [self._grant(one) for one in all_due if one.name == name]
                own = self._own()
            if has_changed or granted:
                self._publish(own, before)
            self._watch(others if own.waits else ())
        if has_changed or granted:
            for one in others:
                if one.member.waits:
                    self._folder.ring(one.name)
        return _Outcome(granted=granted, others=others)

    def _grant(self, one: Due) -> tuple[CapacityRequest, Allocation]:
        request, _ = self._waiting.pop(one.number)
        gpus = tuple(list(self._member.gpus).index(gpu) for gpu in one.claim.gpus)
        allocation = Allocation(amounts=dict(request.amounts), gpus=gpus)
        self._held[one.number] = (allocation, one.claim)
        return request, allocation

    def _publish(self, own: Member, before: Mapping[int, tuple[CapacityRequest, float]]) -> None:
        """Let the others see it; take back what was granted if they cannot."""
        try:
            self._membership.write(own)
        except BaseException:
            with self._lock:
                for number in [number for number in before if number in self._held]:
                    del self._held[number]
                    self._waiting[number] = before[number]
                self._waiting = dict(sorted(self._waiting.items()))
                self._changed = True
            raise

    def _watch(self, others: Sequence[Seen]) -> None:
        """Hear of the end of each of these."""
        names = {one.name for one in others if one.member.holds or one.member.waits}
        for name in self._alive.keys() - names:
            os.close(self._alive.pop(name))
        for one in others:
            if one.name not in names or one.name in self._alive or one.name in self._ending:
                continue
            alive = self._folder.open_alive(one.name) if one.is_alive else None
            if alive is None:
                self._await_workers(one.name)
            else:
                self._alive[one.name] = alive

    def _await_workers(self, name: str) -> None:
        self._ending.add(name)

        def wait() -> None:
            self._folder.wait_for_workers(name)
            self._ending.discard(name)
            self._ring()

        threading.Thread(target=wait, name="holdfast-share-end", daemon=True).start()

    def _wait(self) -> None:
        bell = self._membership.bell
        rung = (self._woken, bell) if bell >= 0 else (self._woken,)
        poll = select.poll()
        for descriptor in (*rung, *self._alive.values()):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(_LOOK_S * 1000)}
        for descriptor in ready.intersection(rung):
            os.read(descriptor, 1 << 16)
        for name in [name for name, descriptor in self._alive.items() if descriptor in ready]:
            os.close(self._alive.pop(name))

    def _tell_who_holds(self, others: Sequence[Seen]) -> None:
        with self._lock:
            oldest = next(iter(self._waiting.values()), None)
        holders = [str(one.member) for one in others if one.member.holds]
        if oldest is not None and holders:
            wanted = " and ".join(f"{amount:g} {key}" for key, amount in oldest[0].amounts.items())
            self._say(
                f"waiting for {wanted}: {' and '.join(holders[:3])} "
                f"{'share' if len(holders) > 1 else 'shares'} this machine, and they take turns"
            )

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)
            self._tell = None

    def _leave(self) -> None:
        for descriptor in self._alive.values():
            os.close(descriptor)
        self._alive.clear()
        with self._lock:
            os.close(self._wake)
            self._wake = -1
        os.close(self._woken)
        with suppress(OSError, InvalidConfig):
            with self._folder.changing():
                others = self._folder.seen()
                self._membership.close()
                others = [one for one in others if one.name != self._membership.name]
            for one in others:
                if one.member.waits:
                    self._folder.ring(one.name)
