"""`results.web()`: the page in a notebook, and its server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from holdfast.experiment.folder.settings import Settings
from holdfast.results.reading import find
from holdfast.results.result_grid import ResultGrid, results_of
from holdfast.trial.errors import InvalidConfig
from holdfast.web import frame, security
from tests.rig.runs.patient import healthy
from tests.rig.web.in_process import Browser
from tests.rig.workers.processes import PATIENCE_S, wait_for_end

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultGrid]:
    root = tmp_path_factory.mktemp("place") / "digits"
    healthy(root)
    yield results_of(find(str(root), Settings.read(os.environ), os.environ))
    for running in frame._running.values():
        running.process.kill()
        wait_for_end(running.process.pid)
    frame._running.clear()


def test_a_notebook_shows_the_page_in_a_frame(
    results: ResultGrid, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = results.web(height=500)
    assert capsys.readouterr().out == f"The page of {results.experiment_path}: {page.url}\n"
    assert "token" not in repr(page)
    monkeypatch.setattr(frame, "in_notebook", lambda: True)
    again = results.web(height=500)
    assert capsys.readouterr().out == ""
    assert again.url == page.url  # one server for all calls
    html = again._repr_html_()
    assert "height:500px" in html
    (source,) = re.findall(r'src="([^"]*)"', html)
    port, path = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/frame/.*/)", unescape(source)).groups()  # type: ignore[union-attr]
    stranger = Browser(int(port))
    assert stranger.get(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert stranger.get(f"{path}api/about").json["single"] == "digits"
    proxied = results.web(base_url="/proxy/{port}")._repr_html_()
    assert f'src="/proxy/{port}{path}"' in proxied


def test_a_server_that_has_died_is_started_again(results: ResultGrid) -> None:
    page = results.web()
    (running,) = frame._running.values()
    running.process.kill()
    running.process.wait()
    other = results.web()
    assert other.url != page.url
    assert Browser.opened(other.url).get("/api/about").status == 200


def test_the_server_ends_with_the_notebook(results: ResultGrid) -> None:
    code = (
        "import os, sys, threading\n"
        "from holdfast.results.reading import find\n"
        "from holdfast.results.result_grid import results_of\n"
        "from holdfast.experiment.folder.settings import Settings\n"
        "from holdfast.web import frame\n"
        "found = results_of(find(sys.argv[1], Settings.read(os.environ), os.environ))\n"
        "thread = threading.Thread(target=found.web)\n"  # whose end is not the server's
        "thread.start()\nthread.join()\n"
        "(running,) = frame._running.values()\n"
        "print(running.process.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(results.experiment_path)]
    notebook = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert notebook.stdout is not None
    url = notebook.stdout.readline().rpartition(" ")[2].strip()
    pid = int(notebook.stdout.readline())
    assert Browser.opened(url).get("/api/about").status == 200
    notebook.send_signal(signal.SIGKILL)
    wait_for_end(pid)
    notebook.communicate(timeout=PATIENCE_S)


def test_a_place_that_cannot_be_served_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(security.WebFailed, match=r"did not start: there is no directory"):
        frame.shown(str(tmp_path / "nowhere"), height=1, base_url="")
    with pytest.raises(InvalidConfig, match="filesystem object"):
        frame.shown(None, height=1, base_url="")
