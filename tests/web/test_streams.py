"""Streams of the page: each change reaches every browser, and a slow or gone one costs nothing."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from holdfast.results.page.followed import FollowedExperiment
from holdfast.results.page.place import Place
from holdfast.syncer.errors import StorageUnavailable
from holdfast.web import following, server
from holdfast.web.following import Readers
from holdfast.web.server import LimitedConnection
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.web.in_process import Browser, Events, Served, served
from tests.rig.workers.processes import PATIENCE_S

pytestmark = pytest.mark.server

PATH = "/api/e/digits/stream"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    made = RecordedExperiment(tmp_path / "place" / "digits", metric="loss", mode="min")
    made.begin({"lr": 0.1})
    made.begin({"lr": 0.2})
    made.report("d2a66_00000", {"loss": 1.0})
    yield made
    made.close()


SERVERS: list[server._Server] = []


class Noted(server._Server):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        SERVERS[:] = [self]


@pytest.fixture
def serving(run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(server, "_Server", Noted)
    with served(run.layout.root.parent) as made:
        yield made


@pytest.fixture
def browser(serving: Served) -> Browser:
    return serving.browser()


def version_of(browser: Browser) -> int:
    return int(browser.get("/api/e/digits/trials").json["version"])


def next_trials(events: Events) -> dict[str, Any]:
    """The trials of the next event that has any, by their ids."""
    while True:
        found = events.next("trials")[1]["trials"]
        if found:
            return {one["trial_id"]: one for one in found}


def test_a_report_reaches_every_browser(browser: Browser, run: RecordedExperiment) -> None:
    version = version_of(browser)
    with browser.stream(f"{PATH}?version={version}") as one, browser.stream(PATH) as other:
        for events in (one, other):
            assert events.next()[0] == "facts"
        run.report("d2a66_00001", {"loss": 0.5})
        for events in (one, other):
            found = next_trials(events)
            assert found.keys() == {"d2a66_00001"}
            assert found["d2a66_00001"]["metrics"] == {"loss": 0.5}
        run.report("d2a66_00001", {"loss": float("nan")})
        assert next_trials(one)["d2a66_00001"]["metrics"] == {"loss": "NaN"}


def test_what_changed_while_the_browser_was_away_comes_first(
    browser: Browser, run: RecordedExperiment
) -> None:
    version = version_of(browser)
    run.report("d2a66_00001", {"loss": 0.5})
    run.begin({"lr": 0.3})
    with browser.stream(f"{PATH}?version={version}") as events:
        assert next_trials(events).keys() == {"d2a66_00001", "d2a66_00002"}


def test_the_number_of_the_last_event_counts_more_than_the_address(
    browser: Browser, run: RecordedExperiment
) -> None:
    version = version_of(browser)
    headers = {"Last-Event-ID": str(version)}
    with browser.stream(f"{PATH}?version=1", **headers) as events:
        assert events.next()[0] == "facts"  # no reset: the page has everything


def test_a_version_of_an_earlier_server_resets_the_page(browser: Browser) -> None:
    with browser.stream(f"{PATH}?version=1") as events:
        assert events.next() == ("reset", {})


def test_the_stream_of_a_deleted_experiment_ends(
    browser: Browser, run: RecordedExperiment
) -> None:
    with browser.stream(PATH) as events:
        events.next("facts")
        run.layout.root.rename(run.layout.root.parent.parent / "elsewhere")
        assert events.ends()


def test_a_disk_that_does_not_answer_is_a_trouble_until_it_does(
    browser: Browser, run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, is_broken = FollowedExperiment.look, threading.Event()

    def looks(self: FollowedExperiment, *, at_once: bool = False) -> Any:
        if is_broken.is_set():
            raise StorageUnavailable("read", "digits", "it does not answer")
        return look(self, at_once=at_once)

    monkeypatch.setattr(FollowedExperiment, "look", looks)
    with browser.stream(PATH) as events:
        events.next("facts")
        is_broken.set()
        assert "does not answer" in events.next("trouble")[1]["text"]
        is_broken.clear()
        assert events.next("trouble") == ("trouble", {"text": ""})
        run.report("d2a66_00001", {"loss": 0.5})
        assert next_trials(events).keys() == {"d2a66_00001"}


def test_the_list_comes_again_when_an_experiment_changes(
    browser: Browser, run: RecordedExperiment
) -> None:
    with browser.stream("/api/experiments/stream") as events:
        first = events.next("experiments")[1]["experiments"]
        assert [one["key"] for one in first] == ["digits"]
        other = RecordedExperiment(run.layout.root.parent / "other")
        other.begin({})
        second = events.next("experiments")[1]["experiments"]
        assert {one["key"] for one in second} == {"digits", "other"}
        other.close()


def test_however_many_watch_each_record_is_read_once(
    browser: Browser, run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    changed_since = FollowedExperiment.changed_since

    def counted(self: FollowedExperiment, version: int) -> Any:
        asked.append(version)
        return changed_since(self, version)

    monkeypatch.setattr(FollowedExperiment, "changed_since", counted)
    version = version_of(browser)
    streams = [browser.stream(f"{PATH}?version={version}") for _ in range(5)]
    several = [stream.__enter__() for stream in streams]
    for events in several:
        events.next("facts")
    asked.clear()
    run.report("d2a66_00001", {"loss": 0.5})
    for events in several:
        assert next_trials(events).keys() == {"d2a66_00001"}
    assert len(set(asked)) == len(asked)
    for stream in streams:
        stream.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("path", "computes"),
    [
        ("/api/e/digits/importance?metric=loss", (FollowedExperiment, "importance")),
        ("/api/e/digits/scheduler", (FollowedExperiment, "scheduler")),
        ("/api/e/digits/rows?trials=d2a66_00000&metrics=loss", (FollowedExperiment, "rows")),
        ("/api/e/digits/trials", (FollowedExperiment, "trials")),
        ("/api/experiments", (Place, "listing")),
        ("/api/experiments/sizes", (Place, "sizes")),
    ],
)
def test_a_costly_answer_is_computed_once_for_all_who_ask_meanwhile(
    serving: Served,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    computes: tuple[type, str],
) -> None:
    begun, goes_on, calls = threading.Semaphore(0), threading.Event(), list[str]()
    compute = getattr(*computes)

    def slow(*given: Any, **more: Any) -> Any:
        calls.append(path)
        begun.release()
        assert goes_on.wait(PATIENCE_S)
        if len(calls) == 1:  # an error is shared, too
            raise StorageUnavailable("read", "s3://b", "no answer")
        return compute(*given, **more)

    async def counted(readers: Readers, what: Hashable, perform: Callable[[], Any]) -> Any:
        asked.append(what)
        return await read_once(readers, what, perform)

    asked, read_once = list[Hashable](), Readers.read_once
    monkeypatch.setattr(Readers, "read_once", counted)
    monkeypatch.setattr(*computes, slow)
    with ThreadPoolExecutor(5) as pool:
        for round_, status in enumerate((502, 200), 1):
            first = pool.submit(browser.get, path)
            assert begun.acquire(timeout=PATIENCE_S)
            others = [pool.submit(browser.get, path) for _ in range(4)]
            until(serving, lambda: len(asked) == 5)
            goes_on.set()
            answers = [one.result() for one in (first, *others)]
            assert {one.status for one in answers} == {status}
            assert len({one.body for one in answers}) == 1
            assert len(calls) == round_
            goes_on.clear()
            asked.clear()


def slow_socket(serving: Served, browser: Browser, path: str) -> socket.socket:
    """A connection of small buffers that has asked for `path`, and reads nothing yet."""
    serving.server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    sock = socket.create_connection(("127.0.0.1", serving.address.port), timeout=PATIENCE_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    head = f"GET {path} HTTP/1.1\r\nHost: {browser.host}\r\nCookie: {browser.cookie}\r\n\r\n"
    sock.sendall(head.encode())
    return sock


def test_a_browser_that_does_not_read_delays_no_other(
    serving: Served, browser: Browser, run: RecordedExperiment
) -> None:
    """It gets what has changed as one event, once it reads; nothing waits for it meanwhile."""
    large, rounds = "x" * 2_000, 3
    ids = [run.begin({"text": large}) for _ in range(40)]
    version = version_of(browser)
    sock = slow_socket(serving, browser, f"{PATH}?version={version}")
    with browser.stream(f"{PATH}?version={version}") as events:
        events.next("facts")
        for loss in range(rounds):
            for trial_id in ids:
                run.report(trial_id, {"loss": loss})
            seen: dict[str, Any] = {}
            while any(seen.get(one, {}).get("metrics", {}).get("loss") != loss for one in ids):
                seen |= next_trials(events)
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    slow, last = Events(answer), dict[str, Any]()
    while any(last.get(one, {}).get("metrics", {}).get("loss") != rounds - 1 for one in ids):
        last |= next_trials(slow)
    answer.close()
    sock.close()


def test_one_that_never_reads_is_cut_off(
    serving: Served, browser: Browser, run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_READ_S", 0.1)
    large = run.folder("d2a66_00000") / "large.bin"
    large.parent.mkdir(parents=True, exist_ok=True)
    large.write_bytes(bytes(1 << 20))
    path = "/api/e/digits/t/d2a66_00000/file?path=large.bin"
    with slow_socket(serving, browser, path) as sock:
        until(serving, lambda: bool(connection_of(sock)))
        until(serving, lambda: not connection_of(sock))
        assert is_cut(sock)


def connections() -> set[Any]:
    return SERVERS[0].server_state.connections


def connection_of(sock: socket.socket) -> LimitedConnection | None:
    """The server's end. It may not have heard yet that an earlier client has gone."""
    name = sock.getsockname()
    for one in connections():
        if isinstance(one, LimitedConnection) and one.client == name:
            return one
    return None


def until(serving: Served, is_done: Callable[[], bool]) -> None:
    """Wait in the server's loop."""

    async def done() -> None:
        while not is_done():  # noqa: ASYNC110  the server has no event for it
            await asyncio.sleep(0.02)

    asyncio.run_coroutine_threadsafe(done(), serving.loop).result(PATIENCE_S)


def is_cut(sock: socket.socket) -> bool:
    """Whether the server has ended the connection, perhaps in the middle of an answer."""
    try:
        while sock.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    return True


def test_one_that_sends_no_request_is_cut_off(
    serving: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SEND_S", 0.1)
    for sent in (b"", b"GET / HTTP/1.1\r\nHost:"):
        with socket.create_connection(("127.0.0.1", serving.address.port)) as sock:
            sock.settimeout(PATIENCE_S)
            sock.sendall(sent)
            assert is_cut(sock)


def test_the_number_of_connections_is_limited(
    serving: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    with browser.stream(PATH) as one, browser.stream(PATH) as two:
        one.next("facts")
        two.next("facts")
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            browser.get("/api/about")
    until(serving, lambda: not connections())
    assert browser.get("/api/about").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        "GET /api/about HTTP/1.1\r\nHost: {host}\r\n\r\n",
        "POST /api/e/digits/orders HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n",
        "POST /no HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nOrigin: http://{host}\r\n"
        "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_who_is_refused_keeps_no_place(
    serving: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """Neither a stranger, nor one who does not send what was announced."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    strangers = []
    for _ in range(4):
        sock = socket.create_connection(("127.0.0.1", serving.address.port), timeout=PATIENCE_S)
        sock.sendall(sent.format(host=browser.host, cookie=browser.cookie).encode())
        strangers.append(sock)
        assert is_cut(sock)
    assert browser.get("/api/about").status == 200
    for sock in strangers:
        sock.close()


def test_connections_that_say_nothing_make_room_for_one_that_does(
    serving: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    with browser.stream(PATH) as watching:
        watching.next("facts")
        with socket.create_connection(("127.0.0.1", serving.address.port)) as silent:
            silent.settimeout(PATIENCE_S)
            until(serving, lambda: len(connections()) == 2)
            assert browser.get("/api/about").status == 200
            assert is_cut(silent)


def test_nothing_is_followed_once_nobody_has_looked_for_a_while(
    serving: Served, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LINGER_S", 0.1)
    with browser.stream(PATH) as events:
        events.next("facts")
        watched = serving.server._following
        assert watched is not None
        assert watched.is_watched

    until(serving, lambda: not watched._experiments)
    with browser.stream(PATH) as events:  # and again
        events.next("facts")


def test_the_server_ends_within_moments_whatever_is_open(
    serving: Served, browser: Browser, run: RecordedExperiment
) -> None:
    silent = socket.create_connection(("127.0.0.1", serving.address.port))
    with browser.stream(PATH) as one, browser.stream("/api/experiments/stream") as two:
        one.next("facts")
        two.next("experiments")
        began = time.monotonic()
        serving.end()
        assert time.monotonic() - began < PATIENCE_S / 2
        for events in (one, two):
            assert events.ends()
    silent.close()


def test_a_last_look_shows_how_it_has_ended(
    serving: Served,
    browser: Browser,
    run: RecordedExperiment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for deadline in ("_LAST_LOOK_S", "_END_S"):
        monkeypatch.setattr(server, deadline, PATIENCE_S)
    with browser.stream(PATH) as events:
        events.next("facts")
        run.report("d2a66_00001", {"loss": 0.25})
        run.finish("d2a66_00001")
        serving.loop.call_soon_threadsafe(lambda: serving.server.end(last_look=True))
        found = next_trials(events)
        while found["d2a66_00001"]["status"] != "TERMINATED":
            found = next_trials(events)
        assert events.ends()
    serving.thread.join(PATIENCE_S)


def test_a_bug_ends_the_streams_and_is_one_line(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = FollowedExperiment.look
    is_broken = threading.Event()

    def looks(self: FollowedExperiment, **given: Any) -> Any:
        if is_broken.is_set():
            raise ZeroDivisionError("oh no")
        return look(self, **given)

    monkeypatch.setattr(FollowedExperiment, "look", looks)
    with served(run.layout.root.parent) as serving:
        browser = serving.browser()
        with browser.stream(PATH) as events:
            events.next("facts")
            is_broken.set()
            assert events.ends()
        answer = browser.get("/api/e/digits")
        assert (answer.status, answer.headers["x-content-type-options"]) == (500, "nosniff")
        assert answer.json["error"] == "ZeroDivisionError: oh no (a bug in holdfast)"
        told = [text for text in serving.troubles if "oh no (a bug in holdfast)" in text]
        assert (len(told), serving.troubles) == (2, told)
        serving.troubles.clear()


def test_only_loopback_reaches_it(serving: Served) -> None:
    here = [
        one.laddr
        for one in psutil.Process().net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == serving.address.port
    ]
    assert [one.ip for one in here] == ["127.0.0.1"]


def test_a_request_that_is_unread_when_its_time_ends_is_answered(
    serving: Served, browser: Browser
) -> None:
    sent = f"GET /api/about HTTP/1.1\r\nHost: {browser.host}\r\nCookie: {browser.cookie}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", serving.address.port)) as sock:
        sock.settimeout(PATIENCE_S)
        until(serving, lambda: bool(connection_of(sock)))

        def time_ends() -> None:
            """In one turn of the loop, which reads no socket meanwhile."""
            connection = connection_of(sock)
            assert connection is not None
            sock.sendall(sent.encode())
            connection._end_soon()

        serving.loop.call_soon_threadsafe(time_ends)
        assert sock.recv(12) == b"HTTP/1.1 200"


def slow_at_first(read: Callable[..., Any]) -> Callable[..., Any]:
    is_first = [True]

    def slow(*arguments: Any, **named: Any) -> Any:
        if is_first:
            is_first.clear()
            time.sleep(0.5)
        return read(*arguments, **named)

    return slow


def test_what_takes_long_to_read_is_not_forgotten_while_it_is_read(
    browser: Browser, run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a large experiment, or a long list, in slow storage: the streams go on after that."""
    monkeypatch.setattr(following, "LINGER_S", 0.1)
    for place, name in ((FollowedExperiment, "look"), (Place, "listing")):
        monkeypatch.setattr(place, name, slow_at_first(getattr(place, name)))
    with browser.stream("/api/experiments/stream") as events:
        events.next("experiments")
        run.report("d2a66_00001", {"loss": 0.7})
        assert events.next("experiments")
    with browser.stream(PATH) as events:
        events.next("facts")
        run.report("d2a66_00001", {"loss": 0.5})
        assert next_trials(events).keys() == {"d2a66_00001"}
