"""The page behind jupyter-server-proxy, as it was seen to act: it keeps the browser's Host, Origin
and cookies, strips the prefix (`/proxy/PORT`) or keeps it (`/proxy/absolute/PORT`), and adds
headers of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.runs.patient import healthy
from tests.rig.web.in_process import Browser, served

pytestmark = pytest.mark.server

PREFIX = "/user/ann/proxy/8765"
HUB = "hub.example.org"
ADDED = {
    "X_Forwarded_Context": PREFIX,
    "X_ProxyContextPath": PREFIX,
    "X_Forwarded_Prefix": PREFIX,
    "X_Forwarded_Host": "elsewhere.example.org",
    "X_Forwarded_Proto": "https",
}


@pytest.mark.parametrize("seen", ["", PREFIX], ids=["stripped", "kept"])
def test_the_page_works_behind_jupyters_proxy(tmp_path: Path, seen: str) -> None:
    healthy(tmp_path / "digits")
    with served(tmp_path, base=f"{PREFIX}/", names=(HUB,)) as server:
        token = server.address.token
        browser = Browser(server.address.port, host=HUB)
        first = browser.get(f"{seen}/?token={token}", **ADDED)
        # Relative: it leads back through the proxy.
        assert (first.status, first.headers["location"]) == (303, "./")
        cookie, _, attributes = first.headers["set-cookie"].partition(";")
        assert f"Path={PREFIX}/" in attributes
        browser.cookie = cookie
        assert browser.get(f"{seen}/", **ADDED).status == 200
        with browser.stream(f"{seen}/api/e/digits/stream", Accept="text/event-stream") as events:
            assert events.next("facts")[1]["key"] == "digits"
        order = {"order": "stop_experiment"}
        path = f"{seen}/api/e/digits/orders"
        answer = browser.post(path, order, Origin=f"https://{HUB}", **ADDED)
        assert answer.status == 409  # it came to the run, which has ended
        assert browser.post(path, order, Origin="https://evil.example.org").status == 403
        # The frame of a notebook needs no cookie, and no --allow-host.
        frame = Browser(server.address.port, host="other.example.org")
        assert frame.get(f"{seen}/frame/{token}/", **ADDED).status == 200
        assert frame.get(f"{seen}/?token={token}", **ADDED).status == 403
