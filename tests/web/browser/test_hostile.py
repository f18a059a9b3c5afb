"""What comes from an experiment is text: in a real browser nothing of it is executed, and the
layout stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rig.bench import Bench
from tests.rig.web.browser import NARROW, WIDE, Tab, seen
from tests.rig.web.page import Served, serve

pytestmark = [pytest.mark.process, pytest.mark.server]

# Whoever executes one of these sets `owned`, asks another host, or breaks out of its element.
MARKUP = """<script>owned=1</script><img src=x onerror=owned=1>"><svg onload=owned=1>'"""
CONTROL = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202eltr\u202c \u2066\u0000\u2028"
SCRIPT = """
import json, os, sys
from pathlib import Path
from holdfast import tune
from tests.rig.script import mark, wait_at

TEXT, STORAGE = json.loads(sys.argv[1])
LONG = TEXT * 2000

def train(config):
    markup = "<img src=x onerror=owned=1>.txt"
    for name in (markup, "a\\x1b[2Jb.txt", "javascript:owned=1", "\\u202egpj.exe"):
        Path(name).write_text(TEXT)
    Path("picture.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>owned=1</script></svg>")
    Path("page.html").write_text("<script>owned=1;fetch('http://127.0.0.1:9/')</script>")
    Path("fake.png").write_text("<script>owned=1</script>")
    os.symlink("/etc/passwd", "passwd.txt")
    print(TEXT)
    print(LONG)
    print(LONG, file=sys.stderr)
    tune.report({"loss": config["n"], TEXT: 1.0, "text": TEXT, "nan": float("nan")})
    mark("at", config["n"])
    wait_at("hold")
    raise type(TEXT[:60], (Exception,), {})(LONG)

if __name__ == "__main__":
    tune.Tuner(
        train,
        param_space={"n": tune.grid_search([1, 2]), TEXT: tune.choice([TEXT]), "long": LONG},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            storage_path=STORAGE, name="run", verbose=0, tags={"tag": TEXT[:60]}
        ),
    ).fit()
"""


@pytest.fixture
def hostile(bench: Bench) -> Served:
    """A run whose every text is hostile; its trials have failed."""
    import json

    path = bench.write(SCRIPT)
    script = bench.run(path, json.dumps([MARKUP + CONTROL, str(bench.storage)]))
    assert script.ends() == 0, script.stderr
    return serve(bench, bench.storage)


def is_harmless(tab: Tab) -> list[str]:
    """What is wrong with the page as it stands."""
    wrong = []
    if tab.page.evaluate("typeof owned") != "undefined":
        wrong.append("something was executed")
    markup = "#app script, #app [onerror], #app iframe"
    if tab.page.locator(markup).count():
        wrong.append("markup became elements")
    if tab.page.title() == "title":
        wrong.append("an escape sequence has set the title")
    wrong += tab.too_wide()
    return wrong


def trial_routes(served: Served) -> list[str]:
    names = sorted(path.name for path in served.root.glob("train_*"))
    return [f"e/run/t/{name.split('_')[1]}_{name.split('_')[2]}" for name in names]


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(NARROW, id="narrow"),
        pytest.param(WIDE, id="wide", marks=pytest.mark.nightly),
    ],
)
def test_hostile_texts_are_shown_as_texts_on_every_page(
    hostile: Served, opened: Callable[..., Tab], size: tuple[int, int]
) -> None:
    tab = opened(hostile.url, size)
    first, second = trial_routes(hostile)
    ids = [route.rpartition("/")[2] for route in (first, second)]
    texts = {
        "": "ended with errors",
        "e/run": "2 of 2",
        "e/run?tab=parallel": "2 of 2",
        "e/run?tab=scatter": "2 of 2",
        first: "owned=1",
        f"compare?t=run:{ids[0]},run:{ids[1]}": "Parameters",
    }
    found = {}
    for route, text in texts.items():
        tab.page.goto(hostile.at(route))
        seen(tab.page.locator("main"), text)
        tab.quiet()
        if wrong := is_harmless(tab):
            found[route] = wrong
    assert found == {}
    # A picture that is none is a broken picture, and nothing else.
    tab.allows = ["fake.png", "picture.svg"]


def test_files_of_a_trial_are_downloaded_and_never_opened_as_pages(
    hostile: Served, opened: Callable[..., Tab], tmp_path: Path
) -> None:
    tab = opened(hostile.url)
    route = trial_routes(hostile)[0]
    tab.page.goto(hostile.at(route))
    artifacts = tab.page.locator("#artifacts")
    seen(artifacts, "page.html")
    for name in ("page.html", "picture.svg"):
        link = artifacts.get_by_role("link", name=name).last
        address = link.evaluate("link => link.href")
        with tab.page.expect_download() as download:
            # Without the attribute `download`: as when somebody opens it in a new tab.
            tab.page.evaluate("address => { location.href = address; }", address)
        assert download.value.suggested_filename == name
    assert is_harmless(tab) == []
    assert "root:" not in artifacts.inner_text()
    tab.allows = ["fake.png", "picture.svg"]
