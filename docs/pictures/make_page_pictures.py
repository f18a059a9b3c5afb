"""Draw docs/pictures/page-*.png: the live page of a run, as a browser showed it.

Plays tests/rig/web/page_run.py, whose trials, configs and losses are the same each time; it is
killed and restored. Times and trial ids are those of the moment. `scripts/screenshots` calls this.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from tests.rig.bench import Bench, workbench
from tests.rig.web.browser import NARROW, WIDE, Tab, chromium, missing, seen
from tests.rig.web.page import PAGE_RUN, Served, serve, view

HERE = Path(__file__).parent
COLOURS = 96  # an anti-aliased page has few; more make the file larger, and it looks the same
LARGEST = 200_000
UPPER_PART = 1_800  # down to the first rows of the table, in pixels


def save(tab: Tab, name: str, *, whole: bool = False, box: Any = None, down_to: int = 0) -> None:
    """The window, the whole page, or one element, as a small PNG; its first `down_to` pixels, if
    that is not 0."""
    tab.quiet()
    tab.page.evaluate("document.fonts.ready")
    png = box.screenshot() if box else tab.page.screenshot(full_page=whole)
    path = HERE / f"page-{name}.png"
    image = Image.open(BytesIO(png)).convert("RGB")
    if down_to:
        image = image.crop((0, 0, image.width, min(image.height, down_to)))
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < LARGEST, f"{path} has {path.stat().st_size:,} bytes"
    print(f"{path}: {image.width} x {image.height}, {path.stat().st_size:,} bytes")


def played(bench: Bench) -> Served:
    """A run that was killed and restored, and is held with four running trials; two that ended."""
    bench.options = {"epochs": 27, "epoch_s": 0.15}
    for name, seed in (("digits-wide", 5), ("digits-narrow", 11)):
        bench.start(name=name, seed=seed, samples=12, epoch_s=0.01).succeeds()
    script = bench.start(name="digits")
    script.wait_for("begun 7 3")
    script.wait_for("begun 10 ")
    hold = bench.gate("hold")
    script.dies()
    hold.open()
    script = bench.start(name="digits", restore=True)
    script.wait_for("begun 20 ")
    bench.gate("hold")
    return serve(bench, bench.storage)


def drawn(tab: Tab) -> None:
    """Wait until the chart has been drawn."""
    tab.page.locator("#charts canvas, #charts svg[role=img]").first.wait_for()


def trial_seven(tab: Tab) -> str:
    row = tab.page.locator("#trials-grid [role=row]").filter(has_text="#7 ")
    found: str = row.get_attribute("data-trial")
    return found


def pictures(served: Served, opened: Callable[..., Tab]) -> None:
    tab = opened(WIDE)
    tab.page.goto(served.url)
    seen(tab.page.locator("main"), "digits-narrow")
    save(tab, "experiments")

    tab.page.goto(served.at("e/digits"))
    seven = trial_seven(tab)
    drawn(tab)
    save(tab, "experiment", whole=True, down_to=UPPER_PART)
    tab.page.goto(served.at(f"e/digits?{view(tab='parallel')}"))
    drawn(tab)
    save(tab, "parallel", box=tab.page.locator("#charts"))
    tab.page.goto(served.at(f"e/digits?{view(tab='scheduler')}"))
    tab.page.locator("#charts table, #charts canvas").first.wait_for()
    save(tab, "scheduler", box=tab.page.locator("#charts"))

    tab.page.goto(served.at(f"e/digits/t/{seven}"))
    seen(tab.page.locator("#attempts"), "Attempt 2")
    seen(tab.page.locator("#output"), "loss")
    tab.page.locator("#curves canvas").first.wait_for()
    save(tab, "trial", whole=True)

    tab.page.goto(served.at("e/digits"))
    tab.page.get_by_role("button", name="Add config").click()
    seen(tab.page.get_by_role("dialog"), "loguniform")
    save(tab, "steering")

    dark = opened(WIDE, color_scheme="dark")
    dark.page.goto(served.url)
    dark.page.goto(served.at("e/digits"))
    drawn(dark)
    save(dark, "experiment-dark")
    narrow = opened(NARROW)
    narrow.page.goto(served.url)
    narrow.page.goto(served.at("e/digits"))
    drawn(narrow)
    save(narrow, "experiment-narrow")


def main() -> int:
    if why := missing():
        print(f"No pictures: {why}", file=sys.stderr)
        return 1
    os.environ["HOLDFAST_SHARE"] = "0"
    with tempfile.TemporaryDirectory() as folder, workbench(Path(folder), PAGE_RUN) as bench:
        served = played(bench)
        with chromium() as browser:

            def opened(size: tuple[int, int], **options: Any) -> Tab:
                return Tab(browser, size, **options)

            pictures(served, opened)
    return 0


if __name__ == "__main__":
    sys.exit(main())
