"""Reads the answers about objects: a page of a listing, and headers, in the form that botocore
gives them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree


def objects_in(page: bytes | bytearray) -> Mapping[str, Any] | None:
    """The page of `list_objects_v2`; None if it is not one."""
    try:
        root = ElementTree.fromstring(page)
        if _name(root) != "ListBucketResult":
            return None
        fields = {_name(child): child.text or "" for child in root}
        is_encoded = fields.get("EncodingType") == "url"
        entries = [_entry(child, is_encoded) for child in root if _name(child) == "Contents"]
        return {
            "Contents": entries,
            "IsTruncated": fields["IsTruncated"] == "true",
            "NextContinuationToken": fields.get("NextContinuationToken"),
        }
    except (ElementTree.ParseError, ValueError, KeyError):
        return None


def head_of(headers: Mapping[str, str]) -> Mapping[str, Any] | None:
    """What the headers of an object say about it; None if that is not enough."""
    size = headers.get("content-length", "")
    if not size.isdecimal():
        return None
    facts: dict[str, Any] = {"ContentLength": int(size), "ETag": headers.get("etag", "")}
    with suppress(TypeError, ValueError):
        facts["LastModified"] = parsedate_to_datetime(headers.get("last-modified", ""))
    return facts


def _entry(contents: ElementTree.Element, is_encoded: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {_name(child): child.text or "" for child in contents}
    if is_encoded and "Key" in fields:
        fields["Key"] = unquote_plus(fields["Key"])
    if "Size" in fields:
        fields["Size"] = int(fields["Size"])
    if "LastModified" in fields:
        fields["LastModified"] = moment(fields["LastModified"])
    return fields


def moment(text: Any) -> Any:
    """Parse a time in a listing. botocore's parser takes half of the CPU of a listing."""
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        from botocore.utils import parse_timestamp

        return parse_timestamp(text)


def _name(element: ElementTree.Element) -> str:
    """Its name without the namespace, which some servers leave out."""
    return element.tag.rpartition("}")[2]
