"""The routes of the page: its files, what it shows as JSON, and the orders of a person."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from holdfast import __version__
from holdfast.dataclass import dataclass
from holdfast.experiment.steering.orders import InvalidOrder, Order, decode
from holdfast.results.page.followed import FollowedExperiment
from holdfast.results.steering_client import CannotSteer, send_order
from holdfast.trial.errors import InvalidConfig
from holdfast.web.answers import Gate, as_json, explained, failure, json_answer, sent_file
from holdfast.web.following import (
    Following,
    Watched,
    WatchedExperiment,
    WatchedListing,
    settle,
)
from holdfast.web.security import LARGEST_BODY, Access

_POINTS: Final = 2_000
_MOST_POINTS: Final = 100_000
_MOST_TRIALS: Final = 2_000
# The end of a log that a panel shows first.
_LOG_TAIL: Final = -65_536
# How long a client may take to send an order.
_ORDER_S: Final = 10.0

Answer = Callable[[FollowedExperiment, Request], dict[str, Any]]
_KEY = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_MOST_KEYS = 1_000
_ROOT: Final = Path(__file__).parent / "static"
# Of the page's own files, and of nothing else: no dot begins a name.
_NAME: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*(?:/[0-9A-Za-z_-][0-9A-Za-z._-]*)*")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
_INDEX: Final = "index.html"
_SMALL_BYTES: Final = 64 << 10
# Proxies and browsers give up a connection that says nothing.
_SAY_EVERY_S: Final = 15.0
_STILL_HERE: Final = b": still here\n\n"
# After how many milliseconds a browser connects again.
_RETRY: Final = b"retry: 1000\n\n"


class _Whole(Route):
    """A route of the whole path. Starlette's `$` also matches before a newline at the end."""

    def __init__(self, path: str, endpoint: Any, *, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z")


class Page:
    """The answers of one server."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._read = following.readers.read
        self._place = following.place
        self._orders = OrdersOnce()

    def routes(self) -> list[Route]:
        """All paths below the prefix."""
        trial = "/api/e/{key}/t/{trial}"
        gets = {
            "/": self.index,
            "/static/{name:path}": self.static,
            "/api/about": self.about,
            "/api/experiments": self.experiments,
            "/api/experiments/sizes": self.sizes,
            "/api/experiments/stream": self.listing_stream,
            "/api/e/{key}": self.shown(lambda e, _: e.facts()),
            "/api/e/{key}/trials": self.trials,
            "/api/e/{key}/stream": self.stream,
            "/api/e/{key}/rows": self.shown(_rows, is_costly=True),
            "/api/e/{key}/importance": self.shown(_importance, is_costly=True),
            "/api/e/{key}/scheduler": self.shown(lambda e, _: dict(e.scheduler()), is_costly=True),
            trial: self.shown(lambda e, r: e.trial(r.path_params["trial"])),
            f"{trial}/log/{{name:path}}": self.shown(_log),
            f"{trial}/file": self.artifact,
            f"{trial}/checkpoint/{{dirname}}": self.checkpoint,
        }
        made = [_Whole(path, explaining(answer), methods=["GET"]) for path, answer in gets.items()]
        orders = _Whole("/api/e/{key}/orders", explaining(self.order), methods=["POST"])
        return [*made, orders]

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return static_answer(request)

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        name = request.path_params["name"]
        if is_small(name):  # a thread would wait for the one that reads an experiment meanwhile
            return static_answer(request, name)
        return await self._read(lambda: static_answer(request, name))

    async def about(self, request: Request) -> Response:
        """The version and the place of this server."""
        about = {
            "version": __version__,
            "place": self._place.public,
            "single": self._place.single,
            "can_steer": True,
        }
        return json_answer(request, as_json(about))

    async def experiments(self, request: Request) -> Response:
        """The list of experiments."""
        watched = self._following.listing()
        await watched.look()
        return await self._read(lambda: json_answer(request, watched.data))

    async def sizes(self, request: Request) -> Response:
        """The size of each experiment, which takes long in storage."""
        data = await self._following.readers.read_once(
            "sizes", lambda: as_json(self._place.sizes())
        )
        return json_answer(request, data)

    async def listing_stream(self, request: Request) -> Response:
        """The list again, whenever it changes."""
        watched = self._following.listing()
        await watched.look()
        return streamed(listing_events(watched), is_head=request.method == "HEAD")

    async def trials(self, request: Request) -> Response:
        """The table of an experiment."""
        watched = await self._following.experiment(request.path_params["key"])
        data = await watched.trials()
        return await self._read(lambda: json_answer(request, data))

    async def stream(self, request: Request) -> Response:
        """The changes of an experiment."""
        last = request.headers.get("last-event-id") or request.query_params.get("version")
        version = None if last is None else _whole(last, "version")
        watched = await self._following.experiment(request.path_params["key"])
        await watched.look()
        return streamed(experiment_events(watched, version), is_head=request.method == "HEAD")

    async def artifact(self, request: Request) -> Response:
        """A file that a trial has written."""
        trial, path = request.path_params["trial"], _text(request, "path")
        watched = await self._following.experiment(request.path_params["key"])
        found = await self._read(lambda: watched.experiment.artifact(trial, path))
        return await sent_file(found, is_head=request.method == "HEAD")

    async def checkpoint(self, request: Request) -> Response:
        """A checkpoint, as a tar archive."""
        trial, dirname = request.path_params["trial"], request.path_params["dirname"]
        watched = await self._following.experiment(request.path_params["key"])
        found = await self._read(lambda: watched.experiment.checkpoint_tar(trial, dirname))
        return await sent_file(found, is_head=request.method == "HEAD")

    async def order(self, request: Request) -> Response:
        """Send an order to the run, once for each `Idempotency-Key`. 409 if it refuses, or no
        process here runs it."""
        async with asyncio.timeout(_ORDER_S):
            order = await order_in(request)
        watched = await self._following.experiment(request.path_params["key"])

        def perform() -> Awaitable[str]:
            return self._read(lambda: performed(watched.experiment, order))

        try:
            text = await self._orders.perform(request, perform)
        except CannotSteer as error:
            return failure(409, str(error))
        return json_answer(request, as_json({"text": text}))

    def shown(
        self, answer: Answer, *, is_costly: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint whose answer is of one experiment, as it is now. One that `is_costly` is
        computed once for all requests of the same that come meanwhile."""

        async def endpoint(request: Request) -> Response:
            watched = await self._following.experiment(request.path_params["key"])
            experiment = watched.experiment

            def read() -> bytes:
                experiment.look()
                return as_json(answer(experiment, request))

            if not is_costly:
                return await self._read(lambda: json_answer(request, read()))
            what = (watched, request.scope["path"], request.scope["query_string"])
            data = await self._following.readers.read_once(what, read)
            return await self._read(lambda: json_answer(request, data))

        return endpoint


def made_app(page: Page, access: Access, tell: Callable[[str], None]) -> Gate:
    """The whole application. `tell` gets one line for each request that fails by a bug."""
    router = Router(routes=page.routes(), redirect_slashes=False, default=_unknown)
    return Gate(router, access, tell)


def explaining(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint, whose errors are answers in words."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except TimeoutError:
            return failure(408, "the request took too long")
        except Exception as error:
            answer = explained(error)
            if answer is None:
                raise
            return answer

    return answered


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    await failure(404, "this server has no such address")(scope, receive, send)


def _rows(experiment: FollowedExperiment, request: Request) -> dict[str, Any]:
    """The parameters `trials` (ID or ID:ITERATION, with commas between), `metrics`, `points`."""
    wanted = [_after(part) for part in _text(request, "trials").split(",") if part]
    if len(wanted) > _MOST_TRIALS:
        raise InvalidConfig(f"ask for the rows of {_MOST_TRIALS:,} trials at a time")
    metrics = [name for name in request.query_params.get("metrics", "").split(",") if name]
    points = _whole(request.query_params.get("points", str(_POINTS)), "points")
    return experiment.rows(wanted, metrics, min(max(points, 2), _MOST_POINTS))


def _after(text: str) -> tuple[str, int]:
    trial, mark, iteration = text.partition(":")
    return trial, _whole(iteration, "an iteration") if mark else 0


def _importance(experiment: FollowedExperiment, request: Request) -> dict[str, Any]:
    return experiment.importance(request.query_params.get("metric", ""))


def _log(experiment: FollowedExperiment, request: Request) -> dict[str, Any]:
    offset = _whole(request.query_params.get("offset", str(_LOG_TAIL)), "offset")
    return experiment.log(request.path_params["trial"], request.path_params["name"], offset)


def _text(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if found is None:
        raise InvalidConfig(f"the request needs ?{name}=")
    return found


def _whole(text: str, what: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 18):
        raise InvalidConfig(f"{what} must be a whole number, not {text!r:.40}")
    return int(text)


class OrdersOnce:
    """Performs each order once, even if a browser sends it several times.

    It does if no answer has arrived: a browser gives up all requests when the machine's network
    changes, and cannot know what became of them. The header `Idempotency-Key` says which are one.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[str, str], asyncio.Future[str]] = OrderedDict()

    async def perform(self, request: Request, perform: Callable[[], Awaitable[str]]) -> str:
        """The answer of the first of these requests. Raises InvalidOrder, and what that did."""
        key = request.headers.get("idempotency-key")
        if key is None:
            return await perform()
        if not _KEY.match(key):
            raise InvalidOrder("an Idempotency-Key has 1 to 64 letters, digits and hyphens")
        what = (request.path_params["key"], key)
        answer = self._answers.get(what)
        if answer is None:
            answer = self._answers[what] = asyncio.get_running_loop().create_future()
            if len(self._answers) > _MOST_KEYS:
                self._answers.popitem(last=False)
            await settle(answer, perform())
        return await asyncio.shield(answer)


async def order_in(request: Request) -> Order:
    """The order in the body of a POST. Raises InvalidOrder."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > LARGEST_BODY:
                raise InvalidOrder(f"an order may have {LARGEST_BODY:,} bytes")
    except ClientDisconnect as error:
        raise InvalidOrder("the order is incomplete") from error
    try:
        plain = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise InvalidOrder(f"the order is not JSON: {error}") from error
    return decode(plain)


def performed(experiment: FollowedExperiment, order: Order) -> str:
    """The answer of the run, which has the order in its journal by then. Blocks.

    Raises CannotSteer, InvalidOrder, ExperimentNotFound, StorageError, OSError.
    """
    experiment.look()
    return send_order(experiment.located, order, via="page")


@dataclass(frozen=True, slots=True, kw_only=True)
class _StaticFile:
    """A file in memory, plain and compressed; `tag` changes with its content."""

    plain: bytes
    packed: bytes
    media_type: str
    tag: str


def is_small(name: str) -> bool:
    """True if the file is read and compressed in a millisecond, or is not there."""
    try:
        return not _NAME.fullmatch(name) or (_ROOT / name).stat().st_size <= _SMALL_BYTES
    except OSError:
        return True


def static_answer(request: Request, name: str = _INDEX) -> Response:
    """The file `name`, or that the browser has it already."""
    found = _found(name)
    if found is None:
        return failure(404, f"the page has no file {name!r:.100}")
    headers = {"cache-control": "private, no-cache", "etag": found.tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(None, 304, headers)
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    if is_packed:
        headers["content-encoding"] = "gzip"
    body = found.packed if is_packed else found.plain
    return Response(body, headers=headers, media_type=found.media_type)


def _found(name: str) -> _StaticFile | None:
    path = _ROOT / name
    media_type = _TYPES.get(path.suffix)
    if media_type is None or not _NAME.fullmatch(name):
        return None
    try:
        return _read(path, media_type, path.stat().st_mtime_ns)
    except OSError:
        return None


@lru_cache(maxsize=100)
def _read(path: Path, media_type: str, changed_at: int) -> _StaticFile:
    """`changed_at`: one that was edited since is read again. Raises OSError."""
    plain = path.read_bytes()
    return _StaticFile(
        plain=plain,
        packed=gzip.compress(plain, mtime=0),
        media_type=media_type,
        tag=f'"{hashlib.sha256(plain).hexdigest()[:32]}"',
    )


def event(name: str, data: bytes, number: int | None = None) -> bytes:
    """One event. `data` is JSON in one line; a browser that connects again sends `number` back."""
    numbered = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), numbered, data)


def streamed(events: AsyncIterator[bytes], *, is_head: bool) -> Response:
    """The answer that sends these events as they come."""
    headers = {"x-accel-buffering": "no"}  # nginx would collect them
    if is_head:
        return Response(None, headers=headers, media_type="text/event-stream")
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


def experiment_events(watched: WatchedExperiment, version: int | None) -> AsyncIterator[bytes]:
    """The changes since `version` (None: from now on), and the facts, until the experiment is
    deleted. The caller has looked once."""
    assert watched.change is not None
    sent = watched.change.version if version is None else version
    facts = b""

    async def news() -> AsyncIterator[bytes]:
        nonlocal sent, facts
        assert watched.change is not None
        if sent != watched.change.version:
            data, sent = await watched.trials_since(sent)
            yield event("reset", b"{}", sent) if data is None else event("trials", data, sent)
        if facts is not watched.facts:
            facts = watched.facts
            yield event("facts", facts)

    return _events(watched, news)


def listing_events(watched: WatchedListing) -> AsyncIterator[bytes]:
    """The list of experiments, now and after each change. The caller has looked once."""
    shown = b""

    async def news() -> AsyncIterator[bytes]:
        nonlocal shown
        if shown is not watched.data:
            shown = watched.data
            yield event("experiments", shown)

    return _events(watched, news)


async def _events(
    watched: Watched, news: Callable[[], AsyncIterator[bytes]]
) -> AsyncIterator[bytes]:
    """The news now and after each change, and why there are none, until the end."""
    trouble = ""
    with watched.watching():
        yield _RETRY
        while True:
            changed = watched.changed
            async for one in news():
                yield one
            if trouble != watched.trouble:
                trouble = watched.trouble
                yield event("trouble", as_json({"text": trouble}))
            if watched.is_over:
                return
            if not await _happens(changed):
                yield _STILL_HERE


async def _happens(changed: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_SAY_EVERY_S):
            await changed.wait()
    except TimeoutError:
        return False
    return True
