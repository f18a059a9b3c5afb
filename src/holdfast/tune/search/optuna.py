"""Search with Optuna's samplers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from holdfast.foreign import is_of
from holdfast.lazy import OPTUNA, Framework
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.search_space.parameters import Parameters
from holdfast.tune.search.library import LibrarySearch
from holdfast.tune.search.optuna_space import (
    DISTRIBUTIONS,
    Asks,
    AsksDistributions,
    AsksFunction,
    AsksParameters,
    NamedParameters,
    as_domains,
    distributions_of,
)
from holdfast.tune.search.study import AssignmentCodec, SearchGoal, Study
from holdfast.unknown_keywords import explains_keywords

# Samplers that learn from no trial.
_LEARN_NOTHING = ("RandomSampler", "QMCSampler", "GridSampler", "BruteForceSampler")


@explains_keywords
class OptunaSearch(LibrarySearch):
    """Asks a sampler of Optuna (T. Akiba et al., "Optuna: A Next-generation Hyperparameter
    Optimization Framework", 2019); without `sampler` TPE (J. Bergstra et al., "Algorithms for
    Hyper-Parameter Optimization", 2011).

    `space`: a dict of domains, as `param_space`; a dict of Optuna's distributions, with names as
    `net/width` for nested ones; a dict of both; or a function of a trial which calls its
    `suggest_...` methods and returns a dict of additional constants, or None. Default: the
    Tuner's. `metric`, `mode`: one goal, or lists of several. `seed` makes the answers
    reproducible, also those of a `sampler`. `storage` (a URL or an Optuna storage; default: in
    memory) and `study_name`: the study, for other programs to read; an existing one is continued.
    The URL must not contain a password. See `LibrarySearch` for the rest.

    With a `storage`, a trial that a scheduler stops early is PRUNED there, with TPE and samplers
    that learn from no trial, and with several metrics. Otherwise it is COMPLETE with its last
    report, because other samplers learn nothing from pruned trials. Intermediate reports are
    passed on if a `storage` or a sampler of your own may use them, for one metric.

    Raises ImportError without Optuna, InvalidConfig.
    """

    library: ClassVar[Framework] = OPTUNA
    expressions = "optuna"
    takes_many_metrics: ClassVar[bool] = True

    def __init__(
        self,
        space: Any = None,
        metric: str | Sequence[str] | None = None,
        mode: str | Sequence[str] | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: Any = None,
        study_name: str | None = None,
        storage: Any = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        if space is not None and not (callable(space) or isinstance(space, Mapping)):
            raise InvalidConfig(
                f"space must be a dict of domains or of Optuna's distributions, or a function of "
                f"a trial, not {space!r:.100}"
            )
        if isinstance(sampler, type):
            raise InvalidConfig(f"sampler must be a sampler, not its class: {sampler.__name__}()")
        if sampler is not None and not hasattr(sampler, "sample_independent"):
            raise InvalidConfig(
                f"sampler must be a sampler of Optuna, such as optuna.samplers.TPESampler(), not "
                f"{sampler!r:.100}"
            )
        _check_no_password(storage)
        self._sampler = sampler
        if type(sampler).__name__ in _LEARN_NOTHING:
            self.look_ahead = 1.0
        self._study_name = study_name
        self._storage = storage

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if callable(space):
            return NamedParameters(None)
        if is_own and space and all(is_of(one, DISTRIBUTIONS) for one in space.values()):
            return NamedParameters(space)
        return super().read_space(as_domains(space), is_own=is_own)

    def open_study(self, parameters: Any, goal: SearchGoal, seed: int) -> Study:
        from holdfast.tune.search.optuna_study import OptunaStudy

        asks: Asks
        if isinstance(parameters, Parameters):
            asks = AsksParameters(parameters)
        elif parameters.distributions is not None:
            asks = AsksDistributions(parameters.distributions)
        else:
            asks = AsksFunction(self._space)
        return OptunaStudy(
            asks,
            goal,
            sampler=self._sampler,
            seed=seed,
            storage=self._storage,
            study_name=self._study_name,
        )

    @property
    def asked_space(self) -> Mapping[str, str]:
        study: Any = None if self._run is None else self._run.study
        return {} if study is None else dict(study.asked)

    @property
    def infeasible(self) -> Collection[str]:
        study: Any = None if self._run is None else self._run.study
        return () if study is None else study.infeasible

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, Any]:
        """Optuna's distributions for a dict of domains, by names such as `net/width`.

        Parameters inside a choice have names such as `net:0/width` (see `trial.parameters`).
        Raises InvalidSearchSpace, naming the parameter, if Optuna has no distribution for it.
        """
        return dict(distributions_of(Parameters(spec, who="OptunaSearch", named=False)))


def _check_no_password(storage: Any) -> None:
    """Refuse a password: the search, with its storage, is pickled into the experiment's
    directory."""
    url = getattr(storage, "url", storage)
    if isinstance(url, str) and urlsplit(url).password:
        raise InvalidConfig(
            "the storage has a password in its URL, which would be stored with the experiment: "
            "leave it out, and let the driver find it in PGPASSWORD, ~/.pgpass or ~/.my.cnf"
        )
