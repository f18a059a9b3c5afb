"""Files that trials write in addition to their reports: in storage during the run, and restored
elsewhere."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.bench import Bench
from tests.rig.nightly import rest_nightly
from tests.rig.script import UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server]

SCRIPT = """
import json, os, sys
from pathlib import Path
from holdfast import tune
from tests.rig.epochs import resumed, saved
from tests.rig.script import mark, wait_at

OPTIONS = json.loads(sys.argv[1])

def train(config):
    start = resumed() + 1
    if start == 1:
        Path("samples").mkdir(exist_ok=True)
        Path("scratch").write_text("for a while")
        Path("data").symlink_to(OPTIONS["data"])
        os.mkfifo("pipe")
    for epoch in range(start, 5):
        wait_at(f"any-{epoch}")
        print(f"epoch {epoch}", flush=True)
        with open("log", "a") as log:
            log.write(f"{epoch} ")
        Path(f"samples/{epoch}").write_text(str(epoch))
        if epoch == 4:
            Path("scratch").unlink(missing_ok=True)
        tune.report({"epoch": epoch}, checkpoint=saved(epoch))
        mark("reported", epoch)

if __name__ == "__main__":
    storage, query = OPTIONS["storage"].partition("?")[::2]
    if "restore" in OPTIONS:
        path = f"{storage}/run?{query}" if query else f"{storage}/run"
        tuner = tune.Tuner.restore(path, train, **OPTIONS["restore"])
    else:
        tuner = tune.Tuner(train, run_config=tune.RunConfig(
            storage_path=OPTIONS["storage"], name="run",
            sync_config=tune.SyncConfig(sync_period=0.2, **OPTIONS["sync"])))
    result = tuner.fit()[0]
    print("EPOCH", result.metrics["epoch"])
"""


@dataclass
class Site:
    """A storage, and machines that run the script there."""

    bench: Bench
    script: Path
    storage: str
    fetched: Callable[[], Path]

    def run(self, machine: str, **options: object) -> UserScript:
        self.bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(self.bench.folder / machine)
        given = {"storage": self.storage, "data": str(self.bench.folder), **options}
        return self.bench.run(self.script, json.dumps(given))

    def stored(self) -> dict[str, str]:
        """The files of the trial in storage, checkpoints and projections apart."""
        (trial,) = self.fetched().glob("run/train_*")
        return contents(trial)

    def here(self, machine: str) -> dict[str, str]:
        (trial,) = (self.bench.folder / machine).glob("run/train_*")
        return contents(trial)


def contents(trial: Path) -> dict[str, str]:
    files = (path for path in trial.rglob("*") if path.is_file() and not path.is_symlink())
    found = {path.relative_to(trial).as_posix(): path for path in files}
    return {
        name: path.read_text()
        for name, path in found.items()
        if name in ("log", "scratch", "stdout") or name.startswith(("samples/", "data"))
    }


@pytest.fixture
def site(bench: Bench) -> Site:
    """A network disk, which is a normal directory."""
    mounted = bench.folder / "mounted"
    return Site(bench, bench.write(SCRIPT), str(mounted), lambda: mounted)


def interrupted_in_the_last_epoch(site: Site, **sync: object) -> None:
    gate = site.bench.gate("any-4")
    script = site.run("first", sync={"sync_artifacts": True, **sync})
    script.wait_for("reported 3")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    script.finish_reading()
    assert script.stderr.count("data: this link leads out of the trial's folder") == 2
    assert "pipe: it is not a regular file" in script.stderr
    assert "these 2 files are not in storage as here" in script.stderr
    gate.open()


def test_a_trial_that_moves_finds_its_files_and_they_follow_what_it_does_to_them(
    site: Site,
) -> None:
    interrupted_in_the_last_epoch(site, restore_artifacts=True)
    samples = {f"samples/{epoch}": str(epoch) for epoch in (1, 2, 3)}
    stdout = "".join(f"epoch {epoch}\n" for epoch in (1, 2, 3))
    left = {"log": "1 2 3 ", "scratch": "for a while", "stdout": stdout, **samples}
    assert site.stored() == left
    assert "EPOCH 4" in site.run("second", restore={}).succeeds().stdout
    expected = {
        "log": "1 2 3 4 ",
        "stdout": f"{stdout}epoch 4\n",
        "samples/4": "4",
        **samples,
    }
    assert site.here("second") == expected
    assert site.stored() == expected


def test_files_that_are_not_asked_for_stay_in_storage_until_others_take_their_place(
    site: Site,
) -> None:
    interrupted_in_the_last_epoch(site)
    script = site.run("second", restore={}).succeeds()
    assert "restore_artifacts=True) downloads them" in script.stderr
    stored = site.stored()
    assert {name: stored[name] for name in ("log", "samples/1", "scratch")} == {
        "log": "4 ",
        "samples/1": "1",
        "scratch": "for a while",
    }
    assert stored["stdout"] == "".join(f"epoch {epoch}\n" for epoch in (1, 2, 3, 4))


def test_with_a_published_checkpoint_the_artifacts_of_its_trial_are_in_a_bucket(
    bench: Bench, moto: S3Server, proxy: Proxy
) -> None:
    """The machine is lost without notice: only what the newest head names exists."""
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.environ |= bucket.environ
    copies = iter(("copy-1", "copy-2"))
    site = Site(
        bench,
        bench.write(SCRIPT),
        bucket.storage_path,
        lambda: bucket.download(bench.folder / next(copies)).parent,
    )
    gate = bench.gate("any-4")
    script = site.run("first", sync={"sync_artifacts": True, "sync_timeout": 30})
    bucket.wait_for_committed(3)
    assert site.stored()["log"] == "1 2 3 "
    script.dies()
    gate.open()
    site.run("second", restore={"restore_artifacts": True}).succeeds()
    samples = {f"samples/{epoch}": str(epoch) for epoch in (1, 2, 3, 4)}
    stdout = "".join(f"epoch {epoch}\n" for epoch in (1, 2, 3, 4))
    assert site.stored() == {"log": "1 2 3 4 ", "stdout": stdout, **samples}


HOSTILE = b"put there by somebody else"


@pytest.mark.parametrize("machine", rest_nightly(1, ["first", "second"]))
def test_keys_of_a_bucket_that_lead_elsewhere_bring_nothing_there(
    bench: Bench, moto: S3Server, machine: str
) -> None:
    """On the first machine the trial's folder also has a link that leads out of it."""
    bucket = Bucket(moto, f"{bench.folder.name}-{machine}")
    bench.environ |= bucket.environ
    site = Site(bench, bench.write(SCRIPT), bucket.storage_path, lambda: bench.folder / "none")
    interrupted_in_the_last_epoch(site, restore_artifacts=True)
    (trial,) = (bench.folder / "first").glob("run/train_*")
    names = (
        *("../escaped", "../../escaped", "../../../../../../../../../../../../tmp/escaped"),
        *("a/../../escaped", "a//b", "./dot", "a/./b", f"/{bench.folder}/absolute", "/absolute"),
        *("\x1b[2Jcleared", "a\\..\\..\\escaped", "data/escaped", "data/../escaped"),
        *(".stored.json", "checkpoint_000001/more", "result.json/more", "fine"),
    )
    bucket.plant([f"run/{trial.name}/{name}" for name in names], HOSTILE)
    bucket.plant(["run/../escaped", "run//escaped", "/escaped", "../escaped"], HOSTILE)
    script = site.run(machine, restore={"restore_artifacts": True})
    assert "EPOCH 4" in script.succeeds().stdout
    script.finish_reading()
    assert "\x1b" not in script.stdout + script.stderr
    here = bench.folder / machine / "run" / trial.name
    found = {path for path in bench.folder.rglob("*") if path.is_file() and is_theirs(path)}
    assert {path.relative_to(here).as_posix() for path in found} == {
        "fine",
        "a\\..\\..\\escaped",  # one name, as is the next: a trial may have files of any name
        "\x1b[2Jcleared",
        *(["data/escaped"] if machine == "second" else []),  # where `data` is no link
    }
    assert not [path for path in Path("/tmp").glob("escaped*") if is_theirs(path)]


def is_theirs(path: Path) -> bool:
    return path.stat().st_size == len(HOSTILE) and path.read_bytes() == HOSTILE
