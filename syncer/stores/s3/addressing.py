"""How requests reach a bucket, and with which keys: known from the options of its URI and from the
environment, or learned from botocore's own requests."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from holdfast.dataclass import dataclass
from holdfast.syncer.stores.s3.http import Lines
from holdfast.syncer.stores.s3.options import endpoint_url, is_set

# For servers that have no regions.
ANY_REGION = "us-east-1"
_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/([^/]+)/s3/aws4_request")
# With these, botocore decides: they name a profile, or say when keys end.
_DECIDING = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION")
_TOKENS = ("AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")  # in botocore's order
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys that sign requests. `token` is None without a session."""

    access_key: str
    secret_key: str
    token: str | None = None

    async def get_frozen_credentials(self) -> Keys:
        """As botocore's credentials, which may change."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The address of a bucket: `base` is the path before the key. `ca_bundle` is the file with the
    certificates to trust, "" for those that botocore trusts."""

    scheme: str
    host: str
    base: str
    region: str
    ca_bundle: str = ""

    def path_of(self, key: str) -> str:
        return self.base + quote(key, safe="/~")

    def lines(self, connect_s: float) -> Lines:
        """Connections to the server."""
        parts = urlsplit(f"{self.scheme}://{self.host}")
        port = parts.port or _PORTS[self.scheme]
        if self.scheme == "http":
            return Lines(parts.hostname or "", port, tls=None, connect_s=connect_s)
        import ssl

        tls = ssl.create_default_context(cafile=self.ca_bundle or _certificates())
        return Lines(parts.hostname or "", port, tls=tls, connect_s=connect_s)


def known_keys(options: Mapping[str, str], environ: Mapping[str, str]) -> Keys | None:
    """The keys in the URI or the environment; None if botocore has to look for them."""
    if is_set(options, "anonymous"):
        return None
    if "access_key" in options:
        token = options.get("session_token")
        return Keys(
            access_key=options["access_key"], secret_key=options["secret_key"], token=token
        )
    if any(environ.get(name) for name in _DECIDING):
        return None
    access_key, secret_key = (
        environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    )
    if not access_key or not secret_key:
        return None
    token = next(filter(None, map(environ.get, _TOKENS)), None)
    return Keys(access_key=access_key, secret_key=secret_key, token=token)


def known_way(options: Mapping[str, str], bucket: str, environ: Mapping[str, str]) -> Way | None:
    """The address that botocore would use; None if only botocore knows it. It is known for an
    endpoint that the URI names, without a proxy."""
    if "endpoint_override" not in options:
        return None
    url = endpoint_url(options) or ""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or parts.path.strip("/") or "@" in parts.netloc:
        return None
    bundle = ca_bundle(environ, "")
    if parts.scheme == "https" and not bundle and _config_file(environ).exists():
        return None  # it may name another one
    if not parts.hostname or _has_proxy(url):
        return None
    return Way(
        scheme=parts.scheme,
        host=parts.netloc,
        base=f"/{quote(bucket, safe='')}/",
        region=options.get("region") or ANY_REGION,
        ca_bundle=bundle,
    )


def learned_way(request: Any, bucket: str, bundle: str) -> Way | None:
    """The address in a request of botocore's; None if it has a proxy, or another kind of signature
    or bucket."""
    given = request.headers.get("Authorization", "")
    scope = _SCOPE.match(given.decode() if isinstance(given, bytes) else given)
    parts = urlsplit(request.url)
    if parts.netloc.startswith(f"{bucket}."):
        base = "/"
    elif f"{parts.path}/".startswith(f"/{bucket}/"):
        base = f"/{bucket}/"
    else:
        return None
    if scope is None or _has_proxy(request.url):
        return None
    return Way(
        scheme=parts.scheme, host=parts.netloc, base=base, region=scope[1], ca_bundle=bundle
    )


def ca_bundle(environ: Mapping[str, str], configured: str) -> str:
    """The file with the certificates to trust; "" for those that botocore trusts. `configured` is
    that of the user's profile."""
    found = environ.get("AWS_CA_BUNDLE") or configured or environ.get("REQUESTS_CA_BUNDLE")
    return found or ""


def _has_proxy(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.netloc)


def _config_file(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()


def _certificates() -> str:
    """The certificates that botocore trusts: certifi's, or its own without that package."""
    try:
        from certifi import where
    except ImportError:
        found = find_spec("botocore")
        assert found is not None
        assert found.origin is not None
        return os.path.join(os.path.dirname(found.origin), "cacert.pem")
    return where()
