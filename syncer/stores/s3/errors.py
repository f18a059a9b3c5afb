"""Translates errors of S3 servers and botocore to StorageError."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageBusy,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    redact,
)

_CREDENTIALS = (
    "Check access_key and secret_key in storage_path (or AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and AWS_PROFILE), and that they may read, write, list and delete there"
)
_BUCKET = (
    "Create the bucket, correct its name or endpoint_override, "
    "or add allow_bucket_creation=true to the query of storage_path"
)
_ENDPOINT = (
    "Check that the server runs and that endpoint_override (or AWS_ENDPOINT_URL), its port and "
    "http or https are right"
)
_REGION = "Add region=... of the bucket to the query of storage_path"

_BUSY = {"ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "TooManyRequests"}
_TRY_AGAIN = {
    "BadDigest",
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "XAmzContentSHA256Mismatch",
}
_CREDENTIAL_CODES = {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId"}
_NO_CREDENTIALS = {
    "CredentialRetrievalError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "SSOTokenLoadError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
_NO_CONNECTION = {"EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"}
_MISUSED = {"ParamValidationError", "InvalidRegionError", "InvalidEndpointConfigurationError"}


class AnsweredError(Exception):
    """An error that the server has answered, with the interface of botocore's ClientError."""

    def __init__(self, code: str, status: int, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.response = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


def code_and_status(error: Exception) -> tuple[str, int]:
    """The S3 error code and the HTTP status of a ClientError; ("", 0) for another error."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    # Answers to HEAD have no body; botocore then uses the status as the code.
    return code, int(status or (code if code.isdigit() else 0))


def refuses_checksum(error: Exception) -> bool:
    """Whether the server may have refused a request because of a checksum that it does not know.

    Backblaze answers 400 InvalidArgument, Cloudflare 501 NotImplemented.
    """
    code, status = code_and_status(error)
    return status == 501 or (status == 400 and code not in _TRY_AGAIN | _CREDENTIAL_CODES)


def cause_of(error: StorageError) -> Exception:
    """The cause of a StorageError; the error itself if it has none."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def translated(
    error: Exception, operation: str, where: str, secrets: Iterable[str] = ()
) -> StorageError:
    """The StorageError for an exception of an S3 call."""
    if isinstance(error, StorageError):
        return error.during(operation, where)
    if isinstance(error, TimeoutError):
        return StorageUnavailable(operation, where, "no answer within the deadline", _ENDPOINT)
    cause = redact(f"{error}" or type(error).__name__, secrets)
    code, status = code_and_status(error)
    if status or code:
        return _answered(code, status, operation, where, cause)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _NO_CREDENTIALS:
        return StorageRefused(operation, where, cause, _CREDENTIALS)
    if kinds & _NO_CONNECTION:
        return StorageUnavailable(operation, where, cause, _ENDPOINT)
    if kinds & _MISUSED:
        return StorageRefused(operation, where, cause)
    return StorageUnavailable(operation, where, cause)


def refused_object(code: str, message: str, where: str) -> StorageError:
    """The error for one key of a batched deletion."""
    status = 403 if code in {"AccessDenied", "Forbidden"} else 500
    return _answered(code, status, "delete", where, redact(f"{code} {message}".strip()))


def _answered(code: str, status: int, operation: str, where: str, cause: str) -> StorageError:
    if code == "NoSuchBucket":
        return StorageRefused(operation, where, cause, _BUCKET)
    if status == 404:
        return NotStored(operation, where, cause)
    if status == 412:
        return AlreadyStored(operation, where, "there is such an object already")
    if status in {401, 403} or code in _CREDENTIAL_CODES:
        return StorageRefused(operation, where, cause, _CREDENTIALS)
    if status in {301, 307} or code in {"AuthorizationHeaderMalformed", "PermanentRedirect"}:
        return StorageRefused(operation, where, cause, _REGION)
    if status in {429, 502, 503, 504} or code in _BUSY:
        return StorageBusy(operation, where, cause)
    if (status >= 500 and status != 501) or status in {408, 409} or code in _TRY_AGAIN:
        return StorageUnavailable(operation, where, cause)
    return StorageRefused(operation, where, cause)
