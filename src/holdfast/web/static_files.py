"""The files of the page itself, which are part of holdfast."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dataclass import dataclass
from holdfast.web.answers import failure

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _StaticFile:
    """A file in memory, plain and compressed; `tag` changes with its content."""

    plain: bytes
    packed: bytes
    media_type: str
    tag: str


def is_small(name: str) -> bool:
    """Whether the file is read and compressed in a millisecond, or is not there."""
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
