"""The output of a run in a notebook."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from holdfast.experiment.progress.summary import NodesSummary, RankWait
from holdfast.experiment.progress.views import NotebookView, in_notebook
from tests.experiment.progress.screens import DONE, SUMMARY, Clock

pytestmark = pytest.mark.usefixtures("terminal_size")


class Notebook:
    """Replaces IPython.display: one output, and the number of its updates."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, picture: dict[str, str], raw: bool, display_id: bool) -> Notebook:
        assert raw
        self.shown.append(picture["text/html"])
        self.text = picture["text/plain"]
        return self

    def update(self, picture: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown[-1], self.text = picture["text/html"], picture["text/plain"]


def test_a_notebook_has_one_output_that_is_brought_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook, clock, stream = Notebook(), Clock(), io.StringIO()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    view = NotebookView(stream, clock=clock)
    view.start()
    view.update(SUMMARY)
    early = notebook.shown[0]
    clock.now += 0.5
    view.update(replace(SUMMARY, name="later"))
    assert notebook.shown == [early]
    view.finish(replace(DONE, name="<done>"))
    assert len(notebook.shown) == 1
    assert "<b>&lt;done&gt;</b>" in notebook.shown[0]
    assert '<progress value="0.400" max="1">' in early
    assert "<td>train_aaaaa_00001</td>" in early
    assert "Results: s3://bucket/digits" in notebook.shown[0]
    assert "digits" not in stream.getvalue()


def test_a_notebook_is_not_flooded_by_what_workers_print(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook, clock, stream = Notebook(), Clock(), io.StringIO()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    view = NotebookView(stream, clock=clock)
    view.skipped("train pid=7", 3)
    for number in range(500):
        view.log("train pid=7", f"<{number}>\n")
    view.message("storage is slow", "warning")
    view.update(SUMMARY)
    assert stream.getvalue() == "warning: storage is slow\n"
    assert "(train pid=7) &lt;499&gt;</pre>" in notebook.shown[0]
    assert notebook.shown[0].count("(train pid=7)") == 12
    # For viewers without HTML.
    assert notebook.text.splitlines()[0] == "digits  1m 20s, about 2m 10s left"
    assert notebook.text.splitlines()[-1] == "(train pid=7) <499>"


def test_a_notebook_shows_failures_waits_and_what_it_is_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    wait = RankWait(name="train_0", ranks=(1,), waited_s=35.0)
    nodes = NodesSummary(here=3, most=4, leaving=("c",))
    NotebookView(io.StringIO()).update(
        replace(SUMMARY, waits=(wait,), phase="opening s3://b", nodes=nodes, waiting="job 7")
    )
    shown = notebook.shown[0]
    assert ">3 of 4 nodes, c leaves</div>" in shown
    assert ">job 7</div>" in shown
    assert "rank 1 has not reported; the others have waited for 35s</div>" in shown
    assert ">opening s3://b</div>" in shown
    assert "ValueError: loss is nan</div>" in shown


def test_this_is_not_a_notebook() -> None:
    assert not in_notebook()
