"""Names of experiments: where they are looked for, in which order, and what is remembered."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.shell import (
    ListedPlace,
    listed_file,
    note_listed,
    note_run,
    read_listed,
)
from holdfast.experiment.records.place import mark
from holdfast.results.catalog import (
    AmbiguousName,
    default_place,
    path_of,
    place_to_list,
)
from holdfast.results.reading import ExperimentNotFound
from holdfast.syncer.stores.location import Location


def experiment(folder: Path) -> Path:
    (folder / "journal").mkdir(parents=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user with an empty current directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "RAY_AIR_LOCAL_CACHE_DIR": str(tmp_path / "usual"),
    }


def test_a_path_and_a_uri_stay_as_they_are(environ: dict[str, str]) -> None:
    for text in ("/no/such", "./digits", "../digits", "~/digits", "a/b", "s3://bucket/x?a=b", "."):
        assert path_of(text, None, environ) == text


def test_each_place_comes_before_the_next(environ: dict[str, str], tmp_path: Path) -> None:
    note_listed(environ, str(tmp_path / "listed"), ["digits"])
    listed = experiment(tmp_path / "listed" / "digits")
    assert path_of("digits", None, environ) == str(listed)
    rooted = experiment(tmp_path / "rooted" / "digits")
    with_root = {**environ, "HOLDFAST_ROOT": str(tmp_path / "rooted")}
    assert default_place(with_root) == str(tmp_path / "rooted")
    assert path_of("digits", None, with_root) == str(rooted)
    experiment(tmp_path / "here" / "digits")
    assert path_of("digits/", None, with_root) == "digits/"
    explicit = experiment(tmp_path / "explicit" / "team" / "digits")
    assert path_of("team/digits", str(tmp_path / "explicit"), with_root) == str(explicit)
    with pytest.raises(ExperimentNotFound, match=r"\(--root\)"):
        path_of("digits", str(tmp_path / "explicit"), with_root)


def test_a_folder_of_that_name_that_is_not_an_experiment_is_not_in_the_way(
    environ: dict[str, str], tmp_path: Path
) -> None:
    usual = experiment(tmp_path / "usual" / "digits")
    (tmp_path / "here" / "digits").mkdir()
    (tmp_path / "here" / "data").mkdir()
    assert path_of("digits", None, environ) == str(usual)
    assert path_of("data", None, environ) == "data"  # the command says what it is


def test_a_name_in_two_places_says_where(environ: dict[str, str], tmp_path: Path) -> None:
    usual = experiment(tmp_path / "usual" / "digits")
    listed = experiment(tmp_path / "listed" / "digits")
    note_listed(environ, str(tmp_path / "listed"), ["digits"])
    with pytest.raises(AmbiguousName) as caught:
        path_of("digits", None, environ)
    assert str(caught.value) == (
        f"two experiments are named 'digits': {usual} (where fit() keeps results) and {listed} "
        "(used lately). Pass the path of one"
    )
    note_listed(environ, str(tmp_path / "usual"), ["digits"])
    (listed / "journal").rmdir()
    assert path_of("digits", None, environ) == str(usual)


def test_a_name_that_is_nowhere_says_which_are_similar(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ExperimentNotFound, match="There are none there"):
        path_of("digits", None, environ)
    experiment(tmp_path / "usual" / "digits-wide")
    experiment(tmp_path / "usual" / "mnist")
    with pytest.raises(ExperimentNotFound, match=r"Similar names: digits-wide\. Or pass"):
        path_of("digit-wide", None, environ)
    with pytest.raises(ExperimentNotFound, match="Experiments there: digits-wide, mnist"):
        path_of("zebra", None, environ)


def test_the_place_is_remembered_for_its_user_only_and_without_credentials(
    environ: dict[str, str], tmp_path: Path
) -> None:
    assert read_listed(environ) == []
    note_listed(environ, "s3://bucket/results?region=eu", ["b", "a"])
    file = listed_file(environ)
    assert file == tmp_path / "state" / "holdfast" / "listed.json"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(file.parent).st_mode) == 0o700
    listed = [ListedPlace(place="s3://bucket/results?region=eu", names=("b", "a"))]
    assert read_listed(environ) == listed
    note_listed(environ, "/elsewhere", [])  # an empty place is not worth it
    assert read_listed(environ) == listed
    assert os.listdir(file.parent) == ["listed.json"]


def test_the_last_ten_places_are_kept_and_missing_folders_are_not(
    environ: dict[str, str], tmp_path: Path
) -> None:
    for number in range(12):
        (tmp_path / f"p{number}").mkdir()
        note_run(environ, str(tmp_path / f"p{number}"), "digits")
    note_run(environ, str(tmp_path / "p4"), "wide")
    assert [Path(one.place).name for one in read_listed(environ)] == [
        *("p4", "p11", "p10", "p9", "p8", "p7", "p6", "p5", "p3", "p2")
    ]
    note_run(environ, "s3://bucket/results", "near")
    note_run(environ, "s3://bucket/results", "far")
    (tmp_path / "p11").rmdir()
    note_listed(environ, "s3://bucket/results", ["far"])
    assert [Path(one.place).name for one in read_listed(environ)][:3] == ["results", "p4", "p10"]
    experiment(tmp_path / "p3" / "digits")
    assert path_of("digits", None, environ) == str(tmp_path / "p3" / "digits")
    assert path_of("far", None, environ) == "s3://bucket/results/far"


def test_an_old_storage_is_not_asked_for_names_that_it_did_not_have(
    environ: dict[str, str], tmp_path: Path
) -> None:
    note_run(environ, "s3://bucket/results?endpoint_override=http://127.0.0.1:1", "far")
    experiment(tmp_path / "new" / "near")
    note_run(environ, str(tmp_path / "new"), "near")
    with pytest.raises(ExperimentNotFound, match="Similar names: near"):
        path_of("neat", None, environ)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"places": [3, {"place": "x"}]}',
        b'{"places": {}}',
        b"\xff",
        b'{"place": 3, "names": []}',
        b'{"place": "/x"}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_note_counts_as_none(
    environ: dict[str, str], tmp_path: Path, content: bytes
) -> None:
    note_listed(environ, "/x", ["a"])
    listed_file(environ).write_bytes(content)
    assert read_listed(environ) == []
    usual = experiment(tmp_path / "usual" / "digits")
    assert path_of("digits", None, environ) == str(usual)
    note_listed(environ, "/x", ["a"])
    assert json.loads(listed_file(environ).read_text()) == {
        "places": [{"place": "/x", "names": ["a"]}]
    }


def test_a_home_that_cannot_be_written_does_not_matter(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file in the way")
    note_listed(environ, "/x", ["a"])
    assert read_listed(environ) == []


def test_a_tree_and_the_storage_that_it_is_uploaded_to_are_one_experiment(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """`holdfast ls 's3://...'` has listed the storage."""
    usual = experiment(tmp_path / "usual" / "digits")
    uri = "s3://bucket/a%20b?endpoint_override=http://127.0.0.1:1"
    note_listed(environ, uri, ["digits"])
    with pytest.raises(AmbiguousName):
        path_of("digits", None, environ)
    mark(Layout(usual), Location.resolve("s3://bucket/a%20b/digits", None, {}))
    stored = "s3://bucket/a%20b/digits?endpoint_override=http://127.0.0.1:1"
    assert path_of("digits", None, environ) == stored


def test_ls_lists_the_results_in_the_current_folder_first(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (usual := tmp_path / "usual").mkdir()
    (results := tmp_path / "here" / "results").mkdir()
    assert place_to_list(environ) == str(usual)
    note_listed(environ, str(results), ["digits"])
    note_listed(environ, str(usual), ["wide"])
    assert place_to_list(environ) == str(results)
    monkeypatch.chdir(results)
    assert place_to_list(environ) == str(results)
    monkeypatch.chdir(tmp_path)
    assert place_to_list(environ) == str(usual)
    assert place_to_list({**environ, "HOLDFAST_ROOT": "/rooted"}) == "/rooted"


def test_spellings_of_one_uri_are_one_place_and_two_endpoints_are_two(
    environ: dict[str, str],
) -> None:
    uri, here = "s3://bucket/results", "?endpoint_override=http%3A%2F%2F127.0.0.1%3A9000"
    for query in (here, "?endpoint_override=127.0.0.1:9000&allow_bucket_creation=true", ""):
        note_listed(environ, f"{uri}{query}", ["lrs3"])
    assert path_of("lrs3", None, environ) == f"{uri}/lrs3"
    note_listed(environ, f"{uri}{here}", ["lrs3"])
    note_listed(environ, f"{uri}?endpoint_override=http://other:9000", ["lrs3"])
    with pytest.raises(AmbiguousName):
        path_of("lrs3", None, environ)
