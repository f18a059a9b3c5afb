"""Shows progress and handles signals in the thread that called `fit()`, while the run works."""

from __future__ import annotations

import math
import signal
import time

from holdfast.experiment.control.debug_mode import InlineLauncher
from holdfast.experiment.control.run import Run
from holdfast.experiment.control.signals import StopSignals, deliver
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.views import ProgressView
from holdfast.experiment.progress.wording import workers_lines
from holdfast.experiment.records.place import restore_call

REFRESH_S = 0.25
# Looking at 1,000 trials takes one or two milliseconds: use at most this part of a core.
_LOOKING_SHARE = 0.003
# How much longer the end of a run may take than all its deadlines together.
LEEWAY_S = 30.0
# How long killing it may take.
_KILLING_S = 10.0
_OVERDUE = "Shutdown timed out after {waited_s:.0f} s (a bug in holdfast). Killing all processes"
_LEFT = (
    "The run hangs, probably in a disk call. holdfast stops waiting for it. The experiment stays "
    "locked until this process ends"
)


def watch(
    run: Run,
    view: ProgressView,
    facts: RunFacts,
    *,
    inline: InlineLauncher | None = None,
) -> None:
    """Show the run until it has ended.

    The first Ctrl-C, SIGTERM or SIGHUP stops the trials, to be resumed later; the second one
    kills. With `inline`, the trials run in this thread.

    Raises KeyboardInterrupt after a Ctrl-C, once everything has ended, or hangs and has been
    killed. After another signal the script then ends by that signal.
    """
    asked, asked_at, ends_by, is_left = 0, 0.0, math.inf, False
    with StopSignals(raises=inline is not None) as signals:
        run.start()
        view.start()
        looks = Looks(run, view, facts)
        while True:
            try:
                while not (inline.work(run) if inline else run.wait(REFRESH_S)):
                    for _ in range(signals.take()):
                        asked, asked_at = asked + 1, time.monotonic()
                        ends_by = _on_signal(run, view, signals.last, asked)
                    if time.monotonic() > ends_by:
                        ends_by = time.monotonic() + _KILLING_S
                        if not run.is_aborted:
                            waited_s = time.monotonic() - asked_at
                            view.message(_OVERDUE.format(waited_s=waited_s), "warning")
                            run.abort()
                        elif is_left := run.leave():
                            break
                    looks.refresh()
                break
            except KeyboardInterrupt:
                asked, asked_at = asked + 1, time.monotonic()
                signals.take()
                ends_by = _on_signal(run, view, signals.last, asked)
        if is_left:
            view.message(_LEFT, "warning")
        else:
            run.join()
        looks.refresh(at_once=True)
        _finish(run, view, facts)
    if asked or signals.take():
        if run.unsaved:
            view.message(f"Not in storage yet: {'; '.join(run.unsaved)}", "loss")
        call = restore_call(facts.path, run.plan.machine.spec)
        again = "start this script again, or " if facts.resumes else ""
        is_unfinished = _is_unfinished(run, facts)
        text = f"To resume: {again}" if is_unfinished else "The run had finished. Its results: "
        view.message(f"{text}{call}", "info")
        deliver(signals.last or signal.SIGINT)


def _on_signal(run: Run, view: ProgressView, signum: int, asked: int) -> float:
    """Start the end of the run. Returns when it must have ended (monotonic seconds)."""
    settings, failure = run.plan.settings, run.plan.machine.spec.failure
    closing_s = settings.callback_deadline_s + settings.flush_deadline_s
    if asked > 1:
        run.abort()
        if asked > 2:
            return time.monotonic()
        again = "Press Ctrl-C" if signum == signal.SIGINT else "Send it"
        view.message(
            f"Killing all processes. {again} once more to leave processes that hang", "warning"
        )
        return time.monotonic() + _KILLING_S
    is_preempted = signum not in (0, signal.SIGINT)
    told, again = "Interrupted: trials have", "Press Ctrl-C again"
    if is_preempted:
        saving = f"trials have {failure.preemption_grace_s:g} s to save, then"
        told, again = f"{signal.Signals(signum).name}: {saving}", "Send it again"
    view.message(
        f"{told} {settings.stop_grace_s:g} s to end, uploads {settings.flush_deadline_s:g} s. "
        f"{again} to kill everything now",
        "warning",
    )
    run.interrupt(preempted=is_preempted)
    # A worker has the grace twice if it may finish its step first.
    graces_s = 2 * settings.stop_grace_s + is_preempted * failure.preemption_grace_s
    return time.monotonic() + graces_s + closing_s + LEEWAY_S


class Looks:
    """Updates a view, and looks at the run as often as the cost of both allows."""

    def __init__(self, run: Run, view: ProgressView, facts: RunFacts) -> None:
        self._run, self._view, self._facts = run, view, facts
        self._summary: Summary | None = None
        self._next_at = 0.0

    def refresh(self, *, at_once: bool = False) -> None:
        run, view = self._run, self._view
        taken = run.lines.take()
        for prefix, count in taken.skipped.items():
            view.skipped(prefix, count)
        for prefix, text in taken.lines:
            view.log(prefix, text)
        summary = self._look(at_once)
        while run.messages:
            view.message(*run.messages.popleft())
        view.update(summary)

    def _look(self, at_once: bool) -> Summary:
        began, spent, before = time.monotonic(), time.thread_time(), self._summary
        if before is not None and began < self._next_at and not at_once:
            return before
        now = self._summary = self._run.summary(self._facts)
        for text in workers_lines(before, now) if before else ():
            self._view.message(text, "info")
        self._next_at = began + (time.thread_time() - spent) / _LOOKING_SHARE
        return now


def _is_unfinished(run: Run, facts: RunFacts) -> bool:
    """Whether a restore would have anything left to do."""
    machine = run.machine
    trials = list(machine.trials.values())
    has_all = machine.search_ended or len(trials) == facts.total
    is_saved = not run.unsaved and run.fault is None
    return not (has_all and is_saved and all(trial.status.is_final for trial in trials))


def _finish(run: Run, view: ProgressView, facts: RunFacts) -> None:
    if run.fault is None:
        view.finish(run.summary(facts))
    else:
        view.abandon()
