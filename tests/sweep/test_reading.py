"""Sweep files as data: YAML 1.2's scalars, lines in errors, and limits."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import pytest

from holdfast.sweep.reading import read, read_file, scalar, setting, with_setting
from holdfast.trial.errors import InvalidConfig


def yaml(text: str) -> Any:
    return read(text, "sweep.yaml", ".yaml").plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-3.", -3.0),
        ("+7", 7),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        # Text, unlike in YAML 1.1:
        *((word, word) for word in ("no", "yes", "on", "off", "y", "NO", "1_000", "1:30", "<<")),
        *((word, word) for word in ("2024-01-01", "0b1", "1e", ".", "e5", "nan", "1.2.3", "=")),
    ],
)
def test_a_plain_scalar_follows_the_core_schema(text: str, value: Any) -> None:
    assert repr(scalar(text)) == repr(value)
    assert repr(yaml(f"a: {text}\n")["a"]) == repr(value)


def test_what_is_quoted_or_a_block_is_text() -> None:
    text = "a: '1e-4'\nb: \"no\"\nc: |\n  1\nd: >\n  true\n"
    assert yaml(text) == {"a": "1e-4", "b": "no", "c": "1\n", "d": "true\n"}


def test_names_are_text_and_aliases_repeat_what_they_name() -> None:
    text = "1: &one [a, {b: 2}]\ntrue: *one\nnull: *one\n"
    assert yaml(text) == {key: ["a", {"b": 2}] for key in ("1", "true", "null")}


def test_a_table_is_merged_below_what_stands_beside_it() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b], y: 3}\nd: {'<<': *a}"
    found = read(text, "s.yaml", ".yaml").plain()
    assert found["c"] == {"x": 1, "y": 3, "z": 2}
    assert found["d"] == {"<<": {"x": 1, "y": 1}}
    with pytest.raises(InvalidConfig, match=r"s\.yaml:2: b: must be a table"):
        read("a: &a 1\nb: {<<: *a}", "s.yaml", ".yaml")
    with pytest.raises(InvalidConfig, match="nested more than"):
        read("a: &a {<<: *a}", "s.yaml", ".yaml")


def test_each_value_knows_its_line_and_path() -> None:
    node = read("a: 1\nb:\n  c:\n    - x\n    - {d: 5}\n", "s.yaml", ".yaml")
    inner = node.value["b"].value["c"].value[1].value["d"]
    assert (inner.line, inner.path) == (5, "b.c[1].d")
    with pytest.raises(
        InvalidConfig, match=r"^s\.yaml:5: b\.c\[1\]\.d: must be text, not 5\. Put it"
    ):
        inner.text()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1, 2", r"^sweep\.yaml:1: not YAML: "),
        ("a:\n\tb: 1", r"^sweep\.yaml:2: not YAML: .*Indent with spaces"),
        ("a: 1\nb: 2\na: 3", r"^sweep\.yaml:3: 'a' is there twice, also in line 1"),
        (
            "a: !!python/object/apply:os.system [id]",
            r"^sweep\.yaml:1: a: the tag .*python.* is not",
        ),
        ("a: !!int 3.5", r"^sweep\.yaml:1: a: '3\.5' is not what its tag says: int"),
        ("a: !!float x", r"^sweep\.yaml:1: a: 'x' is not what its tag says: float"),
        ("a: !!timestamp 2024-01-01", r"the tag .*timestamp' is not supported"),
        ("a: !custom x", r"the tag '!custom' is not supported"),
        ("? [a, b]\n: 1", r"^sweep\.yaml:1: a name must be text"),
        ("- a\n- b", r"the file must be a table of names and values, not a list"),
        ("", "has 0 documents"),
        ("# nothing", "has 0 documents"),
        ("null", "must be a table of names and values, not empty"),
        ("a: 1\n---\na: 2", "has 2 documents"),
        ("a: *nowhere", r"^sweep\.yaml:1: not YAML: found undefined alias"),
        ("a: &a [*a]", r"nested more than 32 levels deep"),
        ("a: " + "[" * 40 + "]" * 40, r"nested more than 32 levels deep"),
        ("a: " + "[" * 20_000 + "]" * 20_000, "nested too deeply"),
        ("a: " + "{a: " * 5_000 + "}" * 5_000, "nested too deeply"),
        ("a: \x07", "not YAML"),
    ],
)
def test_what_is_not_a_table_of_plain_data_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!float 1e-5", 1e-5),
        ("!!float 1", 1.0),
        ("!!int '3'", 3),
        ("!!str 1e-5", "1e-5"),
        ("!!bool true", True),
        ("!!null ''", None),
    ],
)
def test_the_tags_of_the_core_schema_say_what_a_scalar_is(text: str, value: Any) -> None:
    found = yaml(f"a: {text}")["a"]
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("suffix", "text"), [(".yaml", "a: 1"), (".json", '{"a": 1}'), (".toml", "a = 1")]
)
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, suffix: str, text: str) -> None:
    (file := tmp_path / f"sweep{suffix}").write_text(text, encoding="utf-8-sig")
    assert read_file(file)[0].plain() == {"a": 1}


def test_a_billion_laughs_are_refused_at_once() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(
        InvalidConfig, match="more than 20,000 values, counting what aliases repeat"
    ):
        yaml("\n".join(lines))


def test_json_and_toml_are_read_without_a_library(tmp_path: Path) -> None:
    values = {"a": [1, 0.5, "no"], "b": {"c": True}}
    (tmp_path / "s.json").write_text('{"a": [1, 0.5, "no"], "b": {"c": true}}')
    (tmp_path / "s.toml").write_text('a = [1, 0.5, "no"]\nb.c = true\n')
    assert read_file(tmp_path / "s.json")[0].plain() == values
    assert read_file(tmp_path / "s.toml")[0].plain() == values


@pytest.mark.parametrize(
    ("text", "suffix", "fault"),
    [
        ('{"a": 1, "a": 2}', ".json", r"^s: a is there twice"),
        ('{"a": ', ".json", r"^s: Expecting value: line 1"),
        ("[" * 100_000, ".json", r"^s: "),
        ("a = 2024-01-01", ".toml", r"^s: a: a date is not a value of a sweep"),
        ("a = ", ".toml", r"^s: Invalid value"),
        ("a: 1", ".txt", r"ends with \.yaml, \.yml, \.json, \.toml"),
    ],
)
def test_a_broken_file_of_another_format_is_refused(text: str, suffix: str, fault: str) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        read(text, "s", suffix)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml":
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        InvalidConfig, match=r"not installed: pip install '(?i:pyyaml)>=6'.*\. JSON"
    ):
        yaml("a: 1")


def test_a_file_that_is_missing_large_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*gone\.yaml: No such file"):
        read_file(tmp_path / "gone.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(InvalidConfig, match="more than 1,048,576 bytes"):
        read_file(tmp_path / "large.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"a: \xff")
    with pytest.raises(InvalidConfig, match="is not UTF-8 text"):
        read_file(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a=1e-4", ["a"], 1e-4),
        ("a.b=no", ["a", "b"], "no"),
        ('a=[1, "x"]', ["a"], [1, "x"]),
        ("a=b=c", ["a"], "b=c"),
        ("a=", ["a"], None),
    ],
)
def test_set_takes_a_path_and_json_or_text(text: str, path: list[str], value: Any) -> None:
    names, node = setting(text)
    assert (names, node.plain()) == (path, value)


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ".a=1"])
def test_set_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--set takes KEY=VALUE"):
        setting(text)


def test_set_replaces_adds_and_keeps_the_rest() -> None:
    node = read("a: {b: 1, c: 2}\n", "s.yaml", ".yaml")
    for text in ("a.b=3", "new.x=1", "a.d=[4]"):
        names, value = setting(text)
        node = with_setting(node, names, value)
    assert node.plain() == {"a": {"b": 3, "c": 2, "d": [4]}, "new": {"x": 1}}
    assert node.value["a"].value["b"].where == "--set: a.b"
    with pytest.raises(InvalidConfig, match=r"--set: a\.b is 3, not a table"):
        with_setting(node, ["a", "b", "c"], setting("x=1")[1])
