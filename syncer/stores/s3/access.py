"""How requests reach a bucket, and with which keys.

The options of the URI and the environment often say both. Otherwise botocore finds them: in a
profile, from a metadata service, or for an access point. It sends no request to the bucket, and to
import it and make its client takes 0.3 s (2 cores, Python 3.11), so most processes never do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.files import threads
from holdfast.syncer.stores.s3.http import Connections, Keys, Proxy
from holdfast.syncer.stores.s3.options import endpoint_url, is_set

# For servers that have no regions.
ANY_REGION = "us-east-1"
# With these, botocore decides: they name a profile, or say when keys end.
_DECIDING = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION")
_TOKENS = ("AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")  # in botocore's order
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a bucket: `base` is the path before the key. `ca_bundle` is the file with the
    certificates to trust, "" for those that botocore trusts."""

    scheme: str
    host: str
    base: str
    region: str
    ca_bundle: str = ""

    def path_of(self, key: str) -> str:
        return self.base + quote(key, safe="/~")

    def connections(self, connect_s: float) -> Connections:
        """Connections to the server, through the proxy of the environment if there is one."""
        url = f"{self.scheme}://{self.host}"
        parts, tls = urlsplit(url), None
        if self.scheme == "https":
            import ssl

            tls = ssl.create_default_context(cafile=self.ca_bundle or _certificates())
        return Connections(
            parts.hostname or "",
            parts.port or _PORTS[self.scheme],
            tls=tls,
            connect_s=connect_s,
            proxy=_proxy_for(url),
        )


class Access:
    """The address of a bucket and the keys for it, found when they are first needed."""

    def __init__(self, options: Mapping[str, str], bucket: str) -> None:
        """`options` are those of an S3 URI."""
        self._options = options
        self._bucket = bucket
        self._is_anonymous = is_set(options, "anonymous")
        self._keys = known_keys(options, os.environ)
        self._finding = asyncio.Lock()
        # Those that botocore has found, which may change.
        self._credentials: Any = None
        self._address: Address | None = None
        if self._is_anonymous or self._keys is not None:
            self._address = known_address(options, bucket, os.environ)

    async def address(self) -> Address:
        """Raises what botocore raises, and StorageRefused."""
        if self._address is None:
            async with self._finding:
                if self._address is None:
                    self._address, self._credentials = await _found(self._options, self._bucket)
        return self._address

    async def keys(self) -> Keys | None:
        """The keys of now; None for anonymous requests. Raises what botocore raises."""
        if self._is_anonymous or self._keys is not None:
            return self._keys
        await self.address()
        credentials = self._credentials
        if hasattr(credentials, "refresh_needed") and credentials.refresh_needed():
            found = await threads.call(credentials.get_frozen_credentials)
        else:
            found = credentials.get_frozen_credentials()
        return Keys(access_key=found.access_key, secret_key=found.secret_key, token=found.token)

    async def move_to(self, region: str) -> None:
        """The server has answered that the bucket is in this region."""
        known = await self.address()
        if "endpoint_override" in self._options:
            self._address = replace(known, region=region)
        else:
            self._address, _ = await _found({**self._options, "region": region}, self._bucket)


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


def known_address(
    options: Mapping[str, str], bucket: str, environ: Mapping[str, str]
) -> Address | None:
    """The address that botocore would use; None if only botocore knows it. It is known for an
    endpoint that the URI names."""
    if "endpoint_override" not in options:
        return None
    parts = urlsplit(endpoint_url(options) or "")
    if parts.scheme not in _PORTS or parts.path.strip("/") or "@" in parts.netloc:
        return None
    bundle = _ca_bundle(environ, "")
    if parts.scheme == "https" and not bundle and _config_file(environ).exists():
        return None  # it may name another one
    if not parts.hostname:
        return None
    return Address(
        scheme=parts.scheme,
        host=parts.netloc,
        base=f"/{quote(bucket, safe='')}/",
        region=options.get("region") or ANY_REGION,
        ca_bundle=bundle,
    )


async def _found(options: Mapping[str, str], bucket: str) -> tuple[Address, Any]:
    return await threads.call(partial(found_by_botocore, options, bucket))


def found_by_botocore(options: Mapping[str, str], bucket: str) -> tuple[Address, Any]:
    """The address that botocore uses, and its credentials. Blocks: it may ask a metadata service.

    Raises what botocore raises, and StorageRefused for a kind of bucket that is not supported.
    """
    from botocore.config import Config
    from botocore.session import get_session

    if bucket.endswith("--x-s3"):
        cause = "a directory bucket (S3 Express One Zone) needs sessions, which holdfast lacks"
        advice = "Pass storage_filesystem=s3fs.S3FileSystem(...), or use another bucket"
        raise StorageRefused("open", f"s3://{bucket}", cause, advice)
    session = get_session()
    session.register_component("data_loader", _service_descriptions())
    endpoint = endpoint_url(options)
    if is_set(options, "anonymous"):  # any keys, only to have the address signed
        options = {**options, "access_key": "none", "secret_key": "none"}
    client = session.create_client(
        "s3",
        endpoint_url=endpoint,
        region_name=options.get("region") or (ANY_REGION if endpoint else None),
        use_ssl=options.get("scheme") != "http",
        aws_access_key_id=options.get("access_key"),
        aws_secret_access_key=options.get("secret_key"),
        aws_session_token=options.get("session_token"),
        config=Config(
            # Buckets as host names need DNS entries that private servers rarely have.
            s3={"addressing_style": "path"} if "endpoint_override" in options else None,
            signature_version="s3v4",
        ),
    )
    client.meta.events.register("before-send.s3", _take_signed)
    try:
        client.get_object(Bucket=bucket, Key="key")
    except _SignedRequest as signed:
        parts, authorization = urlsplit(signed.url), signed.authorization
    finally:
        client.close()
    scope = authorization.partition("Credential=")[2].partition(",")[0]
    return Address(
        scheme=parts.scheme,
        host=parts.netloc,
        base=parts.path.removesuffix("key"),
        region=scope.split("/")[-3],
        ca_bundle=_ca_bundle(os.environ, session.get_config_variable("ca_bundle") or ""),
    ), session.get_credentials()


class _SignedRequest(Exception):
    """A request that botocore has signed. It is not sent."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.url: str = request.url
        given = request.headers["Authorization"]
        self.authorization: str = given.decode() if isinstance(given, bytes) else given


def _take_signed(request: Any, **_: Any) -> None:
    raise _SignedRequest(request)


@cache
def _service_descriptions() -> Any:
    """botocore's description of S3, read once per process: a client takes 12 ms instead of 80.

    The session, which has the credentials, is created each time.
    """
    from botocore.loaders import create_loader

    return create_loader()


def _ca_bundle(environ: Mapping[str, str], configured: str) -> str:
    """The file with the certificates to trust; "" for those that botocore trusts. `configured` is
    that of the user's profile."""
    found = environ.get("AWS_CA_BUNDLE") or configured or environ.get("REQUESTS_CA_BUNDLE")
    return found or ""


def _proxy_for(url: str) -> Proxy | None:
    """The proxy of the environment for this URL. Raises StorageRefused."""
    parts = urlsplit(url)
    named = getproxies().get(parts.scheme)
    if not named or proxy_bypass(parts.netloc):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise StorageRefused(
            "open",
            url,
            f"its proxy is a {proxy.scheme} URL, and holdfast uses http proxies only",
            f"Set {parts.scheme}_proxy=http://..., or name the host in no_proxy",
        )
    return Proxy(
        host=proxy.hostname,
        port=proxy.port or _PORTS["http"],
        user=proxy.username or "",
        password=proxy.password or "",
    )


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
