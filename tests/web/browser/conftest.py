"""A browser, tabs that complain, and servers of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.web.browser import WIDE, Tab, chromium, missing
from tests.rig.web.page import PAGE_RUN, Served, killed_and_ended, serve


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """Not for the session: while it lives, no test of this process may have an event loop."""
    if why := missing():
        pytest.skip(why)
    with chromium() as made:
        yield made


@pytest.fixture
def opened(chrome: Any) -> Iterator[Callable[..., Tab]]:
    """Opens tabs. Whatever goes wrong in one fails the test, and so does a request that leaves
    the server."""
    tabs: list[Tab] = []

    def opened(url: str = "", size: tuple[int, int] = WIDE, **options: Any) -> Tab:
        tabs.append(tab := Tab(chrome, size, **options))
        if url:
            tab.page.goto(url)
        return tab

    yield opened
    problems = [problem for tab in tabs for problem in tab.problems]
    origins = [tab.origins for tab in tabs]
    for tab in tabs:
        tab.close()
    assert problems == []
    assert all(len(origin) <= 1 for origin in origins), origins


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Runs the script that the page shows."""
    with workbench(tmp_path, PAGE_RUN) as made:
        made.options = {"epochs": 27}
        yield made


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory, chrome: Any) -> Iterator[Served]:
    """A place with one experiment that was killed, restored and has ended. Do not change it."""
    with workbench(tmp_path_factory.mktemp("page"), PAGE_RUN) as bench:
        bench.options = {"epochs": 27}
        killed_and_ended(bench)
        yield serve(bench, bench.storage)
