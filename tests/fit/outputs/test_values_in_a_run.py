"""Values that JSON does not have: in a config, in metrics, in results and in files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import tune
from holdfast.experiment.user_objects.stored_objects import NamedObject, StoredObject
from holdfast.trial.errors import InvalidConfig

pytestmark = pytest.mark.process

LABELS = {0: "cat", None: {True: 0.5}, (1, "a"): [2]}
HUGE = 10**30


def space(**changes: Any) -> dict[str, Any]:
    return {
        "labels": LABELS,
        "kept": tune.choice([{"b", "a", 3}]),
        "frozen": frozenset({1}),
        "seed": tune.grid_search([HUGE, -HUGE]),
        "deep": [{"seed": HUGE, "sizes": ({1}, np.arange(3))}],
        "weights": np.ones((2, 2)),
        "data": np.zeros((40, 50)),
        "start": tune.choice([np.array([0.5])]),
        "made": tune.sample_from(lambda spec: {5: np.arange(2), 6: {spec.config.seed}}),
        **changes,
    }


def expected(seed: int) -> dict[str, Any]:
    return {
        "labels": LABELS,
        "kept": {"b", "a", 3},
        "frozen": frozenset({1}),
        "seed": seed,
        "deep": [{"seed": HUGE, "sizes": ({1}, np.arange(3))}],
        "weights": np.ones((2, 2)),
        "data": np.zeros((40, 50)),
        "start": np.array([0.5]),
        "made": {5: np.arange(2), 6: {seed}},
    }


def readable(seed: int) -> dict[str, Any]:
    return {
        "labels": {"0": "cat", "None": {"True": 0.5}, "(1, 'a')": [2]},
        "kept": [3, "a", "b"],
        "frozen": [1],
        "seed": seed,
        "deep": [{"seed": HUGE, "sizes": [[1], [0, 1, 2]]}],
        "weights": [[1.0, 1.0], [1.0, 1.0]],
        "data": "ndarray of shape (40, 50), float64",
        "start": [0.5],
        "made": {"5": [0, 1], "6": [seed]},
    }


def shape(value: Any) -> Any:
    """`value` with the exact types of everything in it, for comparison."""
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), list(map(shape, value))
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(map(repr, map(shape, value)))
    if isinstance(value, np.ndarray):
        return type(value), str(value.dtype), value.tolist()
    return type(value), value


def compare(config: dict[str, Any]) -> None:
    seed = config["seed"]
    tune.report({"same": shape(config) == shape(expected(seed)), "negative": seed < 0})


class Watch(tune.Callback):
    """The varied parameters as users' callbacks see them."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.seen[trial.trial_id] = (trial.evaluated_params, result["config"])


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.fixture(scope="module")
def odd(shared_fit: Any, watch: Watch) -> tune.ResultGrid:
    """A run with TensorBoard on, whose hparams have the same values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_TENSORBOARD", "1")
        results: tune.ResultGrid = shared_fit(compare, space(), name="odd", callbacks=[watch])
    assert results.num_errors == 0
    return results


# -- a config -----------------------------------------------------------------------------------


def test_a_trial_is_given_the_very_types_of_its_config(odd: tune.ResultGrid) -> None:
    assert [result.metrics["same"] for result in odd if result.metrics] == [True, True]
    assert [result.metrics["negative"] for result in odd if result.metrics] == [False, True]


def test_results_have_the_users_values_in_their_config(odd: tune.ResultGrid) -> None:
    for result, seed in zip(odd, (HUGE, -HUGE), strict=True):
        assert shape(result.config) == shape(expected(seed))


def test_the_files_of_a_trial_show_its_config_as_plain_json(odd: tune.ResultGrid) -> None:
    for result, seed in zip(odd, (HUGE, -HUGE), strict=True):
        folder = Path(result.path)
        assert json.loads((folder / "params.json").read_text()) == readable(seed)
        (line,) = (folder / "result.json").read_text().splitlines()
        assert json.loads(line)["config"] == readable(seed)
        assert tune.Result.from_path(folder).config == readable(seed)


def test_folders_and_callbacks_show_the_varied_values(odd: tune.ResultGrid, watch: Watch) -> None:
    for result, seed in zip(odd, (HUGE, -HUGE), strict=True):
        assert result.metrics is not None
        params, config = watch.seen[result.metrics["trial_id"]]
        assert params["kept"] == {3, "a", "b"}
        assert params["seed"] == seed
        assert params["start"] == [0.5]
        assert config == readable(seed)
        assert "kept=3_a_b" in result.path


def test_a_table_of_results_has_a_column_for_each_key(odd: tune.ResultGrid) -> None:
    table = odd.get_dataframe()
    assert list(table["config/labels/0"]) == ["cat", "cat"]
    assert list(table["config/seed"]) == [HUGE, -HUGE]
    assert [value.tolist() for value in table["config/made/5"]] == [[0, 1]] * 2


def test_a_grid_of_results_can_be_pickled(odd: tune.ResultGrid) -> None:
    back: tune.ResultGrid = pickle.loads(pickle.dumps(odd))
    for result, seed in zip(back, (HUGE, -HUGE), strict=True):
        assert shape(result.config) == shape(expected(seed))
    alone: tune.Result = pickle.loads(pickle.dumps(odd[1]))
    assert shape(alone.config) == shape(expected(-HUGE))
    assert repr(back) == repr(odd)


# -- after a restore ----------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, space()], ids=["from tuner.pkl", "given anew"])
def test_a_restored_config_has_all_that_need_not_be_unpickled(
    odd: tune.ResultGrid, given: dict[str, Any] | None
) -> None:
    restored = tune.Tuner.restore(odd.experiment_path, compare, param_space=given)
    for result, seed in zip(restored.get_results(), (HUGE, -HUGE), strict=True):
        assert result.config is not None
        made = result.config["made"]
        assert isinstance(made[5], StoredObject)
        assert made[5].shown == [0, 1]
        assert repr(made[5]) == "<made/5: a stored ndarray [0, 1], load() unpickles it>"
        whole = {**result.config, "made": {**made, 5: made[5].load()}}
        assert shape(whole) == shape(expected(seed))


def test_an_experiment_read_without_the_script_shows_what_can_be_read(
    odd: tune.ResultGrid,
) -> None:
    config = tune.ExperimentAnalysis(odd.experiment_path).trials[0].config
    assert config["labels"] == LABELS
    assert config["kept"] == {"b", "a", 3}
    weights = config["weights"]
    assert isinstance(weights, NamedObject)
    assert weights.shown == [[1.0, 1.0], [1.0, 1.0]]


def test_a_restore_resumes_with_the_same_values_and_refuses_others(odd: tune.ResultGrid) -> None:
    path = odd.experiment_path
    again = tune.Tuner.restore(path, compare, param_space=space(weights=np.zeros(3))).fit()
    assert len(again) == 2
    for changed in ({"labels": {0: "dog"}}, {"frozen": frozenset({2})}):
        with pytest.raises(InvalidConfig, match=rf"{next(iter(changed))}: was .*, now "):
            tune.Tuner.restore(path, compare, param_space=space(**changed))


# -- metrics ------------------------------------------------------------------------------------
