"""How much each parameter of an experiment matters for a metric, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.experiment.progress.finished_stats import value_of
from holdfast.experiment.results.importance import (
    FEWEST,
    Importances,
    by_forest,
    by_rank,
    choose,
)
from holdfast.experiment.results.outcome import Outcome
from holdfast.experiment.results.varied_parameters import params_of, varied_names


def weigh(
    outcome: Outcome, metric: str, *, params: Sequence[str] | None, algorithm: str
) -> Importances:
    """Over the trials that have a finite last `metric`. No scores where those are fewer than 3.

    Raises InvalidConfig for an unknown algorithm, ImportanceMissing, OptunaMissing.
    """
    found = [(trial, value_of(trial, metric)) for trial in outcome.trials.values()]
    reported = [(trial, value) for trial, value in found if value is not None]
    trials, values = [trial for trial, _ in reported], [value for _, value in reported]
    chosen = choose(algorithm, len(trials))
    configs = [params_of(trial) for trial in trials]
    names = varied_names(outcome.spec, trials) if params is None else list(params)
    columns = {name: [config.get(name) for config in configs] for name in names}
    if len(trials) < FEWEST or not columns:
        return Importances(algorithm=chosen, metric=metric, trials=len(trials))
    scores, spread = _weighed(outcome, metric, chosen, columns, values)
    ordered = sorted(scores, key=lambda name: -scores[name])
    return Importances(
        algorithm=chosen,
        metric=metric,
        trials=len(trials),
        scores={name: scores[name] for name in ordered},
        spread=spread,
    )


def _weighed(
    outcome: Outcome,
    metric: str,
    algorithm: str,
    columns: Mapping[str, Sequence[Any]],
    values: Sequence[float],
) -> tuple[dict[str, float], dict[str, float]]:
    if algorithm == "rank":
        return by_rank(columns, values), {}
    if algorithm == "forest":
        return by_forest(columns, values)
    from holdfast.experiment.results.exporting.optuna_study import fanova

    return fanova(outcome, metric, list(columns)), {}
