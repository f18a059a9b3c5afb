"""Listings without an end, and how they are handled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.stores.s3 import pages
from holdfast.syncer.stores.s3.pages import OBJECTS, EndlessListing, listed

pytestmark = pytest.mark.anyio
Answer = Callable[[int], dict[str, Any]]


def page(*keys: str, token: str | None = None) -> dict[str, Any]:
    more = {} if token is None else {"NextContinuationToken": token}
    return {"Contents": [{"Key": key} for key in keys], "IsTruncated": True, **more}


class Server:
    """Answers the request number n with `answer(n)`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(dict(query))
        return self._answer(len(self.asked))


@pytest.mark.parametrize(
    ("answer", "told", "requests"),
    [
        (lambda n: page("a", token="t"), "continuation token", 4),
        (lambda n: page(f"a{n}", token="t"), "continuation token", 4),
        (lambda n: page(f"a{n}", token=f"t{n % 3}"), "continuation token", 8),
        (lambda n: page("a", token=f"t{n}"), "nothing new", 44),
        (lambda n: page(token=f"t{n}"), "nothing new", 42),
        (lambda n: page(f"a{n}"), "has no continuation token", 2),
        (lambda n: page(*map(str, range(101)), token=f"t{n}"), "a page has 101", 2),
        (lambda n: page(*(f"{n}/{k}" for k in range(100)), token=f"t{n}"), "more than 500", 12),
    ],
)
async def test_a_listing_without_an_end_is_an_error_after_a_few_requests(
    answer: Answer, told: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_ON_A_PAGE", 100)
    monkeypatch.setattr(pages, "MOST_IN_ALL", 500)
    server = Server(answer)
    with pytest.raises(EndlessListing, match=told):
        await listed(server, {"Bucket": "bucket"}, OBJECTS)
    assert len(server.asked) == requests


async def test_a_listing_that_drips_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_FIRST_S", -1.0)
    with pytest.raises(EndlessListing, match="1 entries took"):
        await listed(Server(lambda n: page(f"a{n}", token=f"t{n}")), {}, OBJECTS)


async def test_a_listing_that_repeats_itself_once_is_asked_for_again() -> None:
    def answer(n: int) -> dict[str, Any]:
        return page("a", token="t") if n < 3 else {"Contents": [{"Key": "a"}]}

    assert await listed(Server(answer), {}, OBJECTS) == [{"Key": "a"}]


async def test_pages_follow_each_other_also_empty_ones() -> None:
    def answer(n: int) -> dict[str, Any]:
        return page(*([f"a{n}"] if n % 10 == 0 else []), token=f"t{n}") if n < 50 else {}

    server = Server(answer)
    found = await listed(server, {"Bucket": "bucket"}, OBJECTS)
    assert [entry["Key"] for entry in found] == ["a10", "a20", "a30", "a40"]
    assert server.asked[1] == {"Bucket": "bucket", "ContinuationToken": "t1"}


ENDLESS = b"""<ListBucketResult><IsTruncated>true</IsTruncated><KeyCount>1</KeyCount>
<NextContinuationToken>again</NextContinuationToken>
<Contents><Key>x/a</Key><Size>1</Size><ETag>"e"</ETag></Contents></ListBucketResult>"""


async def test_a_server_that_always_says_there_is_more_is_an_error_at_once(scripted: Any) -> None:
    store = scripted.location(lambda *_: (200, {}, ENDLESS)).open_store()
    try:
        with pytest.raises(
            StorageRefused, match=r"list s3://bucket/x/: it repeats a continuation token"
        ):
            await store.list()
    finally:
        await store.close()
    assert len(scripted.requests) == 4
