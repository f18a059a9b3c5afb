"""Reads the answers of S3: errors, facts about objects, and pages of listings.

A listing ends in an error if pages bring nothing new again and again, if a continuation token is
repeated, if it takes far too long for its number of entries, or if it is too large. It is then
repeated from the start, because proxies sometimes cause such answers by accident.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageBusy,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    redact,
)
from holdfast.syncer.stores.s3.http import Answer, NotConnected
from holdfast.syncer.stores.store import ObjectInfo

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
_MISUSED = {"ParamValidationError", "InvalidRegionError", "InvalidEndpointConfigurationError"}


class AnsweredError(Exception):
    """An error that the server has answered. `region` is where the bucket is, if it says so."""

    def __init__(self, code: str, status: int, message: str, region: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code, self.status, self.region = code, status, region


class OddAnswer(ConnectionError):
    """The answer is not one of S3."""


def code_and_status(error: Exception) -> tuple[str, int]:
    """The S3 error code and the HTTP status of an AnsweredError; ("", 0) for another error."""
    return (error.code, error.status) if isinstance(error, AnsweredError) else ("", 0)


def is_transient(error: Exception) -> bool:
    """True if the same request may succeed a moment later."""
    if not isinstance(error, AnsweredError):
        return True
    is_of_server = error.status >= 500 and error.status != 501
    return is_of_server or error.status == 429 or error.code in _BUSY | _TRY_AGAIN


def refuses_checksum(error: Exception) -> bool:
    """True if the server may have refused a request because of a checksum that it does not know.

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
    if isinstance(error, NotConnected):
        return StorageUnavailable(operation, where, cause, _ENDPOINT)
    if isinstance(error, OddAnswer):
        return StorageUnavailable(operation, where, cause, ODD)
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


_META = "x-amz-meta-"
_ETAG = re.compile(r"<ETag>(?:&quot;|&#34;|\")?([^<&\"]+)")
_BEGUN = re.compile(r"<UploadId>([^<]+)</UploadId>")
_COMPLETED = re.compile(r"<(?:\w+:)?CompleteMultipartUploadResult[\s/>]")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_ANSWERED = {"ETag": "etag", "ChecksumCRC32C": "x-amz-checksum-crc32c"}
_ERROR = re.compile(rb"\s*(<\?xml[^>]*>\s*)?<Error[\s>]")
_REGION_NAMED = re.compile(r"<Region>([\w-]+)</Region>")


def error_in(answer: Answer, method: str) -> AnsweredError | None:
    """The error in an answer; None if it is a success. A copy or a completion may fail after the
    status 200 was sent, which only the body says."""
    status = answer.status
    if status < 300:
        if method not in ("PUT", "POST") or not _ERROR.match(answer.body):
            return None
        status = 500
    text = answer.body.decode(errors="replace")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    region = answer.headers.get("x-amz-bucket-region", "")
    if not region and (found := _REGION_NAMED.search(text)):
        region = found[1]
    return AnsweredError(
        # Answers to HEAD have no body.
        code[1] if code else str(status),
        status,
        unescape(message[1]) if message else "",
        region if status in (301, 307, 400) else "",
    )


def facts_in(answer: Answer) -> Mapping[str, str]:
    """The ETag and the checksum in the answer to a put or a copy, as far as they are there."""
    named = {name: answer.headers.get(header, "") for name, header in _ANSWERED.items()}
    if not named["ETag"] and (found := _ETAG.search(answer.body.decode(errors="replace"))):
        named["ETag"] = found[1]
    return {name: text for name, text in named.items() if text}


def upload_in(answer: Answer) -> str:
    """The id of an upload that has begun. Raises OddAnswer."""
    found = _BEGUN.search(answer.body.decode(errors="replace"))
    if found is None:
        raise OddAnswer("the storage has begun an upload without an id")
    return unescape(found[1])


def completed_in(answer: Answer) -> str:
    """The ETag of an upload that was completed, "" without one. Raises OddAnswer."""
    text = answer.body.decode(errors="replace")
    if not _COMPLETED.search(text):
        raise OddAnswer("the storage does not say that the upload is complete")
    found = _ETAG.search(text)
    return found[1] if found else ""


def failures_in(answer: Answer) -> list[dict[str, str]]:
    """The objects that were not deleted. Raises OddAnswer."""
    _, errors = _listing(answer, "DeleteResult", "Error")
    return errors


def uploads_in(answer: Answer) -> Mapping[str, Any]:
    """The page of `list_multipart_uploads`. Raises OddAnswer."""
    fields, uploads = _listing(answer, "ListMultipartUploadsResult", "Upload")
    return {
        "Uploads": uploads,
        "IsTruncated": fields.get("IsTruncated") == "true",  # rclone leaves it out
        "NextKeyMarker": fields.get("NextKeyMarker", ""),
        "NextUploadIdMarker": fields.get("NextUploadIdMarker"),
    }


def parts_in(answer: Answer) -> Mapping[str, Any]:
    """The page of `list_parts`. Raises OddAnswer."""
    fields, parts = _listing(answer, "ListParts", "Part")
    with _reading():
        return {
            "Parts": [
                {**part, "PartNumber": int(part["PartNumber"]), "Size": int(part["Size"])}
                for part in parts
            ],
            "IsTruncated": fields.get("IsTruncated") == "true",
            "NextPartNumberMarker": fields.get("NextPartNumberMarker"),
        }


def objects_in(answer: Answer) -> Mapping[str, Any]:
    """The page of `list_objects_v2`. Raises OddAnswer."""
    fields, entries = _listing(answer, "ListBucketResult", "Contents")
    with _reading():
        return {
            "Contents": [_entry(entry) for entry in entries],
            "IsTruncated": fields.get("IsTruncated") == "true",
            "NextContinuationToken": fields.get("NextContinuationToken"),
        }


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError) as error:
        raise OddAnswer(
            f"the storage sent a listing that S3 would not send ({error!r})"
        ) from error


def _listing(answer: Answer, name: str, entry: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The fields of a page and those of its entries, with their keys as they are in the bucket.
    Raises OddAnswer if it is not a page of this name."""
    try:
        root = ElementTree.fromstring(answer.body)
    except ElementTree.ParseError as error:
        raise OddAnswer(f"the storage sent a {name} that is not XML: {error}") from error
    if not _name(root).startswith(name):  # moto answers ListPartsResponse
        raise OddAnswer(f"the storage sent a {_name(root)}, not a {name}")
    fields = _fields(root)
    entries = [_fields(child) for child in root if _name(child) == entry]
    if fields.get("EncodingType") == "url":
        for found, key in [(fields, "NextKeyMarker"), *((one, "Key") for one in entries)]:
            if key in found:
                found[key] = unquote_plus(found[key])
    return fields, entries


def head_in(answer: Answer) -> Mapping[str, Any]:
    """The facts about an object in the headers of an answer. Raises OddAnswer without a size."""
    headers = answer.headers
    size = headers.get("content-length", "")
    if not size.isdecimal():
        raise OddAnswer("the storage did not say how many bytes the object has")
    meta = {k.removeprefix(_META): v for k, v in headers.items() if k.startswith(_META)}
    facts: dict[str, Any] = {
        "ContentLength": int(size),
        "ETag": headers.get("etag", ""),
        "Metadata": meta,
    }
    with suppress(TypeError, ValueError):
        facts["LastModified"] = parsedate_to_datetime(headers.get("last-modified", ""))
    return facts


def _entry(fields: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = dict(fields)
    if "Size" in entry:
        entry["Size"] = int(entry["Size"])
    if "LastModified" in entry:
        entry["LastModified"] = datetime.fromisoformat(entry["LastModified"])
    return entry


def _fields(element: ElementTree.Element) -> dict[str, str]:
    return {_name(child): child.text or "" for child in element}


def _name(element: ElementTree.Element) -> str:
    """Its name without the namespace, which some servers leave out."""
    return element.tag.rpartition("}")[2]


Entry = Mapping[str, Any]
Ask = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]

ODD = "Check the server and any proxy in front of it"

_ATTEMPTS = 2
# S3 returns a thousand; a server that returns more than this is broken.
MOST_ON_A_PAGE = 100_000
MOST_IN_ALL = 10_000_000
# S3 returns empty pages after many deleted objects.
_FRUITLESS_AT_MOST = 20
_FIRST_S = 60.0
_ENTRIES_PER_S = 100


class EndlessListing(StorageRefused):
    """A server's listing does not end, or repeats itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A kind of listing. `marks` maps fields of a page to fields of the query for the next page;
    `identity` names the fields that identify an entry."""

    operation: str
    entries: str
    marks: Mapping[str, str]
    identity: tuple[str, ...]


OBJECTS = Listing(
    operation="list_objects_v2",
    entries="Contents",
    marks={"NextContinuationToken": "ContinuationToken"},
    identity=("Key",),
)
UPLOADS = Listing(
    operation="list_multipart_uploads",
    entries="Uploads",
    marks={"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"},
    identity=("Key", "UploadId"),
)
PARTS = Listing(
    operation="list_parts",
    entries="Parts",
    marks={"NextPartNumberMarker": "PartNumberMarker"},
    identity=("PartNumber",),
)


async def listed(ask: Ask, query: Mapping[str, Any], kind: Listing) -> list[Entry]:
    """All entries. Raises EndlessListing, and what `ask` raises."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(EndlessListing):
            return await _listed(ask, query, kind)
    return await _listed(ask, query, kind)


async def _listed(ask: Ask, query: Mapping[str, Any], kind: Listing) -> list[Entry]:
    found: dict[tuple[Any, ...], Entry] = {}
    tokens, fruitless = set[tuple[Any, ...]](), 0
    asked, loop = dict(query), asyncio.get_running_loop()
    began = loop.time()
    while True:
        page, known = await ask(asked), len(found)
        entries = page.get(kind.entries, ())
        if len(entries) > MOST_ON_A_PAGE:
            raise _endless(f"a page has {len(entries):,} entries, and S3 gives 1,000")
        for entry in entries:
            found[tuple(entry.get(name) for name in kind.identity)] = entry
        if not page.get("IsTruncated"):
            return list(found.values())
        token = tuple(page.get(name) for name in kind.marks)
        fruitless = 0 if len(found) > known else fruitless + 1
        if text := _doubt(token in tokens, token, fruitless, len(found), loop.time() - began):
            raise _endless(text)
        tokens.add(token)
        asked |= {into: page[name] for name, into in kind.marks.items() if page.get(name)}


def _doubt(is_old: bool, token: tuple[Any, ...], fruitless: int, count: int, took_s: float) -> str:
    """The reason not to ask for the next page; "" if there is none."""
    if not any(token):
        return "it says that there is more, but has no continuation token"
    if is_old:
        return f"it repeats a continuation token after {count:,} entries"
    if fruitless > _FRUITLESS_AT_MOST:
        return f"the last {fruitless} pages brought nothing new"
    if count > MOST_IN_ALL:
        return f"it has more than {MOST_IN_ALL:,} entries"
    if took_s > _FIRST_S + count / _ENTRIES_PER_S:
        return f"{count:,} entries took {took_s:.0f} s, and there are more"
    return ""


def _endless(cause: str) -> EndlessListing:
    advice = "Check the server and any proxy in front of it: its listings do not end"
    return EndlessListing("list", "", cause, advice)


def entry_of(item: Entry, prefix: str, where: str) -> ObjectInfo:
    """The entry of an object below `prefix`. Raises StorageUnavailable if the item is not one."""
    name, size, modified = item.get("Key"), item.get("Size"), item.get("LastModified")
    if not isinstance(name, str) or not name.startswith(prefix):
        raise odd_answer(where, f"an object named {name!r:.100}, which is not in this folder")
    if not isinstance(size, int) or size < 0:
        raise odd_answer(where, f"{name!r:.100} with a size of {size!r:.100}")
    return ObjectInfo(
        key=name.removeprefix(prefix),
        size=size,
        etag=str(item.get("ETag", "")).strip('"') or None,
        modified=modified.timestamp() if isinstance(modified, datetime) else None,
    )


def odd_answer(where: str, text: str) -> StorageUnavailable:
    return StorageUnavailable("list", where, f"the storage answered with {text}", ODD)
