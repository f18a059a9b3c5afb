"""What the thread that called `fit()` does meanwhile: show progress, and handle Ctrl-C."""

from __future__ import annotations

from holdfast.experiment.conduct import Run
from holdfast.experiment.debug import InlineLauncher
from holdfast.experiment.progress import ProgressView
from holdfast.experiment.summary import RunFacts

REFRESH_S = 0.25


def watch(
    run: Run,
    view: ProgressView,
    facts: RunFacts,
    *,
    inline: InlineLauncher | None = None,
) -> None:
    """Show the run until it has ended.

    The first Ctrl-C stops the trials so that they can be resumed, the second kills. `inline`
    gives this thread the trials to run itself.

    Raises KeyboardInterrupt after a Ctrl-C, when everything has ended.
    """
    interrupts = 0
    run.start()
    view.start()
    while True:
        try:
            while not (inline.work(run) if inline else run.wait(REFRESH_S)):
                _refresh(run, view, facts)
            break
        except KeyboardInterrupt:
            interrupts += 1
            _on_interrupt(run, view, interrupts)
    run.join()
    _refresh(run, view, facts)
    _finish(run, view, facts)
    if interrupts:
        view.message(f"To go on: {resume_command(facts)}", "info")
        raise KeyboardInterrupt


def _on_interrupt(run: Run, view: ProgressView, interrupts: int) -> None:
    settings = run.plan.settings
    if interrupts > 1:
        run.abort()
        return
    view.message(
        f"Interrupted: trials have {settings.stop_grace_s:g} s to end, uploads "
        f"{settings.flush_deadline_s:g} s. Press Ctrl-C again to kill everything now",
        "warning",
    )
    run.interrupt()


def resume_command(facts: RunFacts) -> str:
    """What to write to go on, ready to be pasted."""
    return f"Tuner.restore({facts.path!r}, trainable=...).fit()"


def _refresh(run: Run, view: ProgressView, facts: RunFacts) -> None:
    taken = run.lines.take()
    for prefix, count in taken.skipped.items():
        view.skipped(prefix, count)
    for prefix, text in taken.lines:
        view.log(prefix, text)
    while run.messages:
        view.message(*run.messages.popleft())
    view.update(run.summary(facts))


def _finish(run: Run, view: ProgressView, facts: RunFacts) -> None:
    if run.fault is None:
        view.finish(run.summary(facts))
    else:
        view.abandon()
