"""A real browser for tests of the live page: Debian's chromium, which Playwright drives.

A `Tab` is a page that complains: whatever goes wrong in it (an error in the console, an exception,
a request that fails or leaves the server, a violation of the Content-Security-Policy) is in
`problems`, and fails the test that opened it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

# Only a page that hangs takes this long, also on a busy machine.
LONGEST_MS = 60_000
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = (1280, 800), (390, 844)
# What an EventSource leaves when its page is closed or goes elsewhere.
_ABORTED = "net::ERR_ABORTED"
# Tests that run at the same time make network namespaces. The page asks again.
_CHANGED = "net::ERR_NETWORK_CHANGED"
_MOST_LOADS = 20
_TELL_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
    console.error(`CSP ${event.effectiveDirective}: ${event.blockedURI} ${event.sample}`));"""
# The elements that make the page wider than the window; what is in a box that scrolls is not among
# them.
_TOO_WIDE = """() => {
    const window_ = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= window_) return [];
    const scrolls = (one) => one && one !== document.body &&
        (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
    const wide = [...document.body.querySelectorAll("*")].filter((one) =>
        one.getBoundingClientRect().right > window_ && !scrolls(one.parentElement));
    return [`${document.documentElement.scrollWidth} px`, ...wide.slice(0, 8).map((one) =>
        `${one.tagName}#${one.id}.${one.className}: ${one.textContent.slice(0, 40)}`)];
}"""


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def missing() -> str:
    """Why there can be no browser here, or ""."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: scripts/venv dev installs it"
    if program() is None:
        return "there is no chromium: scripts/browser installs it"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window. Inside, this thread can have no other event loop."""
    from playwright.sync_api import sync_playwright

    # The sandbox needs another user than root. Pages are those of the test.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of a browser's new context, with a window of this size, and what went wrong in it.

    `allows` are regular expressions: a problem that matches one is expected by the test.
    """

    def __init__(self, browser: Any, size: tuple[int, int] = WIDE, **options: Any) -> None:
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        self.context.set_default_timeout(LONGEST_MS)
        self.context.add_init_script(_TELL_VIOLATIONS)
        self.allows: list[str] = []
        self.origins: set[str] = set()
        self._problems: list[str] = []
        self.context.on("request", self._asked)
        self.context.on("requestfailed", self._failed)
        self.context.on("response", self._answered)
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self._problems.append(f"{error.error}"))
        self.page = self.context.new_page()
        for name in ("goto", "reload"):
            setattr(self.page, name, _persistent(getattr(self.page, name)))

    @property
    def problems(self) -> list[str]:
        """What went wrong, apart from what the test allows."""
        return [
            problem
            for problem in self._problems
            if not any(re.search(allowed, problem) for allowed in self.allows)
        ]

    def forget(self) -> None:
        """What has gone wrong so far was expected."""
        self._problems.clear()
        self.origins.clear()

    def quiet(self) -> None:
        """Wait until nothing is being loaded."""
        from playwright.sync_api import expect

        expect(self.page.locator("main .loading")).to_have_count(0, timeout=LONGEST_MS)

    def too_wide(self) -> list[str]:
        """Empty if the page is not wider than the window; else its width and what causes it."""
        found: list[str] = self.page.evaluate(_TOO_WIDE)
        return found

    def violations(self) -> list[str]:
        """What axe finds, one line for each rule, with the elements."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes'][:5]]}"
            for one in found
        ]

    def close(self) -> None:
        self.context.close()

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob", "about"):
            self.origins.add(f"{parts.scheme}://{parts.netloc}")

    def _failed(self, request: Any) -> None:
        if request.failure not in (_ABORTED, _CHANGED):
            self._problems.append(f"{request.method} {request.url}: {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self._problems.append(
                f"{response.request.method} {response.url}: status {response.status}"
            )

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") and _CHANGED not in message.text:
            self._problems.append(f"console: {message.text}")


def _persistent(load: Callable[..., Any]) -> Callable[..., Any]:
    """What a person does whose network has changed: load the page again."""

    def loaded(*arguments: Any, **options: Any) -> Any:
        from playwright.sync_api import Error

        for _ in range(_MOST_LOADS):
            try:
                return load(*arguments, **options)
            except Error as error:
                if _CHANGED not in error.message:
                    raise
        return load(*arguments, **options)

    return loaded


def seen(locator: Any, text: str | re.Pattern[str]) -> None:
    """Wait until the element shows the text."""
    from playwright.sync_api import expect

    expect(locator).to_contain_text(text, timeout=LONGEST_MS)
