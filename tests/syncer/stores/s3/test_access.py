"""The address of a bucket and its keys, as botocore finds them, and without it where possible."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.stores.s3.access import Access, found_by_botocore, known_address, known_keys
from holdfast.syncer.stores.s3.options import parse_s3_uri
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.anyio

IN_URI = {"access_key": "a", "secret_key": "s"}
IN_ENVIRON = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
# What a run and a command do in a bucket.
USE = """
import asyncio, json, sys
from pathlib import Path
from holdfast.syncer.errors import NotStored
from holdfast.syncer.stores.location import Location

async def use(uri):
    store = Location.resolve(uri, None, {}).open_store()
    told = [await store.unfinished()]
    await store.put("a b&c", b"bytes", create_only=True)
    await store.put("other", b"more")
    told.append([entry.key for entry in await store.list()])
    await store.get("other", Path(sys.argv[2]))
    [entry] = await store.list("a b&c".split("/")[0]) or [await store.head("a b&c")]
    await store.copy(entry, "copy")
    told.append((await store.read("copy")).decode())
    await store.delete(["a b&c", "other", "copy", "there is none"])
    try:
        await store.read("other")
    except NotStored as error:
        told.append("NoSuchKey" in str(error))
    told.append(await store.head("other"))
    told.append(await store.list())
    await store.close()
    print(json.dumps([told, sorted({"botocore", "aiohttp"} & sys.modules.keys())]))

asyncio.run(use(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("options", "environ", "found"),
    [
        (IN_URI, {}, ("a", "s", None)),
        ({**IN_URI, "session_token": "t"}, IN_ENVIRON, ("a", "s", "t")),
        ({}, IN_ENVIRON, ("a", "s", None)),
        ({}, {**IN_ENVIRON, "AWS_SESSION_TOKEN": "t"}, ("a", "s", "t")),
        ({}, {**IN_ENVIRON, "AWS_SESSION_TOKEN": "t", "AWS_SECURITY_TOKEN": "u"}, ("a", "s", "u")),
        ({}, {**IN_ENVIRON, "AWS_PROFILE": "mine"}, None),
        ({}, {**IN_ENVIRON, "AWS_CREDENTIAL_EXPIRATION": "2026-11-27T00:00:00Z"}, None),
        ({}, {"AWS_ACCESS_KEY_ID": "a"}, None),
        ({}, {}, None),
        ({"anonymous": "true"}, IN_ENVIRON, None),
    ],
)
def test_keys_are_those_of_the_uri_or_the_environment(
    options: Mapping[str, str], environ: Mapping[str, str], found: tuple[str, ...] | None
) -> None:
    keys = known_keys(options, environ)
    assert found == (None if keys is None else (keys.access_key, keys.secret_key, keys.token))


@pytest.mark.parametrize(
    "query",
    [
        "endpoint_override=http://127.0.0.1:9000",
        "endpoint_override=http://127.0.0.1:9000/&region=eu-1",
        "endpoint_override=minio.example:9000&scheme=http",
        "endpoint_override=https://storage.example",
        "endpoint_override=https://[::1]:9000",
    ],
)
def test_the_address_is_the_one_that_botocore_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, query: str
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CA_BUNDLE", "/mine")
    _, options = parse_s3_uri(f"s3://a:s@my.bucket/x?{query}")
    known = known_address(options, "my.bucket", os.environ)
    assert known == found_by_botocore(options, "my.bucket")[0]
    assert known is not None
    assert known.path_of("a b/~c+é").endswith("/my.bucket/a%20b/~c%2B%C3%A9")


@pytest.mark.parametrize(
    ("bucket", "options", "environ", "url", "region"),
    [
        ("plain", {}, {}, "https://plain.s3.amazonaws.com/", "us-east-1"),
        (
            "with.dot",
            {"region": "eu-west-1"},
            {},
            "https://s3.eu-west-1.amazonaws.com/with.dot/",
            "eu-west-1",
        ),
        (
            "plain",
            {},
            {"AWS_DEFAULT_REGION": "cn-north-1"},
            "https://plain.s3.cn-north-1.amazonaws.com.cn/",
            "cn-north-1",
        ),
        (
            "arn:aws:s3:us-west-2:123456789012:accesspoint/ap",
            {},
            {},
            "https://ap-123456789012.s3-accesspoint.us-west-2.amazonaws.com/",
            "us-west-2",
        ),
        (
            "plain",
            {},
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            "https://plain.s3.dualstack.us-east-1.amazonaws.com/",
            "us-east-1",
        ),
        (
            "plain",
            {"anonymous": "true", "region": "eu-west-1"},
            {},
            "https://plain.s3.eu-west-1.amazonaws.com/",
            "eu-west-1",
        ),
    ],
)
def test_without_an_endpoint_the_address_is_that_of_aws(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    bucket: str,
    options: dict[str, str],
    environ: dict[str, str],
    url: str,
    region: str,
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    found, _ = found_by_botocore(options, bucket)
    assert f"{found.scheme}://{found.host}{found.base}" == url
    assert found.region == region


def test_a_directory_bucket_is_refused_with_another_way(tmp_path: Path) -> None:
    options = {**IN_URI, "region": "us-east-1"}
    with pytest.raises(StorageRefused, match="Pass storage_filesystem=s3fs"):
        found_by_botocore(options, "mine--use1-az4--x-s3")


async def test_keys_of_a_profile_are_asked_for_again_before_they_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = {"Version": 1, "AccessKeyId": "key", "SecretAccessKey": "secret", "SessionToken": "t"}
    count, answer = tmp_path / "count", tmp_path / "answer"
    (tmp_path / "find").write_text(f"echo x >> {count}; cat {answer}")
    (tmp_path / "config").write_text(
        f"[profile mine]\nregion = eu-1\ncredential_process = sh {tmp_path / 'find'}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "mine")

    async def asked(ends: datetime.datetime) -> int:
        """How often the process ran for a look at the keys."""
        answer.write_text(json.dumps({**found, "Expiration": ends.isoformat()}))
        before = len(count.read_text())
        keys = await access.keys()
        assert keys is not None
        assert (keys.access_key, keys.secret_key, keys.token) == ("key", "secret", "t")
        return (len(count.read_text()) - before) // 2

    count.touch()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)
    later = soon + datetime.timedelta(days=1)
    access = Access({"endpoint_override": "http://h:1"}, "bucket")
    assert await asked(soon) > 0
    assert (await access.address()).host == "h:1"
    assert await asked(later) == 1
    assert await asked(later) == 0


@pytest.mark.parametrize(
    ("query", "environ"),
    [
        ("region=eu-1", {}),
        ("endpoint_override=http://h:1/below", {}),
        ("endpoint_override=http://user@h:1", {}),
        ("endpoint_override=http://:1", {}),
        ("endpoint_override=https://h", {"AWS_CONFIG_FILE": __file__}),
    ],
)
def test_where_botocore_may_know_better_no_address_is_known(
    monkeypatch: pytest.MonkeyPatch, query: str, environ: dict[str, str]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    _, options = parse_s3_uri(f"s3://a:s@bucket/x?{query}")
    assert known_address(options, "bucket", environ) is None


@pytest.mark.server
@pytest.mark.parametrize("name", ["moto", "rclone"])
def test_botocore_is_not_imported_where_it_is_not_needed(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    server: S3Server = request.getfixturevalue(name)
    uri = server.uri(f"bucket/{tmp_path.name}")
    done = subprocess.run(
        [sys.executable, "-c", USE, uri, str(tmp_path / "got")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told, imported = json.loads(done.stdout)
    assert told == [[], ["a b&c", "other"], "bytes", True, None, []]
    assert (tmp_path / "got").read_bytes() == b"more"
    assert imported == []
