"""A page of an experiment in a bucket, and the list of all that are there."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.experiment.folder.layout import HEAD, JOURNAL
from holdfast.experiment.folder.settings import Settings
from holdfast.results.page.place import Place
from holdfast.results.page.trial_files import NotThere
from holdfast.results.reading import ExperimentNotFound, find
from holdfast.scheduler.events import Resumed
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.journal.journal import readable_end
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.uploader import Uploader
from tests.results.reported import Watched
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.s3_server import S3Server


class Elsewhere(Watched):
    """A run on another machine, which publishes to a bucket; and its page here."""

    def __init__(self, moto: S3Server, root: Path) -> None:
        self.bucket = Bucket(moto, root.name)
        self.run = RecordedExperiment(root / "run", metric="loss", mode="min")
        base, _, query = self.bucket.uri.partition("?")
        self.place, self.uri = self.bucket.uri, f"{base}/run?{query}"
        self.settings = Settings(local_dir=root / "here", explicit_local_dir=True)
        super().__init__(lambda kept: find(self.uri, self.settings, {}, asks=False, kept=kept))
        self._runner = asyncio.Runner()
        self._uploader: Uploader | None = None

    def publish(self) -> None:
        self._runner.run(self._publish())

    async def _publish(self) -> None:
        if self._uploader is None:
            settings = UploaderSettings(
                root=self.run.layout.root,
                storage=Location.resolve(self.uri, None, {}),
                experiment_id="experiment",
                journal=JOURNAL,
                head=HEAD,
                is_record=lambda key: False,
                is_checkpoint=lambda name: False,
                private=(JOURNAL,),
            )
            self._uploader = Uploader(settings, lambda message: None)
            await self._uploader.open()
        await self._uploader.publish(readable_end(self.run.layout.journal), 0)

    def close(self) -> None:
        super().close()
        if self._uploader is not None:
            self._runner.run(self._uploader.close())
        self._runner.close()
        self.run.close()


@pytest.fixture
def elsewhere(moto: S3Server, tmp_path: Path) -> Iterator[Elsewhere]:
    made = Elsewhere(moto, tmp_path)
    yield made
    made.close()


def test_each_publication_is_followed(elsewhere: Elsewhere) -> None:
    run = elsewhere.run
    trials = [run.begin({"lr": 0.1 * at}) for at in range(3)]
    for trial_id in trials:
        run.report(trial_id, {"loss": 1.0})
    elsewhere.publish()
    version = elsewhere.look()
    facts = elsewhere.followed.facts()
    assert (facts["state"], facts["counts"]) == ("live", {"RUNNING": 3})
    assert facts["storage_age_s"] < 60
    assert "another machine runs" in facts["steering"]["why_not"]
    assert elsewhere.news(version) == {}
    run.report(trials[1], {"loss": 0.5})
    run.finish(trials[2])
    assert elsewhere.news(version) == {}  # it is not published yet
    elsewhere.publish()
    news = elsewhere.news(version)
    assert set(news) == {trials[1], trials[2]}
    assert news[trials[1]]["iteration"] == 2
    assert news[trials[2]]["status"] == "TERMINATED"
    for at in range(40):  # objects of the journal are merged meanwhile
        run.report(trials[0], {"loss": 1.0 / (at + 2)})
        if at % 16 == 0:
            elsewhere.publish()
    elsewhere.publish()
    assert elsewhere.news(version)[trials[0]]["iteration"] == 41
    run.now += 60
    run.add(Resumed(epoch=2, capacity={"CPU": 1000}))
    for trial_id in trials[:2]:
        run.start(trial_id)
        run.report(trial_id, {"loss": 2.0})
    elsewhere.publish()
    assert elsewhere.news(version)[trials[0]]["attempt"] == 2
    kinds = [entry["kind"] for entry in elsewhere.followed.facts()["timeline"]]
    assert kinds == ["began", "interrupted", "restored"]
    attempts = elsewhere.followed.trial(trials[0])["attempts"]
    assert [one["to_iteration"] for one in attempts] == [41, 1]


def test_rows_and_files_come_from_the_bucket(elsewhere: Elsewhere) -> None:
    run = elsewhere.run
    trial_id, other = run.begin({"lr": 0.1}), run.begin({"lr": 0.2})
    for at in range(4):
        run.report(trial_id, {"loss": float(at)}, checkpoint="committed" if at == 1 else "")
    run.write_files()
    run.folder(trial_id).mkdir(exist_ok=True)
    (run.folder(trial_id) / "curve.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(3_000_000))
    (run.folder(trial_id) / "stdout").write_text("hello\n")
    elsewhere.bucket.upload(run.layout.root)
    folder = f"run/{run.folder(trial_id).name}/checkpoint_000000"
    elsewhere.bucket.plant([f"{folder}/../../../evil", f"{folder}//evil"], b"outside")
    elsewhere.publish()
    rows = elsewhere.followed.rows([(trial_id, 0), (other, 0), ("none", 0)], ["loss"], 100)
    assert rows["trials"][trial_id]["metrics"]["loss"] == [0.0, 1.0, 2.0, 3.0]
    assert rows["trials"][other]["iteration"] == []
    assert rows["missing"] == {"none": "there is no trial 'none'"}
    page = elsewhere.followed.trial(trial_id)
    assert page["artifacts"] == [{"path": "curve.png", "size_bytes": 3_000_008, "is_image": True}]
    (kept,) = page["checkpoints"]
    assert (kept["here"], kept["stored"]) == (False, True)
    assert elsewhere.followed.log(trial_id, "stdout", -4)["text"] == "llo\n"
    image = elsewhere.followed.artifact(trial_id, "curve.png")
    data = b"".join(image.pieces)
    assert (image.media_type, image.size_bytes, len(data)) == ("image/png", 3_000_008, 3_000_008)
    sent = elsewhere.followed.checkpoint_tar(trial_id, "checkpoint_000000")
    archive = b"".join(sent.pieces)
    assert len(archive) == sent.size_bytes
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        assert members.getnames() == ["checkpoint_000000/model.txt"]
    for path in ("../head.json", "nothing.png", "/head.json"):
        with pytest.raises(NotThere):
            elsewhere.followed.artifact(trial_id, path)


def test_the_list_of_a_bucket(elsewhere: Elsewhere) -> None:
    elsewhere.run.begin({"lr": 0.1})
    elsewhere.publish()
    place = Place(elsewhere.place, elsewhere.settings, {})
    assert place.single is None
    for _ in range(2):
        (entry,) = place.listing(now=elsewhere.run.now)["experiments"]
        assert (entry["key"], entry["trials"]) == ("run", {"RUNNING": 1})
    assert "secret" not in str(place.listing(now=0.0)) + place.public
    assert place.sizes()["run"]
    assert place.experiment("run") is place.experiment("run")
    assert place.experiment("run").trials()["ids"] == ["d2a66_00000"]
    for key in ("nothing", "..", "run/..", "", ".epochs"):
        with pytest.raises(ExperimentNotFound):
            place.experiment(key)
    place.close()
    single = Place(elsewhere.uri, elsewhere.settings, {})
    assert single.single == "run"
    assert single.experiment("run").facts()["counts"] == {"RUNNING": 1}
    single.close()
