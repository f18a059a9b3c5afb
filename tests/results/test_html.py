"""Results in a notebook's cell: bounded, without scripts, and everything in them escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.results.result import Result
from holdfast.trial.values import Opaque
from tests.rig.runs.recorded import RecordedExperiment

EVIL = "<script>alert('x')</script>&\x1b[2J"
PLAIN = {"b", "div", "pre", "progress", "table", "tbody", "td", "th", "thead", "tr"}


class Page(HTMLParser):
    """The cells of the tables, the lines outside of them, and all tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.lines: list[str] = []
        self.tags: set[str] = set()
        self._at = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style", "value", "max"}
        self.tags.add(tag)
        self._at = tag
        if tag in ("td", "th"):
            self.cells.append("")
        if tag == "div":
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if self._at in ("td", "th"):
            self.cells[-1] += data.strip("\n")
        elif self.lines:
            self.lines[-1] += data.strip("\n")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp & more", metric="loss", mode="min")
    yield recorded
    recorded.close()


def test_the_best_trials_come_first_and_the_rest_is_counted(run: RecordedExperiment) -> None:
    for index in range(300):
        trial_id = run.begin({"lr": index / 100}, f"{index}_lr={index / 100}")
        run.report(trial_id, {"loss": abs(index - 250.0), "acc": 0.5})
        run.finish(trial_id)
    run.fail(run.begin({"lr": 9.0}))
    text = tune.load(run.layout.root)._repr_html_()
    page = Page(text)
    assert page.cells[:7] == ["trial", "status", "iter", "time", "loss", "lr", "acc"]
    assert page.cells[7:9] == ["train_d2a66_00250", "finished"]
    assert page.cells[11:14] == ["0", "2.5", "0.5"]
    assert text.count("<tr>") == 21
    assert "exp & more 301 trials: 300 finished, 1 failed" in page.lines
    assert "281 more: 280 finished, 1 failed" in page.lines
    assert "best loss=0 train_d2a66_00250 at iteration 1: lr=2.5" in page.lines
    assert any(line.startswith("train_d2a66_00300 failed") for line in page.lines)
    assert page.lines[-1] == str(run.layout.root)
    assert len(text) < 10_000


def test_without_a_metric_trials_are_in_order(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path / "exp")
    for value in (3.0, 1.0):
        trial_id = run.begin({"lr": value})
        run.report(trial_id, {"loss": value})
        run.finish(trial_id)
    run.ends()
    page = Page(tune.load(tmp_path / "exp")._repr_html_())
    assert page.cells[5::5][:2] == ["train_d2a66_00000", "train_d2a66_00001"]
    assert not any("best" in line for line in page.lines)


def test_a_result_shows_its_config_metrics_checkpoint_and_error(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    model = Opaque(pickled=b"not a pickle", summary="Model")
    trial_id = run.begin({"net": {"width": 8}, "model": model})
    run.report(trial_id, {"loss": 0.5, "by": {"class": 1}}, checkpoint="committed")
    run.fail(trial_id)
    run.write_files()
    (known,) = tune.load(run.layout.root)
    for result in (known, Result.from_path(run.folder(trial_id))):
        page = Page(result._repr_html_())
        assert page.lines[0] == "d2a66_00000 iteration 1, failed"
        assert page.lines[1].startswith("failed: ")
        assert {"loss", "0.5", "by/class", "net/width", "8", "Model"} <= set(page.cells)
        assert page.cells[-3:] == [f"{result.path}/checkpoint_000000", "path", result.path]
    assert "no reports" in Result(None, None, None, str(tmp_path))._repr_html_()


def test_nothing_from_an_experiment_is_a_tag_or_steers_a_terminal(
    run: RecordedExperiment,
) -> None:
    trial_id = run.begin({EVIL: EVIL})
    run.report(trial_id, {EVIL: 1.0, "loss": 1.0, "text": EVIL})
    run.fail(trial_id, message=EVIL)
    grid = tune.load(run.layout.root)
    for text in (grid._repr_html_(), grid[0]._repr_html_()):
        page = Page(text)
        assert page.tags <= PLAIN
        assert "\x1b" not in text
        assert any("<script>alert('x')</script>&\\x1b" in line for line in page.lines)


def test_a_long_config_is_cut(run: RecordedExperiment) -> None:
    trial_id = run.begin({f"p{index}": "x" * 1000 for index in range(500)})
    run.finish(trial_id)
    text = tune.load(run.layout.root)[0]._repr_html_()
    assert "... 480 more" in text
    assert len(text) < 10_000
