"""A number is a number, whoever made it: every setting takes those of NumPy and the like."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import cluster, data, train, tune
from holdfast.plain_numbers import plain_number
from holdfast.train import ValidationTaskConfig
from holdfast.trial.errors import TuneError
from holdfast.trial.stoppers import bounds_of
from holdfast.tune import schedulers, search, stopper

# What the constructor needs in any case.
NEEDED: Mapping[Any, Mapping[str, Any]] = {
    cluster.SSH: {"hosts": ["a", "b", "c", "d"]},
    cluster.Dask: {"scheduler": "tcp://a:1"},
    search.ConcurrencyLimiter: {"searcher": search.DEHBSearch()},
    search.Repeater: {"searcher": search.DEHBSearch()},
    stopper.ExperimentPlateauStopper: {"metric": "loss"},
    stopper.TrialPlateauStopper: {"metric": "loss", "mode": "min"},
    schedulers.PopulationBasedTraining: {"hyperparam_mutations": {"lr": [0.1, 0.2]}},
    schedulers.PB2: {"hyperparam_bounds": {"lr": [0.1, 0.2]}},
    tune.PlacementGroupFactory: {"bundles": [{"CPU": 1}, {"CPU": 1}, {"CPU": 1}]},
}
KINDS = (
    tune.TuneConfig,
    tune.CheckpointConfig,
    tune.FailureConfig,
    tune.SyncConfig,
    tune.PlacementGroupFactory,
    tune.CLIReporter,
    train.ScalingConfig,
    ValidationTaskConfig,
    cluster.Local,
    cluster.SSH,
    cluster.Slurm,
    cluster.Dask,
    cluster.Ray,
    schedulers.ASHAScheduler,
    schedulers.HyperBandScheduler,
    schedulers.HyperBandForBOHB,
    schedulers.MedianStoppingRule,
    schedulers.PopulationBasedTraining,
    schedulers.DEHBScheduler,
    search.BasicVariantGenerator,
    search.DEHBSearch,
    search.TuneBOHB,
    search.ConcurrencyLimiter,
    search.Repeater,
    stopper.MaximumIterationStopper,
    stopper.TimeoutStopper,
    stopper.TrialPlateauStopper,
    stopper.ExperimentPlateauStopper,
)
# Parameters that take numbers, and say so neither by their type nor by their default.
ALSO = {"time_budget_s", "timeout", "random_state", "sync_period", "sync_timeout", "nodes"}
# The other ones that have a number in their type.
NO_NUMBER = {"resources_per_worker", "resources_per_node", "trainer_resources", "bundles",
             "evaluated_rewards", "use_gpu", "placement_strategy",
             "perturbation_factors"}  # fmt: skip


# Their default is 0, and 1 is too few.
AT_LEAST = {"confirm": 2}


def number_of(parameter: inspect.Parameter) -> Any:
    """A number that the parameter takes; None if it takes none."""
    default, kind = parameter.default, str(parameter.annotation)
    if type(default) in (int, float):
        least = AT_LEAST.get(parameter.name, 1)
        return default if default > 0 or default == -1 else least
    is_one = "int" in kind or "float" in kind or parameter.name in ALSO
    return 3 if is_one and parameter.name not in NO_NUMBER and type(default) is not bool else None


SETTINGS = [
    pytest.param(kind, name, number, id=f"{kind.__name__}({name})")
    for kind in KINDS
    for name, parameter in inspect.signature(kind).parameters.items()
    if (number := number_of(parameter)) is not None
]
FORMS: Mapping[str, Callable[[Any], Any]] = {
    "scalar": lambda number: np.int64(number) if type(number) is int else np.float64(number),
    "array": np.array,
    "Decimal": lambda number: Decimal(str(number)),
    "Fraction": Fraction,
}


def state(made: Any) -> dict[str, tuple[type, str]]:
    """Each attribute that is not an object, with its type."""
    names = getattr(type(made), "__slots__", None) or vars(made)
    values = {name: getattr(made, name) for name in names if hasattr(made, name)}
    if hasattr(made, "construction"):
        values |= made.construction().kwargs
    return {
        name: (type(one), repr(one)) for name, one in values.items() if " at 0x" not in repr(one)
    }


def test_the_table_has_the_settings() -> None:
    assert len(SETTINGS) > 80


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "name", "number"), SETTINGS)
def test_a_setting_takes_any_number_and_keeps_a_plain_one(
    kind: Any, name: str, number: Any, form: str
) -> None:
    needed = NEEDED.get(kind, {})
    given = FORMS[form](number)
    plain = number if form in ("scalar", "array") else plain_number(given)
    assert state(kind(**needed, **{name: given})) == state(kind(**needed, **{name: plain}))


def of_functions(number: Callable[[Any], Any]) -> Iterator[Any]:
    """The results of functions that take numbers."""
    whole = number(2)
    yield tune.with_resources(print, {"cpu": number(1)}).holdfast_resources.bundles
    run = tune.RunConfig(stop={"loss": number(1)}, verbose=whole)
    yield bounds_of(run.stop), run.verbose
    yield train.ScalingConfig(num_workers=(number(1), whole)).most_workers
    yield cluster.Local(agents=(number(1), whole)).agents
    population = schedulers.PopulationBasedTraining(
        hyperparam_mutations={"lr": [1, 2]}, perturbation_factors=[whole, number(3)]
    )
    yield population._factors
    yield tune.uniform(number(1), whole), tune.randint(number(1), whole)
    yield tune.RunConfig(logging_config=train.LoggingConfig(log_level=number(10)))
    rows = data.range(number(9))
    yield rows.limit(whole).count(), len(rows.take(whole)), len(rows.split(whole))
    yield len(list(rows.iter_batches(batch_size=whole, prefetch_batches=number(1))))
    yield [part.count() for part in rows.split_at_indices([number(1), whole])]
    shuffled = rows.random_shuffle(seed=whole)
    yield shuffled.map_batches(lambda batch: batch, batch_size=whole).count()
    yield [part.count() for part in rows.train_test_split(whole, seed=whole)]


@pytest.mark.parametrize("form", FORMS)
def test_functions_take_them_too(form: str) -> None:
    plain = [repr(one) for one in of_functions(int)]
    assert [repr(one) for one in of_functions(FORMS[form])] == plain


def test_a_run_with_numbers_of_numpy_is_recorded_with_plain_ones(tmp_path: Path) -> None:
    int64: Any = np.int64
    float32: Any = np.float32
    tuner = tune.Tuner(
        tune.with_resources(lambda config: {"a": 1}, {"cpu": float32(0.5)}),
        tune_config=tune.TuneConfig(num_samples=int64(2), time_budget_s=np.float64(60)),
        run_config=tune.RunConfig(
            name="numbers",
            storage_path=str(tmp_path),
            stop={"a": float32(5)},
            checkpoint_config=tune.CheckpointConfig(num_to_keep=int64(1)),
        ),
    )
    assert len(tuner.fit()) == 2
    restored = tune.Tuner.restore(str(tmp_path / "numbers"), restart_errored=True)
    assert [(one.metrics or {})["a"] for one in restored.get_results()] == [1, 1]


@pytest.mark.parametrize("value", ["3", [3], np.array([3]), 1j, np.datetime64("2026-01-01"), None])
def test_what_is_no_number_stays(value: Any) -> None:
    assert plain_number(value) is value


def test_a_part_of_a_whole_is_refused_as_before() -> None:
    for number in (2.5, np.float32(2.5), Decimal("2.5")):
        with pytest.raises(TuneError, match=r"num_samples must be 1 or more.* not 2\.5"):
            tune.TuneConfig(num_samples=number)  # type: ignore[arg-type]
