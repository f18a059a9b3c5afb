"""Prints the nodes of an experiment's cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.cli.browse.output import STATE_STYLES, print_table
from holdfast.cli.printing import say
from holdfast.experiment.browse.node_list import RUN_ENDED, ListedNode, NodeList, NodeState
from holdfast.experiment.progress.wording import node_count
from holdfast.names import printable
from holdfast.text.values import duration, size

_HEADER = ("NODE", "STATE", "HOLDS", "TRIALS", "JOINED", "HEARD", "FREE DISK", "HOST", "ADDRESS")
_NODE_STYLES = {NodeState.HERE: "", NodeState.LEAVING: "yellow", NodeState.LEFT: "dim"}
_SHOWN_LEFT = 10


def show_nodes(listed: NodeList, *, now: float, shows_all: bool) -> None:
    """`holdfast nodes`; `shows_all`: also those that left before the last restore."""
    runs = f", {listed.holder} runs it" if listed.holder else ""
    say(f"{listed.name}: {listed.state}{runs}", STATE_STYLES[listed.state])
    if listed.is_cluster:
        here = sum(node.state is NodeState.HERE for node in listed.here)
        say(f"  {node_count(here, listed.most)}")
        if listed.waiting:
            say(f"  {printable(listed.waiting)}")
    else:
        say("  all its trials run on one machine: it has no nodes")
    left = listed.left if shows_all else _newest_left(listed)
    shown = [*listed.here, *left]
    if shown:
        cells = [_cells(node, now) for node in shown]
        print_table([_HEADER, *cells], [_NODE_STYLES[node.state] for node in shown])
    for text in _causes(shown, now):
        say(text)
    if (more := len(listed.left) - len(left)) > 0:
        say(f"... {more:,} more {'has' if more == 1 else 'have'} left (--all shows them)")


def _newest_left(listed: NodeList) -> list[ListedNode]:
    """Some of those that have left since the last restore."""
    return [node for node in listed.left if not node.is_earlier][-_SHOWN_LEFT:]


def _cells(node: ListedNode, now: float) -> list[str]:
    free = node.disk_free_bytes
    return [
        printable(node.name),
        node.state.value,
        printable(_holds(node)) if node.state is not NodeState.LEFT else "",
        str(len(node.trials) or ""),
        _ago(node.joined_at, now),
        _ago(node.heard_at, now),
        "" if free is None else size(free),
        printable(node.hostname),
        printable(node.address),
    ]


def _holds(node: ListedNode) -> str:
    """`CPU 3/8, GPU 1/2`; memory, which few trials ask for, last and only if it is held."""
    first = ("CPU", "GPU")
    names = [
        *(name for name in first if name in node.resources),
        *(name for name in node.resources if name not in (*first, "memory")),
        *(["memory"] if node.held.get("memory") else []),
    ]
    return ", ".join(
        f"{name} {_amount(name, node.held.get(name, 0))}/{_amount(name, node.resources[name])}"
        for name in names
    )


def _amount(name: str, amount: float) -> str:
    return size(amount) if name == "memory" else f"{amount:g}"


def _causes(nodes: Sequence[ListedNode], now: float) -> Iterator[str]:
    for node in nodes:
        if node.state is NodeState.LEAVING:
            yield f"{node.name} leaves" + (f": {node.cause}" if node.cause else "")
        if node.state is NodeState.LEFT and node.cause != RUN_ENDED:
            when = f" {_ago(node.left_at, now)}" if node.left_at is not None else ""
            yield f"{node.name} has left{when}" + (f": {node.cause}" if node.cause else "")


def _ago(at: float | None, now: float) -> str:
    return "" if at is None else f"{duration(max(0.0, now - at))} ago"
