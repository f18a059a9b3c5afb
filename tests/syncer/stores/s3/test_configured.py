"""The endpoint of S3 that the environment or a profile configures, as botocore finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.experiment.folder.trial_folder import list_folder, read_file
from holdfast.results.reading import published_as
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3.options import as_configured
from tests.rig.storage.s3_server import S3Server

PROFILE = """
[default]
services = mine
endpoint_url = http://global
region = eu-1
[profile other]
endpoint_url = http://other
[services mine]
s3 =
  endpoint_url = http://mine
"""


@pytest.fixture
def _profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(PROFILE)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.mark.usefixtures("_profile")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_ENDPOINT_URL": "http://all"}, "http://s3"),
        ({"AWS_ENDPOINT_URL": "http://all"}, "http://all"),
        ({}, "http://mine"),
        ({"AWS_PROFILE": "other"}, "http://other"),
        ({"AWS_PROFILE": "none"}, None),
        ({"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true", "AWS_ENDPOINT_URL": "http://all"}, None),
    ],
)
def test_it_is_the_one_that_botocore_uses(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str | None
) -> None:
    from botocore.exceptions import ProfileNotFound
    from botocore.session import Session

    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert as_configured({}, environ).get("endpoint_override") == expected
    try:
        client = Session().create_client("s3", region_name="us-east-1")
    except ProfileNotFound:
        assert environ["AWS_PROFILE"] == "none"
        return
    assert client.meta.endpoint_url == (expected or "https://s3.amazonaws.com")
    client.close()


@pytest.mark.usefixtures("_profile")
def test_what_a_uri_says_comes_first() -> None:
    given = {"endpoint_override": "http://given", "region": "us-1"}
    environ = {"AWS_ENDPOINT_URL": "http://all"}
    assert as_configured(given, environ) == given
    assert as_configured({"region": "us-1"}, environ)["region"] == "us-1"
    assert as_configured({}, environ)["region"] == "eu-1"


@pytest.mark.server
def test_every_way_to_read_a_bucket_finds_the_server(
    moto: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", moto.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", moto.secret_key)
    location = Location.resolve("s3://bucket/configured", None, {})
    with_store(location, lambda store: store.put("head.json", b"{}"))
    assert published_as(location) is not None
    assert list_folder(location) == ["head.json"]
    assert read_file(location, "head.json") == b"{}"
    assert location.public == "s3://bucket/configured"
