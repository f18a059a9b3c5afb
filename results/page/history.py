"""The attempts of a trial, and what happened to an experiment, as a page shows them.

Both come from the machine, which sees every event: an attempt is in its trial, and the events that
matter to people are in `State.happened`. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple, TypeVar, get_args

from holdfast.experiment.progress.wording import user_frame
from holdfast.experiment.records.view import Condition
from holdfast.names import listed
from holdfast.results.page.entries import LONG, shortened
from holdfast.runtime.launcher import short_cause
from holdfast.scheduler.events import ExperimentSpec, Happening
from holdfast.scheduler.machine import Machine
from holdfast.text.trials import number, short_name, stop_reason, stop_sentence
from holdfast.text.values import counted, duration
from holdfast.trial.errors import Failure, ProcessFailureKind
from holdfast.trial.trial import Attempt, Status, Trial

T = TypeVar("T")

_PROCESS_KINDS: Final = get_args(ProcessFailureKind)
_MOST: Final = 500
_NAMED: Final = 5
_MOST_STEPS: Final = 500


def all_attempts(trial: Trial) -> Sequence[Attempt]:
    """Those that have ended, and the newest, the first first."""
    known = trial.attempts
    if not trial.attempt or (known and known[-1].attempt == trial.attempt):
        return known
    newest = Attempt(
        attempt=trial.attempt,
        began_at=trial.began_at,
        ended_at=trial.ended_at,
        from_iteration=trial.resumed_from,
        to_iteration=trial.iteration,
        from_time_s=trial.time_at_start_s,
        to_time_s=trial.time_total_s,
        end="ended",
        place=trial.place,
    )
    return (*known, newest)


def attempts_of(
    trial: Trial, spec: ExperimentSpec, *, is_live: bool, last_at: float
) -> list[dict[str, Any]]:
    """All attempts as JSON, the first first. `last_at` is the time of the newest record."""
    usages = {usage.attempt: usage for usage in trial.usages}
    several = all_attempts(trial)
    shown = []
    for at, one in enumerate(several):
        following = several[at + 1] if at + 1 < len(several) else None
        end, why, failure = _ending(trial, one, following, spec, is_live=is_live)
        usage = usages.get(one.attempt)
        shown.append(
            {
                "attempt": one.attempt,
                "began_at": one.began_at or None,
                "ended_at": None if end == "running" else one.ended_at or last_at,
                "from_iteration": one.from_iteration,
                "to_iteration": one.to_iteration,
                "node": one.place.node,
                "nodes": list(dict.fromkeys(one.place.nodes)),
                "hostname": shortened(one.place.hostname),
                "pid": one.place.pid,
                "end": end,
                "why": shortened(why, LONG),
                "error": None if failure is None else _plain(failure),
                "usage": None if usage is None else asdict(usage),
            }
        )
    return shown


def failures_of(trial: Trial) -> Iterator[tuple[Attempt, Failure]]:
    """Each attempt that failed, and why."""
    for one in trial.attempts:
        if one.failure is not None:
            yield one, one.failure
    if trial.status is Status.ERROR and trial.error is not None:
        yield all_attempts(trial)[-1], trial.error


def starts(trial: Trial) -> list[dict[str, Any]]:
    """The iterations from which attempts after the first continued, and when they began."""
    return [
        {"iteration": one.from_iteration, "at": one.began_at}
        for one in all_attempts(trial)[1:]
        if one.began_at
    ]


def concurrency(trials: Iterable[Trial]) -> list[list[float]]:
    """The number of trials with a worker over time: at most 500 pairs of a time and a number."""
    changes: list[tuple[float, int]] = []
    for trial in trials:
        for one in all_attempts(trial):
            if one.began_at:
                changes.append((one.began_at, 1))
                if one.ended_at:
                    changes.append((one.ended_at, -1))
    changes.sort()
    steps, running = list[list[float]](), 0
    for at, change in changes:
        running += change
        steps.append([at, running])
    size = -(-len(steps) // _MOST_STEPS) or 1
    return [
        max(steps[at : at + size], key=lambda one: one[1]) for at in range(0, len(steps), size)
    ]


def _ending(
    trial: Trial,
    one: Attempt,
    following: Attempt | None,
    spec: ExperimentSpec,
    *,
    is_live: bool,
) -> tuple[str, str, Failure | None]:
    """The word for its end, the reason, and its failure."""
    is_last = following is None
    failure = trial.error if is_last and trial.status is Status.ERROR else one.failure
    if failure is not None:
        return _word_of(failure), f"{failure.headline}{_after(trial, following)}", failure
    if is_last and trial.status is Status.TERMINATED:
        reason = stop_reason(trial, is_live=is_live)
        word = reason.value if reason is not None and reason.is_early else "finished"
        return word, stop_sentence(trial, spec.options, is_live=is_live), None
    if one.end != "ended":
        why = one.why or "it gave up its worker"
        return one.end, f"{why}{_after(trial, following)}", None
    if is_last:
        return _unended(trial, spec, is_live=is_live)
    word = one.stop.reason.value if one.stop is not None and one.stop.reason.is_early else ""
    why = one.stop.why if one.stop is not None else ""
    return word or "finished", f"{why or 'it ended'}{_after(trial, following)}", None


def _unended(trial: Trial, spec: ExperimentSpec, *, is_live: bool) -> tuple[str, str, None]:
    if trial.status.has_worker and is_live:
        return "running", "", None
    if trial.status is Status.PAUSED or trial.is_held:
        return "paused", "it gave up its worker and waits", None
    return "interrupted", stop_sentence(trial, spec.options, is_live=False), None


def _word_of(failure: Failure) -> str:
    if failure.kind == "preempted":
        return "preempted"
    return "lost" if failure.kind in _PROCESS_KINDS else "failed"


def _after(trial: Trial, following: Attempt | None) -> str:
    """The next attempt, or why there is none, for the end of a sentence."""
    if following is not None:
        start = following.from_iteration
        return f"; it ran again from iteration {start}" if start else "; it started over"
    if trial.status is Status.ERROR:
        return "; no retry was left"
    return "; it waits for its next attempt" if trial.status is Status.PENDING else ""


def _plain(failure: Failure) -> dict[str, Any]:
    return {
        "headline": shortened(failure.headline, LONG),
        "traceback": shortened(failure.traceback, 10 * LONG),
        "where": user_frame(failure),
        "kind": failure.kind,
    }


# -- what happened to the experiment --------------------------------------------------------------


def timeline_of(
    machine: Machine, state: Condition, states: Callable[[], str]
) -> list[dict[str, Any]]:
    """The newest 500 entries, the oldest first, each a sentence. `states` counts the trials, in
    words, which takes a while."""
    happened = machine.happened
    restores = [one for one in happened if one.name == "Resumed"]
    pairs = _successions(machine) if restores else []
    found = [_entry(one) for one in happened if one.name in _SAID]
    for at, restore in enumerate(restores):
        before_at = restores[at - 1].at if at else 0.0
        until = restores[at + 1].at if at + 1 < len(restores) else float("inf")
        found += _restore(restore, pairs, before_at, until)
    if last := _last(machine, state, states):
        found.append(last)
    found.sort(key=lambda entry: (entry["at"], entry["epoch"]))
    return found[-_MOST:]


def _made(at: float, kind: str, text: str, epoch: int) -> dict[str, Any]:
    return {"at": at, "kind": kind, "text": shortened(text, LONG), "epoch": epoch}


class _Said:
    """The facts of a happening, of which a file may have any."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def of(self, name: str, default: T) -> T:
        """The fact if it has the type of the default."""
        value = self._facts.get(name)
        return value if type(value) is type(default) else default

    def text(self, name: str) -> str:
        return self.of(name, "")

    @property
    def by(self) -> str:
        return self.text("by") or "Somebody"

    @property
    def trial(self) -> str:
        return f"trial {self.text('trial_id')}"


def _entry(one: Happening) -> dict[str, Any]:
    kind, say = _SAID[one.name]
    return _made(one.at, kind, say(_Said(one.facts)), one.epoch)


def _began(said: _Said) -> str:
    count, scheduler = said.of("num_samples", 1), short_name(said.text("scheduler"))
    parts = [f"num_samples={count}"] if count != 1 else []
    parts += [f"the scheduler {scheduler}"] if scheduler else []
    return f"The experiment began{' with ' * bool(parts)}{' and '.join(parts)}."


def _limit(said: _Said) -> str:
    most = said.of("max_concurrent", 0)
    if not most:
        return f"{said.by} removed the limit of trials at once."
    return f"{said.by} set the limit to {counted(most, 'trial', 'trials')} at once."


def _joined(said: _Said) -> str:
    kind = f" of the kind {said.text('kind')}" if said.text("kind") else ""
    return f"Node {said.text('node')}{kind} joined."


def _leaving(said: _Said) -> str:
    seconds, why = said.of("seconds", 0) or said.of("seconds", 0.0), said.text("why")
    when = f" in {duration(seconds)}" if seconds else ""
    return f"Node {said.text('node')} said that it leaves{when}{why and f': {why}'}."


def _left(said: _Said) -> str:
    cause = short_cause(said.text("cause"))
    return f"Node {said.text('node')} left{cause and f': {cause}'}."


def _settled(said: _Said) -> str:
    missing = said.text("missing")
    return f"The run stopped waiting for nodes{missing and f': {missing}'}."


def _added(said: _Said) -> str:
    count = said.of("count", 0)
    more = counted(count, "trial", "trials") if count else "trials"
    return f"{said.by} added {more}."


def _config(said: _Said) -> str:
    values = [f"{name}={value}" for name, value in said.of("config", dict[str, Any]()).items()]
    shown = listed(values, _NAMED) or "drawn from the space"
    return f"{said.by} added a config to try next: {shown}."


def _note(said: _Said) -> str:
    text = said.text("text")
    if not text:
        return f"{said.by} removed the note on {said.trial}."
    return f"{said.by} wrote on {said.trial}: {text}"


def _pause(said: _Said) -> str:
    if said.of("now", False):
        return f"{said.by} paused {said.trial} at once."
    return f"{said.by} ordered a pause of {said.trial}."


_SAID: Final[Mapping[str, tuple[str, Callable[[_Said], str]]]] = {
    "Begun": ("began", _began),
    "Recalled": (
        "began",
        lambda said: "The first records are lost: what happened before this is not known.",
    ),
    "EndOrdered": (
        "ended",
        lambda said: f"End of the run: {said.text('message') or said.text('reason')}.",
    ),
    "NodeJoined": ("node_joined", _joined),
    "NodeLeaving": ("node_left", _leaving),
    "NodeLeft": ("node_left", _left),
    "NodesSettled": ("node_left", _settled),
    "TrialStopOrdered": ("stopped", lambda said: f"{said.by} stopped {said.trial}."),
    "PauseRequested": ("paused", _pause),
    "ResumeRequested": ("resumed", lambda said: f"{said.by} resumed {said.trial}."),
    "LimitChanged": ("limit", _limit),
    "SamplesAdded": ("added", _added),
    "ConfigAdded": ("added", _config),
    "ConfigRefused": (
        "added",
        lambda said: f"An added config made no trial: {said.text('why')}",
    ),
    "NoteWritten": ("note", _note),
}


class _Succession(NamedTuple):
    """An attempt, and the one that followed it."""

    trial_id: str
    before: Attempt
    after: Attempt | None


def _successions(machine: Machine) -> list[_Succession]:
    found = []
    for trial in machine.trials.values():
        if trial.attempts:
            several = all_attempts(trial)
            following = [*several[1:], None]
            found += [
                _Succession(trial.trial_id, one, later)
                for one, later in zip(several, following, strict=True)
            ]
    return found


def _restore(
    restore: Happening, pairs: Sequence[_Succession], before_at: float, until: float
) -> Iterator[dict[str, Any]]:
    """The restore, and the crash before it. The earlier restore was at `before_at`, the later one
    is at `until`."""
    cut = [
        pair
        for pair in pairs
        if pair.before.end == "interrupted" and before_at <= pair.before.ended_at <= restore.since
    ]
    if cut and not restore.facts.get("was_ended"):
        alive = counted(len(cut), "trial", "trials")
        text = f"The run's process was killed, or crashed, while {alive} ran."
        yield _made(restore.since, "interrupted", text, restore.epoch - 1)
    retried = sum(
        before.failure is not None
        and before.ended_at <= restore.since
        and after is not None
        and restore.at <= after.began_at < until
        for _, before, after in pairs
    )
    gap_s = max(0.0, restore.at - restore.since)
    text = f"Restored after {duration(gap_s)} without a process; {_resumed(cut, retried)}"
    yield _made(restore.at, "restored", text, restore.epoch)


def _resumed(cut: Sequence[_Succession], retried: int) -> str:
    """The fate of the trials that were running, as a sentence."""
    failed = counted(retried, "trial", "trials")
    again = [f"{failed} whose last attempt had failed began again"] if retried else []
    if not cut:
        return f"{', '.join(['no trial was running', *again])}."
    begun = [
        (trial_id, before, after)
        for trial_id, before, after in cut
        if after is not None and after.has_reported
    ]
    resumed = {trial_id: after.from_iteration for trial_id, _, after in begun}
    resumed = {trial_id: at for trial_id, at in resumed.items() if at}
    parts = []
    if resumed:
        texts = [f"{number(one)} from iteration {at}" for one, at in resumed.items()]
        count = counted(len(resumed), "trial", "trials")
        source = "a checkpoint" if len(resumed) == 1 else "checkpoints"
        parts.append(f"{count} resumed from {source} ({listed(texts, _NAMED)})")
    if over := len(begun) - len(resumed):
        parts.append(f"{over} started over without a checkpoint")
    if waiting := len(cut) - len(begun):
        of = f" of {len(cut)}" if begun else ""
        trials = counted(waiting, "trial", "trials")
        parts.append(f"{trials}{of} that had been running did not report again so far")
    if begun:
        parts.append(_repeated([(before, after) for _, before, after in begun]))
    return f"{', '.join([*parts, *again])}."


def _repeated(pairs: Sequence[tuple[Attempt, Attempt]]) -> str:
    """The iterations that were trained twice."""
    iterations, seconds = 0, 0.0
    for cut, later in pairs:
        iterations += max(0, cut.to_iteration - later.from_iteration)
        seconds += max(0.0, cut.to_time_s - later.from_time_s)
    if not iterations:
        return "no reported iteration ran again"
    what = counted(iterations, "iteration", "iterations")
    return f"{what} ({duration(seconds)} of training) ran again"


def _last(machine: Machine, state: Condition, states: Callable[[], str]) -> dict[str, Any] | None:
    """The end, or that no process runs the experiment."""
    if state is Condition.LIVE:
        return None
    epoch = machine.epoch
    if machine.finished:
        kind = "ended" if state is Condition.FINISHED else "interrupted"
        return _made(machine.now, kind, f"The run ended: {states() or 'no trial'}.", epoch)
    trials = machine.trials.values()
    left = sum(trial.attempt > 0 and not trial.status.is_final for trial in trials)
    text = (
        f"No process has run the experiment since then: it was killed, or crashed, with "
        f"{counted(left, 'trial', 'trials')} unfinished. A restore continues it."
    )
    return _made(machine.now, "interrupted", text, epoch)
