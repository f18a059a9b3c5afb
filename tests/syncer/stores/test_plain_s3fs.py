"""Which s3fs filesystems are equivalent to an S3 URI, and others that are used as they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast.syncer.stores.generic import FsspecStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.plain_s3fs import plain_s3_options
from holdfast.syncer.stores.s3.store import S3Store
from tests.rig.storage.s3_server import S3Server

_number = itertools.count()


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that replaces ~/.aws/config; it does not exist yet."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


def made(*arguments: Any, **options: Any) -> Any:
    import s3fs  # takes a second, which the collection of other files' tests need not wait for

    return s3fs.S3FileSystem(*arguments, **options, skip_instance_cache=True)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, {}),
        (
            {"key": "k", "secret": "s", "endpoint_url": "http://127.0.0.1:1"},
            {"access_key": "k", "secret_key": "s", "endpoint_override": "http://127.0.0.1:1"},
        ),
        (
            {
                "key": "k",
                "secret": "s",
                "token": "t",
                "client_kwargs": {"region_name": "eu-central-1", "endpoint_url": "http://there"},
                "use_listings_cache": False,
            },
            {
                "access_key": "k",
                "secret_key": "s",
                "session_token": "t",
                "region": "eu-central-1",
                "endpoint_override": "http://there",
            },
        ),
        ({"anon": True}, {"anonymous": "true"}),
    ],
)
def test_a_place_and_credentials_are_the_options_of_a_uri(
    given: dict[str, Any], meant: dict[str, str]
) -> None:
    assert plain_s3_options(made(**given), "bucket") == meant


@pytest.mark.parametrize(
    "given",
    [
        {"profile": "of-mine"},
        {"key": "k"},
        {"key": "", "secret": ""},
        {"key": "k", "secret": "s", "anon": True},
        {"endpoint_url": "no-scheme:9000"},
        {"endpoint_url": "http://one", "client_kwargs": {"endpoint_url": "http://other"}},
        {"s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}},
        {"config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {"client_kwargs": {"verify": False}},
        {"requester_pays": True},
        {"use_ssl": False},
        {"version_aware": True},
    ],
)
def test_any_other_argument_may_mean_more(given: dict[str, Any]) -> None:
    assert plain_s3_options(made(**given), "bucket") is None


def test_a_subclass_and_other_filesystems_are_left_as_they_are() -> None:
    import s3fs

    class Own(s3fs.S3FileSystem):  # type: ignore[misc]  # s3fs has no types
        pass

    assert plain_s3_options(Own(skip_instance_cache=True), "bucket") is None
    assert plain_s3_options(made(True), "bucket") is None  # positional
    assert plain_s3_options(None, "bucket") is None
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Own(skip_instance_cache=True)))
    assert isinstance(Location.resolve("bucket/x", wrapped, {}).open_store(), FsspecStore)


def test_the_region_is_the_one_that_the_filesystem_signs_for(
    configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = made(endpoint_url="http://there")
    there = {"endpoint_override": "http://there"}
    configuration.write_text("[default]\nregion = eu-north-1\n")
    assert plain_s3_options(given, "bucket") == {**there, "region": "eu-north-1"}
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert plain_s3_options(given, "bucket") == {**there, "region": "eu-west-1"}
    named = made(endpoint_url="http://there", client_kwargs={"region_name": "eu-south-1"})
    assert plain_s3_options(named, "bucket") == {**there, "region": "eu-south-1"}


def test_what_the_users_configuration_says_of_s3_may_mean_more(
    configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration.write_text("[default]\ns3 =\n  addressing_style = virtual\n")
    assert plain_s3_options(made(), "bucket") is None
    configuration.unlink()
    monkeypatch.setenv("AWS_PROFILE", "not-there")
    assert plain_s3_options(made(), "bucket") is None


def test_an_access_point_is_not_a_bucket_and_a_prefix() -> None:
    wrapped = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(made()))
    point = "arn:aws:s3:us-west-2:123456789012:accesspoint/mine/runs"
    assert isinstance(Location.resolve(point, wrapped, {}).open_store(), FsspecStore)


@pytest.mark.anyio
@pytest.mark.server
@pytest.mark.parametrize("below", ["", "inner/"])
async def test_what_our_client_stores_the_filesystem_reads(moto: S3Server, below: str) -> None:
    filesystem = made(key=moto.access_key, secret=moto.secret_key, endpoint_url=moto.endpoint)
    wrapped: Any = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    root = f"bucket/plain/{next(_number)}"
    given = pyarrow.fs.SubTreeFileSystem(f"{root}/inner", wrapped) if below else wrapped
    store = Location.resolve("run" if below else f"{root}/run", given, {}).open_store()
    assert isinstance(store, S3Store)
    await store.put("a/b", b"content", create_only=True)
    assert store.conditional_puts
    with wrapped.open_input_stream(f"{root}/{below}run/a/b") as stream:
        assert stream.read() == b"content"
    await store.close()
