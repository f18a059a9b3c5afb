"""The address of a bucket and the keys, as far as they are known without botocore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.syncer.stores.s3.addressing import known_keys, known_way
from holdfast.syncer.stores.s3.client import Botocore
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
async def test_the_address_is_the_one_that_botocore_uses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, query: str
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CA_BUNDLE", "/mine")
    _, options = parse_s3_uri(f"s3://a:s@my.bucket/x?{query}")
    sent: list[Any] = []

    class NotSentError(Exception):
        pass

    def watch(request: Any, ca_bundle: str) -> None:
        sent.append((request, ca_bundle))
        raise NotSentError

    botocore = Botocore(options, watch)
    with pytest.raises(NotSentError):
        await (await botocore.client()).get_object(Bucket="my.bucket", Key="a b/~c+é")
    await botocore.close()
    [(request, ca_bundle)] = sent
    way = known_way(options, "my.bucket", os.environ)
    assert way is not None
    assert way.ca_bundle == ca_bundle == "/mine"
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc, parts.path) == (
        way.scheme,
        way.host,
        way.path_of("a b/~c+é"),
    )
    assert f"/{way.region}/s3/aws4_request" in request.headers["Authorization"].decode()


@pytest.mark.parametrize(
    ("query", "environ"),
    [
        ("region=eu-1", {}),
        ("endpoint_override=http://h:1/below", {}),
        ("endpoint_override=http://user@h:1", {}),
        ("endpoint_override=http://:1", {}),
        ("endpoint_override=https://h", {"AWS_CONFIG_FILE": __file__}),
        ("endpoint_override=http://h:1", {"http_proxy": "http://proxy:1"}),
    ],
)
def test_where_botocore_may_know_better_no_address_is_known(
    monkeypatch: pytest.MonkeyPatch, query: str, environ: dict[str, str]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    _, options = parse_s3_uri(f"s3://a:s@bucket/x?{query}")
    assert known_way(options, "bucket", environ) is None


def test_the_certificates_of_the_environment_are_trusted() -> None:
    _, options = parse_s3_uri("s3://a:s@bucket/x?endpoint_override=https://h")
    environ = {"AWS_CONFIG_FILE": __file__, "AWS_CA_BUNDLE": "/mine"}
    way = known_way(options, "bucket", environ)
    assert way is not None
    assert way.ca_bundle == "/mine"


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
