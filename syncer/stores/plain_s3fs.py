"""Recognizes s3fs filesystems that an `s3://` URI could describe as well.

A filesystem is sent to the uploader's process as its class and arguments, and created again there.
If these say no more than an `s3://` URI, holdfast's S3 client is used instead: it takes a quarter
of the CPU and has conditional puts. A subclass, any other argument or a section `s3` in the user's
AWS configuration may mean more, so such a filesystem is used itself.
"""

from __future__ import annotations

from typing import Any

_KIND = "s3fs.core.S3FileSystem"
# These arguments do not affect writes.
_OF_READS = frozenset({"use_listings_cache", "listings_expiry_time", "default_fill_cache"})
_NAMES = {
    "key": "access_key",
    "secret": "secret_key",
    "token": "session_token",
    "endpoint_url": "endpoint_override",
}
_CLIENT_NAMES = {"endpoint_url": "endpoint_override", "region_name": "region"}


def plain_s3_options(filesystem: Any, path: str) -> dict[str, str] | None:
    """The options of an S3 URI for the same place; None if the filesystem may mean more."""
    kind = type(filesystem)
    if f"{kind.__module__}.{kind.__qualname__}" != _KIND or filesystem.storage_args:
        return None
    if path.startswith("arn:"):  # an access point, whose name contains a slash
        return None
    options = _options_of(filesystem)
    return None if options is None else _as_configured(options)


def _options_of(filesystem: Any) -> dict[str, str] | None:
    given = {
        name: value for name, value in filesystem.storage_options.items() if value is not None
    }
    is_anonymous = given.pop("anon", False)
    client = dict(given.pop("client_kwargs", {}))
    named = [(_NAMES.get(name), value) for name, value in given.items() if name not in _OF_READS]
    named += [(_CLIENT_NAMES.get(name), value) for name, value in client.items()]
    options: dict[str, str] = {}
    for name, value in named:
        if name is None or not isinstance(value, str) or not value:
            return None
        if options.setdefault(name, value) != value:
            return None
    if "://" not in options.get("endpoint_override", "://"):
        return None
    if is_anonymous:
        options["anonymous"] = "true"
    has_keys = options.keys() & {"access_key", "secret_key", "session_token"}
    is_whole = {"access_key", "secret_key"} <= options.keys() and not is_anonymous
    return options if is_whole or not has_keys else None


def _as_configured(options: dict[str, str]) -> dict[str, str] | None:
    """Add the region for signatures, which s3fs takes from the environment or the user's
    configuration; an S3 URI with an endpoint does not read these."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    session = Session()
    try:
        if session.get_config_variable("s3"):  # such as how URLs contain the bucket
            return None
        region = session.get_config_variable("region")
    except BotoCoreError:  # such as a missing profile, which s3fs reports
        return None
    return {"region": region, **options} if region else options
