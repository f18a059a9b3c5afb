"""What happened to an experiment, in order, each in a sentence. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.experiment.records.view import Condition
from holdfast.names import listed
from holdfast.results.page.happened import Attempt, Happening, Restore
from holdfast.results.page.history import History
from holdfast.results.page.raw_records import text_of
from holdfast.results.page.values import LONG, shortened
from holdfast.runtime.launcher import short_cause
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.text.trials import number, short_name
from holdfast.text.values import counted, duration

_MOST: Final = 500
_NAMED: Final = 5
_MOST_STEPS: Final = 500


def timeline_of(
    history: History, machine: Machine, state: Condition, states: Callable[[], str]
) -> list[dict[str, Any]]:
    """The newest 500 entries, the oldest first. `states` counts the trials, in words, which takes
    a while."""
    found = [
        *(_entry(one, machine.spec) for one in history.happenings),
        *(entry for restore in history.restores for entry in _restore(restore, history)),
    ]
    if last := _last(machine, state, states):
        found.append(last)
    found.sort(key=lambda entry: (entry["at"], entry["epoch"]))
    return found[-_MOST:]


def concurrency(history: History) -> list[list[float]]:
    """How many trials had a worker: pairs of a time and a number, at most 500."""
    steps: Sequence[tuple[float, int]] = history.running
    if len(steps) > _MOST_STEPS:
        size = -(-len(steps) // _MOST_STEPS)
        steps = [
            max(steps[at : at + size], key=lambda step: step[1])
            for at in range(0, len(steps), size)
        ]
    return [[at, running] for at, running in steps]


def starts(attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """The iterations from which attempts after the first continued, and when they began."""
    return [
        {"iteration": one.from_iteration, "at": one.began_at}
        for one in attempts[1:]
        if one.from_iteration is not None
    ]


def _made(at: float, kind: str, text: str, epoch: int) -> dict[str, Any]:
    return {"at": at, "kind": kind, "text": shortened(text, LONG), "epoch": epoch}


def _entry(one: Happening, spec: ExperimentSpec) -> dict[str, Any]:
    kind, say = _SAID[one.name]
    return _made(one.at, kind, say(one.fields, spec), one.epoch)


def _began(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    planned = fields.get("spec")
    settings = planned if isinstance(planned, Mapping) else {}
    count = settings.get("num_samples")
    parts = [f"num_samples={count}"] if type(count) is int and count != 1 else []
    if scheduler := short_name(text_of(settings.get("scheduler"))):
        parts.append(f"the scheduler {scheduler}")
    return f"The experiment began{' with ' * bool(parts)}{' and '.join(parts)}."


def _ended(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    message, reason = text_of(fields.get("message")), text_of(fields.get("reason"))
    return f"End of the run: {message or reason}."


def _limit(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    most = fields.get("max_concurrent")
    if type(most) is not int:
        return f"{_by(fields)} removed the limit of trials at once."
    return f"{_by(fields)} set the limit to {counted(most, 'trial', 'trials')} at once."


def _joined(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    kind = f" of the kind {text_of(fields.get('kind'))}" if fields.get("kind") else ""
    return f"Node {text_of(fields.get('node'))}{kind} joined."


def _leaving(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    seconds, why = fields.get("seconds"), text_of(fields.get("why"))
    when = f" in {duration(seconds)}" if isinstance(seconds, (int, float)) and seconds else ""
    return f"Node {text_of(fields.get('node'))} said that it leaves{when}{why and f': {why}'}."


def _left(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    cause = short_cause(text_of(fields.get("cause")))
    return f"Node {text_of(fields.get('node'))} left{cause and f': {cause}'}."


def _settled(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    missing = text_of(fields.get("missing"))
    return f"The run stopped waiting for nodes{missing and f': {missing}'}."


def _added(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    count = fields.get("count")
    more = counted(count, "trial", "trials") if type(count) is int else "trials"
    return f"{_by(fields)} added {more}."


def _config(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    config = fields.get("config")
    values = config if isinstance(config, Mapping) else {}
    shown = listed([f"{name}={value}" for name, value in values.items()], _NAMED)
    return f"{_by(fields)} added a config to try next: {shown or 'drawn from the space'}."


def _refused(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    return f"An added config made no trial: {text_of(fields.get('why'))}"


def _note(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    text = text_of(fields.get("text"))
    if not text:
        return f"{_by(fields)} removed the note on {_trial(fields)}."
    return f"{_by(fields)} wrote on {_trial(fields)}: {text}"


def _on_trial(verb: str) -> Callable[[Mapping[str, Any], ExperimentSpec], str]:
    return lambda fields, spec: f"{_by(fields)} {verb} {_trial(fields)}."


def _pause(fields: Mapping[str, Any], spec: ExperimentSpec) -> str:
    how = "paused" if fields.get("now") else "ordered a pause of"
    return f"{_by(fields)} {how} {_trial(fields)}{' at once' if fields.get('now') else ''}."


def _by(fields: Mapping[str, Any]) -> str:
    return text_of(fields.get("by")) or "Somebody"


def _trial(fields: Mapping[str, Any]) -> str:
    return f"trial {text_of(fields.get('trial_id'))}"


_SAID: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any], ExperimentSpec], str]]]] = {
    "Begun": ("began", _began),
    "Recalled": (
        "began",
        lambda fields, spec: "The first records are lost: what happened before this is not known.",
    ),
    "EndOrdered": ("ended", _ended),
    "NodeJoined": ("node_joined", _joined),
    "NodeLeaving": ("node_left", _leaving),
    "NodeLeft": ("node_left", _left),
    "NodesSettled": ("node_left", _settled),
    "TrialStopOrdered": ("stopped", _on_trial("stopped")),
    "PauseRequested": ("paused", _pause),
    "ResumeRequested": ("resumed", _on_trial("resumed")),
    "LimitChanged": ("limit", _limit),
    "SamplesAdded": ("added", _added),
    "ConfigAdded": ("added", _config),
    "ConfigRefused": ("added", _refused),
    "NoteWritten": ("note", _note),
}


def _restore(restore: Restore, history: History) -> Iterator[dict[str, Any]]:
    if not restore.was_ended and restore.cut:
        alive = counted(len(restore.cut), "trial", "trials")
        text = f"The run's process was killed, or crashed, while {alive} ran."
        yield _made(restore.silent_since, "interrupted", text, restore.epoch - 1)
    gap_s = max(0.0, restore.at - restore.silent_since)
    text = f"Restored after {duration(gap_s)} without a process; {_resumed(restore, history)}"
    yield _made(restore.at, "restored", text, restore.epoch)


def _resumed(restore: Restore, history: History) -> str:
    """What became of the trials that were running."""
    failed = counted(restore.retried, "trial", "trials")
    retried = [f"{failed} whose last attempt had failed began again"] if restore.retried else []
    if not restore.cut:
        return f"{', '.join(['no trial was running', *retried])}."
    later = {
        trial_id: _following(history.attempts_of(trial_id), cut)
        for trial_id, cut in restore.cut.items()
    }
    begun = {
        trial_id: (restore.cut[trial_id], one, one.from_iteration)
        for trial_id, one in later.items()
        if one is not None and one.from_iteration is not None
    }
    resumed = {trial_id: at for trial_id, (_, _, at) in begun.items() if at}
    over = len(begun) - len(resumed)
    parts = []
    if resumed:
        texts = [f"{number(one)} from iteration {at}" for one, at in resumed.items()]
        count = counted(len(resumed), "trial", "trials")
        source = "a checkpoint" if len(resumed) == 1 else "checkpoints"
        parts.append(f"{count} resumed from {source} ({listed(texts, _NAMED)})")
    if over:
        parts.append(f"{over} started over without a checkpoint")
    if waiting := len(restore.cut) - len(begun):
        of = f" of {len(restore.cut)}" if begun else ""
        trials = counted(waiting, "trial", "trials")
        parts.append(f"{trials}{of} that had been running did not report again so far")
    if begun:
        parts.append(_again([(cut, one) for cut, one, _ in begun.values()]))
    return f"{', '.join([*parts, *retried])}."


def _again(pairs: Sequence[tuple[Attempt, Attempt]]) -> str:
    """What was trained twice."""
    iterations, seconds = 0, 0.0
    for cut, later in pairs:
        iterations += max(0, (cut.to_iteration or 0) - (later.from_iteration or 0))
        if cut.to_time_s is not None and later.from_time_s is not None:
            seconds += max(0.0, cut.to_time_s - later.from_time_s)
    if not iterations:
        return "no reported iteration ran again"
    what = counted(iterations, "iteration", "iterations")
    return f"{what} ({duration(seconds)} of training) ran again"


def _following(attempts: Sequence[Attempt], cut: Attempt) -> Attempt | None:
    later = [one for one in attempts if one.attempt > cut.attempt]
    return later[0] if later else None


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
