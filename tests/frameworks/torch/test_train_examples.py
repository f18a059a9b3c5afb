"""The examples of holdfast.train, run as a user runs them, with and without disturbance."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.rig import checker
from tests.rig.bench import Bench, results, workbench
from tests.rig.script import UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "train"
DRIVER = HERE.parent / "driver.py"
TRIAL = r"(Torch|DataParallel)Trainer_[0-9a-f]{5}_00000_0_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
# PyTorch takes half a minute to import on a busy machine.
PATIENCE_S = 180.0

DRAWN = ("experiment_state-*.json", "basic-variant-state-*.json", "trainer.pkl", "tuner.pkl")
DRAWN_IN_TRIAL = ("events.out.tfevents.*", "result.json")


def undrawn(root: Path, *, checkpoints: Sequence[int], artifacts: set[str]) -> list[str]:
    """How the tree under `root` differs from the one in the guides."""
    trials = [path for path in root.iterdir() if re.fullmatch(TRIAL, path.name)]
    if len(trials) != 1:
        return [f"trial directories: {trials}"]
    problems = [f"no {pattern}" for pattern in DRAWN if not list(root.glob(pattern))]
    problems += [f"no {name}" for name in DRAWN_IN_TRIAL if not list(trials[0].glob(name))]
    for kind, wanted in (
        ("checkpoint_", {f"checkpoint_{index:06d}" for index in checkpoints}),
        ("artifact-", artifacts),
    ):
        found = {path.name for path in trials[0].glob(f"{kind}*")}
        if found != wanted:
            problems.append(f"{kind}*: {sorted(found)}, not {sorted(wanted)}")
    return problems


def artifacts(epochs: int, ranks: Sequence[int] = (0, 1)) -> set[str]:
    return {f"artifact-rank={rank}-iter={i}.txt" for rank in ranks for i in range(epochs)}


def rows(root: Path) -> list[dict[str, Any]]:
    (path,) = root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- the places, one after the other --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One block of the guide on storage; `writers` are the ranks that write artifacts."""

    arguments: tuple[str, ...]
    base: str
    filesystem: str
    environ: Mapping[str, str]
    writers: tuple[int, ...] = (0, 1)
    epochs: int = 2

    @property
    def is_light(self) -> bool:
        return self.epochs == 2


def places(moto: S3Server, folder: Path) -> dict[str, Place]:
    endpoint = ("--endpoint", moto.endpoint)
    one, each = ("--artifacts", "rank-0"), ("--artifacts", "local-rank-0")
    cache = {"RAY_AIR_LOCAL_CACHE_DIR": str(folder / "cache")}

    def at(*arguments: str, base: Path | str, on: str, **more: Any) -> Place:
        return Place(
            arguments=(*arguments, "--name", arguments[0]),
            base=str(base),
            filesystem=on,
            **{"environ": cache, **more},
        )

    return {
        "bucket": at(
            "bucket", "--path", "s3://bucket/cloud/", "--cache", str(folder / "custom"),
            base="bucket/cloud", on="s3", epochs=10, environ={"AWS_ENDPOINT_URL": moto.endpoint},
        ),
        "shared": at(
            "shared", "--path", str(folder / "mnt"), *one, base=folder / "mnt", on="local",
            writers=(0,),
        ),
        "local": at(
            "local", "--path", str(folder / "own"), *each, base=folder / "own", on="local",
            writers=(0,),
        ),
        "filesystem": at(
            "filesystem", "--path", "bucket/arrow", *endpoint, base="bucket/arrow", on="s3"
        ),
        "fsspec": at("fsspec", "--path", "bucket", *endpoint, base="bucket", on="py::fsspec"),
        "minio": at("minio", "--path", "s3://bucket/uri", *endpoint, base="bucket/uri", on="s3"),
        "automatic": at(
            "automatic", base=folder / "automatic", on="local",
            environ=cache | {"RAY_STORAGE": str(folder / "automatic")},
        ),
    }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The output and the files of the run in one place."""

    place: Place
    facts: Mapping[str, Any]
    root: Path
    folder: Path


NAMES = ("bucket", "shared", "local", "filesystem", "fsspec", "minio", "automatic")


@pytest.fixture(scope="module")
def everywhere(moto: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    folder = tmp_path_factory.mktemp("places")
    known = places(moto, folder)
    runs = [
        {
            "arguments": [*place.arguments, "--epochs", str(place.epochs)],
            "environ": place.environ,
            "light": place.is_light,
        }
        for place in known.values()
    ]
    with workbench(folder, HERE / "every_place.py") as bench:
        bench.environ |= Bucket(moto, "").environ
        script = bench.run(bench.script, str(EXAMPLES), json.dumps(runs)).succeeds(PATIENCE_S)
        assert script.left() == []
        facts = dict(zip(known, results(script), strict=True))
    return {
        name: Left(
            place=place,
            facts=facts[name],
            root=copy_of(moto, place.base, folder / "copies", name),
            folder=folder,
        )
        for name, place in known.items()
    }


def copy_of(moto: S3Server, base: str, folder: Path, name: str) -> Path:
    """The experiment on this disk, wherever it is."""
    if base.startswith("/"):
        return Path(base, name)
    prefix = base.removeprefix("bucket").lstrip("/")
    return Bucket(moto, prefix).download(folder, name)


@pytest.mark.parametrize("name", NAMES)
def test_in_every_place_the_tree_is_the_one_of_the_guide(
    everywhere: dict[str, Left], name: str
) -> None:
    left = everywhere[name]
    epochs = left.place.epochs
    written = artifacts(epochs, left.place.writers)
    assert undrawn(left.root, checkpoints=range(epochs), artifacts=written) == []
    assert checker.check(left.root, tensorboard=True) == []
    assert [row["loss"] for row in rows(left.root)] == left.facts["losses"]


@pytest.mark.parametrize("name", NAMES)
def test_a_result_says_where_it_is_and_on_which_filesystem(
    everywhere: dict[str, Left], name: str
) -> None:
    left = everywhere[name]
    (trial,) = (path.name for path in left.root.iterdir() if re.fullmatch(TRIAL, path.name))
    path = f"{left.place.base}/{name}/{trial}"
    assert left.facts["path"] == path
    assert left.facts["checkpoint"] == f"{path}/checkpoint_{left.place.epochs - 1:06d}"
    assert left.facts["filesystem"].startswith(left.place.filesystem)
    assert left.facts["checkpoint_filesystem"] == left.facts["filesystem"]


def test_what_is_on_its_way_to_storage_is_kept_where_the_environment_says(
    everywhere: dict[str, Left],
) -> None:
    folder = everywhere["bucket"].folder
    assert (
        undrawn(folder / "custom" / "bucket", checkpoints=range(10), artifacts=artifacts(10)) == []
    )
    assert {path.name for path in (folder / "cache").iterdir()} >= {"filesystem", "fsspec"}
    assert not (folder / "home" / "ray_results").exists()


def test_the_overview_trains(everywhere: dict[str, Left]) -> None:
    losses = everywhere["bucket"].facts["losses"]
    assert losses[-1] < losses[0] / 2


# -- killed in the middle -------------------------------------------------------------------------


def disturbed(bench: Bench, *arguments: str, again: Sequence[str] = ()) -> UserScript:
    """The controller is killed in iteration 3, and rank 1 of the next attempt in iteration 5.

    Returns the second script, with `again` after its arguments; the newest checkpoint of the first
    was copied to `start`.
    """
    bench.environ["HOLDFAST_TEST_DIES"] = "2 5 1"
    gate = bench.gate("report-3")
    script = bench.run(DRIVER, *arguments)
    assert script.wait_for("at 3", PATIENCE_S) == "at 3 1"
    script.dies()
    for path in bench.folder.glob("*/run/*/checkpoint_000001"):
        shutil.copytree(path, bench.folder / "start")
    gate.open()
    after = bench.run(DRIVER, *arguments, *again).succeeds(PATIENCE_S)
    assert "Resuming" in after.stdout
    assert [after.wait_for("at") for _ in range(5)] == [
        "at 3 2",
        "at 4 2",
        "at 5 2",
        "at 5 3",
        "at 6 3",
    ]
    assert after.left() == []
    return after


def test_the_overview_is_whole_in_the_bucket_after_deaths_of_a_rank_and_of_the_controller(
    bench: Bench, moto: S3Server
) -> None:
    bucket = Bucket(moto, bench.folder.name)
    bench.environ |= bucket.environ
    path, cache = f"bucket/{bench.folder.name}", str(bench.folder / "cache")
    disturbed(
        bench, str(EXAMPLES / "storage.py"), "filesystem", "--path", path, "--epochs", "6",
        "--endpoint", moto.endpoint, "--cache", cache, "--name", "run",
    )  # fmt: skip
    copy = bucket.download(bench.folder / "bucket")
    assert undrawn(copy, checkpoints=range(6), artifacts=artifacts(6)) == []
    assert [row["training_iteration"] for row in rows(copy)] == [1, 2, 3, 4, 5, 6]
    assert bench.problems(copy, tensorboard=True) == []


@pytest.mark.smoke
def test_the_best_checkpoints_are_kept_and_deaths_change_no_number(bench: Bench) -> None:
    example, export = str(EXAMPLES / "checkpoints.py"), bench.folder / "exported"
    storage = ("--storage", str(bench.storage), "--epochs", "6")
    script = disturbed(bench, example, *storage, "--name", "run")
    assert bench.problems(tensorboard=True) == []
    told = rows(bench.root)
    assert [row["epoch"] for row in told] == list(range(6))
    kept = best(told, 2) | {5}
    assert undrawn(bench.root, checkpoints=sorted(kept), artifacts=set()) == []
    for index in kept:
        assert f"checkpoint_{index:06d}: epoch {index}" in script.stdout
    # Undisturbed, from a checkpoint before both deaths: the same numbers from there on.
    further = (
        "--name",
        "further",
        "--keep",
        "newest",
        "--start-from",
        str(bench.folder / "start"),
    )
    after = bench.run(Path(example), *storage, *further, "--export", str(export)).succeeds(
        PATIENCE_S
    )
    root = bench.storage / "further"
    assert undrawn(root, checkpoints=[2, 3], artifacts=set()) == []
    assert [numbers(row) for row in rows(root)] == [numbers(row) for row in told[2:]]
    assert {path.name for path in export.iterdir()} == {"model.pt", "extra.pt"}
    assert after.left() == []


def numbers(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["epoch"], row["loss"], row["mean_accuracy"]


def best(told: Sequence[Mapping[str, Any]], count: int) -> set[int]:
    ranked = sorted(told, key=lambda row: (row["mean_accuracy"], row["epoch"]))
    return {row["epoch"] for row in ranked[-count:]}


def test_shards_of_all_ranks_are_resumed_by_more_ranks_after_deaths(bench: Bench) -> None:
    example = str(EXAMPLES / "sharded.py")
    storage = ("--storage", str(bench.storage), "--name", "run")
    disturbed(bench, example, *storage, again=("--workers", "3"))
    assert bench.problems(tensorboard=True) == []
    assert undrawn(bench.root, checkpoints=range(6), artifacts=set()) == []
    told = rows(bench.root)
    assert [row["epoch"] for row in told] == list(range(6))
    # What three ranks begin with is what two have learned.
    assert told[2]["loss"] < told[0]["loss"] * 0.8
    for index in range(6):
        (checkpoint,) = bench.root.glob(f"*/checkpoint_{index:06d}")
        ranks = range(2 if index < 2 else 3)
        assert {path.name for path in checkpoint.iterdir()} == {
            ".holdfast.json",
            ".metadata",
            *(f"__{rank}_0.distcp" for rank in ranks),
            *(f"generator-rank={rank}.pt" for rank in ranks),
        }
