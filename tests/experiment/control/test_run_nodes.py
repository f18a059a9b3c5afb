"""What the fleet reports reaches the run in order, also what comes before its first record."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.experiment.control.run_cluster import RunNodes
from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.facts import NodeFacts
from holdfast.runtime.wire import Message
from holdfast.scheduler.events import Event, NodeJoined, NodeLeaving, NodeLeft


def facts(name: str) -> NodeFacts:
    return NodeFacts(
        name=name,
        hostname=f"host-{name}",
        address="10.0.0.1",
        resources={"CPU": 2.0},
        gpus=(),
        python="3.11",
        pid=7,
        disk_free_bytes=1,
        kind="slurm",
    )


class Heard:
    """A run that remembers what it hears."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def post(self, event: Event) -> None:
        self.told.append(event)

    def on_kept(self, node: str, message: Message) -> None:
        if message == ["nonsense"]:
            raise ValueError("not an answer of a keeper")
        self.told.append((node, message))

    def on_node(self, facts: NodeFacts) -> None:
        self.told.append(facts.name)

    def on_node_leaving(self, node: str, seconds: float, why: str) -> None:
        self.told.append((node, seconds, why))

    def on_node_lost(self, node: str, cause: str) -> None:
        self.told.append((node, cause))

    def on_no_node_left(self, why: str) -> None:
        self.told.append(why)


@pytest.fixture
def nodes() -> RunNodes:
    return RunNodes(lambda text: None)


JOINED = NodeJoined(
    node="a", resources={"CPU": 2.0}, hostname="host-a", address="10.0.0.1", kind="slurm"
)


def test_nodes_that_joined_before_the_first_record_are_reported_after_it(nodes: RunNodes) -> None:
    nodes.node_joined(facts("a"))
    nodes.node_leaving("a", 30.0, "SIGTERM")
    nodes.on_kept("a", ["moving"])
    nodes.node_left("a", "gone")
    nodes.begin(heard := Heard())
    assert heard.told == [
        "a",
        JOINED,
        NodeLeaving(node="a", seconds=30.0, why="SIGTERM"),
        ("a", 30.0, "SIGTERM"),
        ("a", ["moving"]),
        NodeLeft(node="a", cause="gone"),
        ("a", "gone"),
    ]


def test_an_answer_that_no_keeper_sends_ends_the_connection(nodes: RunNodes) -> None:
    nodes.begin(Heard())
    nodes.node_joined(facts("a"))
    with pytest.raises(WireError, match="not an answer of a keeper"):
        nodes.on_kept("a", ["nonsense"])
