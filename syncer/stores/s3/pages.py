"""Lists S3 page by page, and detects servers whose listings never end.

A listing ends in an error if pages bring nothing new again and again, if a continuation token is
repeated, if it takes far too long for its number of entries, or if it is too large. It is then
repeated from the start, because proxies sometimes cause such answers by accident.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageRefused, StorageUnavailable
from holdfast.syncer.stores.store import ObjectInfo

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
