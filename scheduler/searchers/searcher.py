"""The base class of search algorithms, and the settings of random and grid search."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, Final

from holdfast import searcher_files
from holdfast.compat.advice import explained_attribute
from holdfast.dataclass import dataclass
from holdfast.described import Construction, Described, state_of
from holdfast.scheduler.events import Outlook
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.metrics import lookup
from holdfast.trial.space import same

_log = logging.getLogger(__name__)
FINISHED: Final = "FINISHED"
# For messages of searchers that are written for Ray.
UNRESOLVED_SEARCH_SPACE: Final = (
    "{cls} searches only a space of its own, and {par} has domains: leave fixed values there"
)
"""A message of Ray's for searchers of your own, as are the next two."""
UNDEFINED_SEARCH_SPACE: Final = "{cls} has no space to search (space={space})"
"""For a searcher without a space."""
UNDEFINED_METRIC_MODE: Final = "{cls} needs metric= and mode=; they are {metric} and {mode}"
"""For a searcher without a goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The plan of an automatic search for one space: `told` describes it to the user, `trials` is
    how many to run if the user does not say."""

    told: str
    trials: int


class Searcher(Described):
    """Base class of search algorithms, which suggest one config at a time.

    Its methods run in one thread of the script's process, in the order of events, and may block.
    If a call takes longer than 300 s or raises, the run ends.

    **After a restore** the object is as it was when `fit()` began, and `set_search_properties` is
    called again. The configs that `suggest` returned are in the journal, and `recall` passes them
    to the object instead of a second call of `suggest`; `on_trial_result` and `on_trial_complete`
    are called in between, in the original order. If an answer did not reach the journal, `suggest`
    is called again for the same trial. So `suggest` continues as if nothing had happened if its
    answers depend only on these calls and a seed, and if it creates a generator for each call,
    such as `random.Random(f"{seed}/{trial_id}")`, instead of keeping one with state. If a restore
    resumed a finished trial, `on_trial_complete` is called only for its last end.

    A class without `recall` is asked again instead, with the same random numbers: during
    `suggest` and `recall`, `random` and `numpy.random` are seeded from the run's seed and the
    number of the trial. `save` and `restore` are for scripts that call them; holdfast does not.

    A row may lack the metric, or have NaN or an infinite value: the algorithm decides what that
    means. Those of `holdfast.tune.search` treat it as a failure of the trial.

    Raises InvalidConfig for a `mode` other than "min" or "max", or a list of these.
    """

    FINISHED = FINISHED
    CKPT_FILE_TMPL = "searcher-state-{}.pkl"
    repeats: int = 1
    """How many times in a row it suggests one config on purpose; the run ends after 100 times as
    many."""
    look_ahead: float = 0.0
    """How many configs it may suggest before workers are free for them, as a share of the trials
    that run. Only a slow search is asked ahead, at most for so many. A config that is suggested
    earlier knows fewer results: 0 is right for an algorithm that learns much from each, 1 for one
    that learns from none."""
    _has_warned = False

    def __init__(
        self, metric: str | Sequence[str] | None = None, mode: str | Sequence[str] | None = None
    ) -> None:
        for one in [mode] if mode is None or isinstance(mode, str) else mode:
            if one not in (None, "min", "max"):
                raise InvalidConfig(f"mode must be 'min' or 'max', not {one!r}")
        self.metric = metric
        self.mode = mode

    @property
    def expressions(self) -> str:
        """The module of the library whose own parameters it finds in the Tuner's space."""
        return ""

    @property
    def own_space(self) -> Any:
        """The space that it searches instead of the Tuner's; None if there is none."""
        return None

    @property
    def asked_space(self) -> Mapping[str, str]:
        """The distributions, as JSON, of the parameters that a function of the user's has asked
        for so far; empty if a space defines them."""
        return {}

    @property
    def infeasible(self) -> Collection[str]:
        """The ids of trials that violate a constraint of the search: none of them is the best."""
        return ()

    @property
    def outlook(self) -> Outlook | None:
        """Its expectations as of its last suggestion; None if it has no model."""
        return None

    def plan(self, space: Mapping[str, Any]) -> SearchPlan | None:
        """Its plan for a Tuner's space if it chooses by itself; None for a search that the user
        has chosen. Raises InvalidSearchSpace."""
        return None

    def check_space(self, metric: str | None, mode: str | None, config: Mapping[str, Any]) -> Any:
        """Raise InvalidConfig or InvalidSearchSpace for a goal or a space that the search cannot
        take: called before anything is created. Does not change the search."""

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Take metric, mode and space from the Tuner; return False if the space is already set.

        `spec` has the experiment's `seed`, which is the same after a restore, and
        `time_budget_s`: its seconds, None without a limit.
        """
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return a config for a new trial, None for "not now", or `Searcher.FINISHED` for "no
        more"."""
        raise NotImplementedError(f"{type(self).__name__} must define suggest()")

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        """After a restore: take the config that `suggest` returned for this trial before.

        This one calls `suggest` again, which does the same to a searcher whose answers depend only
        on its calls and on seeds. If it answers something else, a warning says so, once.
        """
        answer = self.suggest(trial_id)
        if not same(answer, config) and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "%s.suggest(%r) returned %.100r when its history was replayed, but %.100r before "
                "the restore: what it learns from that trial may be wrong. Define "
                "recall(trial_id, config), which gets the earlier answer",
                *(type(self).__name__, trial_id, answer, config),
            )

    def take_added(self, trial_id: str, config: dict[str, Any]) -> bool:
        """Take a trial that a person has added to the running experiment, as if `suggest` had
        returned its config. Return False to hear nothing of the trial.

        A restore calls this again, in the original order. This one calls `recall` if the class
        has its own.
        """
        if type(self).recall is Searcher.recall:
            return False
        self.recall(trial_id, config)
        return True

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Called with each report."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Called when a trial ends; `result` is its last report."""

    def on_trial_pruned(self, trial_id: str) -> None:
        """Called before `on_trial_complete` if a scheduler has stopped the trial early."""

    def on_pause(self, trial_id: str) -> None:
        """Called when the scheduler pauses a trial: it has no worker until `on_unpause`."""

    def on_unpause(self, trial_id: str) -> None:
        """Called when a paused trial resumes."""

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Before `fit()`: learn from a config that was evaluated elsewhere.

        Raises InvalidConfig if the algorithm does not support this.
        """
        raise InvalidConfig(f"{type(self).__name__} does not support add_evaluated_point()")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Before `fit()`: learn from the trials of a ResultGrid, an ExperimentAnalysis or a list
        of Results.

        Trials that lack the metric are skipped unless they failed.
        """
        for config, row, failed in _evaluated(trials_or_analysis):
            value = lookup(row, metric)
            if failed or value is not None:
                self.add_evaluated_point(config, value, error=failed)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Limit the trials in progress; return False if this searcher cannot."""
        return False

    # -- for scripts that keep a searcher themselves --------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """What `set_state` of an object that was made in the same way needs to continue."""
        return state_of(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what `get_state` has returned."""
        vars(self).update(state)

    def save(self, checkpoint_path: Any) -> None:
        """Write `get_state()` to a file, with cloudpickle. Raises OSError."""
        import cloudpickle

        searcher_files.write(checkpoint_path, cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: Any) -> None:
        """Set the state that `save` has written. This unpickles the file: restore only your own.

        Raises OSError.
        """
        import pickle

        self.set_state(pickle.loads(searcher_files.read(checkpoint_path)))

    def save_to_dir(self, checkpoint_dir: Any, session_str: str = "default") -> None:
        """`save` to a file in this folder. Raises OSError."""
        name = self.CKPT_FILE_TMPL.format(session_str)
        self.save(searcher_files.within(checkpoint_dir, name))

    def restore_from_dir(self, checkpoint_dir: Any) -> None:
        """`restore` from the file that `save_to_dir` has written; from the last one in the order
        of names if there are several. Raises FileNotFoundError if there is none."""
        pattern = self.CKPT_FILE_TMPL.format("*")
        found = searcher_files.last_of(checkpoint_dir, pattern)
        if found is None:
            raise FileNotFoundError(f"{checkpoint_dir} has no {pattern}, as save_to_dir() writes")
        self.restore(found)

    @property
    def _metric(self) -> str | Sequence[str] | None:
        """The name that searchers written for Ray use."""
        return self.metric

    @_metric.setter
    def _metric(self, metric: str | Sequence[str] | None) -> None:
        self.metric = metric

    @property
    def _mode(self) -> str | Sequence[str] | None:
        return self.mode

    @_mode.setter
    def _mode(self, mode: str | Sequence[str] | None) -> None:
        self.mode = mode


def introduce(
    searcher: Searcher,
    metric: str | None,
    mode: str | None,
    config: Mapping[str, Any],
    **spec: Any,
) -> bool:
    """Call `set_search_properties`, without `spec` if the searcher does not accept it."""
    taken = signature(searcher.set_search_properties).parameters.values()
    more = spec if any(one.kind is one.VAR_KEYWORD for one in taken) else {}
    return searcher.set_search_properties(metric, mode, config, **more)


class BasicVariantGenerator(Described):
    """Random and grid search: every grid combination, `num_samples` times.

    `points_to_evaluate`: configs, or parts of them, to start with. `max_concurrent`: trials at
    once, 0 for no limit. `constant_grid_search`: the combinations of one sample share its random
    values. `random_state`: a whole number makes the configs reproducible.

    J. Bergstra, Y. Bengio, "Random Search for Hyper-Parameter Optimization" (2012).

    Raises InvalidConfig.
    """

    look_ahead: float = 1.0
    """See `Searcher.look_ahead`: the functions of a search space may be slow."""

    def __init__(
        self,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: Any = None,
    ) -> None:
        if not isinstance(max_concurrent, int) or max_concurrent < 0:
            raise InvalidConfig(f"max_concurrent must be 0 or more, not {max_concurrent!r}")
        self.points_to_evaluate = points_of(points_to_evaluate)
        self.max_concurrent = max_concurrent
        self.constant_grid_search = constant_grid_search
        self.seed = _seed_from(random_state)

    def construction(self) -> Construction:
        """Describe the seed: a generator would return another number next time."""
        return super().construction().with_arguments(random_state=self.seed)

    __getattr__ = explained_attribute


def points_of(given: Any) -> list[dict[str, Any]]:
    """`points_to_evaluate` as a list. Raises InvalidConfig if it is not a list of configs."""
    points = () if given is None else given
    if isinstance(points, (list, tuple)) and all(isinstance(one, Mapping) for one in points):
        return [dict(point) for point in points]
    raise InvalidConfig(
        f"points_to_evaluate must be a list of configs (dicts), not {given!r:.100}"
    )


def _seed_from(state: Any) -> int | None:
    """One draw from a NumPy generator; a number is returned unchanged."""
    if state is None or isinstance(state, int):
        return state
    for draw in ("integers", "randint"):
        method = getattr(state, draw, None)
        if callable(method):
            return int(method(0, 2**31 - 1))
    raise InvalidConfig(f"random_state must be a whole number or a NumPy generator, not {state!r}")


def _evaluated(found: Any) -> Iterable[tuple[dict[str, Any], Mapping[str, Any], bool]]:
    """Config, last row and failure of each trial of an analysis, a grid or a list of results."""
    if hasattr(found, "trials"):
        return [(t.config, t.last_result or {}, t.status == "ERROR") for t in found.trials]
    results = [found] if hasattr(found, "metrics") else found
    return [(r.config or {}, r.metrics or {}, r.error is not None) for r in results]
