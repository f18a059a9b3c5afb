"""Everything about one trial: its config, attempts, checkpoints, logs and files."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Final

from holdfast.experiment.folder.contents import LeadsElsewhere
from holdfast.experiment.folder.layout import ERROR, STDOUT, of_rank_0
from holdfast.experiment.progress.scheduler_facts import takeover_facts
from holdfast.experiment.records.view import Condition, ExperimentView
from holdfast.plain_numbers import finite_number
from holdfast.results.logs import check_reachable, folder_of, layout_of, log_names, sender_of
from holdfast.results.overview import trial_as_json
from holdfast.results.page.entries import json_value, shortened
from holdfast.results.page.history import attempts_of
from holdfast.results.page.trial_files import NotThere, artifacts_of, is_here, sizes_in
from holdfast.results.ranking import params_of
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.state import ranked
from holdfast.syncer.errors import StorageError
from holdfast.text.trials import unread_text
from holdfast.trial.best import leader
from holdfast.trial.trial import CheckpointRecord, Trial
from holdfast.trial.values import readable

_MOST_DIFFERENCES: Final = 200
_MOST_RANKS: Final = 1_000
_TEXT_BYTES: Final = 256 << 10


def trial_plain(
    experiment: ExperimentView,
    trial: Trial,
    *,
    now: float,
    values: Mapping[int, float | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """The answer of api/e/KEY/t/ID. `values` has the value of `checkpoint_goal` by the index of a
    checkpoint.

    Raises LeadsElsewhere, OSError; what storage does not answer is left out.
    """
    machine = experiment.machine
    is_live = experiment.condition(now) is Condition.LIVE
    best = leader(machine.trials.values(), machine.spec.metric, machine.spec.mode)
    files = _files(experiment, trial)
    paused = machine.paused_by(trial.trial_id) if trial.is_held else None
    is_sent = layout_of(experiment, trial, STDOUT) is None
    plain: dict[str, Any] = json_value(trial_as_json(experiment, trial, is_live=is_live))
    return {
        **plain,
        "config": json_value(readable(trial.config)),
        "differs": [] if best is None else _differences(trial, best),
        "best_id": None if best is None else best.trial_id,
        "unread_text": unread_text(trial.unread),
        "pausing": trial.is_pausing,
        "paused": None if paused is None else {"by": shortened(paused[0]), "at": paused[1]},
        "attempts": attempts_of(trial, machine.spec, is_live=is_live, last_at=machine.now),
        "checkpoint_metric": checkpoint_goal(machine.spec)[0],
        "checkpoints": checkpoints_of(experiment, trial, values),
        "output_from": sender_of(trial) if is_sent and is_live else "",
        "rungs": json_value([asdict(visit) for visit in trial.rungs]),
        "takeovers": json_value([asdict(fact) for fact in takeover_facts([trial])]),
        **files,
    }


def _differences(trial: Trial, best: Trial) -> list[dict[str, Any]]:
    here, there = params_of(trial), params_of(best)
    names = [name for name in here | there if here.get(name) != there.get(name)]
    return [
        {
            "name": name,
            "here": json_value(here.get(name)),
            "best": json_value(there.get(name)),
        }
        for name in names[:_MOST_DIFFERENCES]
    ]


def checkpoint_goal(spec: ExperimentSpec) -> tuple[str | None, str | None]:
    """The metric by which a page compares checkpoints, and its mode: the one that decides which
    are kept, else that of the experiment."""
    if attribute := spec.checkpoint.checkpoint_score_attribute:
        return attribute, spec.checkpoint.checkpoint_score_order
    if spec.metric is None:
        return next(iter(spec.goals.items()), (None, None))
    return spec.metric, spec.mode


def checkpoints_of(
    experiment: ExperimentView, trial: Trial, values: Mapping[int, float | None]
) -> list[dict[str, Any]]:
    """Those that are kept, the newest first."""
    read, machine = experiment, experiment.machine
    is_elsewhere = bool(experiment.storage) or experiment.reads_storage
    needed = machine.needed_of(trial.trial_id)
    known = {
        one.index: finite_number(values.get(one.index) if one.score is None else one.score)
        for one in trial.checkpoints
    }
    best = _best_of_several(known, checkpoint_goal(machine.spec)[1])
    return [
        {
            "dirname": one.dirname,
            "iteration": one.iteration,
            "score": known[one.index],
            "is_best": one.index == best,
            "is_newest": one == trial.newest_checkpoint,
            "committed": one.committed,
            "upload": one.upload.value,
            "why_kept": why_kept(one, trial, machine, is_needed=one.index in needed),
            "size_bytes": one.size_bytes,
            "files": one.files,
            "here": read.layout is not None and is_here(read.layout.checkpoint(trial.spec, one)),
            "stored": one.persisted and is_elsewhere,
            "is_readable": one.persisted and experiment.reads_storage,
            "node": one.node,
        }
        for one in reversed(trial.checkpoints)
    ]


def _best_of_several(known: Mapping[int, float | None], mode: str | None) -> int | None:
    """The index of the checkpoint with the best value, the newest of equal ones; None if fewer
    than two have one."""
    sign = -1.0 if mode == "min" else 1.0
    found = [(sign * value, index) for index, value in known.items() if value is not None]
    return max(found)[1] if mode is not None and len(found) > 1 else None


def why_kept(record: CheckpointRecord, trial: Trial, machine: Machine, *, is_needed: bool) -> str:
    """`the newest; number 1 by loss (min)`."""
    config = machine.spec.checkpoint
    reasons = ["the newest"] if record == trial.newest_checkpoint else []
    if is_needed:
        reasons.append("another trial starts from it")
    attribute, most = config.checkpoint_score_attribute, config.num_to_keep
    if most is None:
        reasons.append("all are kept (num_to_keep is not set)")
    elif attribute is not None:
        place = ranked(trial.checkpoints, config).index(record) + 1
        if place <= most:
            order = config.checkpoint_score_order
            reasons.append(f"number {place} by {attribute} ({order}), {most} are kept")
    elif not reasons:
        reasons.append(f"the newest {most} are kept")
    if not reasons:
        reasons.append(
            "it is removed once a newer one is committed" if record.committed else "not committed"
        )
    return "; ".join(reasons)


def _files(experiment: ExperimentView, trial: Trial) -> dict[str, Any]:
    names = log_names(experiment.machine.spec)
    problem = ""
    try:
        logs = logs_of(experiment, trial, names)
        found = artifacts_of(experiment, trial, names)
        artifacts, more = found
    except (StorageError, LeadsElsewhere) as error:
        logs, artifacts, more, problem = [], [], 0, str(error)
    return {
        "logs": logs,
        "artifacts": [
            {"path": one.path, "size_bytes": one.size_bytes, "is_image": bool(one.media_type)}
            for one in artifacts
        ],
        "artifacts_more": more,
        "files_problem": problem,
    }


def logs_of(
    experiment: ExperimentView, trial: Trial, names: Sequence[str]
) -> list[dict[str, Any]]:
    """The outputs of the trial and of its ranks, and its errors."""
    sizes = sizes_in(folder_of(experiment, trial, names[0]))
    ranks = [name for name in sizes if of_rank_0(name) in names and name not in names]
    ranks.sort(key=lambda name: (int(name.rpartition("-")[2][:9]), name))
    shown = [*names, *ranks[:_MOST_RANKS]]
    if ERROR in sizes:
        shown.append(ERROR)
    return [
        {"name": name, "label": _label(name, names), "size_bytes": sizes.get(name)}
        for name in shown
    ]


def _label(name: str, names: Sequence[str]) -> str:
    if name == ERROR:
        return "errors"
    base = of_rank_0(name)
    stream = base if len(names) > 1 else f"{base} (stdout and stderr)"
    return stream if base == name else f"{stream} of rank {name.rpartition('-')[2]}"


def read_log(experiment: ExperimentView, trial: Trial, name: str, offset: int) -> dict[str, Any]:
    """The answer of api/e/KEY/t/ID/log/NAME; an empty one for a log that is not there yet.

    `is_anew`: the log is shorter than `offset`, and is read from its beginning again. Raises
    NotThere, NoSuchLog, LeadsElsewhere, NotRegular, StorageError, OSError.
    """
    names = log_names(experiment.machine.spec)
    if of_rank_0(name) not in names and name != ERROR:
        raise NotThere(f"trial {trial.trial_id} has no output {name[:100]!r}")
    check_reachable(experiment, trial, name)
    size, begin, data = _piece(experiment, trial, name, offset)
    if offset < 0 < begin:
        skipped = _continuation(data)
        begin, data = begin + skipped, data[skipped:]
    text, used = _decoded(data)
    # Its file was cut, or replaced by a shorter one.
    is_anew = offset > size
    return {"size": size, "offset": begin, "text": text, "next": begin + used, "is_anew": is_anew}


def _piece(
    experiment: ExperimentView, trial: Trial, name: str, offset: int
) -> tuple[int, int, bytes]:
    """The size of a log, an offset in it, and some bytes from there on: from `offset`, counted
    from the end if it is negative, or from the beginning if that is beyond the end."""
    folder = folder_of(experiment, trial, name)
    found = folder.piece(name, max(0, offset), _TEXT_BYTES)
    size = 0 if found is None else found[0]
    begin = _begin(offset, size)
    if begin != offset:
        found = folder.piece(name, begin, _TEXT_BYTES)
    return size, begin, b"" if found is None else found[1]


def _begin(offset: int, size: int) -> int:
    return max(0, size + offset) if offset < 0 else offset if offset <= size else 0


def _continuation(data: bytes) -> int:
    """The number of bytes at the beginning that belong to a character that began before."""
    return next((at for at, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0)


def _decoded(data: bytes) -> tuple[str, int]:
    """Text, and the number of bytes that it was made of: a character may be incomplete so far."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    pending, _ = decoder.getstate()
    return text, len(data) - len(pending)
