"""Every page of an experiment that has ended, as people use it: by mouse, by keyboard, by links,
on a telephone, with a screen reader."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rig.nightly import rest_nightly
from tests.rig.web.browser import NARROW, WIDE, Tab, seen
from tests.rig.web.page import Served, view

pytestmark = [pytest.mark.process, pytest.mark.server]


def ids_of(tab: Tab) -> list[str]:
    """The trials of the experiment's page, in the order of the table."""
    rows = tab.page.locator("#trials-grid [data-trial]")
    rows.first.wait_for()
    return [row.get_attribute("data-trial") for row in rows.all()]


def trial_seven(ended: Served) -> str:
    return next(path.name for path in ended.root.glob("train_*_00007_*")).split("_")[1] + "_00007"


def test_a_page_of_which_a_file_does_not_come_loads_itself_again(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened()
    tab.allows = ["steer.js", "Failed to load resource"]
    loads: list[str] = []
    tab.page.on("load", lambda _: loads.append("load"))

    def lose_twice(route: Any) -> None:
        if len(loads) < 2:
            route.abort("connectionreset")
        else:
            route.continue_()

    tab.page.route("**/js/steer.js", lose_twice)
    tab.page.goto(ended.url)
    seen(tab.page.locator("main"), "ended with errors")
    assert len(loads) >= 3  # one more if the machine's network changed
    tab.page.unroute("**/js/steer.js")
    tab.page.route("**/js/steer.js", lambda route: route.abort("connectionreset"))
    tab.page.evaluate("history.replaceState({again: 6}, '')")  # the last time
    tab.page.reload()
    seen(tab.page.locator("#app"), "Check that `holdfast web` is still running")
    tab.page.unroute("**/js/steer.js")
    tab.page.reload()
    seen(tab.page.locator("main"), "ended with errors")


def test_a_chart_or_an_answer_that_does_not_come_is_asked_for_again(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened()
    tab.allows = ["plot.js", "/rows", "Failed to load resource"]
    for url in ("**/js/charts/pure/plot.js", "**/api/e/run/rows*"):
        tab.page.route(url, lambda route: route.abort("connectionreset"), times=1)
    tab.page.goto(ended.url)
    tab.page.goto(ended.at(f"e/run?{view(tab='curves')}"))
    tab.page.locator("#charts .chart-host").first.wait_for()
    tab.quiet()
    assert not tab.page.get_by_text("could not be loaded").count()
    assert len(tab._problems) >= 2


TABS = ("curves", "parallel", "scatter", "importance", "scheduler", "timeline")


def routes(ended: Served) -> dict[str, str]:
    """A route for each page and each chart, and the text that it shows once it is complete."""
    seven = trial_seven(ended)
    pairs = view(t=f"run:{seven},run:{seven[:-1]}0")
    return {
        "": "ended with errors",
        **{f"e/run?{view(tab=tab)}": "24 of 24" for tab in TABS},
        f"e/run/t/{seven}": "Attempt 2",
        f"compare?{pairs}": "Parameters",
    }


@pytest.mark.parametrize(
    ("theme", "size"),
    rest_nightly(2, [("light", WIDE), ("dark", NARROW), ("dark", WIDE), ("light", NARROW)]),
)
def test_axe_finds_nothing_and_no_page_is_wider_than_the_window(
    ended: Served, opened: Callable[..., Tab], theme: str, size: tuple[int, int]
) -> None:
    tab = opened(ended.url, size, color_scheme=theme)
    found = {}
    for route, text in routes(ended).items():
        tab.page.goto(ended.at(route))
        seen(tab.page.locator("main"), text)
        tab.quiet()
        if problems := [*tab.violations(), *tab.too_wide()]:
            found[route] = problems
    assert found == {}


def test_a_stranger_finds_the_answers_on_the_page(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened(ended.url)
    tab.page.get_by_role("link", name="run", exact=True).click()
    # Which trial is best, and why?
    best = tab.page.locator("#best")
    seen(best, re.compile(r"0\.21\d*"))
    seen(best, "lowest")
    seen(best, "lr=0.0118")
    # What happened at the restart?
    seen(tab.page.locator("#happened"), re.compile("restored", re.I))
    seen(tab.page.locator("#failures"), "the loss is NaN")
    # Why did trial 7 fail twice?
    seen(tab.page.locator("#failures"), "retried")
    tab.page.goto(ended.at(f"e/run/t/{trial_seven(ended)}"))
    attempts = tab.page.locator("#attempts")
    seen(attempts, "OutOfMemory: CUDA out of memory: tried to allocate 2.00 GiB")
    seen(attempts, "ConnectionResetError: the data server closed the connection (shard 12)")
    seen(attempts, "page_run.py")
    seen(tab.page.locator("#config"), "from the best")
    seen(tab.page.locator("#output"), "loss")


def test_links_carry_the_filter_and_the_back_button_leads_back(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened(ended.url)
    tab.page.get_by_role("link", name="run", exact=True).click()
    everything = ids_of(tab)
    tab.page.locator("#filter").fill('status == "failed" and lr > 0.3')
    seen(tab.page.locator("#trial-count"), "4 of 24")
    tab.page.get_by_role("columnheader", name="lr").get_by_role("button").click()
    failed = ids_of(tab)
    assert len(failed) == 4 < len(everything)
    link = tab.page.url
    tab.page.locator("#trials-grid a").first.click()
    seen(tab.page.locator("#attempts"), "the loss is NaN")
    tab.page.go_back()
    seen(tab.page.locator("#trial-count"), "4 of 24")
    assert ids_of(tab) == failed
    tab.page.go_back()
    seen(tab.page.locator("h1"), "Experiments")
    # Somebody else opens the link.
    tab.page.goto("about:blank")
    tab.page.goto(link)
    seen(tab.page.locator("#trial-count"), "4 of 24")
    assert tab.page.locator("#filter").input_value() == 'status == "failed" and lr > 0.3'
    assert ids_of(tab) == failed


def test_everything_works_from_the_keyboard(ended: Served, opened: Callable[..., Tab]) -> None:
    tab = opened(ended.url)
    keyboard = tab.page.keyboard
    tab.page.get_by_role("link", name="run", exact=True).focus()
    keyboard.press("Enter")
    first = ids_of(tab)[0]
    keyboard.press("/")
    keyboard.type("lr > 0.3")
    keyboard.press("Enter")
    seen(tab.page.locator("#trial-count"), "4 of 24")
    keyboard.press("Escape")
    seen(tab.page.locator("#trial-count"), "24 trials")
    tab.page.locator("#trials-grid").focus()
    keyboard.press("ArrowDown")
    keyboard.press("Space")
    keyboard.press("Shift+ArrowDown")
    seen(tab.page.locator("#trial-count"), "selected 2")
    keyboard.press("Escape")
    keyboard.press("Home")
    keyboard.press("Enter")
    seen(tab.page.locator("#attempts"), "Attempt 1")
    assert tab.page.url.endswith(f"/t/{first}")
    keyboard.press("?")
    seen(tab.page.get_by_role("dialog"), "Keys")
    keyboard.press("Escape")
    tab.page.get_by_role("dialog").wait_for(state="detached")
    keyboard.press("g")
    keyboard.press("e")
    seen(tab.page.locator("h1"), "Experiments")
    # Arrow keys move between the charts, and Tab leaves them.
    tab.page.goto(ended.at("e/run"))
    tab.page.get_by_role("tab", name="Curves").focus()
    keyboard.press("ArrowRight")
    seen(tab.page.locator("[role=tab][aria-selected=true]"), "Parallel")
    keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.getAttribute('role')") != "tab"


def test_what_is_downloaded_is_what_the_trial_wrote(
    ended: Served, opened: Callable[..., Tab], tmp_path: Path
) -> None:
    tab = opened(ended.url)
    tab.page.goto(ended.at(f"e/run/t/{trial_seven(ended)}"))
    with tab.page.expect_download() as download:
        tab.page.locator("#checkpoints a").first.click()
    assert download.value.suggested_filename.endswith(".tar")
    download.value.save_as(tmp_path / "checkpoint.tar")
    with tarfile.open(tmp_path / "checkpoint.tar") as archive:
        names = {Path(member.name).name for member in archive.getmembers()}
    assert {"epoch", "weights"} <= names


def test_a_selection_is_shared_by_table_and_chart(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened(ended.url)
    tab.page.get_by_role("link", name="run", exact=True).click()
    first = ids_of(tab)[0]
    tab.page.get_by_label(f"Select trial {first}").click()
    seen(tab.page.locator("#trial-count"), "selected 1")
    link = tab.page.url
    assert f"sel={first}" in link
    tab.page.goto("about:blank")
    tab.page.goto(link)
    seen(tab.page.locator("#trial-count"), "selected 1")


@pytest.mark.nightly
def test_the_theme_is_kept_and_follows_the_system_until_one_is_chosen(
    ended: Served, opened: Callable[..., Tab]
) -> None:
    tab = opened(ended.url, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    seen(tab.page.locator("main"), "run")
    assert tab.page.evaluate(theme) == "dark"
    tab.page.locator("#theme").click()
    assert tab.page.evaluate(theme) == "light"
    tab.page.reload()
    seen(tab.page.locator("main"), "run")
    assert tab.page.evaluate(theme) == "light"


@pytest.mark.nightly
def test_trials_are_compared_side_by_side(ended: Served, opened: Callable[..., Tab]) -> None:
    tab = opened(ended.url)
    tab.page.get_by_role("link", name="run", exact=True).click()
    first, second, *_ = ids_of(tab)
    for trial in (first, second):
        tab.page.get_by_label(f"Select trial {trial}").click()
    tab.page.locator("#compare").click()
    seen(tab.page.locator("main"), "Parameters")
    for trial in (first, second):
        seen(tab.page.locator("thead"), trial)
    seen(tab.page.locator("main"), "lr")
