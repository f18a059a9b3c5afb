"""`holdfast web`: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.web import security
from holdfast.web.security import PortTaken
from holdfast.web.server import DEFAULT_PORT, WebServer, WebSettings
from tests.rig.runs.patient import healthy
from tests.rig.web.in_process import Browser, served
from tests.rig.workers.processes import PATIENCE_S


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("place")
    healthy(root / "digits")
    return root


@contextmanager
def started(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "web", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "SSH_CONNECTION": ""},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_it_prints_the_url_and_ends_quietly_at_ctrl_c(place: Path) -> None:
    with started("digits", "--port", "0", cwd=place) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        shows = f"shows {place / 'digits'}. Whoever has this URL can read it and steer its runs. "
        assert process.stdout.readline() == f"{shows}Ctrl-C ends it.\n"
        browser = Browser.opened(url)
        assert browser.get("/api/about").json["single"] == "digits"
        token = url.rpartition("=")[2]
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text()
        with browser.stream("/api/e/digits/stream") as events:
            events.next("facts")
            process.send_signal(signal.SIGINT)
            assert events.ends()
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
        assert process.returncode == 0


@pytest.mark.process
def test_it_shows_a_folder_as_soon_as_a_run_has_created_it(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with started("reslts", "--json", "--port", "0", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        browser = Browser.opened(json.loads(process.stdout.readline())["url"])
        assert process.stderr.readline() == (
            f"holdfast: {tmp_path / 'reslts'} does not exist yet (similar: results). The page is "
            "empty until a run creates it\n"
        )
        with browser.stream("/api/experiments/stream") as events:
            assert events.next("experiments")[1]["is_missing"]
            healthy(tmp_path / "reslts" / "digits")
            found = events.next("experiments")[1]
            while not found["experiments"]:
                found = events.next("experiments")[1]
        assert [one["key"] for one in found["experiments"]] == ["digits"]


@pytest.mark.process
def test_json_is_one_object_and_sigterm_ends_it_too(place: Path) -> None:
    with started("--json", "--port", "0", ".", cwd=place) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        assert found.keys() == {"url", "place"}
        assert len(Browser.opened(found["url"]).get("/api/experiments").json["experiments"]) == 1
        process.terminate()
        assert process.communicate(timeout=PATIENCE_S) == ("", "")
        assert process.returncode == 0


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["web", *words])
    printed = capsys.readouterr()
    assert printed.out == ""
    return code, printed.err


def test_a_port_in_use_is_refused_and_the_default_one_gives_way(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, text = refusal(capsys, str(place), "--port", str(port))
        assert (code, text.count("\n")) == (1, 1)
        assert f"port {port} of 127.0.0.1 is in use: pass another --port" in text
        with pytest.raises(PortTaken):
            WebServer(WebSettings(path=str(place), port=port), print)
    with served(place, port=None) as first, served(place, port=None) as second:
        assert DEFAULT_PORT <= first.address.port < second.address.port


def test_it_listens_on_the_address_that_it_is_given(place: Path) -> None:
    with served(place, host="::1") as serving:
        assert serving.address.url.startswith(f"http://[::1]:{serving.address.port}/?token=")
    with served(place, host="0.0.0.0") as serving:
        name = socket.gethostname()
        assert serving.address.url.startswith(f"http://{name}:{serving.address.port}/")
        browser = Browser.opened(serving.address.url)
        for host in (name, f"127.0.0.1:{serving.address.port}"):
            known = Browser(serving.address.port, host=host, cookie=browser.cookie)
            assert known.get("/api/about").status == 200


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["no-such"], "there is no experiment 'no-such'"),
        (["digts"], "Similar names: digits"),
        (["/no/such"], "there is no directory /no/such"),
        (["--base-url", "x"], "--base-url 'x' must be a path"),
        (["--allow-host", "a:80"], "--allow-host 'a:80' must be the name of a host"),
        (["--host", "no.such.invalid"], "cannot listen on no.such.invalid"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    words: list[str],
    text: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_ROOT", str(place))
    code, printed = refusal(capsys, *words)
    assert (code, printed.count("\n")) == (2, 1)
    assert text in printed


def test_without_the_extra_it_says_what_to_install(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "find_spec", lambda name: None)
    code, text = refusal(capsys, str(place))
    assert (code, text.count("\n")) == (1, 1)
    assert "the page needs Starlette with uvicorn, which is not installed: pip install" in text
