"""The wording for several machines: the nodes of a cluster, and ranks that others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.experiment.progress.summary import NodesSummary, RankWait, Summary
from holdfast.experiment.progress.wording import counted, duration
from holdfast.runtime.exit_cause import short_cause
from holdfast.trial.readable import listed

_SHOWN_NODES = 3
_SHOWN_WAITS = 2
_SHOWN_RANKS = 5
# Ranks wait for each other in every report: only waits that last longer are shown.
_LONG_WAIT_S = 5.0


def node_lines(summary: Summary) -> Iterator[str]:
    """`3 of 4 nodes, b leaves; c has left: its connection was closed`, and what the cluster waits
    for."""
    if summary.nodes is not None:
        yield _nodes_text(summary.nodes)
    if summary.waiting:
        yield summary.waiting


def node_count(here: int, most: int | None) -> str:
    """`3 of 4 nodes`, `1 node`."""
    of = "" if most is None else f" of {most:,}"
    word = "node" if (here if most is None else most) == 1 else "nodes"
    return f"{here:,}{of} {word}"


def _nodes_text(nodes: NodesSummary) -> str:
    parts = [node_count(nodes.here, nodes.most)]
    if nodes.leaving:
        verb = "leaves" if len(nodes.leaving) == 1 else "leave"
        parts.append(f"{listed(nodes.leaving, _SHOWN_NODES)} {verb}")
    text = ", ".join(parts)
    if not nodes.left:
        return text
    (newest, cause), *others = nodes.left
    left = f"{newest} has left{f': {short_cause(cause)}' if cause else ''}"
    before = f" (before it {listed([name for name, _ in others], _SHOWN_NODES)})" if others else ""
    return f"{text}; {left}{before}"


def wait_lines(summary: Summary) -> Iterator[str]:
    """The ranks for which others have waited long."""
    waits = [wait for wait in summary.waits if wait.waited_s > _LONG_WAIT_S]
    for wait in waits[:_SHOWN_WAITS]:
        yield _wait_text(wait)
    if len(waits) > _SHOWN_WAITS:
        more = counted(len(waits) - _SHOWN_WAITS, "trial", "trials")
        yield f"and ranks of {more} more wait"


def _wait_text(wait: RankWait) -> str:
    numbers = listed([str(rank) for rank in wait.ranks], _SHOWN_RANKS)
    ranks = f"{'rank' if len(wait.ranks) == 1 else 'ranks'} {numbers}"
    verb = "has" if len(wait.ranks) == 1 else "have"
    waited = duration(wait.waited_s)
    return f"{wait.name}: {ranks} {verb} not reported; the others have waited for {waited}"
