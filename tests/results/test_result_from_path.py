"""Results of folders: damaged rows, folders of other kinds, other filesystems, and S3."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from holdfast.experiment.folder.trial_folder import DamagedRows
from holdfast.results.result import Result, ResultNotFound
from tests.results.reported import epochs
from tests.results.reported import run as run
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.storage.s3_server import S3Server, make_bucket, moto_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with moto_server() as server:
        yield server


def test_a_row_that_is_being_written_does_not_count(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    with open(folder / "result.json", "ab") as file:
        file.write(b'{"loss": 0.1, "training_it')
    result = Result.from_path(folder)
    assert result.metrics is not None
    assert result.metrics["training_iteration"] == 2
    assert len(result.rows()) == 2


def test_the_last_row_is_found_behind_any_number_of_long_ones(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5))
    rows = [f'{{"loss": {at}, "padding": "{"x" * 30_000}"}}\n' for at in range(20)]
    (folder / "result.json").write_text("".join(rows))
    result = Result.from_path(folder)
    assert result.metrics is not None
    assert result.metrics["loss"] == 19


def test_a_damaged_row_is_reported_by_file_and_line(run: RecordedExperiment) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    data = (folder / "result.json").read_bytes()
    (folder / "result.json").write_bytes(data.replace(b"{", b"#", 1))
    result = Result.from_path(folder)
    with pytest.raises(DamagedRows, match=r"result\.json: line 1 is not JSON"):
        result.rows()


def test_a_path_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResultNotFound, match="there is no trial directory at") as caught:
        Result.from_path(tmp_path / "nothing")
    assert caught.value.path == str(tmp_path / "nothing")


def test_a_directory_that_is_not_a_trials_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResultNotFound, match=r"not a trial directory: it has no result\.json"):
        Result.from_path(tmp_path)


def test_the_directory_of_an_experiment_has_the_result_of_its_only_trial(
    run: RecordedExperiment,
) -> None:
    with pytest.raises(ResultNotFound, match=r"of an experiment with 0 trials: tune\.load"):
        Result.from_path(run.layout.root)
    trial_id = epochs(run, 0.5, 0.25)
    only = Result.from_path(run.layout.root)
    assert only.path == str(run.folder(trial_id))
    assert only.metrics == Result.from_path(run.folder(trial_id)).metrics
    assert len(only.best_checkpoints) == 2
    run.begin({"lr": 0.2})
    name = run.folder(trial_id).name
    with pytest.raises(ResultNotFound, match=rf"with 2 trials: .*, such as {name}") as caught:
        Result.from_path(run.layout.root)
    assert caught.value.path == str(run.layout.root)


@pytest.mark.server
def test_a_directory_in_s3_is_read_by_its_uri(run: RecordedExperiment, s3: S3Server) -> None:
    folder = run.folder(epochs(run, 0.5, 0.25))
    make_bucket(s3, "results")
    bucket = S3FileSystem(
        access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=s3.endpoint
    )
    for path in folder.rglob("*"):
        if path.is_file():
            with bucket.open_output_stream(
                f"results/exp/{path.relative_to(folder.parent)}"
            ) as out:
                out.write(path.read_bytes())
    result = Result.from_path(s3.uri(f"results/exp/{folder.name}"))
    assert result.path == f"results/exp/{folder.name}"
    assert result.metrics is not None
    assert result.metrics["loss"] == 0.25
    assert [row["loss"] for _, row in result.best_checkpoints] == [0.5, 0.25]
    assert s3.secret_key not in repr(result)
    back: Result = pickle.loads(pickle.dumps(result))
    assert [row["loss"] for row in back.rows()] == [0.5, 0.25]
    assert back.checkpoint == result.checkpoint
    with pytest.raises(ResultNotFound):
        Result.from_path(s3.uri("results/exp/nothing"))
