"""The digest of a trainable's code: what changes it, and what does not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast import tune
from holdfast.experiment.user_objects.tuner_file import (
    differ,
    digest_of,
    has_changed_in,
    name_in_script,
    place_of,
)

SCRIPT = """
from holdfast import tune

KINDS = {"a", "b", "c"}

def loss(x):
    return x ** 2

class Model:
    def step(self):
        return loss(1)

class Own(tune.Trainable):
    def step(self):
        return {"loss": loss(2)}

def train(config, data=None):
    if config["kind"] in {"a", "b", "c"}:
        tune.report({"loss": Model().step()})
"""


def script(text: str = SCRIPT, name: str = "__main__") -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, "/code/own.py", "exec", dont_inherit=True), scope)
    return scope


def digest(text: str = SCRIPT, name: str = "train") -> str:
    return digest_of(script(text)[name])


@pytest.mark.parametrize(
    "text",
    [
        f"# A comment\n\n{SCRIPT}",
        SCRIPT.replace("x ** 2", "x**2  # squared"),
        SCRIPT.replace('KINDS = {"a", "b", "c"}', "KINDS = 1"),
        f"{SCRIPT}\ndef other():\n    pass\n",
    ],
)
def test_comments_and_what_it_does_not_use_do_not_count(text: str) -> None:
    assert digest(text) == digest()


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("x ** 2", "x ** 4"),
        ("loss(1)", "loss(3)"),
        ('in {"a", "b", "c"}', 'in {"a", "b"}'),
        ("data=None", "data=1"),
        ('"loss": Model', '"los": Model'),
    ],
)
def test_what_it_uses_counts(was: str, now: str) -> None:
    assert differ(digest(), digest(SCRIPT.replace(was, now)))


def test_a_class_has_the_digest_of_its_methods() -> None:
    assert digest(name="Own") == digest(name="Own")
    assert differ(digest(name="Own"), digest(SCRIPT.replace("loss(2)", "loss(4)"), "Own"))
    assert differ(digest(name="Own"), digest(SCRIPT.replace("** 2", "** 4"), "Own"))


def test_what_is_bound_to_it_changes_nothing() -> None:
    train = script()["train"]
    plain = digest_of(train)
    assert digest_of(tune.with_resources(train, {"cpu": 2})) == plain
    assert digest_of(tune.with_parameters(train, data=1)) == plain
    assert digest_of(partial(train, data=1)) == plain
    assert digest_of(script(name="own")["train"]) == plain
    assert digest_of(cloudpickle.loads(cloudpickle.dumps(train))) == plain


def test_digests_of_two_pythons_and_of_none_are_not_compared() -> None:
    assert not differ("cpython-311-O0:aa", "cpython-312-O0:bb")
    assert not differ("", digest())
    assert digest_of(print) == ""


def test_messages_and_commands_name_the_function() -> None:
    found = script()
    assert place_of(found["train"]) == "train() (own.py:17)"
    assert place_of(found["Own"]) == "Own (own.py)"
    assert name_in_script(found["train"]) == "own.py:train"
    assert name_in_script(found["Own"]) == "own.py:Own"
    for other in (tune.with_resources(found["train"], {"cpu": 2}), script(name="own")["train"]):
        assert name_in_script(other) == ""


def test_a_script_is_compared_without_running_it(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SCRIPT, str(path), "exec", dont_inherit=True), scope)
    path.write_text(f"# A comment\n{SCRIPT}\nraise SystemExit(1)\n")
    assert not has_changed_in(scope["train"], path)
    path.write_text(SCRIPT.replace("x ** 2", "x ** 4"))
    assert has_changed_in(scope["train"], path)
    path.write_text("def train(:")
    assert not has_changed_in(scope["train"], path)
