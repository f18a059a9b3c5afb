"""Datasets of trainers and Tuners: each rank gets its rows, and each row once."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast import data, train, tune
from holdfast.trial.errors import InvalidConfig
from tests.rig.isolation import by_value as by_value
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing

pytestmark = pytest.mark.process

HALF = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})


@pytest.fixture
def run(tmp_path: Path) -> train.RunConfig:
    return train.RunConfig(name="run", storage_path=str(tmp_path / "results"), verbose=0)


def note(path: str, **facts: Any) -> None:
    with open(path, "a") as notes:
        notes.write(json.dumps(facts) + "\n")


def notes(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_epochs(config: dict[str, Any]) -> None:
    """Two epochs, a checkpoint every second batch; with "breaks" it fails before one of them."""
    shard = train.get_dataset_shard("train")
    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "state.json").read_text())
        shard.load_state_dict(saved["shard"])
        first = saved["epoch"]
    held: list[int] = []
    for epoch in range(first, 2):
        for step, batch in enumerate(shard.iter_batches(batch_size=5)):
            held += batch["id"].tolist()
            if step % 2:
                if config["breaks"] == [epoch, step]:
                    raise RuntimeError("broken off")
                report(config, epoch, shard, held)
                held = []
        report(config, epoch + 1, shard, held, belongs_to=epoch)
        held = []


def report(
    config: dict[str, Any], epoch: int, shard: Any, held: list[int], belongs_to: int | None = None
) -> None:
    folder = Path(train.staging_directory())
    if train.get_context().get_world_rank() == 0:
        state = {"epoch": epoch, "shard": shard.state_dict()}
        (folder / "state.json").write_text(json.dumps(state))
    # Noted first: once the report is complete, the other rank may fail, which ends this one.
    at = epoch if belongs_to is None else belongs_to
    note(config["notes"], epoch=at, ids=held, ranks=train.get_context().get_world_size())
    train.report({"epoch": epoch}, checkpoint=train.Checkpoint.from_directory(folder))


def test_a_training_broken_off_in_an_epoch_resumes_there_with_other_workers_and_moved_files(
    tmp_path: Path, run: train.RunConfig
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for at, part in enumerate(data.range(50).split(3)):
        pq.write_table(part.to_arrow(), files / f"{at}.parquet", row_group_size=4)
    config = {"notes": str(tmp_path / "notes"), "breaks": [1, 3]}
    trainer = train.DataParallelTrainer(
        in_epochs,
        train_loop_config=config,
        scaling_config=HALF,
        run_config=run,
        datasets={"train": data.read_parquet(files).random_shuffle(seed=3)},
    )
    with pytest.raises(train.TrainingFailedError, match="broken off"):
        trainer.fit()

    moved = files.rename(tmp_path / "moved")
    begun = notes(tmp_path / "notes")
    again: dict[str, Any] = {
        "train_loop_config": {**config, "breaks": None},
        "scaling_config": train.ScalingConfig(num_workers=3, resources_per_worker={"CPU": 0.5}),
    }
    root = tmp_path / "results" / "run"
    with pytest.raises(InvalidConfig, match=rf"'train': {files}/0.parquet.*: missing.*restore"):
        train.DataParallelTrainer.restore(root, **again).fit()
    assert notes(tmp_path / "notes") == begun
    again["datasets"] = {"train": data.read_parquet(moved).random_shuffle(seed=3)}
    train.DataParallelTrainer.restore(root, **again).fit()

    found = notes(tmp_path / "notes")
    assert {one["ranks"] for one in found if one["epoch"] == 1} == {2, 3}
    for epoch in range(2):
        seen = Counter(number for one in found if one["epoch"] == epoch for number in one["ids"])
        assert sorted(seen) == list(range(50))
        assert sum(seen.values()) - 50 <= 2


def test_a_dataset_that_is_not_split_is_each_rank_whole(run: train.RunConfig) -> None:
    def loop() -> None:
        counts = [train.get_dataset_shard(name).count() for name in ("train", "valid")]
        train.report({"train": counts[0], "valid": counts[1]})

    result = train.DataParallelTrainer(
        loop,
        scaling_config=HALF,
        run_config=run,
        datasets={"train": data.range(10), "valid": lambda: data.range(3)},
        dataset_config=train.DataConfig(datasets_to_split=["train"]),
    ).fit()
    assert result.metrics is not None
    assert (result.metrics["train"], result.metrics["valid"]) == (5, 3)


# -- in param_space -------------------------------------------------------------------------------

SECRET_ROW = "only-in-the-dataset"


def datasets(times: int = 1) -> list[data.Dataset]:
    return [
        data.from_items([{"x": i, "y": by * times * i, "t": SECRET_ROW} for i in range(128)])
        for by in (2, 3)
    ]


def summed(config: dict[str, Any]) -> None:
    """Fails the first time, in the second trial."""
    total = sum(int(batch["y"].sum()) for batch in config["datasets"]["train"].iter_batches())
    if total > 20_000 and not Path(config["flag"]).exists():
        Path(config["flag"]).touch()
        raise RuntimeError("broken off")
    tune.report({"total": total})


def test_datasets_in_a_search_space_are_named_in_the_records_and_given_again_to_a_restore(
    tmp_path: Path, run: train.RunConfig
) -> None:
    def space(times: int) -> dict[str, Any]:
        found = {"train": tune.grid_search(datasets(times))}
        return {"datasets": found, "flag": str(tmp_path / "flag")}

    first = tune.Tuner(summed, param_space=space(1), run_config=run).fit()
    assert [(result.metrics or {})["total"] for result in first if not result.error] == [16256]
    assert first.num_errors == 1
    root = tmp_path / "results" / "run"
    for path in root.rglob("*"):
        if path.is_file() and path.name != "tuner.pkl":
            assert SECRET_ROW.encode() not in path.read_bytes(), path
    restored = tune.Tuner.restore(root, summed, resume_errored=True, param_space=space(10))
    totals = [(result.metrics or {})["total"] for result in restored.fit()]
    assert totals == [16256, 243840]


def test_a_trainers_datasets_may_be_searched(tmp_path: Path, run: train.RunConfig) -> None:
    def loop() -> None:
        shard = train.get_dataset_shard("train")
        train.report({"total": sum(int(batch["y"].sum()) for batch in shard.iter_batches())})

    trainer = train.DataParallelTrainer(loop, scaling_config=HALF)
    space = {"datasets": {"train": tune.grid_search(datasets())}}
    results = tune.Tuner(trainer, param_space=space, run_config=run).fit()
    totals = [(result.metrics or {})["total"] for result in results]
    assert totals == [2 * sum(range(64)), 3 * sum(range(64))]


def test_datasets_that_were_put_are_searched_and_given_again_to_a_restore(
    tmp_path: Path, run: train.RunConfig
) -> None:
    flag = tmp_path / "flag"

    def loop() -> None:
        shard = train.get_dataset_shard("train")
        rows = next(iter(shard.iter_batches(batch_size=None)))["y"]
        total = int(rows.sum())
        if rows.max() > 2 * 127 and not flag.exists():
            raise RuntimeError("broken off")
        train.report({"total": total})

    def space(times: int) -> dict[str, Any]:
        refs = [holdfast.put(dataset) for dataset in datasets(times)]
        return {"datasets": {"train": tune.grid_search(refs)}}

    trainer = train.DataParallelTrainer(loop, scaling_config=HALF)
    first = tune.Tuner(trainer, param_space=space(1), run_config=run).fit()
    assert first.num_errors == 1
    holdfast.shutdown()
    flag.touch()
    root = str(tmp_path / "results" / "run")
    lost = r"datasets/train/0, datasets/train/1 of param_space: .*shutdown.*param_space=\.\.\."
    with pytest.raises(holdfast.ObjectLost, match=lost):
        tune.Tuner.restore(root, trainer, resume_errored=True).fit()
    again = tune.Tuner.restore(root, trainer, resume_errored=True, param_space=space(10)).fit()
    totals = [(result.metrics or {})["total"] for result in again]
    assert totals == [2 * sum(range(64)), 30 * sum(range(64))]


# -- bad input ------------------------------------------------------------------------------------


def test_a_dataset_of_which_not_every_rank_has_a_row_is_refused_before_anything_runs(
    run: train.RunConfig, tmp_path: Path
) -> None:
    def trainer(dataset: Any, workers: Any = 2, **more: Any) -> train.DataParallelTrainer:
        scaling = train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5})
        return train.DataParallelTrainer(
            in_epochs, scaling_config=scaling, run_config=run, datasets={"train": dataset}, **more
        )

    wrong: dict[str, Callable[[], Any]] = {
        "dataset 'train': it has no rows": trainer(data.from_items([])).fit,
        "'train': it has 1 row, fewer than the 2 workers.*DataConfig": trainer(data.range(1)).fit,
        "it has 2 rows, fewer than the 3 workers": trainer(data.range(2), (1, 3)).fit,
        "dataset 'datasets/train': it has no rows": lambda: tune.Tuner(
            summed, param_space={"datasets": {"train": tune.choice([data.from_items([])])}}
        ),
        "dataset 'valid': it has 1 row, fewer": lambda: tune.Tuner(
            trainer(data.range(5)), param_space={"datasets": {"valid": data.range(1)}}
        ),
        "param_space.*must be a dict, not 5": lambda: tune.Tuner(
            trainer(data.range(5)), param_space={"datasets": 5}
        ),
    }
    for message, call in wrong.items():
        with pytest.raises(InvalidConfig, match=message):
            call()
    assert not (tmp_path / "results").exists()


def test_a_pickle_of_a_small_table_carries_it() -> None:
    ds = data.range(10).split(2)[1]
    assert pickle.loads(pickle.dumps(ds)).take() == [{"id": number} for number in range(5, 10)]
    assert len(pickle.dumps(data.range(100_000).split(1000)[7])) < 4000


def test_a_large_table_may_be_shared_by_reference() -> None:
    ref = holdfast.put(data.range(1_000_000))
    assert len(pickle.dumps(ref)) < 1000
    before = pa.total_allocated_bytes()
    parts = train.DataConfig().configure({"train": ref}, 2)
    assert pa.total_allocated_bytes() == before
    assert parts[1]["train"].count() == 500_000
    assert next(iter(parts[1]["train"].iter_rows())) == {"id": 500_000}
