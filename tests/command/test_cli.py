"""The command line: quick to start, exit codes and JSON for scripts, plain lines for people."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.cli import main
from holdfast.cli.arguments import parse
from holdfast.cli.resuming import resume_config_of, stop_of
from holdfast.trial.config import ResumeConfig
from tests.rig.runs.patient import healthy, litter

HEAVY = ["pyarrow", "pandas", "numpy", "rich", "asyncio", "aiobotocore", "holdfast.experiment"]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patient") / "run"
    healthy(root)
    return root


@pytest.fixture
def root(patient: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Path(shutil.copytree(patient, tmp_path / "run"))


def spoil(root: Path) -> Path:
    weights = sorted(root.glob("*_00000_*/checkpoint_*/model.txt"))[-1]
    weights.write_text("model of iteration 5")
    return weights.parent


@pytest.mark.parametrize("words", ["--version", "--help", "doctor --help", "doctor gc --help"])
def test_help_is_light(words: str) -> None:
    code = (
        "import sys; from holdfast.cli import main\n"
        "try: main(sys.argv[1:])\n"
        f"except SystemExit: print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "holdfast", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"holdfast {__version__}\n"


def test_a_sound_experiment_is_0_and_one_line_says_so(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(root)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{root}: 36 records, 3 trials, 10 rows, 5 checkpoints (100 B); ")
    assert last == "Sound."


def test_a_wrong_one_is_1_and_says_what_where_and_what_to_do(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = spoil(root)
    assert main(["doctor", "verify", str(root)]) == 1
    told = capsys.readouterr().out
    assert f"ERROR    {broken.relative_to(root)}\n" in told
    assert "its bytes changed" in told
    assert f"  holdfast doctor repair {root}   repairs what can be repaired here\n" in told
    assert main(["doctor", "verify", "--quick", str(root)]) == 0


def test_it_is_repaired_and_collected_by_the_commands_that_were_named(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = spoil(root)
    assert main(["doctor", "repair", str(root)]) == 0
    assert "checkpoint 3 dropped from the records" in capsys.readouterr().out
    litter(root)
    assert main(["doctor", "gc", str(root)]) == 0
    told = capsys.readouterr().out
    assert "Nothing is removed yet." in told
    assert broken.is_dir()
    assert f"holdfast doctor gc --yes {root}" in told
    assert main(["doctor", "gc", "--yes", str(root)]) == 0
    assert not broken.is_dir()
    assert main(["doctor", "sync", str(root)]) == 0
    assert main(["doctor", str(root)]) == 0


def test_scripts_get_one_json_object(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = spoil(root)
    assert main(["doctor", "verify", "--json", str(root)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["sound"] is False
    assert report["looked_at"]["checkpoints"] == 5
    (finding,) = report["findings"]
    assert finding["kind"] == "checkpoint-broken"
    assert finding["severity"] == "error"
    assert finding["remedy"] == "repair"
    assert finding["where"] == str(broken.relative_to(root))


@pytest.mark.parametrize("as_json", [False, True])
def test_where_nothing_is_that_is_2(
    root: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    asked = ["doctor", "verify", *(["--json"] if as_json else []), str(root.parent / "nowhere")]
    assert main(asked) == 2
    out, err = capsys.readouterr()
    assert "there is no experiment at" in (json.loads(out)["error"] if as_json else err)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["doctor"],
        ["doctor", "verify"],
        ["doctor", "gc", "--no"],
        ["show", ".", "-n", "-1"],
        ["web", "--port", "65536"],
        ["logs", ".", "0", "--tail", "-1"],
        ["logs", ".", "0", "--follow", "--interval", "0"],
        ["logs", ".", "0", "--follow", "--interval", "nan"],
        ["logs", ".", "0", "--follow", "--path"],
        ["resume", ".", "--stop", "loss"],
        ["resume", ".", "--stop", "=3"],
        ["resume", ".", "--stop", "loss=low"],
        ["resume", ".", "--stop", "loss=nan"],
        ["resume", ".", "--num-samples", "many"],
        ["resume", ".", "--resume-finished", "--restart-finished"],
    ],
)
def test_what_cannot_be_understood_is_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


@pytest.mark.parametrize("words", [[], ["doctor"]])
def test_a_bare_command_prints_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "holdfast doctor PATH' verifies" in told if words else "list the experiments" in told


def test_what_resume_is_asked_for_is_what_a_restore_is_given() -> None:
    asked = parse(
        ["resume", "run", "--stop", "epoch=90", "--stop", "loss/eval=1e-3", "--stop", "a=b=true"]
    )
    assert repr(stop_of(asked)) == "{'epoch': 90, 'loss/eval': 0.001, 'a=b': True}"
    assert resume_config_of(asked) == ResumeConfig()
    plain = parse(["resume", "run", "--num-samples", "-1", "--extend"])
    assert (plain.num_samples, stop_of(plain)) == (-1, None)
    other = ["--skip-unfinished", "--restart-errored", "--resume-finished"]
    assert resume_config_of(parse(["resume", "run", *other])) == ResumeConfig(
        "resume", "skip", "restart"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("7200", 7200), ("1h 30m", 5400), ("90s", 90), ("inf", math.inf)]
)
def test_a_time_budget_is_in_seconds_or_has_units(text: str, seconds: float) -> None:
    assert parse(["resume", "run", "--extend", "--time-budget", text]).time_budget == seconds


def test_a_time_budget_of_another_unit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["resume", "run", "--extend", "--time-budget", "2 weeks"])
    told = "--time-budget: it must be a time such as '2h', '90m' or '1h 30m', not '2 weeks'"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--stop", "a=1", "--stop", "b=1", "--stop", "a=2"], "--stop is passed twice for a"),
        (
            ["--extend"],
            "say by how much, with --num-samples N, --stop KEY=VALUE or --time-budget T",
        ),
    ],
)
def test_what_resume_cannot_be_asked_for_is_reported(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "nowhere", *words]) == 2
    assert told in capsys.readouterr().err


def test_preflight_says_step_by_step_what_a_place_is_good_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "results"
    assert main(["doctor", "preflight", "--mib", "1", str(place)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[1:-1]] == [
        "write", "conditional", "large", "overwrite", "list", "read", "delete", "lock", "space",
    ]  # fmt: skip
    assert told[-1] == "A run can be stored here."
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert main(["doctor", "preflight", "--json", str(tmp_path / "file" / "x")]) == 1
    tried = json.loads(capsys.readouterr().out)
    assert tried["steps"][0]["outcome"] == "failed"
    assert "Not a directory" in tried["steps"][0]["told"]


def test_secrets_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    uri = "s3://bucket/run?endpoint_override=127.0.0.1&no_such_option=1&secret_key=hidden7"
    assert main(["doctor", uri]) == 2
    assert main(["doctor", "verify", "--json", uri]) == 2
    assert main(["doctor", "preflight", uri]) == 2
    out, err = capsys.readouterr()
    assert "no_such_option" in out
    assert "no_such_option" in err
    assert "hidden7" not in out + err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lss", "holdfast: error: there is no command 'lss'. Did you mean ls?"),
        ("zzz", "there is no command 'zzz'. There are ls, "),
        ("queue lst", "holdfast queue: error: there is no command 'lst'. Did you mean ls?"),
        ("logs x 0 --folow", "unrecognized arguments: --folow. Did you mean --follow?"),
        ("best x --chekpoint=d", "--chekpoint=d. Did you mean --checkpoint?"),
        ("show mine 99", "usage: holdfast show "),
        (
            "show mine 99",
            "holdfast show: error: show takes one experiment. For a trial: holdfast logs",
        ),
        ("doctor x --depp", "holdfast doctor verify: error: unrecognized arguments: --depp. Did"),
    ],
)
def test_what_is_misspelled_is_answered_by_what_is_near(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_pasted_comment_is_no_argument() -> None:
    assert parse(["resume", "x", "#", "finishes", "the", "rest"]).path == "x"
    assert parse(["queue", "add", "a.py", "#", "b"]).words == ["a.py", "#", "b"]


def test_a_queue_without_a_command_is_listed() -> None:
    assert parse(["queue"]).queue_command == "ls"
    assert parse(["queue", "--queue", "Q"]).queue == "Q"


def test_a_reader_that_goes_away_is_not_an_error(store: Path) -> None:
    line = f'"{sys.executable}" -m holdfast show "{store}/ended" --json | head -n 1; '
    done = subprocess.run(
        ["bash", "-c", f'{line} exit "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("words", [("export", "ended"), ("completion", "fish")])
def test_a_pipe_that_is_closed_ends_it_quietly(store: Path, words: tuple[str, str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    # The word is a folder for one command, and a shell for the other.
    command = [sys.executable, "-m", "holdfast", *words]
    with os.fdopen(writes, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, cwd=store, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_resume_without_a_usable_trainable_says_what_to_give(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(store / "cut"), "--trainable", "train"]) == 2
    assert "--trainable must be module:name" in capsys.readouterr().err
    assert main(["resume", str(store / "cut"), "--trainable", "nowhere:train"]) == 2
    assert "No module named 'nowhere'" in capsys.readouterr().err
    assert main(["resume", str(store / "nothing"), "--json"]) == 2
    assert "nothing" in json.loads(capsys.readouterr().out)["error"]


def test_an_error_of_the_system_is_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(store / "ended" / ".lock"))

    monkeypatch.setattr("holdfast.results.doctor.repair.locked", refuses)
    assert main(["doctor", "repair", str(store / "ended")]) == 1
    assert capsys.readouterr().err == (
        f"holdfast: cannot use {store}/ended/.lock: Read-only file system. That disk "
        "cannot be written: use another path, or a copy elsewhere\n"
    )
