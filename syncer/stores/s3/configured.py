"""The endpoint and region of S3 that the environment or a profile of AWS configures.

botocore's clients find them by themselves; pyarrow's filesystem, which reads listings and small
files, does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
