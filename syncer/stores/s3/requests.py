"""The parts of a request to S3, from botocore's parameters: query, headers and body."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

_XMLNS = "http://s3.amazonaws.com/doc/2006-03-01/"
_HEADERS = {
    "ChecksumAlgorithm": "x-amz-checksum-algorithm",
    "ChecksumCRC32C": "x-amz-checksum-crc32c",
    "ChecksumType": "x-amz-checksum-type",
    "ContentMD5": "content-md5",
    "CopySourceIfMatch": "x-amz-copy-source-if-match",
    "CopySourceRange": "x-amz-copy-source-range",
    "IfMatch": "if-match",
    "IfNoneMatch": "if-none-match",
    "Range": "range",
}
# Requests with other parameters use botocore.
PLAIN = frozenset(
    {"Bucket", "Key", "Body", "PartNumber", "UploadId", "CopySource", "Metadata"} | _HEADERS.keys()
)
_OF_PART = ("PartNumber", "ETag", "ChecksumCRC32C")
OBJECTS_QUERY = {"Prefix": "prefix", "ContinuationToken": "continuation-token"}
UPLOADS_QUERY = {
    "Prefix": "prefix",
    "KeyMarker": "key-marker",
    "UploadIdMarker": "upload-id-marker",
}


def listing_query(asked: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """The query of a listing, whose keys the server encodes if it can."""
    query = {name: asked[key] for key, name in names.items() if asked.get(key)}
    return {**query, "encoding-type": "url"}


def upload_query(asked: Mapping[str, Any]) -> dict[str, str]:
    """The query that names an upload, and a part of it; empty without an upload."""
    if "UploadId" not in asked:
        return {}
    part = {"partNumber": str(asked["PartNumber"])} if "PartNumber" in asked else {}
    return {**part, "uploadId": asked["UploadId"]}


def headers_of(asked: Mapping[str, Any]) -> dict[str, str]:
    headers = {name: asked[key] for key, name in _HEADERS.items() if key in asked}
    headers |= {f"x-amz-meta-{name}": value for name, value in asked.get("Metadata", {}).items()}
    if source := asked.get("CopySource"):
        headers["x-amz-copy-source"] = quote(f"{source['Bucket']}/{source['Key']}", safe="/~")
    return headers


def completion(parts: Sequence[Mapping[str, Any]]) -> bytes:
    """The body that completes an upload of these parts."""
    told = "".join(
        f"<Part>{''.join(f'<{n}>{escape(str(part[n]))}</{n}>' for n in _OF_PART if n in part)}"
        "</Part>"
        for part in parts
    )
    name = "CompleteMultipartUpload"
    return f'<{name} xmlns="{_XMLNS}">{told}</{name}>'.encode()


def deletion(keys: Sequence[str]) -> tuple[bytes, dict[str, str]]:
    """The body that deletes objects, and its headers: S3 requires a checksum, and each server
    knows MD5."""
    told = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    body = f'<Delete xmlns="{_XMLNS}">{told}<Quiet>true</Quiet></Delete>'.encode()
    checksum = b64encode(md5(body, usedforsecurity=False).digest()).decode()
    return body, {"content-md5": checksum, "content-type": "application/xml"}
