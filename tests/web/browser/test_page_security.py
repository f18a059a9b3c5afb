"""Who may see and steer, in a real browser: a page of another server, one without the token, a
notebook's frame."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.rig.bench import Bench
from tests.rig.web.browser import Tab, seen
from tests.rig.web.page import Served, begun, serve

pytestmark = [pytest.mark.process, pytest.mark.server]


@contextmanager
def elsewhere(body: str) -> Iterator[str]:
    """Another server on this machine, with this page. Returns its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = f"<!doctype html><link rel=icon href=data:,><body>{body}</body>".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def served(bench: Bench) -> Served:
    begun(bench, 0, samples=1, epochs=3).succeeds()
    return serve(bench, bench.storage)


def test_a_page_of_another_server_can_neither_read_nor_steer(
    served: Served, opened: Callable[..., Tab]
) -> None:
    """Although the browser has the cookie, and the other page is on the same machine."""
    tab = opened(served.url)
    seen(tab.page.locator("main"), "run")
    other = tab.context.new_page()
    attempts = """async ([origin, order]) => {
        const tried = [
            fetch(`${origin}/api/e/run`, {credentials: "include"}),
            fetch(`${origin}/api/e/run/orders`, {method: "POST", credentials: "include",
                headers: {"Content-Type": "application/json"}, body: order}),
            fetch(`${origin}/api/e/run/orders`, {method: "POST", mode: "no-cors",
                credentials: "include", body: order}),
        ];
        return (await Promise.allSettled(tried)).map(
            ({value}) => value ? `${value.type} ${value.status}` : "refused");
    }"""
    order = json.dumps({"order": "stop_experiment"})
    with elsewhere("another page") as url:
        other.goto(url)
        answers = other.evaluate(attempts, [served.origin, order])
        assert answers[:2] == ["refused", "refused"]
        assert answers[2] in ("refused", "opaque 0")
        frame = "origin => { const frame = document.createElement('iframe'); frame.src = origin;"
        other.evaluate(f"{frame} document.body.append(frame); }}", served.origin + "/")
        assert other.evaluate("frames[0].length") == 0
    other.close()
    tab.forget()  # everything that the other page tried has failed
    tab.page.reload()
    seen(tab.page.locator("main"), "finished")


def test_a_frame_in_the_page_of_a_notebook_shows_the_page_without_a_cookie(
    served: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened()
    with elsewhere(f"<iframe src='{served.frame_url}' width=1000 height=700></iframe>") as url:
        tab.page.goto(url)
        frame = tab.page.frame_locator("iframe")
        seen(frame.locator("main"), "finished")
        frame.get_by_role("link", name="run", exact=True).click()
        seen(frame.locator("main"), "minimises loss")
        assert tab.context.cookies() == []
    assert tab.origins == {url.rstrip("/"), served.origin}
    tab.origins.clear()


def test_behind_a_proxy_every_address_begins_with_the_base(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    begun(bench, 0, samples=1, epochs=3).succeeds()
    served = serve(bench, bench.storage, "--base-url", "/user/ann/proxy/8765")
    tab = opened()
    asked: list[str] = []
    tab.context.on("request", lambda request: asked.append(request.url))
    tab.page.goto(served.url)
    seen(tab.page.locator("main"), "finished")
    tab.page.get_by_role("link", name="run", exact=True).click()
    seen(tab.page.locator("main"), "minimises loss")
    base = f"{served.origin}/user/ann/proxy/8765/"
    assert [url for url in asked if not url.startswith((base, "data:"))] == []
    (cookie,) = tab.context.cookies()
    assert cookie["path"] == "/user/ann/proxy/8765/"
