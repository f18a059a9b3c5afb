"""The charts of the page in a real browser, with canned data and the page's own policy."""

from __future__ import annotations

import math
import mimetypes
import xml.dom.minidom
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.web.browser import LONGEST_MS, NARROW, WIDE, Tab, chromium, missing

pytest.importorskip("starlette")

from holdfast.web.security import HEADERS

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

GALLERY = Path(__file__).parent / "gallery"
STATIC = Path(__file__).parent.parent.parent / "src" / "holdfast" / "web" / "static"
# A loopback address is a secure context, in which a page may copy. Nothing listens there: the
# test answers.
ORIGIN = "http://127.0.0.1:9"
CHARTS = (
    "curves",
    "parallel",
    "scatter",
    "importance",
    "pareto",
    "scheduler",
    "timeline",
    "attempts",
)
# Of series, those that the daily run has: the most text, the most parts, what a trial wrote.
SHORT = ("parallel", "scheduler", "attempts")
DRAWN = "performance.getEntriesByType('measure').length > 0"
# How many colours the first picture has.
COLOURS = """() => {
    const canvas = document.querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    opened = Tab(browser, WIDE, permissions=["clipboard-read", "clipboard-write"])
    opened.context.route(f"{ORIGIN}/**", answer)
    yield opened
    opened.close()
    assert opened.problems == []


def answer(route: Any) -> None:
    name = route.request.url.removeprefix(ORIGIN).partition("?")[0].lstrip("/") or "index.html"
    root = STATIC if name.startswith("static/") else GALLERY
    path = root / name.removeprefix("static/")
    kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(name)[0]
    route.fulfill(body=path.read_bytes(), headers={**HEADERS, "content-type": kind or ""})


def until(page: Any, condition: str) -> None:
    """Waits until the JavaScript expression is true. Playwright's own way needs eval, which the
    page's policy forbids."""
    page.evaluate(
        f"""() => new Promise((resolve, reject) => {{
            const deadline = performance.now() + {LONGEST_MS};
            const look = () => {{
                if ({condition}) resolve();
                else if (performance.now() > deadline) reject(new Error("not true in time"));
                else requestAnimationFrame(look);
            }};
            look();
        }})"""
    )


def shown(tab: Tab, query: str) -> Any:
    tab.page.goto(f"{ORIGIN}/?chart={query}")
    until(tab.page, DRAWN)
    return tab.page


def dragged(page: Any, *points: tuple[float, float]) -> None:
    """Drags the mouse over the chart, between points in shares of its width and height."""
    box = page.locator(".chart-host").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()


def selected(page: Any) -> list[str]:
    return list(page.evaluate("[...gallery.selection]"))


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_is_drawn_in_both_themes_and_widths_and_axe_finds_nothing(
    tab: Tab, chart: str
) -> None:
    page = shown(tab, chart)
    assert page.evaluate(COLOURS) > 10
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    shown(tab, f"{chart}&theme=dark")
    assert page.evaluate(COLOURS) > 10
    assert tab.violations() == []
    assert tab.too_wide() == []
    label = page.locator("[role=img]").first.get_attribute("aria-label")
    assert len(label or "") > 20


@pytest.mark.parametrize(
    "chart",
    [pytest.param(one, marks=() if one in SHORT else pytest.mark.nightly) for one in CHARTS],
)
def test_names_and_values_of_an_experiment_are_text_in_charts_and_in_saved_pictures(
    tab: Tab, chart: str
) -> None:
    page = shown(tab, f"{chart}&hostile=1&sc=config/optimizer&color=config/optimizer")
    box = page.locator(".chart-host").first.bounding_box()
    for step in range(1, 10):
        page.mouse.move(box["x"] + step * box["width"] / 10, box["y"] + box["height"] / 2)
    with page.expect_download() as download:
        page.get_by_role("button", name="as SVG").first.click()
    picture = xml.dom.minidom.parse(str(download.value.path()))
    assert len(picture.getElementsByTagName("svg")) == 1
    assert picture.getElementsByTagName("script") == []
    page.get_by_role("button", name="as a table").first.click()
    page.locator(".chart-table tbody tr").first.wait_for()
    assert page.evaluate("window.hacked === undefined")
    assert page.evaluate("Object.keys(Object.prototype)") == []
    assert tab.too_wide() == []


def test_a_zoomed_curve_grows_with_each_report_and_stays_zoomed(tab: Tab) -> None:
    page = shown(tab, "curves")
    dragged(page, (0.4, 0.3), (0.5, 0.4), (0.7, 0.7))
    reset = page.get_by_role("button", name="Reset zoom")
    until(page, "document.querySelector('.chart-tools button:disabled') === null")
    page.evaluate("gallery.asked.length = 0")
    page.evaluate("gallery.report()")
    until(page, "gallery.asked.length > 0")
    running = page.evaluate(
        "gallery.store.ids.filter((id) => gallery.store.value(id, 'status') === 'RUNNING')"
        ".map((id) => `${id}:${gallery.store.value(id, 'iteration') - 1}`)"
    )
    assert sorted(page.evaluate("gallery.asked[0]")) == sorted(running)
    assert reset.is_enabled()
    reset.click()
    until(page, "document.querySelectorAll('.chart-tools button:disabled').length === 2")


def test_a_hovered_trial_is_highlighted_and_a_click_selects_it(tab: Tab) -> None:
    page = shown(tab, "curves")
    hovered = page.locator(".chart-legend li").nth(2)
    hovered.hover()
    page.locator(".chart-over polyline").first.wait_for(state="attached")
    assert page.evaluate("gallery.store.hovered") in hovered.inner_text()
    hovered.locator("button").click()
    until(page, "gallery.selection.size === 1")
    assert selected(page)[0] in page.locator(".chart-legend").inner_text()
    assert page.locator(".chart-legend li").count() == 1


def test_the_tip_of_a_curve_says_the_trial_and_its_value(tab: Tab) -> None:
    page = shown(tab, "curves")
    box = page.locator(".chart-host").bounding_box()
    for share in (0.5, 0.6, 0.7, 0.8):
        page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + share * box["height"])
        if page.evaluate("gallery.store.hovered") is not None:
            break
    tip = page.locator(".chart-tip").inner_text()
    assert page.evaluate("gallery.store.hovered") in tip
    assert "loss" in tip
    assert "iteration" in tip


def test_a_lasso_selects_the_trials_inside(tab: Tab) -> None:
    page = shown(tab, "scatter")
    dragged(page, (0.5, 0.02), (0.99, 0.02), (0.99, 0.97), (0.5, 0.97), (0.5, 0.03))
    until(page, "gallery.selection.size > 0")
    values = page.evaluate("gallery.store.params.lr")
    ids = page.evaluate("gallery.store.ids")
    inside = [math.log10(values[ids.index(one)]) for one in selected(page)]
    outside = [
        math.log10(lr) for one, lr in zip(ids, values, strict=True) if one not in selected(page)
    ]
    assert len(inside) > 10
    assert min(inside) > max(outside)


def test_brushes_of_several_axes_select_what_is_inside_of_all(tab: Tab) -> None:
    page = shown(tab, "parallel")
    left = page.evaluate("document.querySelector('.chart-host').clientWidth")
    axis = 52 / left
    dragged(page, (axis, 0.05), (axis, 0.3), (axis, 0.5))
    until(page, "gallery.selection.size > 0")
    first = selected(page)
    last = (left - 68) / left
    dragged(page, (last, 0.1), (last, 0.3), (last, 0.5))
    until(page, f"gallery.selection.size < {len(first)}")
    both = selected(page)
    values = page.evaluate("gallery.store.params.lr")
    ids = page.evaluate("gallery.store.ids")
    others = [lr for one, lr in zip(ids, values, strict=True) if one not in first]
    assert set(both) < set(first)
    assert min(values[ids.index(one)] for one in first) > max(others)
    page.get_by_role("button", name="Clear selection").click()
    until(page, "gallery.selection.size === 0")
    assert page.locator(".chart-dragged").count() == 0


def test_values_are_copied_as_csv(tab: Tab) -> None:
    page = shown(tab, "pareto")
    page.get_by_role("button", name="as CSV").click()
    page.get_by_role("status").get_by_text("Copied 60 rows.").wait_for()
    head, *rows = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert head == "trial,status,loss,latency_ms,on the front"
    assert len(rows) == 60
    assert rows[0].endswith(",yes")
    page.get_by_role("button", name="Select the front").click()
    front = sum(row.endswith(",yes") for row in rows)
    until(page, f"gallery.selection.size === {front}")
