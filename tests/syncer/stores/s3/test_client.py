"""Requests to S3: signed as botocore signs them, repeated, followed to another region, proxied."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from holdfast.syncer.errors import StorageRefused, StorageUnavailable
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import client, http
from holdfast.syncer.stores.s3.http import Keys, SignedRequest, signed
from holdfast.syncer.stores.store import ObjectInfo
from tests.syncer.conftest import ScriptedS3

pytestmark = pytest.mark.anyio


@given(
    name=st.text(st.characters(min_codepoint=33, max_codepoint=0x4FF), min_size=1),
    token=st.sampled_from([None, "session/token+="]),
    part=st.integers(1, 10_000),
)
def test_a_request_is_signed_as_botocore_signs_it(name: str, token: str | None, part: int) -> None:
    from urllib.parse import quote

    credentials = Credentials("key", "secret/+", token)
    query = {"partNumber": str(part), "uploadId": "an id/+=~"}
    request = SignedRequest(
        method="PUT",
        path=f"/bucket/{quote(name, safe='/~')}",
        query=query,
        headers={"host": "127.0.0.1:9000", "content-md5": "abc=="},
    )
    ours = signed(
        request, Keys(access_key="key", secret_key="secret/+", token=token), "eu-west-1", 1.7e9
    )
    theirs = AWSRequest(
        "PUT", f"http://127.0.0.1:9000{request.target}", headers={"Content-MD5": "abc=="}
    )
    theirs.context["timestamp"] = ours["x-amz-date"]
    signer = S3SigV4Auth(credentials, "s3", "eu-west-1")
    theirs.headers["X-Amz-Date"] = ours["x-amz-date"]
    theirs.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
    if token:
        theirs.headers["X-Amz-Security-Token"] = token
    canonical = signer.canonical_request(theirs)
    signature = signer.signature(signer.string_to_sign(theirs, canonical), theirs)
    assert ours["authorization"].endswith(f"Signature={signature}")


def md5(body: bytes) -> str:
    import hashlib

    return hashlib.md5(body).hexdigest()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before further attempts, which take no time."""
    made: list[float] = []

    async def pause(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(client, "pause", pause)
    return made


async def test_where_only_botocore_knows_the_address_it_sends_no_request(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.location(lambda method, path, head, body: (200, {"ETag": f'"{md5(body)}"'}, b""))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{scripted.port}")
    uri = "s3://key1:secret@bucket/x?region=us-east-1"
    store = Location.resolve(uri, None, {}).open_store()
    for name in ["a", "b c"]:
        assert (await store.put(name, b"bytes")).etag == md5(b"bytes")
    await store.close()
    assert scripted.requests == [("PUT", "/bucket/x/a"), ("PUT", "/bucket/x/b%20c")]


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b""),
        (503, {}, b"<Error><Code>SlowDown</Code></Error>"),
        (400, {}, b"<Error><Code>RequestTimeout</Code></Error>"),
        (200, {"Content-Length": "x"}, b""),
        (200, {}, b"<html>a proxy's</html>"),
        None,
    ],
)
async def test_what_may_succeed_a_moment_later_is_asked_again(
    scripted: ScriptedS3, pauses: list[float], answer: Any
) -> None:
    page = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    answers = iter([answer, answer, (200, {}, page)])
    store = scripted.location(lambda *_: next(answers)).open_store()
    assert await store.list() == []
    await store.close()
    assert len(scripted.requests) == 3


async def test_what_asking_again_cannot_change_is_asked_once(scripted: ScriptedS3) -> None:
    told = b"<Error><Code>NoSuchBucket</Code><Message>a &lt; b</Message></Error>"
    store = scripted.location(lambda *_: (404, {}, told)).open_store()
    with pytest.raises(StorageRefused, match=r"NoSuchBucket: a < b"):
        await store.read("a")
    await store.close()
    assert len(scripted.requests) == 1


async def test_an_error_after_the_status_200_is_an_error(
    scripted: ScriptedS3, pauses: list[float]
) -> None:
    told = b"<?xml version='1.0'?>\n<Error><Code>InternalError</Code></Error>"
    store = scripted.location(lambda *_: (200, {}, told)).open_store()
    with pytest.raises(StorageUnavailable, match="InternalError"):
        await store.copy(ObjectInfo(key="a", size=1), "b")
    assert await store.read("a") == told, "an object may have any bytes"
    await store.close()


@pytest.mark.parametrize("how", ["header", "body"])
async def test_a_bucket_in_another_region_is_followed_there(
    scripted: ScriptedS3, how: str
) -> None:
    scopes: list[str] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        scopes.append(head.partition("/s3/aws4_request")[0].rpartition("/")[2])
        if scopes[-1] == "eu-west-1":
            return 200, {}, b"bytes"
        if how == "header":
            return 301, {"x-amz-bucket-region": "eu-west-1"}, b""
        code = b"<Code>AuthorizationHeaderMalformed</Code>"
        return 400, {}, b"<Error>" + code + b"<Region>eu-west-1</Region></Error>"

    store = scripted.location(respond).open_store()
    assert await store.read("a") == await store.read("b") == b"bytes"
    await store.close()
    assert scopes == ["us-east-1", "eu-west-1", "eu-west-1"]


async def test_anonymous_requests_have_no_signature(scripted: ScriptedS3) -> None:
    heads: list[str] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        heads.append(head.lower())
        return 200, {}, b"bytes"

    scripted.location(respond)
    uri = f"s3://bucket/x?endpoint_override=http://127.0.0.1:{scripted.port}&anonymous=true"
    store = Location.resolve(uri, None, {}).open_store()
    assert await store.read("a") == b"bytes"
    await store.close()
    assert "authorization" not in heads[0]


def certified(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, and a server's context with it."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    return folder / "certificate", context


async def test_a_proxy_of_the_environment_gets_the_whole_address(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[str] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        heads.append(head.lower())
        return 200, {}, b"bytes"

    scripted.location(respond)
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{scripted.port}")
    monkeypatch.setenv("no_proxy", "")
    uri = "s3://bucket/x?endpoint_override=http://storage.example:9000&access_key=k&secret_key=s"
    store = Location.resolve(uri, None, {}).open_store()
    assert await store.read("a") == b"bytes"
    await store.close()
    assert scripted.requests == [("GET", "http://storage.example:9000/bucket/x/a")]
    assert (
        f"proxy-authorization: basic {base64.b64encode(b'me:p@ss').decode().lower()}" in heads[0]
    )


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_tunnel_through_a_proxy_is_encrypted_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    certificate, context = certified(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("no_proxy", "")
    passed: list[bytes] = []

    async def run() -> None:
        script = ScriptedS3()
        script.location(lambda *_: (200, {}, b"bytes"))
        server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]

        tunnels: list[Any] = []

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tunnels.append(asyncio.current_task())
            passed.append(await reader.readuntil(b"\r\n\r\n"))
            there, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

            async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                while data := await source.read(1 << 16):
                    passed.append(data)
                    target.write(data)
                target.close()

            await asyncio.gather(copy(reader, back), copy(there, writer))
            for each in (writer, back):
                with suppress(ConnectionError):
                    await each.wait_closed()

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        address = proxy.sockets[0].getsockname()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{address[1]}")
        uri = f"s3://bucket/x?access_key=k&secret_key=s&endpoint_override=https://127.0.0.1:{port}"
        store = Location.resolve(uri, None, {}).open_store()
        assert await store.read("a") == await store.read("b") == b"bytes"
        await store.close()
        await asyncio.gather(*tunnels)
        for each in (proxy, server):
            each.close()
            await each.wait_closed()
        assert passed[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n".encode())
        assert sum(data.startswith(b"CONNECT") for data in passed) == 1
        assert not any(b"bytes" in data or b"aws4" in data.lower() for data in passed)

    with asyncio.Runner(
        loop_factory=uvloop.new_event_loop if loop == "uvloop" else None
    ) as runner:
        runner.run(run())


async def test_a_proxy_that_refuses_the_tunnel_is_named(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.location(lambda *_: (407, {}, b""))
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{scripted.port}")
    monkeypatch.setenv("no_proxy", "")
    uri = "s3://bucket/x?endpoint_override=https://storage.example&access_key=k&secret_key=s"
    store = Location.resolve(uri, None, {}).open_store()
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1 has answered 407 to CONNECT"):
        await store.read("a")
    await store.close()


async def test_after_a_burst_of_requests_only_so_many_connections_wait(
    scripted: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_MOST_IDLE", 2)
    scripted.location(lambda *_: (200, {}, b""))
    lines = http.Connections("127.0.0.1", scripted.port, tls=None, connect_s=30)

    async def ask() -> int:
        return (await lines.ask("PUT", "/x", {}, b"body", deadline_s=30)).status

    assert await asyncio.gather(*(ask() for _ in range(8))) == [200] * 8
    assert lines.waiting == 2
    monkeypatch.setattr(http, "_IDLE_S", 0.0)
    assert await ask() == 200
    assert lines.waiting == 0
    await lines.close()
