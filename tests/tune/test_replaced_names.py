"""Names that holdfast does not have: the error says what to write instead."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import data, train, tune
from holdfast.compat.advice import tables
from holdfast.trial.errors import InvalidConfig
from tests.rig.runs.recorded import RecordedExperiment


def made(module: str, kind: str) -> Any:
    """An object of a class as Optuna has it."""
    return type(kind, (), {"__module__": f"optuna.{module}"})()


def attributes_of(kind: str) -> list[str]:
    """The attributes that a class does not have, and others do."""
    given = (one["names"].split() for one in tables()["attribute"] if one["of"] == kind)
    return [name for names in given for name in names]


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (f"holdfast.{one['of']}".rstrip("."), name)
        for one in tables()["instead"]
        if one["of"] in ("", "data", "data.preprocessors", "train", "tune", "tune.search")
        for name in one["names"].split()
    ],
)
def test_a_name_of_another_library_is_replaced_by_names_that_exist(
    package: str, name: str
) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Use ") as caught:
        getattr(module, name)
    mentioned = re.findall(r"\b(?:holdfast\.)?((?:data|tune|train)(?:\.\w+)+)", str(caught.value))
    for path in mentioned:
        top, _, rest = path.partition(".")
        if rest.startswith("torch."):
            continue  # needs PyTorch
        assert attrgetter(rest)({"data": data, "tune": tune, "train": train}[top])


def test_a_misspelled_name_is_an_ordinary_error_that_knows_its_module() -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'Tuners'$") as caught:
        tune.Tuners  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("Tuners", tune)
    assert not hasattr(holdfast, "remotes")


@pytest.mark.parametrize("name", attributes_of("Tuner"))
def test_an_attribute_of_a_study_is_replaced_on_a_tuner(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'. Use .*fit\(\)"):
        getattr(tune.Tuner(print), name)


@pytest.mark.parametrize("name", attributes_of("ResultGrid"))
def test_an_attribute_of_a_study_is_replaced_by_one_that_results_have(
    name: str, tmp_path: Path
) -> None:
    RecordedExperiment(tmp_path / "run").ends()
    results = tune.load(str(tmp_path / "run"))
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Use results") as caught:
        getattr(results, name)
    for used in re.findall(r"results\.(\w+)", str(caught.value)):
        assert hasattr(type(results), used)


def test_another_attribute_and_an_error_inside_a_property_stay_as_they_are() -> None:
    class Broken(tune.Tuner):
        @property
        def trials(self) -> object:
            return object().nowhere  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match=r"'Tuner' object has no attribute 'wrong'$"):
        getattr(tune.Tuner(print), "wrong")  # noqa: B009
    with pytest.raises(AttributeError, match=r"'object' object has no attribute 'nowhere'$"):
        Broken(print).trials  # noqa: B018


def test_several_goals_belong_to_the_search_and_the_scheduler() -> None:
    with pytest.raises(InvalidConfig) as caught:
        tune.TuneConfig(metric=["loss", "size"], mode=["min", "max"])  # type: ignore[arg-type]
    goals = "=['loss', 'size'], mode"
    assert f"search_alg=tune.search.AutoSearch(metric{goals}=['min', 'max'])" in str(caught.value)
    assert f"MultiObjectiveASHAScheduler(metrics{goals}s=['min', 'max'])" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "write"),
    [
        ({"search_alg": "tpe"}, "write 'optuna', whose sampler is TPE, or tune.search.OptunaSea"),
        ({"search_alg": "CMA-ES"}, "write tune.search.OptunaSearch(sampler=optuna.samplers.CmaEs"),
        ({"search_alg": made("samplers._tpe.sampler", "TPESampler")},
         "search_alg must not be Optuna's TPESampler: write "
         "tune.search.OptunaSearch(sampler=TPESampler(...))"),
        ({"search_alg": made("study.study", "Study")},
         "write tune.search.OptunaSearch(study_name=..., storage=...)"),
        ({"scheduler": made("pruners._median", "MedianPruner")},
         "scheduler=MedianPruner(...) is a pruner of Optuna: write "
         "tune.schedulers.MedianStoppingRule()"),
        ({"scheduler": made("pruners._wilcoxon", "WilcoxonPruner")},
         "write tune.schedulers.ASHAScheduler() or tune.schedulers.MedianStoppingRule()"),
    ],
)  # fmt: skip
def test_samplers_and_pruners_of_optuna_have_their_replacement(
    given: dict[str, Any], write: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        tune.Tuner(print, tune_config=tune.TuneConfig(**given))
    assert write in str(caught.value)
