"""What a trial knows about its own preemption."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.rank_session import RankSession
from holdfast.experiment.worker.session import Session, current


@dataclass(frozen=True, slots=True)
class PreemptionInfo:
    """`deadline_ms`: when the attempt ends at the latest, in milliseconds since 1970; None if it
    is not known. `preempted_node_to_ranks`: the ranks that end, by the names of their nodes; ""
    is the machine of the script."""

    deadline_ms: int | None
    preempted_node_to_ranks: Mapping[str, Sequence[int]]

    @property
    def preempted_node_ids(self) -> list[str]:
        """The names of the nodes."""
        return list(self.preempted_node_to_ranks)

    @property
    def preempted_ranks(self) -> list[int]:
        """The ranks of all nodes."""
        ranks = (rank for ranks in self.preempted_node_to_ranks.values() for rank in ranks)
        return sorted(ranks)


def get_preemption_info() -> PreemptionInfo | None:
    """The preemption that is under way, the same in all ranks; None if there is none.

    Like a barrier: every rank must call it equally often. With an answer, save: the next report
    with a checkpoint ends the attempt, and the trial later resumes from there. A SIGTERM to one
    rank reaches all of its trial. To look without a barrier, use
    `get_context().preemption_requested()`.

    Raises NotInTrial outside a trial.
    """
    session = current("train.get_preemption_info()")
    own = session.preempted_until
    if isinstance(session, RankSession):
        every = [json.loads(text) for text in session.gather(json.dumps(own))]
    else:
        every = [own]
    known = [until for until in every if until is not None]
    if not known:
        return None
    return PreemptionInfo(int(min(known) * 1000), _ranks_by_node(session))


def _ranks_by_node(session: Session) -> dict[str, list[int]]:
    """All ranks: they end together."""
    names = session.assignment.rank_nodes
    return {
        name: [rank for rank, at in enumerate(names) if at == name]
        for name in dict.fromkeys(names)
    }
