"""AWS Signature Version 4 of a request, in its headers.

botocore's implementation takes 200 µs, a third of the time of a small put; this one takes 20 µs.
Tests compare the two. The algorithm is described in "Authenticating Requests: Using the
Authorization Header" in the S3 API reference.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from holdfast.dataclass import dataclass

# The signature covers the body by its checksum, which is one of the signed headers.
UNSIGNED = "UNSIGNED-PAYLOAD"


class Credentials(Protocol):
    """botocore's frozen credentials. `token` is None without a session."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request to sign. `path` is percent-encoded, `query` and `headers` are not. Header names
    are lower case and include `host`."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def encoded_query(self) -> str:
        return _encoded(tuple(sorted(self.query.items())))

    @property
    def target(self) -> str:
        """The request target: the path and the query."""
        return f"{self.path}?{self.encoded_query}" if self.query else self.path


def signed(
    request: SignedRequest, credentials: Credentials, region: str, now: float
) -> dict[str, str]:
    """The request's headers with the signature. `now` is in seconds since 1970."""
    stamp = _stamp(int(now))
    headers = {**request.headers, "x-amz-content-sha256": UNSIGNED, "x-amz-date": stamp}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    lines = "\n".join(f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers))
    first = (request.method, request.path, request.encoded_query)
    canonical = "\n".join([*first, lines, "", names, UNSIGNED])
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = _signing_key(credentials.secret_key, stamp[:8], region)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return headers


@lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Signed and sent, so needed twice; and the claims are listed again and again."""
    return "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)


@lru_cache(maxsize=1)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


@lru_cache(maxsize=4)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
