"""What a callback sees of a trial."""

from __future__ import annotations

from pathlib import Path

from holdfast.experiment.callbacks.trial_view import TrialView, Views
from holdfast.experiment.records.rows import newest_row
from holdfast.trial.trial import Trial
from tests.experiment.callbacks.seen import suggestion, surroundings


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
