"""The pages of a live run in a real browser: its script is killed and restored under them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.rig.bench import Bench
from tests.rig.runs.patient import healthy
from tests.rig.web.browser import Tab, seen
from tests.rig.web.page import begun, serve

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


def test_each_page_follows_a_run_through_a_kill_and_a_restore(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    held = [bench.gate(f"begun-{index}-1") for index in range(8, 24)]
    script = bench.start()
    script.wait_for("begun 8 ")
    served = serve(bench, bench.storage)

    places = opened(served.url)
    seen(places.page.locator("tr[data-key=run] .c-state"), "running")
    experiment = opened(served.url)
    experiment.page.get_by_role("link", name="run", exact=True).click()
    seen(experiment.page.locator("main"), "minimises loss")
    trial = opened(served.url)
    trial.page.get_by_role("link", name="run", exact=True).click()
    trial.page.locator("#trials-grid a").first.click()
    trial_id = trial.page.url.rpartition("/")[2]
    seen(trial.page.locator("#attempts"), "Attempt 1")
    pages = (places, experiment, trial)

    script.dies()
    seen(places.page.locator("tr[data-key=run] .c-state"), "interrupted")
    seen(experiment.page.locator("main"), "interrupted")
    rows = experiment.page.locator("#trials-grid [role=row][data-trial]")
    before = rows.count()

    restored = bench.start(restore=True)
    restored.wait_for("begun 12 ")
    seen(places.page.locator("tr[data-key=run] .c-state"), "running")
    seen(experiment.page.locator("main"), "running")
    seen(experiment.page.get_by_label("What happened"), re.compile("[Rr]estored"))
    experiment.page.wait_for_function(
        "before => document.querySelector('#trials-grid').ariaRowCount > before + 1", arg=before
    )
    for gate in held:
        gate.open()
    restored.succeeds()
    seen(places.page.locator("tr[data-key=run] .c-state"), "ended with errors")
    seen(experiment.page.locator("main"), "24 of 24")
    seen(trial.page.locator("#attempts"), "finished")
    assert [page.page.url.partition("#")[2] for page in pages] == [
        *("", "/e/run"),
        f"/e/run/t/{trial_id}",
    ]


def test_reports_arrive_while_the_page_is_open(bench: Bench, opened: Callable[..., Tab]) -> None:
    """Within a second on a quiet machine, which benchmarks/ measures."""
    hold = bench.gate("hold")
    begun(bench, 0, samples=1)
    served = serve(bench, bench.root)
    tab = opened(served.url)
    row = tab.page.locator("#trials-grid [data-trial]")
    state = row.locator(".c-status")
    seen(state, "running")
    hold.open()
    seen(state, "finished")
    seen(row.get_by_role("gridcell", name="27", exact=True).first, "27")


def test_the_page_says_that_its_server_is_gone_and_connects_again(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    begun(bench, 1, samples=2).succeeds()
    served = serve(bench, bench.storage)
    tab = opened(served.url)
    tab.page.get_by_role("link", name="run", exact=True).click()
    seen(tab.page.locator("main"), "finished")
    tab.page.locator("#charts .chart-host").first.wait_for(state="attached")
    # A request, one for a chart's library among them, may be at any stage when the server ends.
    tab.allows = ["net::ERR_", "403", "dynamically imported module"]
    served.script.dies()
    seen(tab.page.locator(".banner"), "The connection to the server is lost")
    serve(bench, bench.storage, port=served.port)
    # A new server has a new token: the page says what to do.
    seen(tab.page.locator(".banner"), "This page needs its token")


def test_a_folder_that_does_not_exist_yet_is_an_empty_page_until_a_run_creates_it(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    root = bench.folder / "later"
    tab = opened(serve(bench, root).url)
    seen(tab.page.locator("#no-experiments"), f"The folder {root} does not exist yet.")
    seen(tab.page.locator("#no-experiments"), f'RunConfig(storage_path="{root}")')
    healthy(root / "digits")
    seen(tab.page.locator("tr[data-key=digits]"), "digits")
