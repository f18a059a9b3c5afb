"""Links to the page and frames of it in pages of other sites, in a real browser."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape

import pytest

from tests.rig.runs.patient import healthy
from tests.rig.web.browser import LONGEST_MS, chromium, missing
from tests.rig.web.in_process import Browser, Served, served

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("place")
    healthy(root / "digits")
    with served(root) as made:
        yield made


@contextmanager
def foreign_page(body: str) -> Iterator[str]:
    """The address of a page of another site."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}/"  # another site than 127.0.0.1
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_another_site_may_link_to_the_page_and_frame_it_with_the_token_only(
    serving: Served,
) -> None:
    """A browser withholds the cookie after a link of another site; the page loads itself again,
    with the view that the link names."""
    address = serving.address
    plain = f"{address.origin}/#/e/digits"
    body = (
        f'<a id="first" href="{escape(address.url)}#/e/digits">first</a>'
        f'<a id="next" href="{plain}">next</a>'
        f'<iframe src="{address.frame_url}"></iframe>'
        f'<img id="stolen" src="{address.origin}/static/icon.svg">'
    )
    with foreign_page(body) as other, chromium() as browser:
        tab = browser.new_context().new_page()
        tab.set_default_timeout(LONGEST_MS)
        tab.goto(other)
        tab.frame_locator("iframe").get_by_text("digits").first.wait_for()
        assert tab.evaluate("document.getElementById('stolen').naturalWidth") == 0
        tab.click("#next")  # without the cookie: a stranger
        tab.get_by_text("This page needs its token").wait_for()
        for link in ("#first", "#next"):
            tab.goto(other)
            tab.click(link)
            tab.locator("#trials").wait_for()
            assert tab.url == plain


def test_a_link_of_another_site_gets_a_page_that_loads_itself_again(serving: Served) -> None:
    stranger = Browser(serving.address.port)
    answer = stranger.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert answer.status == 403
    assert b'src="static/js/again.js"' in answer.body
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert stranger.get("/static/js/again.js").status == 403
