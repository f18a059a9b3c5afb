"""Several worker processes that train one trial together."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import holdfast
from holdfast import train, tune
from holdfast.trial.errors import ImpossibleResources, InvalidConfig, TrialError, TuneError
from tests.fit.conftest import Trainer
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process

Loop = Callable[[dict[str, Any]], None]


def row(result: train.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return dict(result.metrics)


def rank() -> int:
    return train.get_context().get_world_rank()


def save(name: str, content: str) -> train.Checkpoint:
    folder = Path(train.staging_directory())
    (folder / name).write_text(content)
    return train.Checkpoint.from_directory(folder)


def content(checkpoint: train.Checkpoint | None) -> dict[str, str]:
    assert checkpoint is not None
    with checkpoint.as_directory() as folder:
        return {
            path.name: path.read_text()
            for path in sorted(Path(folder).iterdir())
            if not path.name.startswith(".")
        }


def note(config: dict[str, Any], text: str) -> None:
    """Write one whole line, from any process."""
    with open(config["notes"], "a") as notes:
        notes.write(f"{text}\n")


def notes(tmp_path: Path) -> list[str]:
    return (tmp_path / "notes").read_text().split("\n")[:-1]


def shards(config: dict[str, Any]) -> None:
    """Three epochs; each rank saves its own shard, and an artifact."""
    context = train.get_context()
    begun = train.get_checkpoint()
    done = int(content(begun)[f"shard-{rank()}"]) + 1 if begun else 0
    print(f"rank {rank()} of {context.get_world_size()} begins with epoch {done}")
    for epoch in range(done, 3):
        Path(f"artifact-rank={rank()}-iter={epoch}.txt").write_text("data")
        note(config, f"{rank()} {epoch}")
        metrics = {"epoch": epoch, "rank": rank()}
        train.report(metrics, checkpoint=save(f"shard-{rank()}", str(epoch)))


def test_a_checkpoint_has_the_files_of_all_ranks_and_the_tree_is_that_of_the_guides(
    trainer: Trainer, tmp_path: Path
) -> None:
    result = trainer(shards).fit()
    assert row(result)["epoch"] == 2
    assert row(result)["rank"] == 0
    assert content(result.checkpoint) == {"shard-0": "2", "shard-1": "2"}
    folder = Path(result.path)
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert {f"checkpoint_00000{n}" for n in range(3)} < names
    assert {f"artifact-rank={r}-iter={n}.txt" for r in range(2) for n in range(3)} < names
    assert "result.json" in names
    above = {path.name for path in folder.parent.iterdir()}
    assert {"trainer.pkl", "tuner.pkl", folder.name} < above
    assert folder.name.startswith("DataParallelTrainer_")
    # Each rank's output is in storage, in its own file.
    assert (folder / "stdout").read_text() == "rank 0 of 2 begins with epoch 0\n"
    assert (folder / "stdout.rank-1").read_text() == "rank 1 of 2 begins with epoch 0\n"
    rows = [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [0, 1, 2]


def test_a_rank_knows_which_it_is(trainer: Trainer, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        at = train.get_context()
        facts = [
            at.get_world_rank(), at.get_world_size(), at.get_local_rank(),
            at.get_local_world_size(), at.get_node_rank(), at.get_trial_resources().bundles,
            at.get_experiment_name(), at.get_metadata(),
        ]  # fmt: skip
        note(config, f"{at.get_trial_name()[:19]} {facts}")
        train.report({})

    trainer(loop, metadata={"who": "me"}).fit()
    bundles: Any = ({}, {"CPU": 0.5}, {"CPU": 0.5})
    assert sorted(notes(tmp_path)) == [
        f"DataParallelTrainer {[rank, 2, rank, 2, 0, bundles, 'run', {'who': 'me'}]}"
        for rank in range(2)
    ]


def test_a_loop_may_take_nothing_and_a_rank_may_give_no_checkpoint(trainer: Trainer) -> None:
    def loop() -> None:
        train.report({"of": rank()}, checkpoint=save("model", "m") if rank() == 1 else None)

    result = trainer(loop, metadata={"who": "me"}).fit()
    assert row(result)["of"] == 0
    assert content(result.checkpoint) == {"model": "m"}
    assert result.checkpoint is not None
    assert result.checkpoint.get_metadata() == {"who": "me"}


def test_the_last_rank_wins_with_one_warning_or_the_report_is_refused(
    trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    def loop(config: dict[str, Any]) -> None:
        for _ in range(2):
            extra = {"more": 1} if rank() else {}
            train.report({"loss": 1, **extra}, checkpoint=save("model", str(rank())))

    result = trainer(loop, run={"verbose": 1}).fit()
    assert content(result.checkpoint) == {"model": "1"}
    told = capsys.readouterr().err
    assert told.count("model in one checkpoint from ranks 0, 1: that of rank 1 is kept") == 1
    assert told.count("rank 1 does not report the same metrics as rank 0 (more)") == 1
    with pytest.raises(train.TrainingFailedError, match="ranks 0 and 1 each saved a file"):
        trainer(loop, refuse_clashes=True, run={"name": "refused"}).fit()


def test_a_checkpoint_that_cannot_be_put_together_fails_the_report_of_all_who_may_continue(
    trainer: Trainer, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        folder = Path(train.staging_directory())
        if rank() == 0:
            (folder / "model").mkdir()
        else:
            (folder / "model").touch()
        (folder / "weights").touch()
        try:
            train.report({"loss": 1}, checkpoint=train.Checkpoint.from_directory(folder))
        except TuneError as error:
            note(config, f"{rank()} {error}")
        train.report({"loss": 2}, checkpoint=save(f"of-{rank()}", ""))

    result = trainer(loop).fit()
    assert content(result.checkpoint) == {"of-0": "", "of-1": ""}
    assert not any(path.name == "weights" for path in Path(result.path).rglob("*"))
    of_0, of_1 = sorted(notes(tmp_path))
    assert "one rank saved a file with this name" in of_0
    assert "1 rank 0 could not put the checkpoint of all ranks together: cannot merge" in of_1
    assert "one rank saved a file with this name" in of_1


def test_metadata_of_the_trainer_is_there_whichever_rank_has_its_own(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        checkpoint = save(f"of-{rank()}", "")
        if rank() == 1:
            checkpoint.set_metadata({"own": 1})
        train.report({}, checkpoint=checkpoint)

    result = trainer(loop, metadata={"classes": ["cat"]}, refuse_clashes=True).fit()
    assert result.checkpoint is not None
    assert result.checkpoint.get_metadata() == {"classes": ["cat"], "own": 1}


# -- failures of a rank -------------------------------------------------------------------------


def failing(how: Callable[[], object]) -> Loop:
    """Like `shards`, but rank 1 fails in this way in its epoch 1, the first time."""

    def loop(config: dict[str, Any]) -> None:
        report = train.report

        def reporting(metrics: dict[str, Any], **more: Any) -> None:
            report(metrics, **more)
            if rank() == 1 and metrics["epoch"] == 0 and train.get_context().get_attempt() == 1:
                how()

        train.report = reporting  # type: ignore[assignment]
        try:
            shards(config)
        finally:
            train.report = report

    return loop


def boom() -> None:
    raise ValueError("boom")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leaves() -> None:
    sys.exit()


def hangs() -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("how", "told"),
    rest_nightly(
        2,
        [
            (boom, "ValueError: rank 1 on .*: boom"),
            (dies, r"WorkerLost: rank 1 on .*: the worker process .*\(SIGKILL\)"),
            (leaves, "RanksOutOfStep: rank 1 on .*: its function returned after report 1, but"),
            (hangs, "WorkerHung: rank 1 on .*: the worker process .* has not reported for 0.5 s"),
        ],
    ),
)
def test_a_rank_that_fails_ends_the_group_with_its_name_and_within_max_failures_it_continues(
    trainer: Trainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[], object],
    told: str,
) -> None:
    if how is hangs:  # on a busy machine one rank may begin so much later than the other
        monkeypatch.setenv("HOLDFAST_BARRIER_TIMEOUT_S", "0.5")
    with pytest.raises(train.TrainingFailedError, match=told) as caught:
        trainer(failing(how)).fit()
    assert isinstance(caught.value.__cause__, TrialError)
    path = str(tmp_path / "results" / "run")
    assert f"DataParallelTrainer.restore({path!r}).fit()" in str(caught.value)
    # Explicitly, from the newest checkpoint ...
    (tmp_path / "notes").unlink()
    result = train.DataParallelTrainer.restore(path).fit()
    assert content(result.checkpoint) == {"shard-0": "2", "shard-1": "2"}
    assert sorted(notes(tmp_path)) == [f"{rank} {epoch}" for rank in (0, 1) for epoch in (1, 2)]
    # ... and automatically.
    again = trainer(failing(how), max_failures=1, run={"name": "again"}).fit()
    assert content(again.checkpoint) == {"shard-0": "2", "shard-1": "2"}
    text = (Path(again.path) / "stdout").read_text()
    assert text.splitlines() == [
        "rank 0 of 2 begins with epoch 0",
        "rank 0 of 2 begins with epoch 1",
    ]
    if how is hangs:
        assert "hangs" in (Path(again.path) / "stderr.rank-1").read_text()


def test_all_ranks_are_given_the_same_checkpoint(trainer: Trainer, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        for step in range(3):
            begun = train.get_checkpoint()
            name = Path(begun.path).name if begun else None
            note(config, f"{train.get_context().get_attempt()} {step} {rank()} {name}")
            if (rank(), step, train.get_context().get_attempt()) == (0, 2, 1):
                dies()
            train.report({}, checkpoint=save(f"of-{rank()}", "") if rank() else None)

    trainer(loop, max_failures=1).fit()
    names = [None, *(f"checkpoint_{number:06d}" for number in range(4))]
    assert sorted(notes(tmp_path)) == [
        f"{attempt} {step} {rank} {names[step + 2 * attempt - 2]}"
        for attempt in (1, 2)
        for step in range(3)
        for rank in range(2)
    ]


# -- elastic ------------------------------------------------------------------------------------


def test_an_elastic_group_resumes_without_a_lost_rank_and_takes_another_later(
    trainer: Trainer, tmp_path: Path
) -> None:
    def loop(config: dict[str, Any]) -> None:
        began, at = time.monotonic(), train.get_context()
        begun = train.get_checkpoint()
        done = int(content(begun)["epoch"]) + 1 if begun else 0
        for epoch in range(done, 4):
            if rank() == 0:
                note(config, f"epoch {epoch} of {at.get_world_size()}")
            if (rank(), epoch, at.get_attempt()) == (1, 1, 1):
                dies()
            if (at.get_attempt(), config["absence_s"]) == (2, 1):
                # Until the lost rank may have returned: its absence began before this attempt.
                time.sleep(max(0.0, began + 1.1 - time.monotonic()))
            train.report({}, checkpoint=save("epoch", str(epoch)) if rank() == 0 else None)

    def config(absence_s: float) -> dict[str, Any]:
        return {"notes": str(tmp_path / "notes"), "absence_s": absence_s}

    absent = trainer(
        loop, workers=(1, 2), lost_worker_absence_s=3600, train_loop_config=config(3600)
    ).fit()
    assert absent.error is None
    first = ["epoch 0 of 2", "epoch 1 of 2", "epoch 1 of 1", "epoch 2 of 1", "epoch 3 of 1"]
    assert notes(tmp_path) == first
    (tmp_path / "notes").unlink()
    run = {"name": "back"}
    trainer(
        loop, workers=(1, 2), lost_worker_absence_s=1, train_loop_config=config(1), run=run
    ).fit()
    assert notes(tmp_path) == [*first[:3], "epoch 2 of 2", "epoch 3 of 2"]


# -- other ways in and out ----------------------------------------------------------------------


def test_a_trainer_in_a_tuner(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        size = train.get_context().get_world_size()
        train.report({"score": config["lr"] * 10 + config["scale"], "size": size})

    made = trainer(loop, train_loop_config={"lr": 0, "scale": 5})
    grid = tune.Tuner(
        made,
        param_space={
            "train_loop_config": {"lr": tune.grid_search([1, 2])},
            "scaling_config": train.ScalingConfig(num_workers=tune.grid_search([1, 2])),
        },
    ).fit()
    assert grid.experiment_path.endswith("/run")
    told = sorted((row(found)["score"], row(found)["size"]) for found in grid)
    assert told == [(15, 1), (15, 2), (25, 1), (25, 2)]
    space = {"train_loop_config": {"lr": tune.grid_search([1, 2])}}
    for again in (
        tune.Tuner.restore(grid.experiment_path),
        tune.Tuner.restore(grid.experiment_path, made),
        tune.Tuner.restore(
            grid.experiment_path,
            param_space={
                **space,
                "scaling_config": train.ScalingConfig(num_workers=tune.grid_search([1, 2])),
            },
        ),
    ):
        assert len(again.fit()) == 4
    with pytest.raises(InvalidConfig, match="param_space: scaling_config"):
        tune.Tuner.restore(grid.experiment_path, made, param_space=space)
    with pytest.raises(InvalidConfig, match=r"'lr'.* put what .*train_loop_config"):
        tune.Tuner(made, param_space={"lr": 1})


def test_a_training_begins_with_the_checkpoint_of_another(
    trainer: Trainer, tmp_path: Path
) -> None:
    first = trainer(shards).fit()

    def loop(config: dict[str, Any]) -> None:
        note(config, str(content(train.get_checkpoint())))
        train.report({}, checkpoint=save("anew", ""))
        note(config, str(content(train.get_checkpoint())))

    (tmp_path / "notes").unlink()
    run = {"name": "second"}
    trainer(loop, resume_from_checkpoint=first.checkpoint, run=run, workers=1).fit()
    assert notes(tmp_path) == [str({"shard-0": "2", "shard-1": "2"}), str({"anew": ""})]


def test_a_restore_may_have_another_number_of_workers_and_another_loop(
    trainer: Trainer, tmp_path: Path
) -> None:
    with pytest.raises(train.TrainingFailedError):
        trainer(failing(boom)).fit()

    def loop(config: dict[str, Any]) -> None:
        size = train.get_context().get_world_size()
        train.report({"size": size, "rate": config["rate"], **content(train.get_checkpoint())})

    path = tmp_path / "results" / "run"
    assert train.DataParallelTrainer.can_restore(path)
    result = train.DataParallelTrainer.restore(
        path,
        loop,
        {"rate": 7},
        scaling_config=train.ScalingConfig(num_workers=3, resources_per_worker={"CPU": 0.5}),
    ).fit()
    kept = {key: row(result)[key] for key in ("size", "rate", "shard-0", "shard-1")}
    assert kept == {"size": 3, "rate": 7, "shard-0": "0", "shard-1": "0"}


def test_datasets_are_split_among_the_ranks(trainer: Trainer, tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        parts = [list(train.get_dataset_shard(name)) for name in ("train", "lazy", "whole")]
        note(config, f"{rank()} {parts}")
        train.report({})

    trainer(
        loop,
        datasets={"train": range(5), "lazy": lambda: iter("abc"), "whole": [1, 2]},
        dataset_config=train.DataConfig(datasets_to_split=["train", "lazy"]),
    ).fit()
    assert sorted(notes(tmp_path)) == [
        f"0 {[[0, 2, 4], ['a', 'c'], [1, 2]]}",
        f"1 {[[1, 3], ['b'], [1, 2]]}",
    ]


def test_what_a_function_generates_is_there_in_every_epoch() -> None:
    (shard, _) = train.DataConfig().configure({"lazy": lambda: iter("abc")}, 2)
    assert [list(shard["lazy"]) for epoch in range(2)] == [["a", "c"], ["a", "c"]]
    (whole,) = train.DataConfig([]).configure({"lazy": lambda: iter("abc")}, 1)
    assert [list(whole["lazy"]) for epoch in range(2)] == [[*"abc"], [*"abc"]]


def test_parts_of_datasets_differ_by_one_item_at_most() -> None:
    frame = pd.DataFrame({"x": range(5)})
    data = {"frame": frame, "list": [*"abcde"], "few": [1]}
    first, second = train.DataConfig().configure(data, 2)
    assert [list(part["frame"]["x"]) for part in (first, second)] == [[0, 2, 4], [1, 3]]
    assert [list(part["list"]) for part in (first, second)] == [["a", "c", "e"], ["b", "d"]]
    assert [len(part["few"]) for part in (first, second)] == [1, 0]
    assert second["list"][1] == "d"
    for wrong in ({"a": 1}, "text", 5):
        with pytest.raises(InvalidConfig, match="a dataset"):
            train.DataConfig().configure({"wrong": wrong}, 2)


# -- bad input ----------------------------------------------------------------------------------


def test_what_cannot_be_meant_is_reported_before_anything_runs(trainer: Trainer) -> None:
    def two(one: int, other: int) -> None: ...

    with pytest.raises(
        InvalidConfig, match=r"two\(one: 'int', other: 'int'\).* must take one arg"
    ):
        trainer(two)
    with pytest.raises(InvalidConfig, match="num_workers must be at least 1"):
        trainer(shards, workers=0)
    with pytest.raises(ImpossibleResources, match=r"64 workers ask for .*ScalingConfig"):
        trainer(shards, workers=64).fit()
    with pytest.raises(InvalidConfig, match="metadata must be plain JSON values"):
        trainer(shards, metadata={"model": object()})
    with pytest.raises(InvalidConfig, match="names 'valid', and the datasets are"):
        trainer(shards, datasets={"train": []}, dataset_config=train.DataConfig(["valid"]))
    with pytest.raises(InvalidConfig, match="something to search in it, and fit"):
        trainer(shards, train_loop_config={"lr": tune.uniform(0, 1)}).fit()


def test_in_the_debug_mode_there_are_no_workers_to_train_together(trainer: Trainer) -> None:
    holdfast.init(local_mode=True)
    with pytest.raises(train.TrainingFailedError, match=r"2 workers cannot .*num_workers=1"):
        trainer(shards).fit()
    alone = trainer(shards, workers=1, run={"name": "alone"}).fit()
    assert content(alone.checkpoint) == {"shard-0": "2"}


def test_a_part_that_is_gone_when_all_are_put_together_is_named(trainer: Trainer) -> None:
    def loop(config: dict[str, Any]) -> None:
        train.report({"only": "metrics"})
        if rank() == 1:
            stage_elsewhere(Path(train.get_context().get_trial_dir()))
        train.report({}, checkpoint=save(f"of-{rank()}", ""))

    with pytest.raises(train.TrainingFailedError, match=r"rank 1 has put its part .* is gone"):
        trainer(loop).fit()


def stage_elsewhere(folder: Path) -> None:
    """Stage where the rank that puts the parts together does not look."""
    from holdfast.experiment.worker.rank_session import RankSession

    elsewhere = folder.parent.parent / "elsewhere"
    RankSession.staging_root = property(lambda self: elsewhere)  # type: ignore[assignment]
