"""Answers of the api: JSON, errors in words, and files that are read while they are sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.experiment.folder.contents import LeadsElsewhere
from holdfast.results.page.followed import Download, NotThere
from holdfast.results.reading import ExperimentNotFound, RunStarts
from holdfast.syncer.errors import StorageError, redact
from holdfast.syncer.files import threads
from holdfast.syncer.files.tree import NotRegular
from holdfast.trial.errors import InvalidConfig, TuneError

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
