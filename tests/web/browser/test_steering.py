"""What a person orders on the page, in a real browser: followed into the journal, and across a
restore."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.script import UserScript
from tests.rig.web.browser import Tab, seen
from tests.rig.web.page import serve

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


class Steered:
    """A run of which every trial waits before its next epoch, and its page."""

    def __init__(self, bench: Bench, opened: Callable[..., Tab], **options: Any) -> None:
        self.bench = bench
        self.options = {"asha": False, "epochs": 6, **options}
        self.hold = bench.gate("hold")
        self.script = bench.start(**self.options)
        self.script.wait_for("begun 0 ")
        self.script.wait_for("begun 1 ")
        self.served = serve(bench, bench.root)
        self.tab = opened(self.served.url)
        self.rows = self.tab.page.locator("#trials-grid [data-trial]")
        self.rows.nth(1).wait_for()

    @property
    def page(self) -> Any:
        return self.tab.page

    def id_of(self, index: int) -> str:
        found: str = self.rows.nth(index).get_attribute("data-trial")
        return found

    def select(self, *indices: int) -> None:
        for index in indices:
            self.page.get_by_label(f"Select trial {self.id_of(index)}").click()

    def press(self, name: str, within: Any = None) -> None:
        """Press the button with this name in the window, or in the dialog that is open."""
        (within or self.page).get_by_role("button", name=name, exact=True).click()

    @property
    def dialog(self) -> Any:
        return self.page.get_by_role("dialog")

    def answered(self, text: str) -> None:
        seen(self.page.locator("#replies"), text)

    def loses_answers(self, count: int) -> list[str]:
        """The run performs the next orders, but the browser does not hear of it, as when the
        machine's network changes. Returns the list of these orders, which grows."""
        lost: list[str] = []

        def handle(route: Any) -> None:
            if len(lost) == count:
                route.continue_()
                return
            answer = route.fetch()
            assert answer.status == 200, answer.text()
            lost.append(route.request.post_data_json["order"])
            route.abort()

        self.page.route("**/orders", handle)
        self.tab.allows.append("net::ERR_FAILED")
        return lost

    def state(self, index: int, word: str) -> None:
        seen(self.rows.nth(index).locator(".c-status"), word)

    def events(self, name: str) -> list[dict[str, Any]]:
        found = []
        for event, _, fields, *_ in checker.records(self.bench.root):
            if event == name:
                found.append(dict(fields))
        return found

    def killed_and_restored(self) -> UserScript:
        """The script is killed and started again; trials still wait."""
        self.script.dies()
        seen(self.page.locator("main"), "interrupted")
        self.script = self.bench.start(restore=True, **self.options)
        self.script.wait_for("begun ")
        return self.script


def test_a_trial_is_stopped_after_a_question_and_stays_stopped(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    steered = Steered(bench, opened, samples=2)
    stopped = steered.id_of(0)
    steered.select(0)
    steered.press("Stop")
    seen(steered.dialog, "cannot be undone")
    steered.press("Cancel", steered.dialog)
    assert steered.events("TrialStopOrdered") == []
    steered.press("Stop")
    steered.press("Stop the trial", steered.dialog)
    steered.answered("top")
    (event,) = steered.events("TrialStopOrdered")
    assert event["trial_id"] == stopped
    assert event["by"].endswith("(page)")
    steered.state(0, "user")
    steered.killed_and_restored()
    steered.state(0, "user")
    steered.hold.open()
    steered.script.succeeds()
    seen(steered.page.locator("main"), "2 of 2")
    assert bench.problems() == []


def test_a_trial_is_paused_across_a_restore_and_resumed(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    steered = Steered(bench, opened, samples=2)
    paused = steered.id_of(0)
    steered.select(0)
    steered.press("Pause")
    seen(steered.dialog, "No work is lost")
    seen(steered.dialog, "It has not reported yet: it starts over.")
    steered.press("Pause the trial", steered.dialog)
    steered.answered("pauses at its next report")
    steered.state(0, "pausing")
    steered.press("Pause")  # which can only be at once now
    seen(steered.dialog, "Ordered already")
    steered.press("Pause the trial", steered.dialog)
    steered.answered("is paused")
    asked = [(one["trial_id"], one["now"]) for one in steered.events("PauseRequested")]
    assert asked == [(paused, False), (paused, True)]
    steered.state(0, "paused")
    steered.hold.open()
    steered.state(1, "finished")
    steered.hold = bench.gate("hold")
    steered.script.dies()
    steered.script = bench.start(restore=True, **steered.options)
    steered.script.said("TRIAL, or ")  # the run is ready, and waits for a person
    steered.state(0, "paused")
    steered.press("Resume")
    steered.answered("resume")
    assert [one["trial_id"] for one in steered.events("ResumeRequested")] == [paused]
    steered.hold.open()
    steered.script.succeeds()
    steered.state(0, "finished")
    assert bench.problems() == []


def test_the_experiment_is_stopped_after_a_question_and_continues_when_it_is_restored(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    steered = Steered(bench, opened, samples=2)
    steered.press("Stop experiment")
    seen(steered.dialog, "holdfast resume")
    steered.press("Stop the experiment", steered.dialog)
    steered.dialog.wait_for(state="detached")
    steered.hold.open()
    assert steered.script.ends() == -signal.SIGINT
    steered.script.finish_reading()
    assert "(page)" in steered.script.stderr, steered.script.stderr
    seen(steered.page.locator("main"), "interrupted")
    assert steered.events("EndOrdered")
    bench.start(restore=True, **steered.options).succeeds()
    seen(steered.page.locator("main"), "2 of 2")
    assert bench.problems() == []


def test_the_limit_trials_configs_and_notes_reach_the_journal_and_survive_a_restore(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    steered = Steered(bench, opened, samples=2)
    steered.press("Limit")
    field = steered.dialog.get_by_role("textbox")
    field.fill("none")
    steered.press("Change the limit", steered.dialog)
    seen(steered.dialog, "must be a whole number")
    field.fill("2")
    steered.press("Change the limit", steered.dialog)
    steered.answered("2")
    assert [one["max_concurrent"] for one in steered.events("LimitChanged")] == [2]
    assert steered.page.locator("#replies").get_attribute("aria-live") == "polite"
    steered.page.keyboard.press("Escape")
    steered.page.locator(".toast").wait_for(state="detached")

    steered.press("Add trials")
    steered.dialog.get_by_role("textbox").fill("1")
    lost = steered.loses_answers(2)
    steered.press("Add them", steered.dialog)
    steered.dialog.wait_for(state="detached")
    assert lost == ["add_trials", "add_trials"]
    assert [one["count"] for one in steered.events("SamplesAdded")] == [1]

    steered.press("Add config")
    steered.dialog.get_by_label("lr").fill("0.01")
    steered.press("Add the trial", steered.dialog)
    steered.dialog.wait_for(state="detached")
    assert [one["config"] for one in steered.events("ConfigAdded")] == [{"lr": 0.01}]

    trial = steered.id_of(1)
    steered.rows.nth(1).get_by_role("link").click()
    steered.press("Write a note")
    steered.page.get_by_role("textbox", name="Note on trial").fill("worth <b>another</b> try")
    steered.press("Save the note")
    seen(steered.page.locator("main"), "worth <b>another</b> try")
    assert [one["text"] for one in steered.events("NoteWritten")] == ["worth <b>another</b> try"]

    steered.script.dies()
    steered.script = bench.start(restore=True, **steered.options)
    steered.hold.open()
    steered.script.succeeds()
    seen(steered.page.locator("main"), "worth <b>another</b> try")
    steered.page.goto(steered.served.at("e/run"))
    seen(steered.page.locator("main"), "4 of 4")
    found = checker.fold(bench.root)
    assert len(found.trials) == 4
    assert [one.config["lr"] for one in found.trials.values()].count(0.01) == 1
    note = steered.page.locator(f"[data-trial='{trial}']").get_by_text("has a note")
    note.first.wait_for(state="attached")


def test_what_a_run_refuses_is_said_in_the_dialog_and_a_dead_run_cannot_be_steered(
    bench: Bench, opened: Callable[..., Tab]
) -> None:
    steered = Steered(bench, opened, samples=2)
    steered.press("Add config")
    steered.dialog.get_by_label("lr").fill('"fast"')
    steered.press("Add the trial", steered.dialog)
    seen(steered.dialog.get_by_role("alert"), "lr")
    assert steered.events("ConfigAdded") == []
    steered.tab.allows = [
        r"POST .*/orders: status 4\d\d",
        r"console: Failed to load resource.* 4\d\d",
    ]
    steered.press("Cancel", steered.dialog)
    steered.script.dies()
    seen(steered.page.locator("main"), "interrupted")
    steered.page.get_by_role("button", name="Stop experiment").wait_for(state="detached")
