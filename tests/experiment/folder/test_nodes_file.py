"""When a run last heard from its nodes: written rarely, read wherever the experiment is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.folder.layout import NODES, Layout
from holdfast.experiment.folder.nodes_file import NodeBeat, NodesFile, parse, read_news
from holdfast.syncer.stores.location import Location

A, B = NodeBeat(node="a", at=100.0, disk_free_bytes=5), NodeBeat(node="b", at=101.5)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def beats_in(folder: Path) -> list[NodeBeat]:
    """What the file says, which is the same from the disk and from storage."""
    location = Location.resolve(folder, None, {})
    here = read_news(Layout(folder))
    assert read_news(location) == here
    return list(here.nodes)


def test_the_newest_beats_are_written_if_they_differ_and_at_most_every_five_seconds(
    tmp_path: Path,
) -> None:
    clock = Clock()
    file = NodesFile(Layout(tmp_path), clock=clock)
    assert beats_in(tmp_path) == []
    assert file.write([A])
    clock.now += 5.0
    assert not file.write([A])
    assert file.write([A, B])
    assert beats_in(tmp_path) == [A, B]
    later = replace(B, at=106.5)
    assert not file.write([later])
    clock.now += 5.0
    assert file.write([later])
    assert beats_in(tmp_path) == [A, later]  # node a has left
    assert [path.name for path in tmp_path.iterdir()] == [NODES]


def test_what_is_waited_for_is_written_before_any_node_has_joined(tmp_path: Path) -> None:
    clock, location = Clock(), Location.resolve(tmp_path, None, {})
    file = NodesFile(Layout(tmp_path), clock=clock)
    assert file.write([], "job 7 waits in the queue")
    assert read_news(location).waiting == "job 7 waits in the queue"
    clock.now += 5.0
    assert file.write([A])
    assert (beats_in(tmp_path), read_news(location).waiting) == ([A], "")


def test_a_folder_that_takes_no_file_stops_nothing(tmp_path: Path) -> None:
    file = NodesFile(Layout(tmp_path / "gone"), clock=Clock())
    assert not file.write([A])
    (tmp_path / "gone").mkdir()
    assert file.write([A])


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"[" * 100_000, b"{}", b'{"format": 2, "nodes": []}',
     b'{"format": 1, "nodes": [{"node": "../a", "at": 1.0}]}',
     b'{"format": 1, "nodes": [{"node": "a", "at": -1.0}]}'],
)  # fmt: skip
def test_other_content_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NODES).write_bytes(content)
    assert beats_in(tmp_path) == []
    with pytest.raises(ValueError, match=r".+"):
        parse(content)


def test_it_is_stored_as_the_small_files_are_and_names_no_trial(tmp_path: Path) -> None:
    settings = uploader_settings(
        Layout(tmp_path), None, experiment_id="e", log_names=(), artifacts=False, timeout_s=1.0
    )
    assert settings.is_record(NODES)
    assert settings.is_remade(NODES)
    NodesFile(Layout(tmp_path)).write([B])
    (plain,) = json.loads((tmp_path / NODES).read_text())["nodes"]
    assert plain == {"node": "b", "at": 101.5, "disk_free_bytes": None}
