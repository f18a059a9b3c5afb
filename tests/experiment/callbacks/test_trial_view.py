"""A trial as callbacks see it, and its varied parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.callbacks.trial_view import Searched, TrialView, Views
from holdfast.experiment.records.rows import newest_row
from holdfast.trial.search_space.description import describe
from holdfast.trial.space import choice, loguniform, randint, uniform
from holdfast.trial.trial import Trial, TrialSpec
from holdfast.trial.values import LONGEST_WHOLE_TAG, Opaque, format_tag, spread
from tests.experiment.callbacks.seen import suggestion, surroundings

NESTED = {
    "optimizer": {"learning_rate": loguniform(1e-4, 1e-1), "weight_decay": loguniform(1e-6, 1e-2)},
    "model": {"hidden_width": randint(16, 256), "dropout": uniform(0, 0.5), "layers": 3},
    "batch_size": choice([16, 32]),
}
DRAWN = {
    "optimizer": {"learning_rate": 0.00079, "weight_decay": 0.0015},
    "model": {"hidden_width": 146, "dropout": 0.09188, "layers": 3},
    "batch_size": 16,
}


def trial(config: dict[str, Any], tag: str = "0", **fields: Any) -> Trial:
    spec = TrialSpec(trial_id="a_0", index=3, name="t_a_0", dirname="d", config=config, tag=tag)
    return Trial(spec=spec, **fields)


def test_parameters_that_the_tag_has_no_room_for_are_found() -> None:
    evaluated = {name: value for name, value in spread(DRAWN).items() if name != "model/layers"}
    tag = format_tag(3, evaluated)
    assert "weight_decay" not in tag
    found = Searched(describe(NESTED)).of(trial(DRAWN, tag))
    assert found == evaluated
    assert list(found)[:2] == ["optimizer/learning_rate", "optimizer/weight_decay"]


def test_of_a_choice_among_dicts_and_lists_the_parameters_inside_are_found() -> None:
    space = {"model": choice([{"kind": "mlp", "width": 3}, {"kind": "none"}]),
             "layers": [randint(1, 3), 5], "fixed": [1, 2]}  # fmt: skip
    config = {"model": {"kind": "mlp", "width": 3}, "layers": [2, 5], "fixed": [1, 2]}
    found = Searched(describe(space)).of(trial(config))
    assert found == {"model/kind": "mlp", "model/width": 3, "layers": [2, 5]}


def test_parameters_of_a_search_algorithms_own_space_are_found_and_constants_are_not() -> None:
    searched = Searched(describe({"epochs": 5, "net": {"act": "relu"}, "opt": dict, "empty": {}}))
    fixed = {"net": {"act": "relu"}, "opt": Opaque(pickled=b"", summary="dict"), "empty": {}}
    assert searched.of(trial({**fixed, "epochs": 5, "lr": 0.1})) == {"lr": 0.1}
    # The algorithm may choose a value of its own for a key of the space.
    assert searched.of(trial({**fixed, "epochs": 7, "lr": 0.1})) == {"epochs": 7, "lr": 0.1}
    everything = {f"a_parameter_with_a_long_name_{number}": number for number in range(5)}
    tag = format_tag(3, everything)
    assert len(tag) > LONGEST_WHOLE_TAG
    assert Searched().of(trial(everything, tag)) == everything


def test_without_a_space_the_parameters_in_a_short_tag_are_found_whatever_their_type() -> None:
    sealed = Opaque(pickled=b"", summary="Adam")
    config = {"opt": sealed, "layers": [1, 2], "kind": "a b", "lr": 1e-05, "other": 1, "net": {}}
    assert Searched().of(trial(config, "3_kind=a_b,layers=1_2,lr=1e-05,opt=Adam")) == {
        "opt": "Adam",
        "layers": [1, 2],
        "kind": "a b",
        "lr": 1e-05,
    }


def test_varied_parameters_are_those_of_a_config_that_was_taken_over() -> None:
    config = {"layers": [1, 2], "net": "none", "cell": {"width": 3, "depth": 1}, "fixed": 7}
    space = {"layers": choice([1]), "net": choice([2]), "cell": {"width": choice([3]), "depth": 1}}
    begun = {"layers": [1, 2], "net": "none", "cell/width": 3}
    other = {"layers": [4], "net": {"kind": "mlp", "width": 5}, "cell": "off", "fixed": 7}
    now = {"layers": [4], "net/kind": "mlp", "net/width": 5, "cell": "off"}
    described = Searched(describe({**space, "fixed": 7}))
    for searched in (Searched(), described):
        before = trial(config, format_tag(3, begun))
        assert searched.of(before) == begun
        assert searched.of(replace(before, changed_config=other)) == now


def test_a_view_has_the_names_that_users_of_ray_rely_on(tmp_path: Path) -> None:
    spec = suggestion().spec
    view = Views(surroundings(tmp_path)).show(Trial(spec=spec))
    assert str(view) == "train_aaaaa_00000"
    assert view.config == {"lr": 0.5, "net": {"width": 8}, "fixed": 1}
    assert view.evaluated_params == {"lr": 0.5, "net/width": 8}
    assert view.experiment_tag == "0_lr=0.5,net_width=8"
    assert view.status == TrialView.PENDING
    assert view.last_result == {}
    assert view.checkpoint is None
    assert not view.has_checkpoint()
    assert not view.is_finished()
    assert view.error_file is None
    assert view.node_ip == ""
    assert view.path == "bucket/results/exp/train_aaaaa_00000_0"
    assert view.local_path == view.logdir == str(tmp_path / "exp" / "train_aaaaa_00000_0")
    assert view.local_experiment_path == view.local_dir == str(tmp_path / "exp")
    assert view.experiment_dir_name == "exp"
    view.init_local_path()
    assert Path(view.local_path).is_dir()


def test_views_of_one_trial_are_equal_and_others_are_not(tmp_path: Path) -> None:
    here, there = Views(surroundings(tmp_path)), Views(surroundings(tmp_path))
    first, second = Trial(spec=suggestion(0).spec), Trial(spec=suggestion(1).spec)
    assert here.show(first) is here.show(first)
    assert here.show(first) == there.show(first)
    assert here.show(first) != here.show(second)
    assert {here.show(first): 1}[there.show(first)] == 1


def test_a_view_of_a_restored_trial_shows_its_last_row(tmp_path: Path) -> None:
    trial = Trial(spec=suggestion().spec, row={"acc": 0.5}, iteration=3)
    view = Views(surroundings(tmp_path)).show(trial)
    assert view.last_result == newest_row(trial)
    assert view.last_result["acc"] == 0.5
