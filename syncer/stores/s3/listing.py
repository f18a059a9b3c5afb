"""Reads a page of a listing of objects, in the form that botocore gives it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
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
