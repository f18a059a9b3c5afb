"""The commands that read experiments. None locks, writes, or loads the user's code."""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from holdfast.cli.browse.output import show_catalog, show_other_places, show_overview
from holdfast.cli.printing import SOUND, WRONG, answer, complain, say, say_json
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.outcome import Outcome
from holdfast.results.ranking import NoBestResult
from holdfast.results.reading import KeptRecords, find_enclosing
from holdfast.results.result import Result
from holdfast.results.result_grid import outcome_of, results_of
from holdfast.syncer.errors import redact
from holdfast.text.values import aligned, counted, format_cell, format_value, size
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status, Trial


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises ExperimentNotFound, InvalidLocation, InvalidConfig,
    TuneError, StorageError, OSError."""
    if given.command == "ls":
        return _ls(given, settings)
    if given.command == "show" and given.watch:
        from holdfast.cli.browse.watching import watch

        return watch(given, partial(_find, given, settings))
    experiment = _find(given, settings)
    if given.command == "logs":
        return _logs(given, settings, experiment)
    of_experiment = {
        "show": _show,
        "nodes": _nodes,
        "best": best,
        "export": _export,
        "plot": _plot,
    }
    return of_experiment[given.command](given, experiment)


def _find(
    given: argparse.Namespace, settings: Settings, kept: KeptRecords | None = None
) -> ExperimentView:
    experiment = find_enclosing(given.path, settings, os.environ, given.run, kept=kept)
    if given.command != "show" or given.json:  # which shows them
        for notice in experiment.notices:
            complain(notice)
    return experiment


def _ls(given: argparse.Namespace, settings: Settings) -> int:
    from holdfast.experiment.folder.shell import note_listed, read_listed
    from holdfast.experiment.records.place import split
    from holdfast.experiment.records.view import Condition
    from holdfast.results.catalog import catalog, place_to_list

    now = time.time()
    path = given.path or place_to_list(os.environ)
    place, entries = catalog(
        path, settings, os.environ, now=now, with_sizes=not given.quick, tags=given.tag
    )
    alone = [entry.path for entry in entries] == [path]  # not a place, but an experiment
    listed = split(place, None)[0] if alone else place
    note_listed(os.environ, listed, [entry.name for entry in entries])
    if given.json:
        say_json({"path": place, "experiments": [entry.plain() for entry in entries]})
    else:
        show_catalog(place, entries, now=now)
        if not given.path:
            show_other_places(place, [last.place for last in read_listed(os.environ)])
    unreadable = any(entry.state is Condition.UNREADABLE for entry in entries)
    return WRONG if unreadable else SOUND


def _show(given: argparse.Namespace, experiment: ExperimentView) -> int:
    from holdfast.results.overview import experiment_as_json

    now = time.time()
    if given.json:
        say_json(experiment_as_json(experiment, now=now))
    else:
        show_overview(experiment, now=now, most=given.rows or None, costs=given.costs)
    return SOUND


def _nodes(given: argparse.Namespace, experiment: ExperimentView) -> int:
    from holdfast.cli.browse.output import show_nodes
    from holdfast.results.overview import node_list

    now = time.time()
    listed = node_list(experiment, now=now)
    if given.json:
        say_json(listed.plain())
    else:
        show_nodes(listed, now=now, shows_all=given.all)
    return SOUND


def _logs(given: argparse.Namespace, settings: Settings, experiment: ExperimentView) -> int:
    from holdfast.experiment.folder.layout import ERROR
    from holdfast.results import logs

    trial = logs.trial_named(experiment, given.trial)
    stream = "stderr" if given.stderr else "stdout"
    name = ERROR if given.error else logs.log_name(experiment.machine.spec, stream, given.rank)
    place = logs.place_of(experiment, trial, name)
    if given.only_path and not given.json:
        say(place)
        return SOUND
    if given.follow:
        from holdfast.cli.browse.watching import follow_log

        return follow_log(given, experiment, trial, name, find=partial(_find, given, settings))
    pieces = logs.written(experiment, trial, name)
    if not given.error and (node := logs.sender_of(trial, given.rank)):
        _say_how_old(experiment, trial, name, node)
    if given.tail is not None:
        pieces = iter([logs.last_lines(pieces, given.tail)])
    if given.json:
        text = b"".join(pieces).decode(errors="replace")
        say_json({"trial_id": trial.trial_id, "path": place, "text": text})
        return SOUND
    is_silent = True
    for piece in pieces:
        is_silent = is_silent and not piece
        sys.stdout.buffer.write(piece)
    if is_silent:
        complain(f"{place} is empty: trial {trial.trial_id} has written nothing there")
    return SOUND


def _say_how_old(experiment: ExperimentView, trial: Trial, name: str, node: str) -> None:
    """Say from which node the output of a trial is, and when it came."""
    from holdfast.experiment.records.view import Condition
    from holdfast.results import logs
    from holdfast.text.values import duration

    now = time.time()
    runs = "runs" if experiment.condition(now) is Condition.LIVE else "ran"
    at = logs.stored_at(experiment, trial, name)
    age = "" if at is None else f" {duration(max(0.0, now - at))} ago"
    complain(f"trial {trial.trial_id} {runs} on node {node}, which sent this output last{age}")


def _export(given: argparse.Namespace, experiment: ExperimentView) -> int:
    from holdfast.results.tables import FORMATS, format_of, write_table

    if given.optuna:
        return _to_optuna(given, experiment)
    if given.model:
        return export_model(given, experiment)
    lines = outcome_of(experiment).report_lines() if given.rows else _lines(given, experiment)
    form = given.format or format_of(given.output)
    if form not in FORMATS:
        raise InvalidConfig(
            f"{given.output} does not end with .csv, .parquet or .json: pass --format"
        )
    if form == "parquet" and given.output is None:
        raise InvalidConfig("Parquet is a binary format: name a file with --output")
    write_table(lines, given.output, form, replace=given.force)
    if given.output is None:
        return SOUND
    plain = {"path": experiment.shown, "output": given.output, "format": form}
    text = f"{given.output}: {len(lines)} {'reports' if given.rows else 'trials'} as {form}"
    return answer(given, {**plain, "lines": len(lines)}, text)


def _plot(given: argparse.Namespace, experiment: ExperimentView) -> int:
    from holdfast.results.drawing import check_picture, save_picture
    from holdfast.results.plots import draw

    output = given.output or f"{experiment.name}-{given.kind}.png"
    check_picture(output)
    axes = draw(outcome_of(experiment), given.kind, given.metric, given.mode)
    save_picture(axes, output)
    plain = {"path": experiment.shown, "kind": given.kind, "output": output}
    return answer(given, plain, output)


def _lines(given: argparse.Namespace, experiment: ExperimentView) -> list[dict[str, Any]]:
    if given.metric is None and given.mode is None:
        return outcome_of(experiment).lines()
    return outcome_of(experiment).lines(*outcome_of(experiment).goal(given.metric, given.mode))


def _to_optuna(given: argparse.Namespace, experiment: ExperimentView) -> int:
    done = results_of(experiment).to_optuna(
        given.optuna, study_name=given.study, metric=given.metric, mode=given.mode
    )
    plain = {"path": experiment.shown, "storage": redact(given.optuna), **done.plain()}
    text = (
        f"study {done.study_name!r}: {done.added} trials added, {done.updated} updated, "
        f"{done.unchanged} unchanged"
    )
    return answer(given, plain, text)


def best(given: argparse.Namespace, experiment: ExperimentView) -> int:
    """Returns the exit code. Raises NoBestResult, InvalidConfig, StorageError."""
    from holdfast.experiment.progress.wording import confirmation_text
    from holdfast.experiment.records.rows import shown_config
    from holdfast.experiment.records.view import Condition
    from holdfast.results.overview import row_as_json, trial_as_json

    outcome = outcome_of(experiment)
    is_one = given.metric or given.mode or given.checkpoint
    if outcome.spec.goals and outcome.metric is None and not is_one:
        return _show_front(experiment, given)
    metric, mode = _goal(outcome, given)
    trial, value = outcome.best_scored(metric, mode, given.scope)
    fresh = outcome.confirmed(metric, mode, given.scope)
    _tell_if_cut(outcome, trial)
    config = shown_config(trial.config)
    result, row = outcome.result(trial), {}
    if given.scope == "all":
        result = result.at_best(metric, mode)
        row = row_as_json(trial, result)
    copied = {}
    if given.checkpoint is not None:
        if given.scope != "all":
            _tell_if_better(result, metric, mode)
        copied = _copy(experiment, trial, result, given.checkpoint, says=not given.json)
    elif not given.json:
        at = row.get("iteration", trial.iteration)
        told = f" ({confirmation_text(fresh, outcome.spec)})" if fresh else ""
        told = f"trial {trial.trial_id} at iteration {at}{told}"
        complain(f"{metric}={format_value(value)}, {told}")
        say_json(config)
    if given.json:
        is_live = experiment.condition(time.time()) is Condition.LIVE
        about = trial_as_json(experiment, trial, is_live=is_live)
        about["checkpoint_iteration"] = result.checkpoint_iteration
        goal = {"metric": metric, "mode": mode, "scope": given.scope, "value": value}
        goal["confirmed"] = [asdict(one) for one in fresh]
        say_json({**about, **row, **goal, "config": config, **copied})
    return SOUND


def _goal(outcome: Outcome, given: argparse.Namespace) -> tuple[str, str]:
    """The goal of the options, else the experiment's. Raises InvalidConfig."""
    try:
        return outcome.goal(given.metric, given.mode)
    except InvalidConfig as error:
        names = outcome.reported()
        if outcome.metric is None and given.metric is None and names:
            reported = f"The trials reported {', '.join(names)}"
            missing = f"this run has no metric: pass one, as in --metric {names[0]} --mode min"
            raise InvalidConfig(f"{missing}. {reported}") from error
        if outcome.mode_of(given.metric) is None and given.mode is None:
            raise InvalidConfig(f"{error}. In a shell: --mode min or --mode max") from error
        raise


def _tell_if_cut(outcome: Outcome, trial: Trial) -> None:
    """Say that the best trial failed or was stopped before it had finished: it may not be
    comparable."""
    from holdfast.text.trials import stop_reason, stop_sentence

    if trial.status is Status.ERROR and trial.error is not None:
        complain(
            f"the best trial, {trial.trial_id}, failed after iteration {trial.iteration}: "
            f"{trial.error.headline}"
        )
        return
    reason = stop_reason(trial, is_live=True)
    if reason is not None and reason.is_early:
        why = stop_sentence(trial, outcome.spec.options, is_live=True)
        complain(f"the best trial, {trial.trial_id}, was stopped early: {why}")


def _tell_if_better(result: Result, metric: str, mode: str) -> None:
    """Say that an earlier checkpoint than the last one, which is copied, has a better value."""
    from holdfast.experiment.folder.trial_folder import numeric
    from holdfast.results.ranking import is_better

    found = [
        (row["training_iteration"], numeric(row, metric)) for _, row in result.best_checkpoints
    ]
    values = {at: value for at, value in found if value is not None}
    last = values.get(result.checkpoint_iteration)
    for at, value in values.items() if last is not None else ():
        if all(not is_better(one, value, mode) for one in values.values()) and value != last:
            complain(
                f"the checkpoint of iteration {at} has a better {metric}: {format_value(value)}, "
                f"and {format_value(last)} here. --scope all takes the best one"
            )
            return


def _show_front(experiment: ExperimentView, given: argparse.Namespace) -> int:
    """The trials that no other beats in all goals."""
    from holdfast.experiment.records.rows import shown_config
    from holdfast.experiment.records.view import Condition
    from holdfast.results.overview import trial_as_json
    from holdfast.results.ranking import front_text, goals_text, params_of, varied_names

    spec, front = experiment.machine.spec, outcome_of(experiment).pareto_front()
    is_live = experiment.condition(time.time()) is Condition.LIVE
    names = varied_names(spec, [one.trial for one in front])
    about, table = [], [["TRIAL", *spec.goals, *names]]
    for one in front:
        shown = trial_as_json(experiment, one.trial, is_live=is_live)
        shown["values"] = dict(zip(spec.goals, one.values, strict=True))
        about.append({**shown, "config": shown_config(one.trial.config)})
        params = params_of(one.trial)
        cells = map(format_cell, [*one.values, *(params.get(name) for name in names)])
        table.append([one.trial.trial_id, *cells])
    plain = {"path": experiment.shown, "goals": dict(spec.goals), "front": about}
    text = f"{goals_text(spec.goals)}: {front_text(len(front))}"
    return answer(given, plain, text, *(aligned(table) if front else ()))


def export_model(given: argparse.Namespace, experiment: ExperimentView) -> int:
    """The files of the best trial, or of the one that is named, with its config and its metrics.

    Returns the exit code. Raises NoSuchTrial, NoBestResult, InvalidConfig, StorageError.
    """
    from holdfast.experiment.records.rows import shown_config
    from holdfast.results.logs import trial_named
    from holdfast.results.tables import about_trial

    outcome, scope = outcome_of(experiment), given.scope
    goal = None
    if given.trial is None or scope == "all":
        goal = outcome.goal(given.metric, given.mode)
    if given.trial is not None:
        trial = trial_named(experiment, given.trial)
    else:
        assert goal is not None
        trial = outcome.best_scored(*goal, scope).trial
    result = outcome.result(trial)
    if scope == "all" and goal is not None:
        result = result.at_best(*goal)
    metrics = {name: value for name, value in (result.metrics or {}).items() if name != "config"}
    about = about_trial(shown_config(trial.config), metrics)
    copied = _copy(experiment, trial, result, given.model, about=about, says=not given.json)
    if given.json:
        say_json({"path": experiment.shown, "trial_id": trial.trial_id, **copied})
    return SOUND


def _copy(
    experiment: ExperimentView,
    trial: Trial,
    result: Result,
    target: str,
    *,
    says: bool,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Copy the checkpoint of the result; returns what JSON says about it."""
    from holdfast.results.tables import check_target, copy_checkpoint

    check_target(target)
    if result.checkpoint is None:
        saved = "has no checkpoint that can be read here"
        raise NoBestResult(f"trial {trial.trial_id} {saved}: {experiment.shown}", "")
    copied = copy_checkpoint(result.checkpoint, target, about=about)
    iteration = result.checkpoint_iteration
    if says:
        files = counted(copied.files, "file", "files")
        say(
            f"{copied.directory}: the checkpoint of trial {trial.trial_id} at iteration "
            f"{iteration} ({files}, {size(copied.size_bytes)})"
        )
    return {
        "directory": copied.directory,
        "checkpoint_iteration": iteration,
        "files": copied.files,
        "size_bytes": copied.size_bytes,
    }
