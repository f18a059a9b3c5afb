"""Debian's chromium, driven by Playwright: when a page shows what."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.measure import ScriptFailed
from benchmarks.page.server import cpu_of, memory_of
from holdfast.dataclass import dataclass

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_DEADLINE_MS = 300_000
# A row of the table of trials.
TABLE = "#trials-grid [data-trial]"
# Two frames: what was drawn before the first is on the screen at the second.
_PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True, slots=True)
class Chromium:
    """A browser that has started; each page has a profile of its own, without a cache."""

    browser: Browser

    @contextmanager
    def page(self) -> Iterator[Page]:
        """A new page. Raises ScriptFailed if it logged an error."""
        context = self.browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(_DEADLINE_MS)
        try:
            yield context.new_page()
        finally:
            context.close()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all its processes that live."""
        return sum(_each(cpu_of))

    @property
    def memory_mib(self) -> float:
        """Memory (PSS) of all its processes."""
        return sum(_each(lambda pid: memory_of([pid])))


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Raises ScriptFailed if Playwright or chromium is not installed."""
    program = shutil.which("chromium")
    if program is None:
        raise ScriptFailed("chromium is not installed: scripts/browser installs it")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise ScriptFailed("Playwright is not installed: scripts/venv dev") from error
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Chromium(browser)
        finally:
            browser.close()


def shown_s(page: Page, url: str, selector: str, *, began_s: float | None = None) -> float:
    """Seconds from `began_s` (None: now) until the page at `url` has painted what `selector`
    finds."""
    began_s = time.monotonic() if began_s is None else began_s
    page.goto(url, wait_until="commit")
    painted(page, selector)
    return time.monotonic() - began_s


def painted(page: Page, selector: str) -> None:
    """Wait until the page has painted what `selector` finds."""
    page.wait_for_selector(selector)
    page.evaluate(_PAINTED)


def _each(of: Any) -> Iterator[float]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):  # it has just ended
            if "chrom" in process.name():
                yield of(process.pid)
