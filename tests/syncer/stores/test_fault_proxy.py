"""The campaign's proxy disturbs the requests in its plan, and no other."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from tests.rig.faults.fault_proxy import FaultProxy
from tests.rig.faults.ills import Aim, AtRandom, Ill, KeyExpires, Plan, Request, Some
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[FaultProxy]:
    made = FaultProxy(moto.endpoint)
    yield made
    made.close()


def ask(proxy: FaultProxy, method: str, path: str, **headers: str) -> int:
    """The status of the answer. Raises what http.client raises."""
    connection = http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=10)
    try:
        shown = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body=b"12345" if method == "PUT" else None, headers=shown)
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_what_is_meant_is_ill_and_so_often(proxy: FaultProxy) -> None:
    proxy.strike(Some(ill=Ill.SLOW_DOWN, at=2, times=2, aim=Aim.MANIFEST))
    paths = ["a/.holdfast.json", "a/head.json", *(f"{n}/.holdfast.json" for n in "bcd")]
    answers = [ask(proxy, "PUT", f"/bucket/proxied/{path}") for path in paths]
    assert answers == [200, 200, 503, 503, 200]
    assert proxy.injected == {Ill.SLOW_DOWN: 2}
    assert proxy.received == 25


def test_a_copy_is_known_by_its_header(proxy: FaultProxy) -> None:
    proxy.strike_copies(Ill.FORBIDDEN)
    assert ask(proxy, "PUT", "/bucket/proxied/x") == 200
    assert ask(proxy, "PUT", "/bucket/proxied/y", x_amz_copy_source="bucket/proxied/x") == 403


def test_a_server_that_vanished_refuses_and_comes_back_at_the_same_address(
    proxy: FaultProxy,
) -> None:
    address = proxy.endpoint
    proxy.vanish()
    with pytest.raises(ConnectionRefusedError):
        ask(proxy, "GET", "/bucket")
    proxy.come_back()
    assert proxy.endpoint == address
    assert ask(proxy, "GET", "/bucket") == 200


def test_a_key_that_expired_is_refused_and_another_is_not(proxy: FaultProxy) -> None:
    proxy.strike(KeyExpires(at=2))
    signed = "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/s3/aws4_request"
    old, new = signed.format("old"), signed.format("new")
    keys = [old, old, new, old]
    answers = [ask(proxy, "PUT", "/bucket/proxied/k", Authorization=key) for key in keys]
    assert answers == [200, 400, 200, 400]


def test_what_is_random_is_the_same_for_the_same_seed() -> None:
    def befallen(plan: Plan) -> list[Ill | None]:
        asked = [Request(number=n, method="PUT", path="/x") for n in range(200)]
        return [plan.befalls(request) for request in asked]

    first, again = (befallen(AtRandom(ills=list(Ill), probability=0.2, seed=5)) for _ in range(2))
    assert first == again
    assert 20 < sum(ill is not None for ill in first) < 60
    assert befallen(AtRandom(ills=list(Ill), probability=0.2, seed=6)) != first
