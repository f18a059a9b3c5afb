"""The attempts of a trial as a page shows them: when, how far, why each ended. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast, get_args

from holdfast.experiment.progress.wording import user_frame
from holdfast.results.page.happened import Attempt
from holdfast.results.page.raw_records import text_of
from holdfast.results.page.values import LONG, shortened
from holdfast.scheduler.events import ExperimentSpec
from holdfast.text.trials import stop_reason, stop_sentence
from holdfast.trial.errors import (
    Failure,
    FailureKind,
    ProcessFailureKind,
    lost_worker,
)
from holdfast.trial.trial import Status, Trial

_KINDS: Final = get_args(FailureKind)
_PROCESS_KINDS: Final = get_args(ProcessFailureKind)


def attempts_of(
    trial: Trial,
    known: Sequence[Attempt],
    spec: ExperimentSpec,
    *,
    is_live: bool,
    last_at: float,
) -> list[dict[str, Any]]:
    """All attempts, the first first. `last_at` is the time of the newest record."""
    usages = {usage.attempt: usage for usage in trial.usages}
    several = known or _from_trial(trial)
    shown = []
    for at, one in enumerate(several):
        following = several[at + 1] if at + 1 < len(several) else None
        end, why, failure = _ending(trial, one, following, spec, is_live=is_live)
        usage = usages.get(one.attempt)
        has_ended = end != "running"
        shown.append(
            {
                "attempt": one.attempt,
                "began_at": one.began_at or None,
                "ended_at": (one.ended_at or last_at) if has_ended else None,
                "from_iteration": _from_iteration(trial, one, following),
                "to_iteration": _to_iteration(trial, one, following),
                "node": one.node,
                "nodes": list(dict.fromkeys(one.nodes)),
                "hostname": shortened(one.hostname),
                "pid": one.pid,
                "end": end,
                "why": shortened(why, LONG),
                "error": None if failure is None else _plain(failure),
                "usage": None if usage is None else asdict(usage),
            }
        )
    return shown


def _from_trial(trial: Trial) -> list[Attempt]:
    """The newest attempt of a trial whose records are not at hand."""
    if not trial.attempt:
        return []
    place = trial.place
    return [
        Attempt(
            attempt=trial.attempt,
            began_at=0.0,
            epoch=0,
            pid=place.pid,
            hostname=place.hostname,
            nodes=place.nodes,
        )
    ]


def failure_of(one: Attempt) -> Failure | None:
    """Why an attempt failed; None if it did not."""
    if one.failure is None:
        return None
    kind, message = one.failure.get("kind"), text_of(one.failure.get("message"))
    if one.end == "lost":
        lost = cast(ProcessFailureKind, kind if kind in _PROCESS_KINDS else "lost")
        return lost_worker(
            lost, message, pid=one.pid or None, hostname=one.hostname, node=one.node
        )
    return Failure(
        kind=cast(FailureKind, kind if kind in _KINDS else "user"),
        type_name=text_of(one.failure.get("type_name")) or "Error",
        message=message,
        traceback=text_of(one.failure.get("traceback")),
        hostname=one.hostname,
        node=one.node,
    )


def _ending(
    trial: Trial,
    one: Attempt,
    following: Attempt | None,
    spec: ExperimentSpec,
    *,
    is_live: bool,
) -> tuple[str, str, Failure | None]:
    """How it ended, why, and its failure."""
    failure = failure_of(one)
    if failure is not None:
        return _word_of(failure), f"{failure.headline}{_after(trial, following)}", failure
    if following is None and trial.status is Status.TERMINATED:
        reason = stop_reason(trial, is_live=is_live)
        word = reason.value if reason is not None and reason.is_early else "finished"
        return word, stop_sentence(trial, spec.options, is_live=is_live), None
    if following is None and trial.status is Status.ERROR and trial.error is not None:
        return _word_of(trial.error), trial.error.headline, trial.error
    if not one.end and following is None:
        return _unended(trial, spec, is_live=is_live)
    if one.end == "returned":
        if one.why or not trial.status.is_final:
            return "paused", one.why or "it gave up its worker", None
        return "finished", f"its function returned{_after(trial, following)}", None
    return one.end or "interrupted", f"{one.why}{_after(trial, following)}", None


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
    """What followed, for the end of a sentence."""
    if following is not None:
        start = following.from_iteration
        if start is None:
            return ""
        return f"; it ran again from iteration {start}" if start else "; it started over"
    if trial.status is Status.ERROR:
        return "; no retry was left"
    return "; it waits for its next attempt" if trial.status is Status.PENDING else ""


def _from_iteration(trial: Trial, one: Attempt, following: Attempt | None) -> int | None:
    if one.from_iteration is None and following is None:
        return trial.resumed_from
    return one.from_iteration


def _to_iteration(trial: Trial, one: Attempt, following: Attempt | None) -> int | None:
    if following is None and trial.attempt == one.attempt:
        return max(trial.iteration, one.to_iteration or 0)
    return one.from_iteration if one.to_iteration is None else one.to_iteration


def _plain(failure: Failure) -> dict[str, Any]:
    return {
        "headline": shortened(failure.headline, LONG),
        "traceback": shortened(failure.traceback, 10 * LONG),
        "where": user_frame(failure),
        "kind": failure.kind,
    }
