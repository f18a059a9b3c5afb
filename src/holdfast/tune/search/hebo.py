"""`HEBOSearch`: heteroscedastic evolutionary Bayesian optimization, by the library HEBO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.compat.advice import is_of
from holdfast.dataclass import dataclass
from holdfast.global_numbers import seeded_numpy
from holdfast.lazy import Framework
from holdfast.scheduler.searchers.cube import bounds
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.search_space.parameters import Assignment, Parameter, Parameters
from holdfast.trial.space import Categorical, Float, Integer, Normal
from holdfast.tune.search.library import (
    AssignmentCodec,
    FlatParameters,
    LibrarySearch,
    Query,
    RebuiltStudy,
    SearchGoal,
    one_thread,
    one_torch_thread,
)


class HEBOSearch(LibrarySearch):
    """Bayesian optimization that warps inputs and outputs, by HEBO.

    At most `max_concurrent` trials run at once. Other arguments go to HEBO, such as `model_name`
    and `rand_sample` (the number of random configs at the start). `space` may also be a
    DesignSpace of HEBO, or the list that makes one. For the rest see `LibrarySearch`;
    `random_state_seed` is its seed.

    A. I. Cowen-Rivers et al., "HEBO: Pushing The Limits of Sample-Efficient Hyper-parameter
    Optimisation" (2022). Raises ImportError, InvalidConfig; InvalidSearchSpace for parameters
    inside a choice and for normally distributed ones.
    """

    library = Framework(title="HEBO", module="hebo", minimum="0.3")

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
        random_state_seed: int | None = None,
        max_concurrent: int = 8,
        **more: Any,
    ) -> None:
        seed = random_state_seed
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards, seed)
        self._limit_to(max_concurrent, "max_concurrent")
        self._more = more

    def read_space(self, space: Any, *, is_own: bool) -> AssignmentCodec:
        if is_of(space, "hebo.design_space", "DesignSpace"):
            space = [one.param_dict for one in space.paras.values()]
        if isinstance(space, (list, tuple)):
            return FlatParameters([*map(_parameter, space)], who=self._name)
        return super().read_space(space, is_own=is_own)

    def open_study(self, parameters: Parameters, goal: SearchGoal, seed: int) -> _Study:
        return _Study(parameters, seed, self._more)


@dataclass(slots=True)
class _Study(RebuiltStudy):
    who = "HEBOSearch"

    seed: int
    more: Mapping[str, Any]

    def axis(self, parameter: Parameter) -> dict[str, Any]:
        name = parameter.name
        match parameter.domain:
            case Categorical():
                return {"name": name, "type": "cat", "categories": list(range(parameter.count))}
            case Normal():
                raise InvalidSearchSpace(
                    f"{name}: HEBOSearch has no normal distribution: search it uniformly "
                    f"between bounds"
                )
            case Float(log=log) | Integer(log=log) as domain:
                low, high = bounds(domain)
                is_whole = isinstance(domain, Integer) and (domain.q or 1) == 1
                kind = ("pow_int" if log else "int") if is_whole else ("pow" if log else "num")
                return {"name": name, "type": kind, "lb": low, "ub": high, "base": 10}

    def answer(self, query: Query) -> Assignment:
        import torch

        # The library uses the global random numbers of NumPy and torch.
        with (
            seeded_numpy(query.seed),
            torch.random.fork_rng(devices=[]),
            one_thread(),
            one_torch_thread(),
        ):
            torch.manual_seed(query.seed)
            [row] = self._told(query).suggest(n_suggestions=1).to_dict("records")
        return dict(row)

    def _told(self, query: Query) -> Any:
        import numpy as np
        import pandas as pd
        from hebo.design_space.design_space import DesignSpace
        from hebo.optimizers.hebo import HEBO

        space = DesignSpace().parse(self.axes)
        optimizer = HEBO(space, scramble_seed=self.seed, **self.more)
        if query.number:
            optimizer.sobol.fast_forward(query.number)  # to this query's one of the first configs
        measured = self.measured()
        if measured:
            rows = [[assignment[one.name] for one in self.searched] for assignment, _ in measured]
            configs = pd.DataFrame(rows, columns=[one.name for one in self.searched])
            optimizer.observe(configs, np.array([[loss] for _, loss in measured]))
        return optimizer


def _parameter(given: Any) -> Parameter:
    """A parameter from the library's dict for it. Raises InvalidSearchSpace."""
    name = given.get("name") if isinstance(given, Mapping) else None
    if not isinstance(name, str):
        raise InvalidSearchSpace(
            f"space must have dicts such as {{'name': 'lr', 'type': 'num', 'lb': 0, 'ub': 1}}, "
            f"not {given!r:.100}"
        )
    match dict(given):
        case {"type": "num" | "pow" as kind, "lb": low, "ub": high}:
            domain: Any = Float(lower=float(low), upper=float(high), log=kind == "pow")
        case {"type": "int" | "pow_int" as kind, "lb": low, "ub": high}:
            domain = Integer(lower=int(low), upper=int(high) + 1, log=kind == "pow_int")
        case {"type": "step_int", "lb": low, "ub": high, "step": step}:
            fits = low % step == 0
            domain = (
                Integer(lower=low, upper=high, q=step)
                if fits
                else Categorical(categories=tuple(range(low, high + 1, step)))
            )
        case {"type": "cat", "categories": categories}:
            domain = Categorical(categories=tuple(categories))
        case {"type": "bool"}:
            domain = Categorical(categories=(False, True))
        case {"type": kind}:
            raise InvalidSearchSpace(
                f"{name}: HEBOSearch does not read {kind!r}: write tune.uniform, tune.choice and "
                f"so on in a dict, or num, pow, int, pow_int, step_int, cat or bool"
            )
        case _:
            raise InvalidSearchSpace(f"{name}: the type is missing in {given!r:.100}")
    return Parameter(name=name, domain=domain)
