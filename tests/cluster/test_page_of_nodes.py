"""The page of a run whose trials are on machines: a node is lost, and the run is restored on
others."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rig.bench import Bench
from tests.rig.nodes.ssh_runs import ssh_nodes
from tests.rig.web import browser
from tests.rig.web.in_process import Browser
from tests.rig.web.page import serve

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]

RUN = "/api/e/run"
# What ssh says last depends on which side notices first.
ENDS_OF_SSH = ("closed by remote host", "Broken pipe")
LOST = "WorkerLost: the worker process"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """None without a browser: the answers of the server are tested without it, too."""
    if browser.missing():
        yield None
        return
    with browser.chromium() as made:
        yield made


def node_of(page: Browser, index: int) -> str:
    found: str = page.get(f"{RUN}/trials").json["columns"]["node"][index]
    return found


def facts_when(page: Browser, holds: Callable[[Any], bool]) -> Any:
    """The facts of the experiment as soon as they are so."""
    with page.stream(f"{RUN}/stream") as events:
        while not holds(facts := events.next("facts")[1]):
            pass
    return facts


def test_the_page_shows_a_lost_node_and_a_restore_on_others(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, chrome: Any
) -> None:
    bench.options |= {"checkpoint_every": 1, "max_failures": 1, "prints": True}
    with ssh_nodes(bench, tmp_path_factory.mktemp("machines")) as nodes:
        script, gate = bench.held_in(3)
        served = serve(bench, bench.root)
        page = Browser.opened(served.url)
        before = page.get(RUN).json
        assert {node["name"]: len(node["trials"]) for node in before["nodes"]} == {
            "node1": 1,
            "node2": 1,
        }
        assert {node["state"] for node in before["nodes"]} == {"here"}
        first, other = page.get(f"{RUN}/trials").json["ids"]
        assert {node_of(page, 0), node_of(page, 1)} == {"node1", "node2"}

        lost = node_of(page, 0)
        nodes[nodes.names.index(lost)].kill_all()
        facts = facts_when(page, lambda facts: bool(facts["failures"]))
        (cause,) = facts["failures"]
        assert cause["headline"].startswith(LOST)
        assert (cause["trial_ids"], cause["nodes"], cause["final"]) == ([first], {lost: 1}, False)
        (gone,) = [node for node in facts["nodes"] if node["state"] == "left"]
        assert gone["name"] == lost
        assert gone["left_at"] is not None
        assert "ssh -F" in gone["cause"]
        assert gone["cause_short"].endswith(ENDS_OF_SSH)
        told = [entry["text"] for entry in facts["timeline"] if entry["kind"] == "node_left"]
        assert told == [f"Node {lost} left: {gone['cause_short']}."]
        (attempt,) = page.get(f"{RUN}/t/{first}").json["attempts"]
        assert (attempt["end"], attempt["nodes"]) == ("lost", [lost])
        paused = page.post(f"{RUN}/orders", {"order": "pause", "trials": [other], "now": True})
        assert paused.json == {"text": f"trial {other} is paused"}
        script.wait_for("begun 0 2")  # on the node that the pause has freed
        (left,) = {*nodes.names} - {lost}
        if chrome is not None:
            check_in_browser(chrome, served.at("e/run"), served.url, lost)
        script.dies()
        nodes[nodes.names.index(left)].wait_until_idle()

    bench.environ["HOLDFAST_CLUSTER"] = "local://?agents=1&cpus_per_node=1"
    gate.open()
    held = bench.gate("any-4")
    again = bench.restore()
    again.wait_for("at 0 4")
    facts = facts_when(page, lambda facts: facts["progress"]["running"] == 1)
    assert facts["restores"] == 1
    (here,) = [node for node in facts["nodes"] if node["state"] == "here"]
    assert here["trials"] == [first]
    earlier = [node for node in facts["nodes"] if node["is_earlier"]]
    assert {node["name"] for node in earlier} == {"node1", "node2"}
    assert node_of(page, 0) == here["name"]
    assert page.get(f"{RUN}/trials").json["columns"]["is_held"] == [False, True]
    attempts = page.get(f"{RUN}/t/{first}").json["attempts"]
    assert [one["nodes"] for one in attempts] == [[lost], [left], [here["name"]]]
    resumed = page.post(f"{RUN}/orders", {"order": "resume", "trials": [other]})
    assert resumed.status == 200, resumed.body
    held.open()
    again.succeeds()
    ended = facts_when(page, lambda facts: facts["state"] == "finished")
    assert ended["counts"] == {"TERMINATED": 2}


def check_in_browser(chrome: Any, view: str, url: str, lost: str) -> None:
    tab = browser.Tab(chrome)
    try:
        tab.page.goto(url)
        tab.page.goto(view)
        row = tab.page.locator("#nodes tr", has_text=lost)
        browser.seen(row, re.compile("|".join(ENDS_OF_SSH)))
        assert tab.problems == []
        assert tab.too_wide() == []
    finally:
        tab.close()


def test_files_of_trials_on_nodes_come_from_storage(bench: Bench) -> None:
    """The page is asked for the folder of the run, as RunConfig(web=True) does it."""
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "here")
    root = bench.folder / "here" / "run"
    (scratch := bench.folder / "scratch").mkdir()
    bench.environ["HOLDFAST_CLUSTER"] = f"local://?agents=1&cpus_per_node=2&scratch={scratch}"
    script, gate = bench.held_in(3, prints=True, artifacts=True, sync_artifacts=True)
    page = Browser.opened(serve(bench, root).url)
    first, _ = page.get(f"{RUN}/trials").json["ids"]
    live = page.get(f"{RUN}/t/{first}").json
    assert live["output_from"] == live["node"] != ""
    assert not list(root.glob("train_*/checkpoint_*"))
    gate.open()
    script.succeeds()
    ended = page.get(f"{RUN}/t/{first}").json
    assert ended["output_from"] == ""
    assert page.get(f"{RUN}/t/{first}/log/stdout").json["text"].endswith("epoch 4 of attempt 1\n")
    assert page.get(f"{RUN}/t/{first}/file?path=artifact.txt").body == b"epoch 4"
    assert [one["path"] for one in ended["artifacts"]] == ["artifact.txt"]
    newest = ended["checkpoints"][0]
    assert (newest["here"], newest["stored"], newest["is_readable"]) == (False, True, True)
    got = page.get(f"{RUN}/t/{first}/checkpoint/{newest['dirname']}")
    with tarfile.open(fileobj=io.BytesIO(got.body)) as tar:
        assert {name.rpartition("/")[2] for name in tar.getnames()} == {"epoch.json", "weights"}
