"""The thread that runs users' callbacks, outside the control loop, and the file of their states.

The loop passes events to `CallbackThread.observe` and never waits: a slow callback makes the queue
longer, and an exception in one is shown, while training continues.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple

import msgpack

from holdfast.dataclass import dataclass
from holdfast.experiment.callbacks.callback import Callback, hooks_for
from holdfast.experiment.callbacks.trial_view import Views
from holdfast.experiment.user_objects.pickling import dumps, loads
from holdfast.forked import children_end_here
from holdfast.names import shown
from holdfast.scheduler.events import Event, Exited, Raised, Suggested
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.store import read_small
from holdfast.text.errors import named
from holdfast.trial.errors import Failure, TuneError, lost_worker
from holdfast.trial.trial import Trial

_FORMAT = 2


def write_states(path: Path, states: Mapping[str, Any]) -> None:
    """Write the states. Raises OSError, and NotPicklable naming the callback and the faulty
    part."""
    pickled = {
        name: dumps(state, f"the return value of {name}.get_state()")
        for name, state in states.items()
    }
    kept = {"format": _FORMAT, "crc32": _checksum(pickled), "states": pickled}
    write_atomic(path, msgpack.packb(kept))


def read_states(path: Path) -> dict[str, bytes]:
    """The pickled states by the callbacks' names; empty if there is no file.

    Raises ValueError for a file that is damaged or from another version, and OSError.
    """
    try:
        plain = msgpack.unpackb(read_small(path))
    except FileNotFoundError:
        return {}
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not MessagePack ({error!r:.200})") from error
    found = plain.get("format") if type(plain) is dict else None
    if found != _FORMAT:
        raise ValueError("not a file of this version of holdfast")
    states: dict[str, bytes] = plain.get("states")
    if type(states) is not dict or not all(
        type(name) is str and type(state) is bytes for name, state in states.items()
    ):
        raise ValueError(f"its states must map callback names to bytes, not {shown(states)}")
    if plain.get("crc32") != _checksum(states):
        raise ValueError("its checksum is wrong: it was changed")
    return states


def load_state(pickled: bytes) -> Any:
    """Unpickle a state. Runs the user's code, so call it only for a callback that is passed
    again."""
    return loads(pickled)


def _checksum(states: Mapping[str, bytes]) -> int:
    crc = 0
    for name in sorted(states):
        crc = zlib.crc32(states[name], zlib.crc32(name.encode(), crc))
    return crc


# "loss": something is not kept.
Level = Literal["info", "warning", "loss", "error"]
# Shows the user a text. The control loop calls it too, so it must not block.
Tell = Callable[[str, Level], None]


LONG_QUEUE = 10_000
BATCH_EVENTS = 1_000
SETUP_DEADLINE_S = 120.0
STATES_PERIOD_S = 10.0
# Between two batches. Woken by each of a thousand events a second, the thread would take the
# interpreter from the control loop each time, which doubles what a report costs.
REST_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackFailure:
    """A hook that raised (`count` times, first as in `traceback`), or that did not return."""

    callback: str
    hook: str
    headline: str
    traceback: str
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"callback {self.callback}.{self.hook}: {self.headline}{times}"


class _Observed(NamedTuple):
    event: Event | None
    before: Trial | None
    after: Trial | None


class CallbackThread:
    """Passes events to the user's callbacks, in order, in its own thread.

    The queue is unbounded, because the control loop must not wait and no event may be dropped;
    when it first holds more than `long_queue` events, a warning names the slowest callback.
    `setup` has the arguments of `Callback.setup`; `clock` returns seconds. `failures` lists each
    hook that raised, once. `keep` is called with the results of all `get_state` hooks, by the
    callbacks' names, every `states_period_s` while events arrive and before the end.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback],
        views: Views,
        *,
        tell: Tell,
        setup: Mapping[str, Any] | None = None,
        keep: Callable[[Mapping[str, Any]], None] | None = None,
        states_period_s: float = STATES_PERIOD_S,
        long_queue: int = LONG_QUEUE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._callbacks = tuple(zip(names_of(callbacks), callbacks, strict=True))
        self._views = views
        self._tell = tell
        self._setup = dict(setup or {})
        has_states = any(type(one).get_state is not Callback.get_state for one in callbacks)
        self._keep = keep if has_states else None
        self._states_period_s = states_period_s
        self._kept_at = clock()
        self._long_queue = long_queue
        self._clock = clock
        self._queue: SimpleQueue[_Observed | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._hooked: dict[str, list[tuple[str, Callback]]] = {}
        self._setup_error: TuneError | None = None
        self._given_up = False
        self._told_slow = False
        self._observed = self._delivered = 0
        self._spent = {name: 0.0 for name, _ in self._callbacks}
        self._running: tuple[str, str, float] | None = None
        self._failures: dict[tuple[str, str], CallbackFailure] = {}

    @property
    def failures(self) -> list[CallbackFailure]:
        return list(self._failures.values())

    def start(
        self,
        trials: Iterable[Trial] = (),
        states: Mapping[str, bytes] | None = None,
        *,
        deadline_s: float = SETUP_DEADLINE_S,
    ) -> None:
        """Call every `setup` and, on a restore, `set_state`; `trials` are those that already
        exist.

        `states` are those of `read`. Raises TuneError if a `setup` raises or does
        not return within `deadline_s`.
        """
        if not self._callbacks:
            return
        for trial in trials:
            self._views.show(trial)
        self._thread = threading.Thread(
            target=self._run, args=(dict(states or {}),), name="callbacks", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(deadline_s):
            self._given_up = True
            raise TuneError(f"{self._where()} did not return within {deadline_s:g} s")
        if self._setup_error is not None:
            raise self._setup_error

    def observe(self, event: Event | None, before: Trial | None, after: Trial | None) -> None:
        """Called by the control loop after each journalled event: 0.1 µs without callbacks.

        `event` is None for a trial that an event of another one has ended.
        """
        if not self._callbacks or (before is after and not isinstance(event, Suggested)):
            return
        self._observed += 1
        self._queue.put(_Observed(event, before, after))
        if not self._told_slow and self._queue.qsize() > self._long_queue:
            self._told_slow = True
            self._tell(
                f"{self._queue.qsize()} events wait for callback {self._slowest()}, which is "
                "slower than the trials report. No event is lost, but memory use grows",
                "warning",
            )

    def close(self, deadline_s: float) -> None:
        """Deliver the rest and `on_experiment_end`, or give up after `deadline_s`.

        Failures are shown again, because their first message may have scrolled by. If it gives up,
        `failures` has the stack of the hook that did not return.
        """
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
            self._closing.set()
            # Two waits: if the script is suspended, only one of them passes.
            thread.join(deadline_s / 2)
            thread.join(deadline_s / 2)
        for failure in self.failures:
            self._tell(str(failure), "warning")
        if thread is not None and thread.is_alive():
            self._give_up(thread, deadline_s)

    # -- in the thread --

    def _run(self, states: dict[str, bytes]) -> None:
        self._setup_error = self._set_up()
        if self._setup_error is None:
            for name, callback in self._callbacks:
                if name in states:
                    self._restore_state(name, callback, states[name])
        self._ready.set()
        step, ended = 0, self._setup_error is not None
        while not ended and not self._given_up:
            batch, ended = self._take_batch()
            step += bool(batch)
            self._deliver_batch(batch, step)
            if ended or self._clock() - self._kept_at >= self._states_period_s:
                self._keep_states()
            if ended:
                self._call_all("on_experiment_end", trials=self._views.trials)
            else:
                self._closing.wait(REST_S)

    def _restore_state(self, name: str, callback: Callback, pickled: bytes) -> None:
        try:
            with children_end_here():
                state = load_state(pickled)
        except Exception as error:  # the user's own classes may have moved or changed
            self._note(name, "set_state", error)
        else:
            self._call(name, callback, "set_state", state)

    def _set_up(self) -> TuneError | None:
        for name, callback in self._callbacks:
            self._running = (name, "setup", self._clock())
            try:
                with children_end_here():
                    callback.setup(**self._setup)
            except (Exception, SystemExit) as error:  # start() raises it
                failed = TuneError(f"callback {name}.setup: {named(error)}")
                failed.__cause__ = error
                return failed
        self._running = None
        return None

    def _take_batch(self) -> tuple[list[_Observed], bool]:
        """Wait for an event and take all that are queued. True once the end was reached."""
        batch: list[_Observed] = []
        item = self._queue.get()
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH_EVENTS or self._queue.empty():
                return batch, False
            item = self._queue.get()
        return batch, True

    def _deliver_batch(self, batch: Sequence[_Observed], step: int) -> None:
        if not batch:
            return
        trials = self._views.trials
        self._call_all("on_step_begin", iteration=step, trials=trials)
        for item in batch:
            if self._given_up:
                return
            self._deliver(item)
            self._delivered += 1
        self._call_all("on_step_end", iteration=step, trials=trials)

    def _deliver(self, item: _Observed) -> None:
        event, before, after = item
        if isinstance(event, Suggested):
            self._views.show(after or Trial(spec=event.spec))
        if after is None:
            return
        trial = self._views.show(after)
        about = {"iteration": after.iteration, "trials": self._views.trials, "trial": trial}
        for hook in hooks_for(event, before, after):
            if hook in ("on_trial_recover", "on_trial_error"):
                trial.failure = _failure_in(event, after)
            if hook == "on_trial_result":
                for name, callback in self._having(hook):
                    self._call(name, callback, hook, **about, result=_copy(trial.last_result))
            elif hook == "on_checkpoint":
                self._call_all(hook, **about, checkpoint=trial.checkpoint)
            else:
                self._call_all(hook, **about)

    def _keep_states(self) -> None:
        if self._keep is None or self._given_up:
            return
        states = {
            name: self._call(name, callback, "get_state") for name, callback in self._callbacks
        }
        self._keep({name: state for name, state in states.items() if state is not None})
        self._kept_at = self._clock()

    def _call_all(self, hook: str, **arguments: Any) -> None:
        for name, callback in self._having(hook):
            self._call(name, callback, hook, **arguments)

    def _having(self, hook: str) -> list[tuple[str, Callback]]:
        """The callbacks that have this hook themselves; the hooks of `Callback` do nothing."""
        if (known := self._hooked.get(hook)) is None:
            nothing = getattr(Callback, hook)
            known = self._hooked[hook] = [
                (name, callback)
                for name, callback in self._callbacks
                if getattr(getattr(callback, hook), "__func__", None) is not nothing
            ]
        return known

    def _call(
        self, name: str, callback: Callback, hook: str, *given: Any, **arguments: Any
    ) -> Any:
        if self._given_up:
            return None
        began = self._clock()
        self._running = (name, hook, began)
        try:
            with children_end_here():
                return getattr(callback, hook)(*given, **arguments)
        except (Exception, SystemExit) as error:  # shown now and at the end
            self._note(name, hook, error)
        finally:
            self._running = None
            self._spent[name] += self._clock() - began
        return None

    def _note(self, name: str, hook: str, error: BaseException) -> None:
        known = self._failures.get((name, hook))
        if known is not None:
            self._failures[name, hook] = replace(known, count=known.count + 1)
            return
        in_user_code = error.__traceback__ and error.__traceback__.tb_next
        text = "".join(traceback.format_exception(type(error), error, in_user_code))
        headline = " ".join(traceback.format_exception_only(error)[-1].split())
        failure = CallbackFailure(callback=name, hook=hook, headline=headline, traceback=text)
        self._failures[name, hook] = failure
        self._tell_first(failure, f"{failure}; the run continues")

    def _tell_first(self, failure: CallbackFailure, headline: str) -> None:
        """Show one line even in a silent run, and the traceback in others."""
        self._tell(headline, "error")
        if failure.traceback:
            self._tell(failure.traceback.rstrip("\n"), "info")

    # -- slow callbacks --

    def _slowest(self) -> str:
        spent, running = dict(self._spent), self._running
        if running is not None:
            spent[running[0]] += self._clock() - running[2]
        return max(spent, key=spent.__getitem__)

    def _where(self) -> str:
        running = self._running
        return f"callback {running[0]}.{running[1]}" if running else "a callback"

    def _give_up(self, thread: threading.Thread, deadline_s: float) -> None:
        self._given_up = True
        name, hook, _ = self._running or (self._slowest(), "", 0.0)
        frame = sys._current_frames().get(thread.ident or 0)
        left = self._observed - self._delivered
        failure = CallbackFailure(
            callback=name,
            hook=hook,
            headline=f"did not finish within {deadline_s:g} s of the end of the run; {left} "
            "events were not delivered",
            traceback="".join(traceback.format_stack(frame)) if frame is not None else "",
        )
        self._failures[name, f"{hook} (not finished)"] = failure
        self._tell_first(failure, str(failure))


def _failure_in(event: Event | None, after: Trial) -> Failure | None:
    """The failure of the attempt that this event has ended. `after.error` may lack it: the same
    event may start the next attempt, and a start clears it."""
    match event:
        case Raised():
            return event.failure
        case Exited():
            return after.error or lost_worker(event.kind, event.cause, pid=None)
        case _:
            return after.error


def names_of(callbacks: Sequence[Callback]) -> list[str]:
    """The class name of each callback, numbered if a class occurs more than once."""
    kinds = [type(callback).__name__ for callback in callbacks]
    return [
        f"{kind}[{kinds[:at].count(kind)}]" if kinds.count(kind) > 1 else kind
        for at, kind in enumerate(kinds)
    ]


def _copy(value: Any) -> Any:
    """New containers around the same values, so that a callback may change them."""
    if type(value) is dict:
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value
