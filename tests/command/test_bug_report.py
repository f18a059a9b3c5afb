"""`holdfast doctor report`: what is in it, and what must not be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main


def failing(config: dict[str, Any]) -> None:
    tune.report({"loss": 12345.5})
    print("a printed line")
    raise RuntimeError("cannot read s3://bucket?secret_key=hush")


def report(capfd: pytest.CaptureFixture[str], *path: str) -> tuple[str, dict[str, Any]]:
    capfd.readouterr()
    assert main(["doctor", "report", *path]) == 0
    text = capfd.readouterr().out
    return text, json.loads(text)


def test_a_report_says_what_failed_and_has_no_secret_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_S3_SECRET", "silence")
    monkeypatch.setenv("HOME", str(tmp_path))
    tune.Tuner(
        failing,
        param_space={"private": "a config's value"},
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    text, facts = report(capfd, str(tmp_path / "run"))
    experiment = facts["experiment"]
    assert experiment["state"] == "errored"
    assert "RuntimeError: cannot read" in experiment["failures"][0]["traceback"]
    assert experiment["records"]["Reported"] == 1
    assert facts["findings"] == []
    assert "HOLDFAST_S3_SECRET" in facts["machine"]["variables"]
    for hidden in ("hush", "silence", "a config's value", "12345.5", "a printed line"):
        assert hidden not in text
    assert str(tmp_path) not in text


def test_a_report_without_an_experiment_describes_the_machine(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, facts = report(capfd)
    assert facts.keys() == {"machine"}
    assert facts["machine"]["packages"]["msgpack"]


def test_a_report_of_a_damaged_experiment_says_what_is_wrong(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (store / "ended" / "journal").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    _, facts = report(capfd, str(store / "ended"))
    assert facts["findings"]
