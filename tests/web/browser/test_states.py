"""The page of an experiment in each state, on a desk and on a phone: what comes first, what fits,
and that it follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from holdfast.scheduler.events import Outlook, SearchEnded, TrialStopOrdered
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.web.browser import NARROW, WIDE, Tab, seen
from tests.rig.web.in_process import Served, served
from tests.rig.web.states import STATES, Experiment, config_of, row_of

pytestmark = [pytest.mark.process, pytest.mark.server]

LIVE = ("waiting-for-nodes", "running", "orphaned")
ENDED = ("interrupted", "failed", "finished")
WORDS = {"failed": "ended with errors", "finished": "finished", "interrupted": "interrupted"}
# That a run starts is an answer of its own, which the browser writes into its console.
STARTS = ["503"]


class Gallery:
    """A server of experiments in this process, and one experiment in each state."""

    def __init__(self, root: Path, server: Served) -> None:
        self.root, self.server = root, server
        self.made: dict[str, Experiment] = {}

    def make(self, name: str) -> Experiment:
        """The experiment in the state of this name."""
        made = self.made[name] = Experiment(self.root / name)
        STATES[name](made)
        return made

    def at(self, route: str) -> str:
        return f"{self.server.address.url.partition('?')[0]}#/{route}"

    def open(self, opened: Callable[..., Tab], route: str, size: tuple[int, int] = WIDE) -> Tab:
        tab = opened(self.server.address.url, size)
        tab.allows = STARTS
        tab.page.goto(self.at(route))
        return tab


@pytest.fixture
def gallery(tmp_path: Path) -> Iterator[Gallery]:
    root = tmp_path / "place"
    root.mkdir()
    with served(root) as server:
        made = Gallery(root, server)
        yield made
        for one in made.made.values():
            one.close()


def run_of(made: Experiment) -> RecordedExperiment:
    assert made.run is not None
    return made.run


def top(tab: Tab, selector: str) -> float:
    box = tab.page.locator(selector).first.bounding_box()
    assert box is not None, selector
    found: float = box["y"]
    return found


def overhang(tab: Tab) -> int:
    """The pixels of the table of trials that are beside its box."""
    found: int = tab.page.locator("#trials-grid").evaluate("e => e.scrollWidth - e.clientWidth")
    return found


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desk", "phone"])
def test_each_state_shows_first_what_matters_and_is_never_wider_than_the_window(
    gallery: Gallery, opened: Callable[..., Tab], size: tuple[int, int]
) -> None:
    for name in STATES:
        gallery.make(name)
    tab = gallery.open(opened, "", size)
    seen(tab.page.locator("tbody tr").first, "starting")
    assert tab.too_wide() == []
    tab.page.goto(gallery.at("e/starting"))
    seen(tab.page.locator("main"), "The run is starting")
    assert tab.page.get_by_text("Try again").count() == 0
    assert tab.too_wide() == []
    for name in (*LIVE, *ENDED):
        tab.page.goto(gallery.at(f"e/{name}"))
        seen(tab.page.locator("h1"), name)
        seen(tab.page.locator(".headline"), WORDS.get(name, "running"))
        tab.page.locator("#trials-grid [data-trial]").first.wait_for()
        tab.quiet()
        assert tab.too_wide() == [], name
        assert overhang(tab) <= 0 or size == NARROW, name
        assert top(tab, ".headline .state") < top(tab, "#best") < size[1], name
        assert (top(tab, "#best") < top(tab, "#charts")) is (size == NARROW or name in LIVE)
        if name == "running" and size == NARROW:
            assert top(tab, "#best") < top(tab, "[aria-label='Steer the experiment']")
        if name in ENDED:
            assert top(tab, "#charts") < size[1], name
            assert top(tab, "#charts") < top(tab, "#failures"), name
            best = tab.page.locator("#trials-grid [data-trial]").first.locator(".star")
            seen(best, "best")


def test_a_place_without_experiments_fits_a_phone_and_shows_the_first_one(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    tab = gallery.open(opened, "", NARROW)
    seen(tab.page.locator("main"), "No experiments here yet")
    assert tab.too_wide() == []
    gallery.make("starting")
    seen(tab.page.locator("tr[data-key=starting] .c-state"), "starting")
    seen(tab.page.locator("tr[data-key=starting] .c-progress"), "no record yet")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desk", "phone"])
def test_a_page_in_any_state_follows_the_process_that_runs_the_experiment(
    gallery: Gallery, opened: Callable[..., Tab], size: tuple[int, int]
) -> None:
    tabs = {}
    for name in (*LIVE, *ENDED):
        gallery.make(name)
        tabs[name] = gallery.open(opened, f"e/{name}", size)
    for name, tab in tabs.items():
        seen(tab.page.locator(".headline .state"), WORDS.get(name, "running"))
    for name, made in gallery.made.items():
        if name in LIVE:
            made.release()
        else:
            made.hold()
    for name, tab in tabs.items():
        seen(tab.page.locator(".headline .state"), "interrupted" if name in LIVE else "running")
        expected = "detached" if name in LIVE else "visible"
        tab.page.locator("#running[aria-label='Running now']").wait_for(state=expected)


def test_the_newest_value_is_the_same_in_card_table_and_legend_while_the_chart_waits(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    run = run_of(gallery.make("running"))
    tab = gallery.open(opened, "e/running")
    legend = tab.page.locator(".chart-legend")
    seen(legend, "#3")
    tab.page.route("**/rows*", lambda route: None)  # gets no answer
    run.report("d2a66_00003", {**row_of(3, 6), "loss": 0.123454})
    seen(tab.page.locator("#best .big"), "0.12345")
    seen(tab.page.locator("#running tbody tr").first, "0.12345")
    row = tab.page.locator('#trials-grid [data-trial="d2a66_00003"]')
    seen(row, "0.12345")
    seen(row.locator(".star"), "best")
    seen(legend.locator("li", has_text="★"), "0.12345")


def test_a_trial_that_is_stopped_says_so_even_if_its_own_answer_is_old(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    run = run_of(gallery.make("running"))
    trial_id = "d2a66_00006"
    tab = gallery.open(opened, "")
    answers: list[Any] = []

    def first_only(route: Any) -> None:
        answers.append(answers[0] if answers else route.fetch())
        route.fulfill(response=answers[0])

    tab.page.route(f"**/t/{trial_id}", first_only)
    tab.page.goto(gallery.at(f"e/running/t/{trial_id}"))
    state = tab.page.locator("[aria-label=Summary] .state").first
    seen(state, "queued")
    with tab.page.expect_response(f"**/t/{trial_id}"):  # the old answer once more
        run.add(TrialStopOrdered(trial_id=trial_id, by="ann (page)"))
    seen(state, "user")
    assert tab.page.get_by_role("button", name="Stop", exact=True).count() == 0
    tab.page.unroute(f"**/t/{trial_id}")  # and it is asked for until it is new
    seen(tab.page.locator("[aria-label=Summary]"), "ann (page) stopped it")


def test_lines_that_could_not_be_read_are_told_on_both_pages(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    gallery.make("failed")
    tab = gallery.open(opened, "e/failed", NARROW)
    told = "3 lines looked like a report and could not be read"
    seen(tab.page.locator("[aria-label=Notices]"), told)
    tab.page.goto(gallery.at("e/failed/t/d2a66_00000"))
    seen(tab.page.locator("[aria-label=Summary]"), told)
    tab.page.goto(gallery.at("e/failed/t/d2a66_00001"))
    seen(tab.page.locator("h1"), "Trial 1")
    assert tab.page.get_by_text(told).count() == 0


def test_when_the_last_process_of_a_run_ends_nothing_waits_any_more(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    made = gallery.make("running")
    tab = gallery.open(opened, "e/running", NARROW)
    states = tab.page.locator(".states")
    seen(states, "1 queued")
    made.release()
    seen(tab.page.locator(".headline"), "interrupted")
    seen(states, "1 not started")
    seen(tab.page.locator('#trials-grid [data-trial="d2a66_00006"] .c-status'), "not started")
    assert tab.page.get_by_role("button", name="Stop experiment").count() == 0


def test_the_settings_say_what_the_search_expects(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    made = gallery.make("running")
    tab = gallery.open(opened, "e/running")
    settings = tab.page.locator("#settings")
    seen(settings, "At the same time")
    assert "Outlook" not in settings.inner_text()
    run_of(made).suggest(outlook=Outlook(best=0.25, gain=0.03, is_little=False))
    seen(settings, "the search expects loss=0.25 of the best config so far, and a gain of 0.03")
    run_of(made).suggest(outlook=Outlook(best=0.25, gain=1e-6, is_little=True))
    seen(settings, "so little that you may stop")


def test_the_trial_that_fresh_runs_confirm_is_the_best_everywhere(
    gallery: Gallery, opened: Callable[..., Tab]
) -> None:
    made = gallery.made["confirmed"] = Experiment(gallery.root / "confirmed")
    run = made.begin(confirm=2)
    losses = {"": (0.1, 0.2), "d2a66_00000": (0.5, 0.6), "d2a66_00001": (0.3, 0.3)}
    for confirms, values in losses.items():
        for at, loss in enumerate(values):
            trial_id = run.suggest({"lr": 0.01 * at}, confirms=confirms)
            run.start(trial_id)
            run.report(trial_id, {"loss": loss})
            run.finish(trial_id)
        if not confirms:
            run.add(SearchEnded())
    run.write_files()
    tab = gallery.open(opened, "e/confirmed")
    card = tab.page.get_by_label("Best trial", exact=True)  # a chart names it, too
    seen(card, "0.3 to 0.3 in 2 fresh runs, 0.2 in the search")
    seen(card, "d2a66_00001")
    seen(tab.page.locator('#trials-grid [data-trial="d2a66_00002"]'), "d2a66_00000")
    seen(tab.page.locator(".chart-legend li").filter(has_text="★"), "d2a66_00001")


def test_columns_that_do_not_fit_are_offered(gallery: Gallery, opened: Callable[..., Tab]) -> None:
    gallery.make("finished")
    tab = gallery.open(opened, "e/finished")
    columns = tab.page.locator("#columns")
    seen(columns, "more)")
    assert overhang(tab) <= 0
    seen(tab.page.locator("[role=columnheader]").last, "Last report")
    columns.click()
    tab.page.get_by_role("checkbox", name="grad_norm").click()
    tab.page.get_by_role("button", name="Done").click()
    seen(tab.page.locator("#trials-grid"), "grad_norm")


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desk", "phone"])
def test_a_page_that_was_opened_while_the_run_starts_follows_it(
    gallery: Gallery, opened: Callable[..., Tab], size: tuple[int, int]
) -> None:
    made = gallery.make("starting")
    tab = gallery.open(opened, "e/starting", size)
    seen(tab.page.locator("main"), "The run is starting")
    (made.root / "journal" / "000000.log").unlink()
    run = made.begin()
    seen(tab.page.locator("main"), "No trials yet")
    run.report(run.begin(config_of(0)), row_of(0, 1))
    seen(tab.page.locator("#trials-grid [data-trial] .c-status"), "running")
