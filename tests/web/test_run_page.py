"""The page of a run: it begins and ends with the run, takes orders, and never matters to it."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path

import pytest

from holdfast.experiment.control import page_server as of_run
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.view import Condition
from holdfast.runtime.tasks import TaskScope
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig
from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.planted import in_arguments, in_environments, in_files
from tests.rig.script import Process, UserScript
from tests.rig.web.in_process import Browser

pytestmark = pytest.mark.process


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.environ["HOLDFAST_WEB"] = "1"
    return bench


def page_of(script: UserScript) -> tuple[Browser, Path, str]:
    """A browser at the page of a run, the file with the URL, and the token."""
    line = script.said("the URL of this run's page is in ")
    kept = Path(line.strip().rpartition(" ")[2])
    url = kept.read_text().strip()
    return Browser.opened(url), kept, url.rpartition("=")[2]


def server_of(script: UserScript) -> Process:
    (found,) = [
        one for one in script.processes() if title_of(one.pid).startswith("holdfast: page")
    ]
    return found


def title_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
    except OSError:
        return ""


def test_a_run_shows_itself_takes_orders_and_takes_its_page_along(bench: Bench) -> None:
    script, gate = bench.held_in(2)
    browser, kept, token = page_of(script)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert browser.get("/api/about").json["single"] == "run"
    facts = browser.get("/api/e/run").json
    assert (facts["state"], facts["steering"]["possible"]) == (Condition.LIVE, True)
    secrets = {"the token": token.encode()}
    assert in_arguments(secrets) == []
    assert in_environments(secrets) == []
    assert in_files(secrets, [bench.storage]) == []

    trial_id = browser.get("/api/e/run/trials").json["ids"][0]
    order = {"order": "note", "trial": trial_id, "text": "looks good"}
    answer = browser.post("/api/e/run/orders", order)
    assert answer.status == 200, answer.body
    assert answer.json["text"]
    for key in ("first", "first", "second", "first"):  # a browser that got no answer
        assert browser.post("/api/e/run/orders", order, Idempotency_Key=key).status == 200
    names = [name for name, *_ in checker.records(bench.root)]
    assert names.count("NoteWritten") == 3
    refused = browser.post("/api/e/run/orders", {**order, "trial": "no_such"})
    assert refused.status == 409
    assert "no_such" in refused.json["error"]

    with browser.stream("/api/e/run/stream") as events:
        events.next("facts")
        gate.open()
        assert events.ends()  # its last look has a deadline: see test_streams
    script.succeeds()
    assert script.left() == []
    assert not kept.exists()
    assert token not in script.stdout + script.stderr
    assert "the page's server" not in script.stderr


def test_the_page_dies_with_a_killed_run_and_comes_back_with_a_restore(bench: Bench) -> None:
    script, gate = bench.held_in(2)
    browser, kept, _ = page_of(script)
    page = server_of(script)
    with browser.stream("/api/e/run/stream") as events:
        events.next("facts")
        script.dies()
        assert page.ends()
        assert events.ends()
    gate.open()
    again, gate = bench.held_in(4, restore={})  # its page ends with it
    browser, other, _ = page_of(again)
    gate.open()
    again.succeeds()
    assert other != kept
    assert not kept.exists()  # of a process that is gone


def test_a_run_continues_without_a_page_that_has_died(bench: Bench) -> None:
    script, gate = bench.held_in(2)
    page_of(script)
    server_of(script).signal(signal.SIGKILL)
    line = script.said("the page's server ")
    assert line.strip().endswith("The run continues without its page")
    gate.open()
    script.succeeds()
    assert script.stderr.count("the page's server") == 1


def never(error: BaseException) -> None:
    raise error


def test_without_the_extra_a_run_says_so_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(of_run, "find_spec", lambda name: None)
    made = of_run.open_page(
        Layout(Path("/nowhere")),
        {},
        tell=lambda text, level: told.append((text, level)),
        says_little=False,
        tasks=TaskScope(asyncio.ensure_future, never),
    )
    assert made is None
    ((text, level),) = told
    assert level == "warning"
    assert "starlette" in text
    assert "holdfast[web]" in text
    assert text.endswith("The run continues without its page")


def test_a_page_is_asked_for_by_the_config_or_the_environment() -> None:
    assert not RunConfig().web
    assert RunConfig(web=True).web
    with pytest.raises(InvalidConfig, match="web must be True or False"):
        RunConfig(web="yes")  # type: ignore[arg-type]
    assert Settings.read({"HOLDFAST_WEB": "1"}).web
    assert not Settings.read({"HOLDFAST_WEB": ""}).web
    with pytest.raises(InvalidConfig, match="HOLDFAST_WEB"):
        Settings.read({"HOLDFAST_WEB": "yes"})
