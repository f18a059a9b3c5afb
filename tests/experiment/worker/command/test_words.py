"""The words of a command: parameters, macros, and no shell."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.worker.command.words import Facts, check_words, flat, words_of
from holdfast.trial.errors import InvalidConfig

FACTS = Facts(
    program="/code/train.py",
    here="/code",
    config_file="/run/config.json",
    interpreter="python",
    environ={"HOME": "/home/me"},
)
CONFIG = {
    "lr": 1e-05,
    "net": {"width": 32, "act": "re lu"},
    "flag": True,
    "off": False,
    "no": None,
}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (
            ["${args}"],
            "--lr=1e-05|--net.width=32|--net.act=re lu|--flag=True|--off=False|--no=null",
        ),
        (
            ["${args_no_hyphens}"],
            "lr=1e-05|net.width=32|net.act=re lu|flag=True|off=False|no=null",
        ),
        (
            ["${args_no_boolean_flags}"],
            "--lr=1e-05|--net.width=32|--net.act=re lu|--flag|--no=null",
        ),
        (["${env}", "${interpreter}", "${program}"], "/usr/bin/env|python|/code/train.py"),
        (["--config", "${args_json_file}"], "--config|/run/config.json"),
        (["-I${here}/include", "${envvar:HOME}/x"], "-I/code/include|/home/me/x"),
        (["x={lr}", "{net.width}-{net/width}"], "x=1e-05|32-32"),
        (["{net.act}"], "re lu"),
        (["{{lr}}", "{{no such}}", '{"a": 1}'], '{lr}|{{no such}}|{"a": 1}'),
        (["{i} {{i}} ${i} ${}", "{ print $1 }"], "{i} {{i}} ${i} ${}|{ print $1 }"),
    ],
)
def test_placeholders_become_words(template: list[str], words: str) -> None:
    check_words(template, FACTS.program)
    assert words_of(template, CONFIG, FACTS) == words.split("|")


def test_a_value_is_one_word_and_no_placeholder() -> None:
    hostile = {"x": "a b; rm -rf ${program} {x}", "list": [1, "two"]}
    assert words_of(["{x}", "${args}"], hostile, FACTS) == [
        "a b; rm -rf ${program} {x}",
        "--x=a b; rm -rf ${program} {x}",
        '--list=[1, "two"]',
    ]


def test_args_json_is_the_config_as_it_is() -> None:
    (word,) = words_of(["${args_json}"], {"a": {"b": 1}}, FACTS)
    assert word == '{"a": {"b": 1}}'
    assert flat({"a": {"b": 1, "empty": {}}}) == {"a.b": 1, "a.empty": {}}


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (["x${args}"], "a word of its own"),
        (["${program}"], "no program is named"),
    ],
)
def test_a_wrong_macro_is_refused(template: list[str], fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        check_words(template, None)


def test_what_only_a_machine_shows_is_refused_there() -> None:
    with pytest.raises(InvalidConfig, match="NOWHERE is not set here"):
        words_of(["${envvar:NOWHERE}"], CONFIG, FACTS)


def test_what_resembles_a_placeholder_is_noticed(tmp_path: Path) -> None:
    trainable = made(tmp_path, "train ${argz} ${x} {lr} {i} {net/width}")
    assert trainable.notes(["lr", "net.width"]) == [
        "${argz} in the command stays as it is. Did you mean 'args'?",
        "{i} in the command is not a parameter, and stays as it is. The parameters are lr, "
        "net.width",
    ]
    assert made(tmp_path, "awk '{print $1}' {lr}").notes(["lr"]) == []
    with pytest.raises(InvalidConfig, match=r"{lrr} in .* Did you mean 'lr'\? .* write {{lrr}}"):
        made(tmp_path, "train {lrr}").notes(["lr"])
    assert "$HOLDFAST_CONFIG" in made(tmp_path, "train {i}").notes(["lr"])[-1]


def test_a_parameter_that_the_command_does_not_use_is_noticed(tmp_path: Path) -> None:
    notes = made(tmp_path, "train --order {order} --rate $rate").notes(["order", "rate", "seed"])
    assert notes == [
        "parameter rate is not used by the command ($rate stays as it is: no shell reads the "
        "command): write {rate} where it belongs",
        "parameter seed is not used by the command: write {seed} where it belongs",
    ]
    assert "$rate stays as it is" in made(tmp_path, "train $rate").notes(["rate"])[0]
    assert len(made(tmp_path, "train $rates").notes(["rate"])) == 1
    assert made(tmp_path, "train ${args}").notes(["rate"]) == []


def made(tmp_path: Path, command: Any = None, **given: Any) -> tune.CommandTrainable:
    for name in ("train.py", "run.sh", "data.txt", "sh"):
        (tmp_path / name).touch()
    (tmp_path / "run.sh").chmod(0o755)
    return tune.CommandTrainable(command, here=str(tmp_path), **given)


@pytest.mark.parametrize(
    ("command", "words", "name"),
    [
        ("python train.py --data data.txt", "python {0}/train.py --data data.txt", "train"),
        ("./run.sh train.py", "{0}/run.sh train.py", "run"),
        ("env -u X python ./train.py", "env -u X python {0}/train.py", "train"),
        ("/usr/bin/env python train.py", "/usr/bin/env python {0}/train.py", "train"),
        ("python other.py", "python other.py", "python"),
        (["sh", "-c", "echo a  b"], "sh -c 'echo a  b'", "sh"),
    ],
)
def test_the_first_word_that_names_a_file_becomes_its_path(
    tmp_path: Path, command: Any, words: str, name: str
) -> None:
    trainable = made(tmp_path, command)
    assert list(trainable.words) == shlex.split(words.format(tmp_path))
    assert trainable.__name__ == name


def test_a_program_gets_all_parameters_as_arguments(tmp_path: Path) -> None:
    script, binary = made(tmp_path, program="train.py"), made(tmp_path, program="run.sh")
    assert script.words == ("${interpreter}", "${program}", "${args}")
    assert script.program == f"{tmp_path}/train.py"
    assert binary.words == ("${program}", "${args}")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "a command or a program is needed"),
        ({"program": "gone.py"}, "'gone.py' is not a file in"),
        ({"command": "python 'train.py"}, "No closing quotation"),
        ({"command": []}, "must be text, or a list of words"),
        ({"command": ["python", 3]}, "must be text, or a list of words"),
        ({"command": "true", "cwd": "nowhere"}, "is not a folder"),
        ({"command": "true", "grace_s": -1}, "grace_s must be a number of seconds"),
        ({"command": "true", "env": {"A": 1}}, "env: 'A' must be text"),
        ({"command": "true", "metrics": {"loss": "loss="}}, "exactly one group"),
        ({"command": "true", "metrics": {"loss": "("}}, "not a regular expression"),
        ({"command": "true", "resources": {"cpu": -1}}, "must be zero or more"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        made(tmp_path, **given)


def test_it_is_pickled_with_the_paths_that_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trainable = made(
        tmp_path, "python train.py data.txt {x}", env={"A": "1"}, resources={"cpu": 2}, grace_s=3
    )
    (tmp_path / "train.py").unlink()
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(trainable))
    assert vars(again) == vars(trainable) | {"_made_of": vars(again)["_made_of"]}
    assert again.words == ("python", f"{tmp_path}/train.py", "data.txt", "{x}")
