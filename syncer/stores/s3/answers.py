"""Reads the answers of S3: errors, facts about objects, and pages of listings.

A listing ends in an error if pages bring nothing new again and again, if a continuation token is
repeated, if it takes far too long for its number of entries, or if it is too large. It is then
repeated from the start, because proxies sometimes cause such answers by accident.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar
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

T = TypeVar("T")

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
ODD = "Check the server and any proxy in front of it"
_REGION = "Add region=... of the bucket to the query of storage_path"

# Replaced by the operation of the caller.
_ASK = "ask"

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


def answered(error: BaseException | None) -> tuple[str, int]:
    """The S3 error code and the HTTP status of the AnsweredError that caused an error; ("", 0) if
    none did."""
    while error is not None:
        if isinstance(error, AnsweredError):
            return error.code, error.status
        error = error.__cause__
    return "", 0


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
    code, status = answered(error)
    return status == 501 or (status == 400 and code not in _TRY_AGAIN | _CREDENTIAL_CODES)


def translated(error: Exception, secrets: Iterable[str] = ()) -> StorageError:
    """The StorageError for what a request raised."""
    if isinstance(error, TimeoutError):
        return StorageUnavailable(_ASK, "", "no answer within the deadline", _ENDPOINT)
    cause = redact(f"{error}" or type(error).__name__, secrets)
    if isinstance(error, AnsweredError):
        return _of_code(error.code, error.status, cause)
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & _NO_CREDENTIALS:
        return StorageRefused(_ASK, "", cause, _CREDENTIALS)
    if isinstance(error, NotConnected):
        return StorageUnavailable(_ASK, "", cause, _ENDPOINT)
    if isinstance(error, OddAnswer):
        return StorageUnavailable(_ASK, "", cause, ODD)
    if kinds & _MISUSED:
        return StorageRefused(_ASK, "", cause)
    return StorageUnavailable(_ASK, "", cause)


def _of_code(code: str, status: int, cause: str) -> StorageError:
    kind: type[StorageError] = StorageRefused
    advice = ""
    if code == "NoSuchBucket":
        advice = _BUCKET
    elif status == 404:
        kind = NotStored
    elif status == 412:
        kind, cause = AlreadyStored, "there is such an object already"
    elif status in {401, 403} or code in _CREDENTIAL_CODES:
        advice = _CREDENTIALS
    elif status in {301, 307} or code in {"AuthorizationHeaderMalformed", "PermanentRedirect"}:
        advice = _REGION
    elif status in {429, 502, 503, 504} or code in _BUSY:
        kind = StorageBusy
    elif (status >= 500 and status != 501) or status in {408, 409} or code in _TRY_AGAIN:
        kind = StorageUnavailable
    return kind(_ASK, "", cause, advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the server has confirmed of an object or a part: its ETag ("" if it does not say), its
    CRC-32C if it is known, and whether they prove its bytes."""

    etag: str = ""
    crc: str | None = None
    is_proven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """An object, and the mark of its put ("" without one)."""

    info: ObjectInfo
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """An upload that was begun. `is_summed`: its parts must have their CRC-32C."""

    name: str
    upload_id: str
    is_summed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """A part that an upload already has."""

    number: int
    size: int
    etag: str
    crc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A page of a listing: its entries by what identifies them, and the query that asks for the
    next one, None at the end."""

    entries: Mapping[Any, T]
    following: Mapping[str, str] | None = None


_ETAG = re.compile(r"<ETag>(?:&quot;|&#34;|\")?([^<&\"]+)")
_BEGUN = re.compile(r"<UploadId>([^<]+)</UploadId>")
_COMPLETED = re.compile(r"<(?:\w+:)?CompleteMultipartUploadResult[\s/>]")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
MARK = "x-amz-meta-holdfast-put"
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


def receipt_in(answer: Answer) -> Receipt:
    """The ETag and the checksum in the answer to a put or a copy, as far as they are there."""
    etag = answer.headers.get("etag", "").strip('"')
    if not etag and (found := _ETAG.search(answer.body.decode(errors="replace"))):
        etag = found[1]
    return Receipt(etag=etag, crc=answer.headers.get("x-amz-checksum-crc32c"))


def etagged_in(answer: Answer) -> Receipt:
    """The same. Raises OddAnswer without an ETag."""
    found = receipt_in(answer)
    if not found.etag:
        raise OddAnswer("the storage did not say the ETag of what it has stored")
    return found


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


def failures_in(answer: Answer) -> dict[str, StorageError]:
    """The errors for objects that were not deleted, by name. Raises OddAnswer."""
    failures: dict[str, StorageError] = {}
    for fields in _listing(answer, "DeleteResult", "Error")[1]:
        code = fields.get("Code", "")
        status = 403 if code in {"AccessDenied", "Forbidden"} else 500
        cause = redact(f"{code} {fields.get('Message', '')}".strip())
        failures[fields.get("Key", "")] = _of_code(code, status, cause)
    return failures


def uploads_in(answer: Answer) -> Page[Unfinished]:
    """A page of uploads that are not complete. Raises OddAnswer."""
    fields, uploads = _listing(answer, "ListMultipartUploadsResult", "Upload")
    with _reading():
        found = [
            Unfinished(
                name=one["Key"],
                upload_id=one["UploadId"],
                is_summed=one.get("ChecksumAlgorithm") == "CRC32C",
            )
            for one in uploads
        ]
    marks = {"NextKeyMarker": "key-marker", "NextUploadIdMarker": "upload-id-marker"}
    entries = {(one.name, one.upload_id): one for one in found}
    return Page(entries=entries, following=_following(fields, marks))


def parts_in(answer: Answer) -> Page[StoredPart]:
    """A page of the parts of an upload. Raises OddAnswer."""
    fields, parts = _listing(answer, "ListParts", "Part")
    with _reading():
        found = [
            StoredPart(
                number=int(part["PartNumber"]),
                size=int(part["Size"]),
                etag=part["ETag"].strip('"'),
                crc=part.get("ChecksumCRC32C"),
            )
            for part in parts
        ]
    following = _following(fields, {"NextPartNumberMarker": "part-number-marker"})
    return Page(entries={part.number: part for part in found}, following=following)


def objects_in(answer: Answer) -> Page[ObjectInfo]:
    """A page of objects. Raises OddAnswer."""
    fields, contents = _listing(answer, "ListBucketResult", "Contents")
    with _reading():
        entries = {one["Key"]: _object(one) for one in contents}
    following = _following(fields, {"NextContinuationToken": "continuation-token"})
    return Page(entries=entries, following=following)


def _object(fields: Mapping[str, str]) -> ObjectInfo:
    modified = fields.get("LastModified")
    if (size := int(fields["Size"])) < 0:
        raise ValueError(f"a size of {size}")
    return ObjectInfo(
        key=fields["Key"],
        size=size,
        etag=fields.get("ETag", "").strip('"') or None,
        modified=datetime.fromisoformat(modified).timestamp() if modified else None,
    )


def _following(fields: Mapping[str, str], marks: Mapping[str, str]) -> dict[str, str] | None:
    """The query for the next page. `marks` maps fields of this page to its parameters."""
    if fields.get("IsTruncated") != "true":  # rclone leaves it out
        return None
    return {into: fields[name] for name, into in marks.items() if fields.get(name)}


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError) as error:
        raise OddAnswer(
            f"the storage sent a listing that S3 would not send ({error!r:.200})"
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


def head_in(answer: Answer, name: str) -> Head:
    """The facts about an object in the headers of an answer. Raises OddAnswer without a size."""
    headers, modified = answer.headers, None
    size = headers.get("content-length", "")
    if not size.isdecimal():
        raise OddAnswer("the storage did not say how many bytes the object has")
    with suppress(TypeError, ValueError):
        modified = parsedate_to_datetime(headers.get("last-modified", "")).timestamp()
    etag = headers.get("etag", "").strip('"') or None
    info = ObjectInfo(key=name, size=int(size), etag=etag, modified=modified)
    return Head(info=info, mark=headers.get(MARK, ""))


def _fields(element: ElementTree.Element) -> dict[str, str]:
    return {_name(child): child.text or "" for child in element}


def _name(element: ElementTree.Element) -> str:
    """Its name without the namespace, which some servers leave out."""
    return element.tag.rpartition("}")[2]


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


async def listed(ask: Callable[[Mapping[str, str]], Awaitable[Page[T]]]) -> list[T]:
    """All entries. `ask` gets what a page must be asked for in addition. Raises EndlessListing,
    and what `ask` raises."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(EndlessListing):
            return await _listed(ask)
    return await _listed(ask)


async def _listed(ask: Callable[[Mapping[str, str]], Awaitable[Page[T]]]) -> list[T]:
    found: dict[object, T] = {}
    tokens, fruitless = set[frozenset[tuple[str, str]]](), 0
    following: Mapping[str, str] = {}
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        page, known = await ask(following), len(found)
        if len(page.entries) > MOST_ON_A_PAGE:
            raise _endless(f"a page has {len(page.entries):,} entries, and S3 gives 1,000")
        found |= page.entries
        if page.following is None:
            return list(found.values())
        following = page.following
        fruitless = 0 if len(found) > known else fruitless + 1
        token = frozenset(following.items())
        if text := _doubt(token in tokens, token, fruitless, len(found), loop.time() - began):
            raise _endless(text)
        tokens.add(token)


def _doubt(
    is_old: bool, token: Collection[object], fruitless: int, count: int, took_s: float
) -> str:
    """The reason not to ask for the next page; "" if there is none."""
    if not token:
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
