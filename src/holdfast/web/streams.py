"""Server-sent events: what a page shows, again when it has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from holdfast.web.answers import as_json
from holdfast.web.following import WatchedExperiment, WatchedListing

# Proxies and browsers give up a connection that says nothing.
_SAY_EVERY_S: Final = 15.0
_STILL_HERE: Final = b": still here\n\n"
# After how many milliseconds a browser connects again.
_RETRY: Final = b"retry: 1000\n\n"


def event(name: str, data: bytes, number: int | None = None) -> bytes:
    """One event. `data` is JSON in one line; a browser that connects again sends `number` back."""
    numbered = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), numbered, data)


def streamed(events: AsyncIterator[bytes], *, is_head: bool) -> Response:
    """The answer that sends these events as they come."""
    headers = {"x-accel-buffering": "no"}  # nginx would collect them
    if is_head:
        return Response(None, headers=headers, media_type="text/event-stream")
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


async def experiment_events(
    watched: WatchedExperiment, version: int | None
) -> AsyncIterator[bytes]:
    """The changes since `version` (None: from now on), and the facts, until the experiment is
    deleted. The caller has looked once."""
    assert watched.change is not None
    sent = watched.change.version if version is None else version
    facts, trouble = b"", ""
    with watched.watching():
        yield _RETRY
        while True:
            changed, change = watched.changed, watched.change
            if sent != change.version:
                data, sent = await watched.trials_since(sent)
                name, data = ("reset", b"{}") if data is None else ("trials", data)
                yield event(name, data, sent)
            if facts is not watched.facts:
                facts = watched.facts
                yield event("facts", facts)
            if trouble != watched.trouble:
                trouble = watched.trouble
                yield event("trouble", as_json({"text": trouble}))
            if watched.is_over:
                return
            if not await _happens(changed):
                yield _STILL_HERE


async def listing_events(watched: WatchedListing) -> AsyncIterator[bytes]:
    """The list of experiments, now and after each change. The caller has looked once."""
    data, trouble = b"", ""
    with watched.watching():
        yield _RETRY
        while True:
            changed = watched.changed
            if data is not watched.data:
                data = watched.data
                yield event("experiments", data)
            if trouble != watched.trouble:
                trouble = watched.trouble
                yield event("trouble", as_json({"text": trouble}))
            if watched.is_over:
                return
            if not await _happens(changed):
                yield _STILL_HERE


async def _happens(changed: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_SAY_EVERY_S):
            await changed.wait()
    except TimeoutError:
        return False
    return True
