"""Reads the answers of S3: bodies and headers, in the form that botocore gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

from holdfast.syncer.stores.s3.errors import AnsweredError
from holdfast.syncer.stores.s3.http import Answer

_META = "x-amz-meta-"
_ETAG = re.compile(r"<ETag>(?:&quot;|&#34;|\")?([^<&\"]+)")
_BEGUN = re.compile(r"<UploadId>([^<]+)</UploadId>")
_COMPLETED = re.compile(r"<(?:\w+:)?CompleteMultipartUploadResult[\s/>]")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_ANSWERED = {"ETag": "etag", "ChecksumCRC32C": "x-amz-checksum-crc32c"}
# Errors that asking again cannot change.
_FINAL = frozenset(
    {
        (400, "InvalidArgument"),
        (404, "NoSuchKey"),
        (404, "NoSuchUpload"),
        (412, "PreconditionFailed"),
        (501, "NotImplemented"),
    }
)


def final_error(answer: Answer) -> AnsweredError | None:
    """The error in an answer, if botocore would get the same: there is no such object or upload, a
    condition does not hold, or the server does not know what was asked."""
    if answer.status < 400:
        return None
    text = answer.body.decode(errors="replace")
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is None or (answer.status, code[1]) not in _FINAL:
        return None
    return AnsweredError(code[1], answer.status, unescape(message[1]) if message else "")


def facts_of(answer: Answer, *, is_copy: bool) -> Mapping[str, str] | None:
    """The ETag and the checksum in an answer; None without an ETag. A copy may fail after the
    status 200 was sent: then there is none."""
    if answer.status != 200:
        return None
    if is_copy:
        found = _ETAG.search(answer.body.decode(errors="replace"))
        return {"ETag": found[1]} if found else None
    named = {name: answer.headers.get(header, "") for name, header in _ANSWERED.items()}
    return {name: text for name, text in named.items() if text} if named["ETag"] else None


def upload_in(answer: Answer) -> Mapping[str, str] | None:
    """The id of an upload that has begun; None if it has not."""
    found = _BEGUN.search(answer.body.decode(errors="replace"))
    return {"UploadId": unescape(found[1])} if answer.status == 200 and found else None


def completed_in(answer: Answer) -> Mapping[str, str] | None:
    """The ETag of an upload that was completed; None if it was not, which only the body says."""
    text = answer.body.decode(errors="replace")
    if answer.status != 200 or not _COMPLETED.search(text):
        return None
    found = _ETAG.search(text)
    return {"ETag": found[1]} if found else {}


def failures_in(answer: Answer) -> Mapping[str, Any] | None:
    """The objects that were not deleted; None if the answer does not say it."""
    if answer.status != 200:
        return None
    try:
        root = ElementTree.fromstring(answer.body)
    except ElementTree.ParseError:
        return None
    errors = [_fields(child) for child in root if _name(child) == "Error"]
    return {"Errors": errors} if _name(root) == "DeleteResult" else None


def uploads_in(page: bytes | bytearray) -> Mapping[str, Any] | None:
    """The page of `list_multipart_uploads`; None if it is not one."""
    try:
        fields, uploads = _listing(page, "ListMultipartUploadsResult", "Upload")
    except ValueError:
        return None
    if not all("Key" in upload for upload in uploads):
        return None
    return {
        "Uploads": uploads,
        "IsTruncated": fields.get("IsTruncated") == "true",  # rclone leaves it out
        "NextKeyMarker": fields.get("NextKeyMarker", ""),
        "NextUploadIdMarker": fields.get("NextUploadIdMarker"),
    }


def objects_in(page: bytes | bytearray) -> Mapping[str, Any] | None:
    """The page of `list_objects_v2`; None if it is not one."""
    try:
        fields, entries = _listing(page, "ListBucketResult", "Contents")
        return {
            "Contents": [_entry(entry) for entry in entries],
            "IsTruncated": fields["IsTruncated"] == "true",
            "NextContinuationToken": fields.get("NextContinuationToken"),
        }
    except (ValueError, KeyError):
        return None


def _listing(
    page: bytes | bytearray, name: str, entry: str
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The fields of a page and those of its entries, with their keys as they are in the bucket.
    Raises ValueError if it is not a page of this name."""
    try:
        root = ElementTree.fromstring(page)
    except ElementTree.ParseError as error:
        raise ValueError(f"it is not XML: {error}") from error
    if _name(root) != name:
        raise ValueError(f"it is {_name(root)}, not {name}")
    fields = _fields(root)
    entries = [_fields(child) for child in root if _name(child) == entry]
    if fields.get("EncodingType") == "url":
        for found, key in [(fields, "NextKeyMarker"), *((one, "Key") for one in entries)]:
            if key in found:
                found[key] = unquote_plus(found[key])
    return fields, entries


def head_of(headers: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What the headers of an object say about it; None if that is not enough."""
    size = headers.get("content-length", "")
    if not size.isdecimal():
        return None
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
        entry["LastModified"] = moment(entry["LastModified"])
    return entry


def moment(text: Any) -> Any:
    """Parse a time in a listing. botocore's parser takes half of the CPU of a listing."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        from botocore.utils import parse_timestamp

        return parse_timestamp(text)


def _fields(element: ElementTree.Element) -> dict[str, str]:
    return {_name(child): child.text or "" for child in element}


def _name(element: ElementTree.Element) -> str:
    """Its name without the namespace, which some servers leave out."""
    return element.tag.rpartition("}")[2]
