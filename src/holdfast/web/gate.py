"""The outermost layer of the server: admits requests, sets headers, and answers failures."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.text.errors import named
from holdfast.web.answers import failure
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
