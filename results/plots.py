"""`results.plot`: pictures of an experiment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.experiment.folder.trial_folder import Row, numeric
from holdfast.experiment.progress.scheduler_facts import (
    RungCount,
    TakeoverFact,
    rung_counts,
    takeover_facts,
)
from holdfast.results.drawing import (
    COLOURS,
    QUIET,
    Line,
    PlotCurve,
    axes,
    draw_coordinates,
    draw_curves,
    draw_pareto,
    draw_population,
    draw_rungs,
    format_label,
    handover_of,
    points,
    quiet_frame,
    say_instead,
)
from holdfast.results.importance import (
    ABSENT,
    Importances,
    by_forest,
    by_rank,
    chance_by_rank,
    choose,
    fewest,
    left_out,
    too_few,
    within_chance,
)
from holdfast.results.outcome import Outcome
from holdfast.results.ranking import (
    params_of,
    placed,
    varied_names,
)
from holdfast.text.trials import changes_text, short_name
from holdfast.trial.best import leader, rank, value_of
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Status, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LABEL_PARAMS = 3
_MOST_CURVES = 500
_MOST_BARS = 20
_TITLES = {
    "rank": "share of the variance of the metric's ranks",
    "forest": "loss of R² when permuted (random forest)",
    "fanova": "share of what all explain by themselves (fANOVA)",
}


class GridPlots:
    """Pictures of all trials. Each method draws on `ax`, or on new axes, and returns them.

    `metric` and `mode` default to the experiment's. Each trial is represented by its last value.
    Failed trials, and those whose value is missing, NaN or infinite, are marked or left out, as
    each method says. The methods raise InvalidConfig if no metric is known, and PlotsMissing
    without matplotlib (`pip install matplotlib`).
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def learning_curves(
        self,
        metric: str | None = None,
        mode: str | None = None,
        *,
        x: str = "training_iteration",
        max_trials: int = _MOST_CURVES,
        ax: Axes | None = None,
    ) -> Axes:
        """`metric` over `x` (such as "time_total_s"), a line for each trial.

        The best trial is highlighted, a cross marks the end of a failed one, and values that are
        not finite are gaps. Of more trials than `max_trials`, only the best are drawn.
        """
        metric, mode = self._goal(metric, mode)
        ranked = sorted(self._trials, key=lambda trial: rank(trial, metric, mode), reverse=True)
        best = self._leader(metric, mode)
        shown = sorted(ranked[:max_trials], key=lambda trial: trial.spec.index)
        drawn = self._curves(shown, metric, x, best if len(ranked) > 1 else None)
        return draw_curves([curve for _, _, curve in drawn], metric=metric, x=x, ax=ax)

    def _curves(
        self, trials: Sequence[Trial], metric: str, x: str, best: Trial | None
    ) -> Iterator[tuple[Trial, list[Row], PlotCurve]]:
        names = varied_names(self._outcome.spec, self._trials)
        for trial, rows in self._outcome.rows(trials):
            xs, ys = points(rows, metric, x)
            curve = PlotCurve(
                label=_label(trial, names),
                xs=xs,
                ys=ys,
                has_failed=trial.status is Status.ERROR,
                is_best=trial is best,
            )
            yield trial, rows, curve

    def _leader(self, metric: str, mode: str) -> Trial | None:
        """The best trial: by its fresh runs only for the goal by which they were chosen."""
        has_fresh = self._outcome.confirmed(metric, mode, "last")
        return leader(
            (one for one in self._trials if has_fresh or not one.spec.confirms), metric, mode
        )

    def parallel_coordinates(
        self,
        metric: str | None = None,
        mode: str | None = None,
        *,
        params: Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Each trial as a line through its parameters to its last `metric`, which determines its
        colour.

        `params` are names such as `net/width`; by default the parameters that the search space
        varies. Positive numbers with a wide range have a logarithmic axis. Trials without a finite
        value are dotted and end before the last axis.
        """
        metric, mode = self._goal(metric, mode)
        trials = self._trials
        best = self._leader(metric, mode)
        lines = [
            Line(
                params=params_of(trial),
                value=value_of(trial, metric),
                is_best=trial is best,
            )
            for trial in trials
        ]
        names = list(params) if params is not None else varied_names(self._outcome.spec, trials)
        return draw_coordinates(lines, names, metric=metric, mode=mode, ax=ax)

    def importance(
        self,
        metric: str | None = None,
        *,
        params: Sequence[str] | None = None,
        algorithm: str = "auto",
        ax: Axes | None = None,
    ) -> Axes:
        """The importance of each parameter for `metric` as bars; see `ResultGrid.importances`.

        Raises ImportanceMissing if the algorithm's library is not installed.
        """
        return draw_importance(self.weighed(metric, params=params, algorithm=algorithm), ax)

    def pareto(
        self, x: str | None = None, y: str | None = None, *, ax: Axes | None = None
    ) -> Axes:
        """Two metrics of all trials that ended, and which of them no other beats in both.

        `x` and `y` default to the first two goals of a search or a scheduler with several. Their
        modes are those of the goals; the mode of TuneConfig, else "min", for another metric.
        """
        known = [*self._outcome.spec.goals, None, None]
        x, y = x or known[0], y or known[1]
        if x is None or y is None:
            raise InvalidConfig(
                "this run does not have several goals: name two metrics, as in "
                "results.plot.pareto('time_s', 'accuracy')"
            )
        goals = {name: self._outcome.mode_of(name) or "min" for name in (x, y)}
        front = [one.values for one in self._outcome.pareto_front(goals)]
        ended = [trial for trial in self._trials if trial.status is Status.TERMINATED]
        others = [one.values for one in placed(ended, goals) if one.values not in front]
        return draw_pareto(front, others, x=x, y=y, ax=ax)

    def rungs(self, *, ax: Axes | None = None) -> Axes:
        """The rungs of ASHA, PASHA, HyperBand, BOHB or multi-objective ASHA: each trial's value
        where it was judged, whether it continued, and the cutoff that the newest one met.

        Raises InvalidConfig if no trial has reached a rung.
        """
        found = self.rung_counts()
        trials = self._trials
        places = {(rung.bracket, rung.milestone): at for at, rung in enumerate(found)}
        judged = [
            (places[visit.bracket, visit.milestone], visit)
            for trial in trials
            for visit in trial.rungs
            if visit.value is not None
        ]
        spec = self._outcome.spec
        title = f"{short_name(spec.scheduler)} ({len(trials)} trials)"
        return draw_rungs(found, judged, metric=spec.metric or "value", title=title, ax=ax)

    def population(
        self,
        metric: str | None = None,
        mode: str | None = None,
        *,
        x: str = "training_iteration",
        ax: Axes | None = None,
    ) -> Axes:
        """`metric` over `x` for each member of a population, and who took over whom.

        A dotted line leads from the source of each takeover to the trial that continues from it;
        with up to 12 takeovers, each has the values that changed. A trial's own iterations after
        the one that it continued from are gone, as in its result.json.

        Raises InvalidConfig if no trial has taken over another.
        """
        metric, mode = self._goal(metric, mode)
        facts = self.takeover_facts()
        trials = self._trials
        best = self._leader(metric, mode)
        if best is not None and value_of(best, metric) is None:
            best = None
        curves, rows_of = {}, {}
        for trial, rows, curve in self._curves(trials, metric, x, best):
            curves[trial.trial_id], rows_of[trial.trial_id] = curve, rows
        handovers = []
        for fact in _still_visible(facts):
            at = _x_at(rows_of[fact.trial_id], fact.source_iteration, x)
            made = handover_of(curves, fact.trial_id, fact.source, at, changes_text(fact.changes))
            handovers += [] if made is None else [made]
        return draw_population(curves, handovers, metric=metric, x=x, ax=ax)

    def rung_counts(self) -> list[RungCount]:
        """The numbers of `rungs`. Raises InvalidConfig."""
        if found := rung_counts(self._trials):
            return found
        raise InvalidConfig(self._no("reached a rung of a scheduler"))

    def takeover_facts(self) -> list[TakeoverFact]:
        """The takeovers of `population`, the oldest first. Raises InvalidConfig."""
        if found := takeover_facts(self._trials):
            return found
        raise InvalidConfig(self._no("taken over another"))

    def _no(self, what: str) -> str:
        name = self._outcome.spec.scheduler or "FIFOScheduler"
        return f"no trial of this run has {what}: its scheduler is {name}"

    def weighed(
        self, metric: str | None, *, params: Sequence[str] | None, algorithm: str
    ) -> Importances:
        """The numbers of `importance`, from trials with a finite last `metric`.

        Raises InvalidConfig, also for an unknown algorithm, ImportanceMissing, OptunaMissing.
        """
        metric, _ = self._goal(metric, "max")
        last = [(trial, value_of(trial, metric)) for trial in self._trials]
        reported = [(trial, value) for trial, value in last if value is not None]
        trials, values = [trial for trial, _ in reported], [value for _, value in reported]
        made = Importances(
            algorithm=choose(algorithm, len(trials)), metric=metric, trials=len(trials)
        )
        configs = [params_of(trial) for trial in trials]
        names = varied_names(self._outcome.spec, trials) if params is None else list(params)
        columns = {name: [config.get(name, ABSENT) for config in configs] for name in names}
        varying = sum(len({str(v) for v in c if v is not ABSENT}) > 1 for c in columns.values())
        if note := too_few(metric, len(trials), varying):
            return replace(made, note=note)
        having = {n: sum(v is not ABSENT for v in column) for n, column in columns.items()}
        least = fewest(varying)
        judged = {name: columns[name] for name in names if having[name] >= least}
        found = _weighed(self._outcome, made, judged, values) if judged else made
        scores = {n: found.scores[n] for n in sorted(found.scores, key=lambda n: -found.scores[n])}
        notes = [
            found.note,
            within_chance(scores, found.chance, len(trials), having),
            left_out(having, least),
        ]
        return replace(found, scores=scores, note="; ".join(filter(None, notes)))

    @property
    def has_goals(self) -> bool:
        """True if the run has several goals."""
        return len(self._outcome.spec.goals) > 1

    @property
    def _trials(self) -> list[Trial]:
        return list(self._outcome.trials.values())

    def _goal(self, metric: str | None, mode: str | None) -> tuple[str, str]:
        """The goal. The mode only decides what is highlighted; without one, smaller is better."""
        known = self._outcome.mode_of(metric or self._outcome.metric)
        return self._outcome.goal(metric, mode or known or "min")


# The kinds of `holdfast plot`. Each draws with the metric and the mode, which may be None.
KINDS: Mapping[str, Callable[[GridPlots, str | None, str | None], Axes]] = {
    "learning_curves": lambda plots, metric, mode: plots.learning_curves(metric, mode),
    "parallel_coordinates": lambda plots, metric, mode: plots.parallel_coordinates(metric, mode),
    "importance": lambda plots, metric, mode: plots.importance(metric),
    "pareto": lambda plots, metric, mode: plots.pareto(*_two_metrics(plots, metric)),
    "population": lambda plots, metric, mode: plots.population(metric, mode),
    "rungs": lambda plots, metric, mode: plots.rungs(),
}


def _two_metrics(plots: GridPlots, metric: str | None) -> Sequence[str]:
    """The two in `--metric a,b`; none for the goals of the run."""
    names = [name.strip() for name in (metric or "").split(",") if name.strip()]
    if len(names) == 2 or (not names and plots.has_goals):
        return names
    raise InvalidConfig(
        "--kind pareto needs two metrics: --metric time_s,accuracy (by default the first two "
        "goals of a run that has several)"
    )


def draw(outcome: Outcome, kind: str, metric: str | None, mode: str | None) -> Axes:
    """Draw a picture of one of the `KINDS`. Raises InvalidConfig, PlotsMissing."""
    if kind not in KINDS:
        raise InvalidConfig(f"there is no plot {kind!r}: the kinds are {', '.join(KINDS)}")
    return KINDS[kind](GridPlots(outcome), metric, mode)


def _still_visible(facts: Sequence[TakeoverFact]) -> Iterator[TakeoverFact]:
    """The takeovers after which the trial has rows: a later one may have replaced them."""
    for place, fact in enumerate(facts):
        later = (one for one in facts[place + 1 :] if one.trial_id == fact.trial_id)
        if all(one.source_iteration > fact.source_iteration for one in later):
            yield fact


def _x_at(rows: Sequence[Mapping[str, Any]], iteration: int, x: str) -> float:
    """The place of the last row up to `iteration` on the axis."""
    known = [row for row in rows if row["training_iteration"] <= iteration]
    value = numeric(known[-1], x) if known else None
    return -math.inf if value is None else value


def _label(trial: Trial, names: Sequence[str]) -> str:
    params = params_of(trial)
    param_texts = [
        f"{n.rpartition('/')[2]}={format_label(params[n])}" for n in names if n in params
    ]
    more = ", …" if len(param_texts) > _LABEL_PARAMS else ""
    number = trial.trial_id.rpartition("_")[2].lstrip("0") or "0"
    return f"{number}: {', '.join(param_texts[:_LABEL_PARAMS])}{more}".rstrip(": ")


def draw_importance(found: Importances, ax: Axes | None = None) -> Axes:
    """Horizontal bars, the most important parameter on top."""
    names = list(found.scores)[:_MOST_BARS]
    made = axes(ax, height=max(2.2, 0.34 * len(names) + 1.1))
    if not names:
        return say_instead(made, found.note)
    scores = [found.scores[name] for name in names]
    spread = [found.spread[name] for name in names] if found.spread else None
    sure = [not found.chance or found.scores[name] > found.chance[name] for name in names]
    colours = [COLOURS[0] if is_sure else QUIET for is_sure in sure]
    made.barh(names, scores, xerr=spread, color=colours, height=0.62, ecolor=QUIET, capsize=2.5)
    made.invert_yaxis()
    quiet_frame(made)
    made.grid(visible=False, axis="y")
    made.set_xlim(left=0)
    made.set_xlabel(_TITLES[found.algorithm])
    doubt = "" if all(sure) else "; grey: no more than chance"
    made.set_title(
        f"importance for {found.metric} ({found.trials} trials{doubt})",
        loc="left",
        fontsize="medium",
    )
    return made


def _weighed(
    outcome: Outcome,
    made: Importances,
    columns: Mapping[str, Sequence[Any]],
    values: Sequence[float],
) -> Importances:
    if made.algorithm == "rank":
        chance = chance_by_rank(columns, values)
        return replace(made, scores=by_rank(columns, values), chance=chance)
    if made.algorithm == "forest":
        forest = by_forest(columns, values)
        if doubt := forest.doubt(made.metric):
            return replace(
                _weighed(outcome, replace(made, algorithm="rank"), columns, values), note=doubt
            )
        scores, spread, chance, _ = forest
        return replace(made, scores=scores, spread=spread, chance=chance)
    from holdfast.results.optuna_study import fanova

    scores = fanova(outcome, made.metric, list(columns))
    partial = [name for name in columns if name not in scores]
    note = (
        f"fanova judges parameters that all trials have, without {', '.join(partial)}: try 'rank'"
    )
    return replace(made, scores=scores, note=note if partial else "")
