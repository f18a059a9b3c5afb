"""The page's server over real sockets: its routes, its headers, and hostile requests."""

from __future__ import annotations

import gzip
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import pytest

from holdfast import __version__
from tests.rig.runs.patient import healthy
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.web.in_process import Browser, Served, served
from tests.rig.workers.processes import PATIENCE_S

pytestmark = pytest.mark.server

SCRIPT = "<script>alert(1)</script>"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
UNCACHED = {**ALWAYS, "cache-control": "no-store"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments; the files of one are hostile."""
    root = tmp_path_factory.mktemp("place")
    run = healthy(root / "digits")
    folder = run.folder("d2a66_00000")
    (folder / "page.html").write_text(f"<body>{SCRIPT}")
    (folder / "plot.png").write_bytes(PNG)
    (folder / "evil.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>")
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "sub").mkdir()
    (folder / "stdout").write_text(f"{SCRIPT}\x1b]0;title\x07\n" + "x" * 100_000 + "\nlast\n")
    healthy(root / f"ä {SCRIPT.replace('/', '')}&%2e")
    (root / "outside").write_text("outside")
    return root


@pytest.fixture(scope="module")
def serving(place: Path) -> Iterator[Served]:
    with served(place) as made:
        yield made


@pytest.fixture(scope="module")
def browser(serving: Served) -> Browser:
    return serving.browser()


def test_the_page_and_its_files_come_with_a_policy_and_a_tag(browser: Browser) -> None:
    page = browser.get("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert policy.endswith("frame-ancestors 'self'")
    script = browser.get("/static/js/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["content-security-policy"] == policy
    tag = script.headers["etag"]
    again = browser.get("/static/js/main.js", If_None_Match=tag)
    assert (again.status, again.body) == (304, b"")
    packed = browser.get("/static/js/main.js", Accept_Encoding="gzip")
    assert gzip.decompress(packed.body) == script.body
    for answer in (page, script, again):
        assert ALWAYS.items() <= answer.headers.items()


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/.hidden.js",
        "/static/js/%00.js",
        "/static/index.html%0a",
        "/static/index.html%0d%0aX:%201",
        "/%0a",
        "//etc/passwd",
        "/api/",
        "/api/e//trials",
        "/api/e/%2e%2e",
        "/api/e/..%2fdigits",
        "/api/e/outside",
        "/api/e/digits/journal",
        "/api/e/digits/t/no-such",
        "/api/e/digits/t/d2a66_00000%0a",
        "/api/e/digits/t/d2a66_00000/log/no-such?offset=0",
        "/api/e/digits/t/d2a66_00000/log/stdout%0a",
        "/api/e/digits/t/d2a66_00000/log/%2fetc%2fpasswd",
        "/api/e/digits/t/d2a66_00000/checkpoint/checkpoint_000099",
        "/api/e/digits/t/d2a66_00000/file?path=../params.json",
        "/api/e/digits/t/d2a66_00000/file?path=secret",
        "/frame/",
    ],
)
def test_what_is_not_there_is_refused_in_words(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status in (400, 403, 404), answer.body
    assert UNCACHED.items() <= answer.headers.items()
    assert b"root:" not in answer.body
    assert answer.headers["content-type"].startswith(("application/json", "text/plain"))


@pytest.mark.parametrize(
    ("name", "kind", "media_type"),
    [
        ("page.html", "attachment", "application/octet-stream"),
        ("evil.svg", "attachment", "application/octet-stream"),
        ("plot.png", "inline", "image/png"),
    ],
)
def test_a_file_of_a_trial_cannot_run_in_the_page(
    browser: Browser, name: str, kind: str, media_type: str
) -> None:
    path = f"/api/e/digits/t/d2a66_00000/file?path={name}"
    answer = browser.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-disposition"] == f"{kind}; filename*=UTF-8''{name}"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert UNCACHED.items() <= answer.headers.items()
    head = browser.get(path, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.body))


def test_a_checkpoint_is_a_download(browser: Browser) -> None:
    trial = browser.get("/api/e/digits/t/d2a66_00000").json
    (newest, *_) = [one["dirname"] for one in trial["checkpoints"]]
    answer = browser.get(f"/api/e/digits/t/d2a66_00000/checkpoint/{newest}")
    assert answer.status == 200
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert b"model of iteration" in answer.body


def test_a_log_is_text_in_json_whatever_it_has(browser: Browser) -> None:
    path = "/api/e/digits/t/d2a66_00000/log/stdout"
    whole = browser.get(f"{path}?offset=0")
    assert whole.headers["content-type"] == "application/json"
    assert whole.json["text"].startswith(f"{SCRIPT}\x1b]0;title")
    end = browser.get(f"{path}?offset=-5").json
    assert end["text"].endswith("last\n")
    after = browser.get(f"{path}?offset={end['next']}").json
    assert (after["text"], after["next"]) == ("", end["size"])


def test_the_api_answers_what_the_records_say(browser: Browser, place: Path) -> None:
    about = browser.get("/api/about").json
    assert about == {
        "version": __version__,
        "place": str(place),
        "single": None,
        "can_steer": True,
    }
    listing = browser.get("/api/experiments").json
    keys = [one["key"] for one in listing["experiments"]]
    assert len(keys) == 2
    assert browser.get("/api/experiments/sizes").json.keys() == set(keys)
    for key in keys:
        facts = browser.get(f"/api/e/{quote(key, safe='')}").json
        assert facts["key"] == key
    trials = browser.get("/api/e/digits/trials").json
    assert len(trials["ids"]) == 3
    rows = browser.get("/api/e/digits/rows?trials=d2a66_00000,d2a66_00001:1,x&metrics=loss").json
    assert rows["trials"].keys() == {"d2a66_00000", "d2a66_00001"}
    assert rows["missing"].keys() == {"x"}
    assert browser.get("/api/e/digits/scheduler").status == 200


def test_a_large_answer_is_compressed_for_those_who_ask(browser: Browser) -> None:
    path = "/api/e/digits/t/d2a66_00000/log/stdout?offset=0"
    plain = browser.get(path)
    packed = browser.get(path, Accept_Encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert "content-encoding" not in browser.get("/api/about", Accept_Encoding="gzip").headers


@pytest.mark.parametrize(
    "query",
    [
        "rows",
        "rows?trials=a:b",
        "rows?trials=a:999999999999999999999",
        "rows?trials=a&points=many",
        "rows?trials=" + ",".join(["a"] * 2_001),
        "stream?version=x",
        "t/d2a66_00000/file",
        "t/d2a66_00000/log/stdout?offset=1.5",
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(browser: Browser, query: str) -> None:
    answer = browser.get(f"/api/e/digits/{query}")
    assert answer.status == 400
    assert answer.json["error"]


def test_without_the_cookie_there_is_nothing_to_see(serving: Served) -> None:
    stranger = Browser(serving.address.port)
    for path in ("/", "/static/js/main.js", "/api/experiments", "/api/e/digits/stream?version=0"):
        answer = stranger.get(path)
        assert answer.status == 403
        assert UNCACHED.items() <= answer.headers.items()
        assert b"digits" not in answer.body
    assert "with the token" in stranger.get("/").body.decode()
    assert "with the token" in stranger.get("/api/experiments").json["error"]


def test_the_page_shows_in_a_frame_of_another_server(serving: Served) -> None:
    stranger = Browser(serving.address.port)
    base = f"/frame/{serving.address.token}"
    page = stranger.get(f"{base}/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert page.status == 200
    assert "frame-ancestors" not in page.headers["content-security-policy"]
    assert stranger.get(f"{base}/static/js/main.js").status == 200
    assert stranger.get(f"{base}/api/about").json["version"] == __version__
    bare = stranger.get(base)
    assert (bare.status, bare.headers["location"]) == (303, f"{serving.address.token}/")


def test_a_head_has_the_headers_of_a_get(browser: Browser) -> None:
    for path in ("/", "/api/experiments", "/api/e/digits/stream?version=0", "/api/e/digits"):
        head = browser.get(path, method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-type"] == browser_type(path)


def browser_type(path: str) -> str:
    if "stream" in path:
        return "text/event-stream; charset=utf-8"
    return "application/json" if "api" in path else "text/html; charset=utf-8"


def exchange(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        got = bytearray()
        while piece := sock.recv(65_536):
            got += piece
    return bytes(got)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_gets_an_answer_with_the_same_headers(
    serving: Served, sent: bytes
) -> None:
    head, _, body = exchange(serving.address.port, sent).partition(b"\r\n\r\n")
    if head:  # half a request is no request
        assert head.startswith(b"HTTP/1.1 4")
        assert b"x-content-type-options: nosniff" in head
        assert b"content-security-policy: default-src 'none'" in head
        assert len(body) < 200


class TestSeveralRequests:
    """Of one connection. The answers come in the order of the requests, and none is of bytes that
    another reader of the connection takes for the body of the request before."""

    @staticmethod
    def head(browser: Browser, line: str, *more: str) -> bytes:
        lines = [line, f"Host: {browser.host}", f"Cookie: {browser.cookie}", *more]
        return "\r\n".join([*lines, "", ""]).encode()

    @staticmethod
    def statuses(port: int, sent: bytes) -> list[int]:
        """Of the answers until the server ends the connection."""
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
            sock.sendall(sent)
            with sock.makefile("rb") as file:
                found = []
                while line := file.readline():
                    assert line.startswith(b"HTTP/1.1 ")
                    found.append(int(line.split()[1]))
                    fields = dict(one.split(": ", 1) for one in lines_of(file))
                    assert file.read(int(fields["content-length"]))
                return found

    def test_each_is_answered_in_its_turn(self, browser: Browser) -> None:
        known = self.head(browser, "GET /api/about HTTP/1.1")
        unknown = self.head(browser, "GET /no HTTP/1.1")
        post = ("Content-Type: application/json", "Content-Length: 2")
        own = f"Origin: http://{browser.host}"
        order = self.head(browser, f"POST {TestOrders.PATH} HTTP/1.1", *post, own) + b"{}"
        last = self.head(browser, "GET /api/about HTTP/1.1", "Connection: close")
        sent = known + unknown + order + known + last + known
        assert self.statuses(browser.port, sent) == [200, 404, 400, 200, 200]

    @pytest.mark.parametrize(
        ("more", "body"),
        [
            (["Content-Length: 5", "Transfer-Encoding: chunked"], "0\r\n\r\n"),
            (["Transfer-Encoding: chunked", "Content-Length: 5"], "0\r\n\r\n"),
            (["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], "0\r\n\r\n"),
            (["Transfer-Encoding: gzip, chunked"], "0\r\n\r\n"),
            (["Transfer-Encoding: xchunked"], "0\r\n\r\n"),
            (["Transfer-Encoding : chunked"], "0\r\n\r\n"),
            (["Content-Length: 5", "Content-Length: 2"], "{}"),
            (["Content-Length: +2"], "{}"),
            (["Content-Length: 0x2"], "{}"),
            (["Transfer-Encoding: chunked"], "2\r\n{}XX0\r\n\r\n"),
            (["Transfer-Encoding: chunked"], "-1\r\n{}\r\n0\r\n\r\n"),
        ],
    )
    def test_nothing_follows_one_whose_end_is_not_certain(
        self, browser: Browser, more: list[str], body: str
    ) -> None:
        own = (f"Origin: http://{browser.host}", "Content-Type: application/json")
        order = self.head(browser, f"POST {TestOrders.PATH} HTTP/1.1", *own, *more)
        hidden = self.head(browser, "GET /api/about HTTP/1.1")
        assert self.statuses(browser.port, order + body.encode() + hidden) == [400]

    @pytest.mark.parametrize("long", ["GET /{} HTTP/1.1", "GET /?{} HTTP/1.1"])
    def test_a_long_head_is_refused(self, browser: Browser, long: str) -> None:
        """Also one that arrives as a whole, which h11 would take."""
        known = self.head(browser, "GET /api/about HTTP/1.1")
        headers = self.head(browser, "GET /api/about HTTP/1.1", "X: " + "x" * 70_000)
        target = self.head(browser, long.format("x" * 70_000))
        for sent in (headers, target):
            assert self.statuses(browser.port, sent + known) in ([400], [431])

    def test_a_get_has_no_body(self, browser: Browser) -> None:
        hidden = self.head(browser, "GET /api/about HTTP/1.1")
        length = f"Content-Length: {len(hidden)}"
        assert self.statuses(
            browser.port, self.head(browser, "GET / HTTP/1.1", length) + hidden * 2
        ) == [400]


def lines_of(file: BinaryIO) -> Iterator[str]:
    while line := file.readline().rstrip().decode():
        name, _, text = line.partition(": ")
        yield f"{name.lower()}: {text}"


def test_websockets_are_not_spoken(browser: Browser) -> None:
    answer = browser.get(
        "/api/e/digits/stream?version=x",
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="x" * 24,
    )
    assert answer.status == 400


class TestOrders:
    PATH = "/api/e/digits/orders"
    ORDER = {"order": "note", "trial": "d2a66_00000", "text": "hello"}  # noqa: RUF012

    def test_no_process_takes_an_order_of_a_finished_run(self, browser: Browser) -> None:
        answer = browser.post(self.PATH, self.ORDER)
        assert answer.status == 409
        assert answer.json["error"].startswith("no process runs ")

    @pytest.mark.parametrize(
        "given",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b'"stop"',
            b"{}",
            b"[" * 100_000,
            {"order": "erase"},
            {"order": "stop", "trials": [1]},
            {"order": "stop", "trials": ["../x"]},
            {"order": "limit", "max_concurrent": -1},
            {"order": "note", "trial": "d2a66_00000", "text": "x" * 10_001},
        ],
    )
    def test_an_order_that_is_none_is_refused(self, browser: Browser, given: object) -> None:
        answer = browser.post(self.PATH, given)
        assert answer.status == 400
        assert answer.json["error"]

    def test_a_large_order_is_not_read(self, browser: Browser) -> None:
        answer = browser.post(self.PATH, b"x", Content_Length=str(1 << 30))
        assert answer.status == 413
        chunked = iter([b"x" * 65_536] * 17)
        sent = {"Content-Type": "application/json", "Origin": f"http://{browser.host}"}
        connection = browser._connection()
        headers = {**browser._sent(sent), "Transfer-Encoding": "chunked"}
        connection.request("POST", self.PATH, chunked, headers, encode_chunked=True)
        assert connection.getresponse().status == 400
        connection.close()

    def test_an_order_needs_the_cookie_and_is_no_get(self, browser: Browser) -> None:
        stranger = Browser(browser.port)
        assert stranger.post(self.PATH, self.ORDER).status == 403
        assert browser.get(self.PATH).status == 405
        assert browser.post("/api/e/digits", self.ORDER).status == 405
        assert browser.post("/api/e/nope/orders", self.ORDER).status == 404


def test_a_place_may_be_one_experiment(place: Path) -> None:
    with served(place / "digits") as serving:
        browser = serving.browser()
        assert browser.get("/api/about").json["single"] == "digits"
        assert browser.get("/api/e/digits").status == 200
        other = next(one.name for one in place.iterdir() if one.name.startswith("ä"))
        assert browser.get(f"/api/e/{quote(other, safe='')}").status == 404


def test_behind_a_proxy_the_prefix_may_be_kept_or_stripped(place: Path) -> None:
    with served(place, base="/proxy/1/", names=("hub.example.org",)) as serving:
        assert serving.address.url.partition("?")[0].endswith("/proxy/1/")
        own = serving.browser()
        hub = Browser(serving.address.port, host="hub.example.org", cookie=own.cookie)
        for path in ("/proxy/1/", "/", "/proxy/1/api/about", "/api/about", "/static/page.css"):
            assert hub.get(path, Origin="https://hub.example.org").status == 200
        bare = hub.get("/proxy/1")
        assert (bare.status, bare.headers["location"]) == (303, "1/")


def test_fresh_runs_whose_values_differ_by_the_largest_float_have_a_page(tmp_path: Path) -> None:
    """Some frameworks report it for a training that has diverged; the interval is infinite."""
    run = RecordedExperiment(tmp_path / "place" / "far", metric="loss", mode="min", confirm=2)
    for confirms, loss in (("", 1.0), ("d2a66_00000", 1.0), ("d2a66_00000", sys.float_info.max)):
        trial_id = run.suggest({"lr": 0.1}, confirms=confirms)
        run.start(trial_id)
        run.report(trial_id, {"loss": loss})
        run.finish(trial_id)
    run.close()
    with served(tmp_path / "place") as serving:
        facts = serving.browser().get("/api/e/far").json
    assert [(one["low"], one["high"]) for one in facts["confirmed"]] == [("-Infinity", "Infinity")]


def test_a_deleted_experiment_is_not_found(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "place" / "gone")
    run.begin({"lr": 0.1})
    with served(tmp_path / "place") as serving:
        browser = serving.browser()
        assert browser.get("/api/e/gone").status == 200
        run.layout.root.rename(tmp_path / "elsewhere")
        run.close()
        answer = browser.get("/api/e/gone")
        while answer.status == 200:  # it looks again after a moment
            answer = browser.get("/api/e/gone")
        assert answer.status == 404


def test_a_link_of_another_site_gets_a_page_that_loads_itself_again(serving: Served) -> None:
    stranger = Browser(serving.address.port)
    answer = stranger.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert answer.status == 403
    assert b'src="static/js/again.js"' in answer.body
    assert stranger.get("/static/js/again.js").status == 403
