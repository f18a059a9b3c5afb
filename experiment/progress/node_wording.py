"""The wording for where trials run: the room for them, nodes, and ranks that others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.experiment.progress.summary import NodesSummary, RankWait, Summary
from holdfast.experiment.progress.wording import counted, duration, size
from holdfast.names import listed
from holdfast.runtime.exit_cause import short_cause
from holdfast.scheduler.capacity import Capacity
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.trial.resources import NodeKind

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


def room_notice(
    spec: ExperimentSpec,
    capacity: Mapping[str, float],
    offer: Sequence[NodeKind],
    total: int | None,
) -> str:
    """A message if fewer trials can run at once than `spec.max_concurrent`, with the resource that
    is short; "" otherwise, and if that is not known.

    `total` is the number of trials, None without a limit.
    """
    if spec.max_concurrent is None:
        return ""
    asked = min(spec.max_concurrent, total or spec.max_concurrent)
    short = _shortage(spec, capacity, offer, asked)
    return f"{asked} trials may run at once, but {short}" if short else ""


def _shortage(
    spec: ExperimentSpec, capacity: Mapping[str, float], offer: Sequence[NodeKind], asked: int
) -> str:
    """`there is room for 2: each asks for 1 CPU, and ...`; "" if there is room for all."""
    have = _most_of(offer) if offer else dict(capacity)
    if spec.resources is None or have is None:
        return ""
    wanted = {name: most for name, most in spec.resources.least_resources.items() if most}
    fit = Capacity(have).room(wanted, asked)
    if fit == asked:
        return ""
    short = [name for name in wanted if Capacity(have).room({name: wanted[name]}, asked) == fit]
    needs = " and ".join(_amount(name, wanted[name]) for name in short)
    there = " and ".join(_amount(name, have.get(name, 0)) for name in short)
    where = "the cluster has at most" if offer else "this machine has"
    return (
        f"there is room for {fit}: each asks for {needs}, and {where} {there}. Ask for less in "
        f"tune.with_resources()"
        f"{'' if offer else ', or declare more in holdfast.init()'}"
    )


def _most_of(offer: Sequence[NodeKind]) -> dict[str, float] | None:
    """The sum of all nodes that may join; None if it is not known."""
    total: dict[str, float] = {}
    for kind in offer:
        if kind.most is None or kind.resources is None or kind.detects:
            return None
        for name, amount in kind.resources.items():
            total[name] = total.get(name, 0) + kind.most * amount
    return total


def _amount(name: str, amount: float) -> str:
    if name == "memory":
        return f"{size(amount)} of memory"
    return f"{amount:g} {name}{'s' * (amount != 1 and name in ('CPU', 'GPU'))}"


def short_of_room(machine: Machine, total: int | None) -> str:
    """`room_notice` for an experiment as it is."""
    placement = machine.placement
    return room_notice(machine.spec, placement.capacity.total, machine.cluster.offer, total)


def shortage(machine: Machine, asked: int) -> str:
    """`there is room for 2: ...` if fewer than `asked` trials of the experiment can run at once;
    "" otherwise, and if that is not known."""
    placement = machine.placement
    return _shortage(machine.spec, placement.capacity.total, machine.cluster.offer, asked)
