"""The direct path to S3: signed as botocore signs, and not used where it does not apply."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageRefused,
    StorageUnavailable,
)
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import http
from holdfast.syncer.stores.s3.http import SignedRequest, signed
from holdfast.syncer.stores.store import Store

pytestmark = pytest.mark.anyio


class Scripted(Protocol):
    port: int
    requests: list[tuple[str, str]]
    serve: Any

    def location(self, respond: Callable[[str, str, str, bytes], Any]) -> Location: ...


def is_direct(head: str) -> bool:
    return "user-agent" not in head.lower()


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
    ours = signed(request, credentials.get_frozen_credentials(), "eu-west-1", 1.7e9)
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


@pytest.mark.parametrize("is_known", [True, False])
async def test_puts_go_the_short_way_once_it_is_known(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        return 200, {"ETag": f'"{md5(body)}"'}, b""

    location = scripted.location(respond)
    if not is_known:  # only botocore knows what this variable means
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{scripted.port}")
        location = Location.resolve("s3://key1:secret@bucket/x?region=us-east-1", None, {})
    store = location.open_store()
    for name in ["a", "b c", "d"]:
        assert (await store.put(name, b"bytes")).etag == md5(b"bytes")
    await store.close()
    assert ways == [is_known, True, True]
    assert scripted.requests[1] == ("PUT", "/bucket/x/b%20c")


@pytest.mark.parametrize("answer", [(400, {}, b""), None, (200, {}, b"no ETag"), "garbage"])
async def test_what_is_not_answered_with_success_is_asked_through_botocore(
    scripted: Scripted, answer: Any
) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        if is_direct(head):
            return (200, {"Content-Length": "x"}, b"") if answer == "garbage" else answer
        return 200, {"ETag": f'"{md5(body)}"'}, b""

    store = scripted.location(respond).open_store()
    for number in range(6):
        await store.put(str(number), b"bytes")
    await store.close()
    tried_three_times = [True, False] * 3 + [False] * 3
    assert ways == tried_three_times


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "NoSuchKey", NotStored),
        (404, "NoSuchUpload", NotStored),
        (412, "PreconditionFailed", AlreadyStored),
        (501, "NotImplemented", StorageRefused),
    ],
)
async def test_an_error_that_asking_again_cannot_change_is_final(
    scripted: Scripted, status: int, code: str, error: type[Exception]
) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        text = f"<Error><Code>{code}</Code><Message>a &lt; b</Message></Error>"
        return status, {}, text.encode()

    store = scripted.location(respond).open_store()
    with pytest.raises(error, match=r"a < b|such an object already"):
        await store.read("a")
    await store.close()
    assert ways == [True]


async def test_another_error_is_botocores_to_explain(scripted: Scripted) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        return 404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"

    store = scripted.location(respond).open_store()
    with pytest.raises(StorageRefused, match="NoSuchBucket"):
        await store.read("a")
    await store.close()
    assert ways == [True, False]


async def test_a_server_that_gets_other_bytes_is_found_out_though_it_checks_nothing(
    scripted: Scripted,
) -> None:
    bodies = iter([b"bytes", b"bytez", b"bytes"])

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        return 200, {"ETag": f'"{md5(next(bodies))}"'}, b""

    store = scripted.location(respond).open_store()
    await store.put("a", b"bytes")
    with pytest.raises(StorageUnavailable, match="bytes that differ from those sent"):
        await store.put("b", b"bytes")
    assert (await store.put("b", b"bytes")).etag == md5(b"bytes")
    await store.close()


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


async def test_the_short_way_checks_certificates(
    scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        return 200, {"ETag": f'"{md5(body)}"'}, large if method == "GET" else b""

    large = os.urandom(1 << 20)
    certificate, context = certified(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    scripted.location(respond)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    uri = f"s3://bucket/x?access_key=k&secret_key=s&endpoint_override=https://127.0.0.1:{port}"
    store: Store = Location.resolve(uri, None, {}).open_store()
    for name in ["a", "b"]:
        await store.put(name, b"bytes" * 20_000)
    assert await store.get("large", tmp_path / "large") == len(large)
    assert (tmp_path / "large").read_bytes() == large
    await store.close()
    server.close()
    await server.wait_closed()
    assert ways == [True, True, True]


async def test_behind_a_proxy_there_is_no_short_way(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        ways.append(is_direct(head))
        return 200, {"ETag": f'"{md5(body)}"'}, b""

    store = scripted.location(respond).open_store()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{scripted.port}")
    monkeypatch.setenv("no_proxy", "")
    for name in ["a", "b"]:
        await store.put(name, b"bytes")
    await store.close()
    assert ways == [False, False]


async def test_after_a_burst_of_requests_only_so_many_connections_wait(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_MOST_IDLE", 2)
    scripted.location(lambda *_: (200, {}, b""))
    lines = http.Lines("127.0.0.1", scripted.port, tls=None, connect_s=30)

    async def ask() -> int:
        return (await lines.ask("PUT", "/x", {}, b"body", deadline_s=30)).status

    assert await asyncio.gather(*(ask() for _ in range(8))) == [200] * 8
    assert lines.waiting == 2
    monkeypatch.setattr(http, "_IDLE_S", 0.0)
    assert await ask() == 200
    assert lines.waiting == 0
    await lines.close()
