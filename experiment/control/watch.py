"""The thread that called `fit()`: shows progress and handles signals while the run works.

In the debug mode (`inline_launcher.py`) it also runs the trials.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.plan import RunPlan
from holdfast.experiment.control.run import RunLoop
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import ProgressView, RunFacts, Summary
from holdfast.experiment.progress.wording import retry_options, workers_lines
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.place import restore_call
from holdfast.forked import children_end_here, end_child
from holdfast.late import is_late
from holdfast.runtime import process_control
from holdfast.scheduler.confirming import fresh_runs
from holdfast.scheduler.launching import fits_no_trial, search_text
from holdfast.syncer.files.durable import wait_at_most
from holdfast.text.values import counted, duration
from holdfast.trial.config import PLANNED
from holdfast.trial.errors import TuneError
from holdfast.trial.trial import Status, StopReason, Trial

if TYPE_CHECKING:
    from holdfast.experiment.control.inline_launcher import InlineLauncher


class RunHandle:
    """A run, for the thread that called `fit()` and the signal handlers in it.

    Its own thread runs a `RunLoop`, whose attributes belong to that thread: here they are only
    read. `output` and the locks are of both threads, all else is of the thread of `fit()`.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan, self.machine = plan, plan.machine
        starting = "starting a process that imports your code"
        waiting = "waiting for the first node to import your code"
        self.output = RunOutput(starting if plan.engine is None else waiting)
        self.is_aborted = False
        # The launcher of the debug mode, in which this thread runs the trials.
        self.inline: InlineLauncher | None = None
        if plan.settings.debug:
            from holdfast.experiment.control.inline_launcher import InlineLauncher

            self.inline = InlineLauncher()
        self._run_loop = RunLoop(plan, self.output, self.inline)
        # Written by the loop, and read once it has ended.
        self.result = self._run_loop.result
        self._summarizer = Summarizer(plan.machine)
        self._done = threading.Event()
        # Held to end the run, or to give it up.
        self._ending = threading.Lock()
        self._is_given_up = False
        self._thread = threading.Thread(target=self._run, name="holdfast-controller", daemon=True)
        self._pid = os.getpid()

    def start(self) -> None:
        self.plan.lock.check_ownership()
        self._loop = new_event_loop()
        self._thread.start()

    def _run(self) -> None:
        """The body of the run's thread."""
        wait_at_most(self.plan.settings.disk_deadline_s, self.output.tell)
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._run_loop.run())
        except BaseException as error:  # raised again by fit(), in the user's thread
            self.result.fault = error
        finally:
            with self._ending:
                self._done.set()
                is_given_up = self._is_given_up
            self.output.ring()
            if is_given_up:
                self.plan.lock.release()

    @property
    def is_alive(self) -> bool:
        """True if it has started, and has not ended."""
        return self._thread.is_alive() and not self._done.is_set()

    @property
    def has_begun(self) -> bool:
        """True if the experiment has its first record."""
        return not self.plan.fresh or bool(self.machine.spec.experiment_id)

    @property
    def stopped_by(self) -> str:
        """The person that has stopped the run from outside; "" for none."""
        return self._run_loop.stopped_by

    def wait(self, timeout_s: float | None) -> bool:
        """True if everything has ended. Returns after `timeout_s` at the latest."""
        has_ended = self._done.wait(timeout_s)
        self._end_child()
        return has_ended

    def wait_for_news(self, seen: float, rest_s: float, quiet_s: float) -> bool:
        """True if the bell rings, upon which this returns. After `rest_s` seconds it also returns
        if the machine has had an event since the one at `seen`, and `quiet_s` later in any
        case."""
        output = self.output
        if not (is_rung := output.rings_within(rest_s)):
            output.rings_at_events = True
            is_rung = self.machine.now == seen and output.rings_within(quiet_s)
            output.rings_at_events = False
        self._end_child()
        return is_rung

    def _end_child(self) -> None:
        if os.getpid() != self._pid:  # a signal handler of the script may have forked
            end_child()

    def join(self) -> None:
        self._thread.join()

    def interrupt(self, *, preempted: bool = False) -> None:
        """Stop all trials, to be resumed later. If `preempted`, they may save first.

        Returns at once.
        """
        self._order(partial(self._run_loop.interrupt, preempted=preempted))

    def abort(self) -> None:
        """Kill everything now. The journal keeps its records. Returns at once."""
        self.is_aborted = True
        self._order(self._run_loop.abort)

    def _order(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            # A turn later: the work must have begun before it can be cut short.
            self._loop.call_soon_threadsafe(self._loop.call_soon, act)

    def give_up(self) -> bool:
        """Do not wait for a run that hangs. Returns False if it has ended meanwhile.

        It may write later, so the experiment stays locked until this process ends.
        """
        with self._ending:
            if not (self._done.is_set() or self._is_given_up):
                self._is_given_up = True
                self.plan.lock.hold()
        return self._is_given_up

    def summary(self, facts: RunFacts) -> Summary:
        now, controller = wall_time(), self._run_loop.controller
        waiting, phase = self._run_loop.waiting, self.output.phase
        if controller is None:
            # Until a restore has begun, the machine has the state of the previous incarnation.
            summary = self._summarizer.summarize(facts=facts, now=self.machine.now)
            if summary.done and self.plan.runs_trials:
                total = facts.total if self.plan.first.spec else summary.total
                summary = replace(summary, total=total, share=None, done=False)
            return replace(
                summary,
                ending="",
                phase="" if waiting else phase,  # until there is a node, nothing else can be done
                waiting=waiting,
                nodes=None,
                elapsed_s=facts.elapsed_s(now, summary.elapsed_s),
            )
        uploads = controller.uploads
        storage = None if uploads is None else uploads.age(now)
        held = controller.held_news.waiting(self.machine)
        return replace(
            self._summarizer.summarize(facts=facts, now=now, storage=storage),
            retried=controller.retries.total,
            waits=tuple(controller.pool.awaited(now)),
            waiting=waiting or held or search_text(self.machine, now),
            phase=phase,
        )


def new_event_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def repeated_text(trials: Iterable[Trial]) -> str:
    """The iterations that unfinished trials have reported and not saved; "" if there are none."""
    behind = [
        trial
        for trial in trials
        if not trial.status.is_final and trial.iteration and not trial.has_saved
    ]
    unsaved = [trial for trial in behind if not trial.checkpoints]
    saved = [trial for trial in behind if trial.checkpoints]
    parts = []
    if unsaved:
        many = len(unsaved) > 1
        parts.append(
            f"{counted(len(unsaved), 'unfinished trial', 'unfinished trials')} "
            f"{'have' if many else 'has'} no checkpoint and will start over, which repeats "
            f"{_work(unsaved)}. Pass report() a checkpoint to keep such work."
        )
    if saved:
        many = len(saved) > 1
        parts.append(
            f"{counted(len(saved), 'trial', 'trials')} will resume from "
            f"{'checkpoints' if many else 'a checkpoint'} and repeat {_work(saved)}."
        )
    return " ".join(parts)


def _work(trials: Sequence[Trial]) -> str:
    """`12 iterations (1m 20s of training)`."""
    iterations, seconds = 0, 0.0
    for trial in trials:
        newest = trial.newest_checkpoint
        iterations += trial.iteration - (newest.iteration if newest else 0)
        seconds += trial.time_total_s - (newest.time_total_s if newest else 0.0)
    return f"{counted(iterations, 'iteration', 'iterations')} ({duration(seconds)} of training)"


REFRESH_S = 0.25
# A summary of 1,000 trials takes one or two milliseconds: use at most this part of a core.
_SUMMARY_SHARE = 0.003
# The part of a core that looks may use while every look finds all rows changed.
_LOOK_SHARE = 0.006
# The part of a core that looks may use between events, which only show that time passes.
_CLOCK_SHARE = 0.0001
# The longest time without a look at a run in which little or nothing happens. What a person waits
# for (a line, a message, a trial that starts or ends, a signal) is shown at once.
LONGEST_S = 10.0
# How much longer the end of a run may take than all its deadlines together.
LEEWAY_S = 30.0
# How long killing it may take.
_KILLING_S = 10.0
_OVERDUE = "Shutdown timed out after {waited_s:.0f} s (a bug in holdfast). Killing all processes"
_HANGS = (
    "The run hangs, probably in a disk call. holdfast stops waiting for it. The experiment stays "
    "locked until this process ends"
)


def watch(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    """Show the run until it has ended.

    The first Ctrl-C, SIGTERM or SIGHUP stops the trials, to be resumed later; the second one
    kills.

    Raises KeyboardInterrupt after a Ctrl-C, once everything has ended, or hangs and has been
    killed. After another signal the script then ends by that signal. If a signal handler of the
    script raises, everything is killed first.
    """
    with StopSignals(raises=run.inline is not None, caught=run.output.ring) as signals:
        watcher = Watcher(run, view, facts, signals)
        try:
            run.start()
            view.start()
            watcher.watch()
        except BaseException:  # of a signal handler of the script, such as SystemExit
            watcher.kill()
            raise
        _finish(run, view, facts)
    if watcher.has_ordered_end or signals.take():
        _show_rest(run, view, facts)
        deliver(signals.last or signal.SIGINT)
    elif run.result.fault is None:
        _show_retry(run, view, facts)
        _show_cut(run, view)
        _show_unconfirmed(run, view)
    elif not isinstance(run.result.fault, TuneError):  # of the user's code: others say what to do
        _show_kept(run, view, facts)


class Watcher:
    """Shows a run, and orders its end at a signal: first gently, then by force."""

    def __init__(
        self, run: RunHandle, view: ProgressView, facts: RunFacts, signals: StopSignals
    ) -> None:
        self._run, self._view = run, view
        self._signals = signals
        self._refresher = Refresher(run, view, facts)
        self._is_rung = True
        self._orders = 0
        self._ordered_at = 0.0
        self._ends_by = math.inf

    @property
    def has_ordered_end(self) -> bool:
        """Also if a person has ordered it from outside."""
        return self._orders > 0 or bool(self._run.stopped_by)

    def watch(self) -> None:
        """Returns when the run has ended, or hangs although everything was killed."""
        while True:
            try:
                with children_end_here():  # a signal handler of the script may fork
                    has_ended = self._watch()
                break
            except KeyboardInterrupt:
                self._signals.take()
                self._order_end()
        if has_ended:
            self._run.join()
            if self._run.stopped_by and not self._orders:  # it ended before it was looked at
                self._view.message(f"Stopped by {self._run.stopped_by}", "warning")
        else:
            self._view.message(_HANGS, "warning")
        self._refresher.refresh(at_once=True)

    def kill(self) -> None:
        """Kill everything and wait for its end, so that nothing of the run outlives `fit()`.

        A loop that still runs while Python exits can crash the process.
        """
        try:
            if self._run.is_alive:
                self._run.interrupt()  # otherwise the killed trials would count as failed
                self._run.abort()
                self._run.wait(_KILLING_S)
        finally:
            if self._run.is_alive and self._run.give_up():
                self._view.message(_HANGS, "warning")
            self._view.abandon()

    def _watch(self) -> bool:
        """Whether the run has ended; False if it hangs."""
        while not self._wait():
            for _ in range(self._signals.take()):
                self._order_end()
            if self._run.stopped_by and not self._orders:
                self._order_end()
            if time.monotonic() > self._ends_by and not self._force_end():
                return False
            self._refresher.refresh()
        return True

    def _wait(self) -> bool:
        """True if the run has ended. Otherwise returns when it is time to look at it again."""
        if self._run.inline is not None:
            self._run.inline.work(self._run.plan, self._run.interrupt)
            return self._run.wait(0)
        # After a bell, another one has to wait; and after an order to end there is a deadline.
        due = time.monotonic() + REFRESH_S
        if (self._is_rung or self._orders) and self._run.wait(REFRESH_S):
            return True
        if self._orders:
            now = time.monotonic()
            if is_late(due, now):
                self._ends_by += now - due
            return False
        last = self._refresher
        self._is_rung = self._run.wait_for_news(last.seen, last.rest_s, last.quiet_s)
        return self._run.wait(0)

    def _order_end(self) -> None:
        """Stop the trials after the first signal, and kill everything after the second.

        After the third, do not wait for what hangs.
        """
        self._orders += 1
        self._ordered_at = time.monotonic()
        if self._orders == 1:
            ends_in_s = self._interrupt()
        else:
            self._run.abort()
            ends_in_s = self._announce_killing() if self._orders == 2 else 0.0
        self._ends_by = time.monotonic() + ends_in_s

    def _interrupt(self) -> float:
        """Stop the trials. Returns how long the end may take."""
        run, signum = self._run, self._signals.last
        settings, failure = run.plan.settings, run.plan.machine.spec.failure
        is_preempted = signum not in (0, signal.SIGINT)
        told, again = "Interrupted: trials have", "Press Ctrl-C again"
        if run.stopped_by:
            told, again = f"Stopped by {run.stopped_by}: trials have", "Press Ctrl-C"
        if is_preempted:
            saving = f"trials have {failure.preemption_grace_s:g} s to save, then"
            told, again = f"{signal.Signals(signum).name}: {saving}", "Send it again"
        self._view.message(
            f"{told} {settings.stop_grace_s:g} s to end, uploads {settings.flush_deadline_s:g} s. "
            f"{again} to kill everything now",
            "warning",
        )
        if not run.stopped_by:
            run.interrupt(preempted=is_preempted)
        # A worker has the grace twice if it may finish its step first.
        graces_s = 2 * settings.stop_grace_s + is_preempted * failure.preemption_grace_s
        return graces_s + settings.callback_deadline_s + settings.flush_deadline_s + LEEWAY_S

    def _announce_killing(self) -> float:
        """Returns how long it may take."""
        again = "Press Ctrl-C" if self._signals.last == signal.SIGINT else "Send it"
        self._view.message(
            f"Killing all processes. {again} once more to leave processes that hang", "warning"
        )
        return _KILLING_S

    def _force_end(self) -> bool:
        """Kill a run that is overdue, or give it up if killing did not help. Returns False once it
        is given up."""
        self._ends_by = time.monotonic() + _KILLING_S
        if self._run.is_aborted:
            return not self._run.give_up()
        waited_s = time.monotonic() - self._ordered_at
        self._view.message(_OVERDUE.format(waited_s=waited_s), "warning")
        self._run.abort()
        return True


class Refresher:
    """Updates a view, with a new summary as often as the cost of summaries allows.

    Each look is followed by a rest of `rest_s`, in which nothing is shown but what is urgent: the
    fewer of its rows have changed, the longer. So 64 trials that report once a minute are looked
    at every 10 s, and one trial at each of its reports. Without any event, the next look for the
    sake of the clock comes after `quiet_s`: the more a look costs, the later. `clock` and `spent`
    return seconds of time and of this thread's CPU.
    """

    def __init__(
        self,
        run: RunHandle,
        view: ProgressView,
        facts: RunFacts,
        *,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._run, self._view, self._facts = run, view, facts
        self._clock, self._spent = clock, spent
        self._summary: Summary | None = None
        self._next_at = 0.0
        self.seen = 0.0  # the time of the newest event in the last summary
        self.rest_s = self.quiet_s = REFRESH_S

    def refresh(self, *, at_once: bool = False) -> None:
        run, view = self._run, self._view
        before, spent = self._summary, self._spent()
        taken = run.output.lines.take()
        for prefix, count in taken.skipped.items():
            view.skipped(prefix, count)
        for prefix, text in taken.lines:
            view.log(prefix, text)
        summary = self._summarize(at_once)
        while run.output.messages:
            view.message(*run.output.messages.popleft())
        view.update(summary)
        if before is not None and summary is not before:
            self._pace(changed_share(before, summary), self._spent() - spent)

    def _pace(self, changed: float, cost_s: float) -> None:
        self.rest_s = _within(cost_s / (_LOOK_SHARE * changed)) if changed else REFRESH_S
        self.quiet_s = _within(cost_s / _CLOCK_SHARE)

    def _summarize(self, at_once: bool) -> Summary:
        began, spent, before = self._clock(), self._spent(), self._summary
        if before is not None and began < self._next_at and not at_once:
            return before
        self.seen = self._run.machine.now
        now = self._summary = self._run.summary(self._facts)
        for text in workers_lines(before, now) if before else ():
            self._view.message(text, "info")
        self._next_at = began + (self._spent() - spent) / _SUMMARY_SHARE
        return now


def _within(seconds: float) -> float:
    return min(max(REFRESH_S, seconds), LONGEST_S)


def changed_share(before: Summary, now: Summary) -> float:
    """The part of the rows that have changed; 1 if other trials run or have ended."""
    if before.counts != now.counts or len(before.rows) != len(now.rows):
        return 1.0
    pairs = list(zip(before.rows, now.rows, strict=True))
    return sum(old != new for old, new in pairs) / max(1, len(pairs))


def _show_rest(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    """Show what is not in storage, and how to resume."""
    if not run.has_begun:
        again = f"run {facts.again}" if facts.again else "start the script again"
        view.message(f"Nothing had begun: {again}", "info")
        return
    if run.result.unsaved:
        view.message(f"Not in storage yet: {'; '.join(run.result.unsaved)}", "loss")
    is_unfinished = _is_unfinished(run, facts)
    if is_unfinished and (repeated := repeated_text(run.machine.trials.values())):
        view.message(repeated, "info")
    if not is_unfinished:
        call = restore_call(facts.path, run.plan.machine.spec)
        view.message(f"The run had finished. Its results: {call}", "info")
    else:
        _show_resume(run, view, facts)


def _show_kept(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    """Show what an error leaves, and how to resume once it is corrected. `fit()` raises it."""
    if trials := len(run.machine.trials):
        kept = f"{counted(trials, 'trial is', 'trials are')} kept. Results: {facts.path}"
        view.message(f"An error ended the run: {kept}", "info")
        _show_resume(run, view, facts)


def _show_resume(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    call = restore_call(facts.path, run.plan.machine.spec)
    again = "start this script again, or " if facts.resumes else ""
    if facts.again:
        view.message(f"To resume: {facts.again}", "info")
    elif facts.command:
        view.message(f"To resume: {again}{facts.command}", "info")
        view.message(f"  or in Python: {call}", "info")
    else:
        view.message(f"To resume: {again}{call}", "info")


def _show_cut(run: RunHandle, view: ProgressView) -> None:
    """Say that the budget is shorter than one training: all results are of unfinished ones."""
    machine = run.machine
    stops = [trial.stop for trial in machine.trials.values()]
    is_cut = any(stop is not None and stop.reason is StopReason.BUDGET for stop in stops)
    if (
        machine.spec.fits_budget
        and is_cut
        and all(stop and stop.reason.is_early for stop in stops)
    ):
        view.message(
            "No trial has trained to its end, since the budget is shorter than a training: give a "
            "larger budget",
            "info",
        )


def _show_unconfirmed(run: RunHandle, view: ProgressView) -> None:
    """Say for how many fresh runs the time was too short: under the same limit, a restore makes
    none of them."""
    machine = run.machine
    is_spent = machine.ending is not None and machine.ending.reason == "budget"
    if not is_spent and not fits_no_trial(machine):
        return
    if left := sum(1 for _ in fresh_runs(machine.spec, machine.trials)):
        limit = "budget" if machine.spec.fits_budget else "time_budget_s"
        view.message(
            f"The time was too short for {counted(left, 'fresh run', 'fresh runs')}: a larger "
            f"{limit} and fit(resume='auto', extend=True) search on and then make them",
            "info",
        )


def _show_retry(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    """Show how to run the failed trials again. The error of a trainer says it itself."""
    machine = run.machine
    failed = [trial for trial in machine.trials.values() if trial.status is Status.ERROR]
    if failed and facts.command and not machine.spec.options.get("trainer"):
        command = f"{facts.command} {shlex.join(retry_options(failed, facts.trainable))}"
        if all(
            one.error is not None and one.error.kind == "lost" and one.error.node for one in failed
        ):
            view.message(f"To retry the failed trials: {command}", "info")
            settings = "FailureConfig(max_failures=3)"
            view.message(f"  {settings} in the RunConfig retries what is lost in the run", "info")
        elif facts.again:
            corrected = f"correct the command or its script, then {facts.again}"
            view.message(f"To retry the failed trials: {corrected}", "info")
            view.message(f"  or, as they are: {command}", "info")
        else:
            way = "start this script again" if facts.resumes else "run it with fit(resume='auto')"
            script = f"correct the code and {way}"
            if facts.trainable or not facts.is_stored:
                view.message(f"To retry the failed trials: {script}, or {command}", "info")
            else:  # a lambda or a notebook, where the command has only the stored code
                view.message(f"To retry the failed trials: {script}", "info")
                view.message(f"  or, with the code as it was: {command}", "info")


def _is_unfinished(run: RunHandle, facts: RunFacts) -> bool:
    """True if a restore would have anything left to do."""
    machine = run.machine
    trials = list(machine.trials.values())
    planned = machine.spec.options.get(PLANNED, facts.total)  # a person may have raised it
    has_all = machine.search_ended or machine.made_by_search == planned
    is_saved = not run.result.unsaved and run.result.fault is None
    return not (has_all and is_saved and all(trial.status.is_final for trial in trials))


def _finish(run: RunHandle, view: ProgressView, facts: RunFacts) -> None:
    if run.result.fault is None:
        view.finish(run.summary(facts))
    else:
        view.abandon()


# -- the signals that ask a script to end, while `fit()` runs in its main thread ------------------

# The default action of each signal: holdfast handles a signal only if the script has not changed
# it.
_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: process_control.DEFAULT,
    signal.SIGHUP: process_control.DEFAULT,
}


class StopSignals:
    """Counts the signals instead of letting them end the script.

    `with StopSignals() as signals: ...`. Signals that the script handles itself, or ignores, as
    under `nohup`, stay as they are. Outside the main thread this does nothing. A process that the
    script forks meanwhile gets the original handlers, because process pools are ended by SIGTERM.
    """

    def __init__(self, *, raises: bool = False, caught: Callable[[], None] = lambda: None) -> None:
        """`raises`: the main thread runs user code, which each signal must interrupt. `caught` is
        called in the handler."""
        self._raises = raises
        self._tell = caught
        self._caught: list[int] = []
        self._taken = 0
        self._before: dict[int, Any] = {}

    @property
    def last(self) -> int:
        """The newest signal; 0 before the first."""
        return self._caught[-1] if self._caught else 0

    def take(self) -> int:
        """The number of signals since the last call."""
        new, self._taken = len(self._caught) - self._taken, len(self._caught)
        return new

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for signum, default in _DEFAULTS.items():
                if signal.getsignal(signum) == default and not (
                    self._raises and signum == signal.SIGINT
                ):
                    self._before[signum] = default
                    process_control.set_own_handler(signum, self._catch, in_children=default)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            process_control.end_own_handler(signum, handler)

    def _catch(self, signum: int, _frame: FrameType | None) -> None:
        self._caught.append(signum)
        self._tell()
        if self._raises:
            raise KeyboardInterrupt


def deliver(signum: int) -> None:
    """Perform the default action of a signal that was caught. Does not return.

    Raises KeyboardInterrupt for SIGINT. Raises SystemExit if the kernel ignores the signal, as it
    does for the first process of a container.
    """
    if signum != signal.SIGINT:
        signal.raise_signal(signum)
        raise SystemExit(128 + signum)
    raise KeyboardInterrupt
