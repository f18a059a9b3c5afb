"""Admits requests (`Gate`, the outermost layer of the server), and makes answers: JSON, errors in
words, and files that are read while they are sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from html import escape
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.experiment.folder.contents import LeadsElsewhere
from holdfast.results.page.followed import Download, NotThere
from holdfast.results.reading import ExperimentNotFound, RunStarts
from holdfast.syncer.errors import StorageError, redact
from holdfast.syncer.files import threads
from holdfast.syncer.files.tree import NotRegular
from holdfast.text.errors import named
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.web.security import (
    FRAMED,
    HEADERS,
    METHODS,
    Access,
    Admitted,
    Asked,
    Redirected,
    Refused,
)

# Smaller answers take no longer without.
_GZIP_FROM: Final = 16 << 10
# Of 3.5 MB, the table of 10,000 trials, level 1 makes 1.3 MB in 36 ms, and level 6 1.2 MB in 220.
_GZIP_LEVEL: Final = 1
# What a trial has written may be a page with scripts, made to be opened here.
_FILE_HEADERS: Final = {"content-security-policy": "sandbox; default-src 'none'"}


def as_json(value: Any) -> bytes:
    """ASCII, without spaces. Raises ValueError for a number that JSON does not have."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def json_answer(request: Request, data: bytes, status: int = 200) -> Response:
    """`data` is JSON already. May compress it: call it in a thread if it may be large."""
    headers = {"vary": "accept-encoding"}
    if len(data) >= _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        data = gzip.compress(data, _GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(data, status, headers, media_type="application/json")


def failure(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of the api that says what failed."""
    return Response(
        as_json({"error": redact(text)}), status, headers, media_type="application/json"
    )


def explained(error: Exception) -> Response | None:
    """The answer for an error of what was asked for, or of a disk or storage; None for a bug."""
    match error:
        case RunStarts():
            return failure(503, str(error))
        case ExperimentNotFound() | NotThere():
            return failure(404, str(error))
        case LeadsElsewhere():
            return failure(403, str(error))
        case NotRegular():
            return failure(403, f"cannot read {error.filename}: {error.strerror}")
        case StorageError():
            return failure(502, str(error))
        case InvalidConfig() | TuneError():
            return failure(400, str(error))
        case OSError():
            is_absent = isinstance(error, (FileNotFoundError, NotADirectoryError))
            status = 404 if is_absent else 502
            return failure(status, f"cannot read {error.filename or 'a file'}: {error.strerror}")
        case _:
            return None


async def sent_file(download: Download, *, is_head: bool) -> Response:
    """A file that a trial has written. Only images are shown in the page; nothing in it runs."""
    kind = "inline" if download.media_type else "attachment"
    headers = {
        **_FILE_HEADERS,
        "content-disposition": f"{kind}; filename*=UTF-8''{quote(download.name, safe='')}",
    }
    if download.size_bytes is not None:
        headers["content-length"] = str(download.size_bytes)
    media_type = download.media_type or "application/octet-stream"
    pieces = _pieces(download)
    if is_head:
        await anext(pieces, b"")  # which opens what the end closes
        await pieces.aclose()
        return Response(None, headers=headers, media_type=media_type)
    return StreamingResponse(pieces, headers=headers, media_type=media_type)


async def _pieces(download: Download) -> AsyncGenerator[bytes, None]:
    """At most the size that was announced: a trial may be writing the file."""
    left, pieces = download.size_bytes, download.pieces
    try:
        while left is None or left > 0:
            piece = await threads.call(lambda: next(pieces, None))
            if piece is None:
                return
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            yield piece
    finally:
        close = getattr(pieces, "close", None)
        with suppress(ValueError):  # a thread still reads: the file is closed with the generator
            if close is not None:
                close()


_AGAIN = '<!doctype html><meta charset="utf-8"><script type="module" src="static/js/again.js">'


class Gate:
    """Passes to `app` what `access` admits. `tell` gets one line for each failure of the app."""

    def __init__(self, app: ASGIApp, access: Access, tell: Callable[[str], None]) -> None:
        self._app, self._access, self._tell = app, access, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        verdict = self._access.judge(asked_of(scope))
        is_framed = isinstance(verdict, Admitted) and verdict.is_framed
        answered = _Answer(send, FRAMED if is_framed else HEADERS)
        match verdict:
            case Admitted():
                await self._admit({**scope, "path": verdict.path}, receive, answered)
            case Redirected():
                headers = {"location": verdict.location}
                if verdict.cookie:
                    headers["set-cookie"] = verdict.cookie
                await Response(status_code=303, headers=headers)(scope, receive, answered.send)
            case Refused():
                await refusal(scope, verdict)(scope, receive, answered.send)

    async def _admit(self, scope: Scope, receive: Receive, answered: _Answer) -> None:
        try:
            await self._app(scope, receive, answered.send)
        except Exception as error:  # a bug: the client and the terminal get one line each
            self._tell(f"a request failed: {named(error)} (a bug in holdfast)")
            if answered.has_begun:
                raise
            text = f"{named(error)} (a bug in holdfast)"
            await failure(500, text)(scope, receive, answered.send)


class _Answer:
    """Adds the headers that an answer does not set itself."""

    def __init__(self, send: Send, headers: dict[str, str]) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            ours = [(name.encode(), text.encode()) for name, text in self._headers.items()]
            own = [pair for pair in ours if pair[0] not in names]
            message = {**message, "headers": [*given, *own]}
        await self._send(message)


def asked_of(scope: Scope) -> Asked:
    """The parts of a request that decide whether it is answered."""
    headers = Headers(scope=scope)
    return Asked(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        hosts=headers.getlist("host"),
        origins=headers.getlist("origin"),
        cookies=headers.getlist("cookie"),
        content_types=headers.getlist("content-type"),
        lengths=headers.getlist("content-length"),
        encodings=headers.getlist("transfer-encoding"),
        version=scope["http_version"],
        head_bytes=_head_bytes(scope),
        fetch_site=headers.get("sec-fetch-site", ""),
        fetch_mode=headers.get("sec-fetch-mode", ""),
        local=str((scope.get("server") or ("",))[0] or ""),
    )


def _head_bytes(scope: Scope) -> int:
    fields = sum(len(name) + len(text) + 4 for name, text in scope["headers"])
    return fields + len(scope["raw_path"]) + len(scope["query_string"])


def refusal(scope: Scope, refused: Refused) -> Response:
    """In words: as JSON for the page's scripts, as text for a person.

    The connection ends: a stranger keeps no place, and what follows a request whose end is not
    certain is not read.
    """
    headers = {"connection": "close"}
    if refused.again:
        page = f"{_AGAIN}</script><title>holdfast</title><p>{escape(refused.why)}."
        return Response(page, refused.status, headers, media_type="text/html")
    if refused.status == 405:
        headers["allow"] = ", ".join(METHODS)
    if "/api/" in scope["path"]:
        return failure(refused.status, refused.why, headers)
    return Response(f"{refused.why}.\n", refused.status, headers, media_type="text/plain")
