"""The options in an S3 URI, `s3://key:secret@bucket/prefix?endpoint_override=...`, and what the
environment or a profile of AWS configures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from holdfast.syncer.errors import InvalidLocation, redact


def as_configured(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The options of an S3 URI, with the endpoint that botocore would use without one.

    The order is botocore's: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the section `services` of the
    profile, and its `endpoint_url`.
    """
    if options.get("endpoint_override"):
        return dict(options)
    profile = _Profile()
    ignores = environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
    if ignores is None:
        ignores = profile.text("ignore_configured_endpoint_urls")
    if ignores.lower() == "true":
        return dict(options)
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    endpoint = endpoint or profile.service_endpoint or profile.text("endpoint_url")
    if not endpoint:
        return dict(options)
    region = environ.get("AWS_DEFAULT_REGION") or profile.text("region")
    found = {"endpoint_override": endpoint, **({"region": region} if region else {})}
    return {**found, **{name: text for name, text in options.items() if text}}


class _Profile:
    """The user's profile; empty if there is none, or without the extra `s3`."""

    def __init__(self) -> None:
        self._own: Mapping[str, Any] = {}
        self._services: Mapping[str, Any] = {}
        try:
            from botocore.exceptions import BotoCoreError
            from botocore.session import Session
        except ImportError:
            return
        try:
            session = Session()
            self._own = session.get_scoped_config()
            self._services = session.full_config.get("services", {})
        except BotoCoreError:  # such as a missing profile, which the client reports
            return

    def text(self, name: str) -> str:
        found = self._own.get(name)
        return found if isinstance(found, str) else ""

    @property
    def service_endpoint(self) -> str:
        """The endpoint of S3 in the section `services` that the profile names."""
        section = self._services.get(self.text("services"))
        s3 = section.get("s3") if isinstance(section, Mapping) else None
        endpoint = s3.get("endpoint_url") if isinstance(s3, Mapping) else None
        return endpoint if isinstance(endpoint, str) else ""


SECRETS = frozenset({"access_key", "secret_key", "session_token"})
_FLAGS = frozenset({"allow_bucket_creation", "allow_bucket_deletion", "anonymous"})
_ANONYMOUS = "anonymous"  # before the @, as in pyarrow's URIs of other schemes
_TIMEOUTS = frozenset({"connect_timeout", "request_timeout"})
_OPTIONS = SECRETS | _FLAGS | _TIMEOUTS | {"endpoint_override", "region", "scheme"}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def parse_s3_uri(text: str) -> tuple[str, dict[str, str]]:
    """Split an S3 URI into `bucket/prefix` and its options, including credentials.

    Raises InvalidLocation, whose message contains nothing that may be a secret.
    """
    body, _, query = text[text.index("://") + 3 :].partition("?")
    authority, _, prefix = body.partition("/")
    userinfo, at, bucket = authority.rpartition("@")
    if ":" in bucket:
        raise InvalidLocation(
            "resolve",
            "s3://***",
            "the part before the first slash is not a bucket",
            "In s3://key:secret@bucket/... the characters / ? and + of the secret must be "
            "percent-encoded (%2F %3F %2B); an endpoint goes into ?endpoint_override=",
        )
    path = f"{unquote(bucket)}/{unquote(prefix)}".strip("/")
    shown = f"s3://{path}"
    if not bucket:
        raise InvalidLocation("resolve", shown, "it has no bucket")
    options = _parse_query(query, shown)
    if userinfo == _ANONYMOUS:
        options[_ANONYMOUS] = "true"
    elif at:
        key, _, secret = userinfo.partition(":")
        options["access_key"], options["secret_key"] = unquote(key), unquote(secret)
    _check(options, shown)
    return path, options


def _parse_query(query: str, shown: str) -> dict[str, str]:
    options = {}
    for pair in filter(None, query.split("&")):
        name, equals, value = pair.partition("=")
        if name not in _OPTIONS:
            # A secret that contains an & would be shown in part if every name were shown.
            said = repr(name) if equals and name.replace("_", "").isalpha() else "a part of it"
            known = ", ".join(sorted(_OPTIONS))
            raise InvalidLocation(
                "resolve",
                shown,
                f"{said} is not an option of an S3 URI",
                f"Known are {known}; an & in a value must be written %26",
            )
        # A + stays a +, because users paste secrets with a + unchanged.
        options[name] = unquote(value)
    return options


def _check(options: Mapping[str, str], shown: str) -> None:
    if bool(options.get("access_key")) != bool(options.get("secret_key")):
        raise InvalidLocation(
            "resolve", shown, "access_key and secret_key must be set together, but one is missing"
        )
    if options.get(_ANONYMOUS, "").lower() in ("true", "1") and options.keys() & SECRETS:
        raise InvalidLocation(
            "resolve", shown, "anonymous access uses no credentials: remove one of the two"
        )
    for name in options.keys() & _FLAGS:
        if options[name].lower() not in _TRUTH:
            raise InvalidLocation("resolve", shown, f"{name} must be true or false")
    for name in options.keys() & _TIMEOUTS:
        if not _is_duration(options[name]):
            raise InvalidLocation("resolve", shown, f"{name} must be a number of seconds above 0")
    if options.get("scheme", "https") not in {"http", "https"}:
        raise InvalidLocation("resolve", shown, "scheme must be http or https")


def _is_duration(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def public_query(options: Mapping[str, str]) -> str:
    """The options that may be printed and stored, as a query with its question mark."""
    pairs = "&".join(
        f"{name}={quote(redact(value), safe=':/*')}"
        for name, value in options.items()
        if name not in SECRETS
    )
    return f"?{pairs}" if pairs else ""


def is_set(options: Mapping[str, str], name: str) -> bool:
    """True if a boolean option is present and true."""
    return _TRUTH[options.get(name, "false").lower()]


def endpoint_url(options: Mapping[str, str]) -> str | None:
    """The endpoint as a URL with its scheme; None for the provider's default."""
    endpoint = options.get("endpoint_override")
    if not endpoint:
        return None
    return endpoint if "://" in endpoint else f"{options.get('scheme', 'https')}://{endpoint}"


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """A timeout from the options, or the default."""
    return float(options.get(name, default))


def arrow_options(options: Mapping[str, str]) -> dict[str, Any]:
    """The same options as arguments of pyarrow.fs.S3FileSystem."""
    made: dict[str, Any] = {
        name: is_set(options, name) if name in _FLAGS else value for name, value in options.items()
    }
    made |= {name: float(made[name]) for name in options.keys() & _TIMEOUTS}
    # A private endpoint has no regions, and asking AWS for one would take seconds.
    if "endpoint_override" in options:
        made.setdefault("region", "us-east-1")
    return made
