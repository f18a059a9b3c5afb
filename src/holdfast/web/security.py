"""Decides which requests are answered: what a browser or another user could abuse is refused.

Any user of this machine can connect to a port on loopback, and any page on the internet can make a
browser send requests to it. So every request needs the token, or the cookie that it gave.
`Access.judge` decides and knows no server; `Gate` in `answers.py` acts.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl

from holdfast.dataclass import dataclass
from holdfast.lazy import WEB
from holdfast.names import shown
from holdfast.trial.errors import InvalidConfig, TuneError


class WebMissing(TuneError, ImportError):
    """The page was requested, but Starlette or uvicorn is not installed."""


class PortTaken(TuneError):
    """The port that was asked for is in use."""


class WebFailed(TuneError):
    """The server's process did not start."""


def check_installed(what: str) -> None:
    """Raise WebMissing if `what` cannot be served. Imports nothing."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise WebMissing(WEB.missing(what))


METHODS: Final = ("GET", "HEAD", "POST")
LARGEST_BODY: Final = 1 << 20
LARGEST_HEAD: Final = 64 << 10
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::([0-9]{1,5}))?")
_SEGMENT: Final = re.compile(r"[0-9A-Za-z._~@+-]+")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_NO_TOKEN: Final = (
    "This page needs its token. Open the URL with the token: `holdfast web` has printed it in its "
    "terminal, or the run that was started with RunConfig(web=True)"
)

# Of the script in index.html itself, which loads the page again if a file of it does not come.
_INLINE: Final = "'sha256-JT6PvfHqhtcOulkwBpmNJ8z50EkkX5Ae0hlFsTjjEwY='"
_CSP: Final = (
    f"default-src 'none'; script-src 'self' {_INLINE}; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'"
)
# On every answer. The policy of files that a trial wrote is in `app.py`.
HEADERS: Final = {
    "content-security-policy": f"{_CSP}; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Ports of one machine are one site, and share cookies: a page of another user's server, on
    # another port here, may embed nothing of this one.
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
# A notebook shows the page in a frame: its own address may be any.
FRAMED: Final = {**HEADERS, "content-security-policy": _CSP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The parts of a request that `judge` reads.

    Header names occur in HTTP as often as a client likes, so each field is a list. `local` is the
    address of the server that the connection came to.
    """

    method: str
    path: str
    query: str = ""
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    cookies: Sequence[str] = ()
    content_types: Sequence[str] = ()
    lengths: Sequence[str] = ()
    encodings: Sequence[str] = ()
    version: str = "1.1"
    head_bytes: int = 0
    fetch_site: str = ""
    fetch_mode: str = ""
    local: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The request is the page's own. `path` is below the prefix and begins with a slash;
    `is_framed`: the page is in the frame of a notebook."""

    path: str
    is_framed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """`again`: the browser may have the cookie, and withheld it because another site's page has
    the link. It sends it for what this page loads, and if this page loads itself again."""

    status: int
    why: str
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """To `location`, which is relative. `cookie` is the header that sets it, "" for none."""

    location: str
    cookie: str = ""


Verdict = Admitted | Refused | Redirected


class Access:
    """The access to one server: the token, and the names by which browsers may call it.

    `base` is the path at which the page is served; a proxy may strip it or keep it. `names` are
    the hosts besides loopback, `port` the server's own.
    """

    def __init__(
        self, *, port: int, base: str = "/", names: Iterable[str] = (), token: str = ""
    ) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.base = base
        # A cookie belongs to all ports of its host: two servers need two names.
        digest = hashlib.sha256(self.token.encode()).hexdigest()
        self._cookie_name = f"holdfast-{port}-{digest[:8]}"
        self._cookie = hmac.digest(self.token.encode(), b"cookie", "sha256").hex()
        self._names = {name.lower() for name in (*_LOOPBACK, *names)}

    def judge(self, asked: Asked) -> Verdict:
        """The verdict on a request. The first rule that is broken decides."""
        if (fault := _malformed(asked)) is not None:
            return fault
        if asked.method not in METHODS:
            return Refused(status=405, why=f"use one of {', '.join(METHODS)}")
        name = _host_of(asked)
        if name is None:
            return Refused(status=400, why="the request needs one valid Host header")
        path = self._below(asked.path)
        if path is None:
            return Refused(status=400, why="the request's target must be a path")
        is_frame = path.startswith("/frame/")
        # Who knows the token may call the server what they like: Jupyter's proxy does.
        fault = None if is_frame else self._wrong_name(name, asked.local)
        fault = fault or _wrong_origin(asked) or _wrong_body(asked)
        if fault is not None:
            return fault
        if is_frame:
            return self._framed(path)
        if path == "":  # the prefix without its slash
            return Redirected(location=f"{self.base.rstrip('/').rpartition('/')[2]}/")
        if path == "/" and (given := self._token_in(asked)) is not None:
            return self._with_token(given, asked)
        if not self._has_cookie(asked.cookies):
            navigates = asked.fetch_mode == "navigate" and _is_foreign(asked)
            return Refused(status=403, why=_NO_TOKEN, again=path == "/" and navigates)
        return Admitted(path=path, is_framed=False)

    def _below(self, path: str) -> str | None:
        """The path without the prefix, which a proxy may have stripped."""
        prefix = self.base.rstrip("/")
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            return path[len(prefix) :]
        return path if path.startswith("/") else None

    def _wrong_name(self, name: str, local: str) -> Refused | None:
        """DNS rebinding: a name of somebody else's may lead to this machine. An address cannot."""
        if name in self._names or (local and name == local.lower()):
            return None
        return Refused(
            status=403,
            why=f"this server does not answer for the host {shown(name)}. If that name is yours, "
            f"start it with: holdfast web --allow-host {name}",
        )

    def _framed(self, path: str) -> Verdict:
        token, slash, rest = path.removeprefix("/frame/").partition("/")
        if not self._is_token(token):
            return Refused(status=403, why=_NO_TOKEN)
        if not slash:
            return Redirected(location=f"{token}/")
        return Admitted(path=f"/{rest}", is_framed=True)

    def _with_token(self, given: str, asked: Asked) -> Verdict:
        if not self._is_token(given) or asked.method == "POST":
            return Refused(status=403, why=_NO_TOKEN)
        attributes = f"Path={self.base}; HttpOnly; SameSite=Strict"
        return Redirected(
            location="./", cookie=f"{self._cookie_name}={self._cookie}; {attributes}"
        )

    def _token_in(self, asked: Asked) -> str | None:
        given = [
            value
            for name, value in parse_qsl(asked.query, keep_blank_values=True)
            if name == "token"
        ]
        return given[0] if given else None

    def _is_token(self, given: str) -> bool:
        return _same(given, self.token)

    def _has_cookie(self, headers: Sequence[str]) -> bool:
        pairs = [pair.strip().partition("=") for text in headers for pair in text.split(";")]
        values = [value for name, _, value in pairs if name == self._cookie_name]
        return any(_same(value, self._cookie) for value in values)


def _host_of(asked: Asked) -> str | None:
    """The name in the header Host, without the port; None if it is not one name."""
    found = _HOST.fullmatch(asked.hosts[0]) if len(asked.hosts) == 1 else None
    return None if found is None else found[1].strip("[]").lower()


def _same(given: str, secret: str) -> bool:
    """Takes as long for any `given` of this length."""
    return secrets.compare_digest(given.encode(errors="replace"), secret.encode())


def _wrong_origin(asked: Asked) -> Refused | None:
    """Other pages may not ask, nor embed an answer; a link to this page may be anywhere."""
    if any(not _is_origin_of(origin, asked.hosts[0]) for origin in asked.origins):
        return Refused(status=403, why="the request comes from the page of another server")
    if _is_foreign(asked) and asked.fetch_mode != "navigate":
        return Refused(status=403, why="the request comes from the page of another server")
    if asked.method == "POST" and not asked.origins:
        return Refused(status=403, why="a POST needs the header Origin")
    return None


def _is_foreign(asked: Asked) -> bool:
    return asked.fetch_site in ("cross-site", "same-site")


def _is_origin_of(origin: str, host: str) -> bool:
    scheme, _, rest = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    return port is not None and rest.removesuffix(port) == host.lower().removesuffix(port)


def _malformed(asked: Asked) -> Refused | None:
    """A proxy in front may see another end of a request than this server, and pass what follows as
    the request of somebody else."""
    has_length = any(text != "0" for text in asked.lengths)
    if asked.version not in ("1.0", "1.1"):
        return Refused(status=505, why="this server speaks HTTP/1.1")
    if asked.head_bytes > LARGEST_HEAD:
        return Refused(status=431, why=f"the head of a request may have {LARGEST_HEAD:,} bytes")
    if asked.encodings and (asked.lengths or asked.version == "1.0"):
        why = "Transfer-Encoding next to Content-Length, or in HTTP/1.0, is refused"
    elif asked.method != "POST" and (asked.encodings or has_length):
        why = "only a POST may have a body"
    else:
        return None
    return Refused(status=400, why=why)


def _wrong_body(asked: Asked) -> Refused | None:
    if any(not text.isdecimal() or int(text[:12]) > LARGEST_BODY for text in asked.lengths):
        return Refused(status=413, why=f"a request may have {LARGEST_BODY:,} bytes")
    kinds = [kind.partition(";")[0].strip().lower() for kind in asked.content_types]
    if asked.method == "POST" and kinds != ["application/json"]:
        return Refused(status=415, why="a POST needs Content-Type: application/json")
    return None


def base_of(text: str) -> str:
    """`--base-url` as a path that begins and ends with a slash. Raises InvalidConfig."""
    parts = [part for part in text.split("/") if part]
    plain = all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in parts)
    if not plain or (text and not text.startswith("/")):
        raise InvalidConfig(
            f"--base-url {text!r:.100} must be a path such as /proxy/8765, as the browser sees it"
        )
    return "".join(f"/{part}" for part in parts) + "/"


def allowed_name(text: str) -> str:
    """A host for `--allow-host`, without a port. Raises InvalidConfig."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        found = _HOST.fullmatch(text)
    if found is None or found[2] is not None:
        raise InvalidConfig(
            f"--allow-host {text!r:.100} must be the name of a host, as in hub.example.org"
        )
    return text.lower()


def is_loopback(host: str) -> bool:
    """True if only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
