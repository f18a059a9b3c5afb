"""What a training of `tests/cluster/train_script.py` on several nodes has left."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).parents[2] / "cluster" / "train_script.py"


def rows_of(root: Path) -> list[dict[str, Any]]:
    """The rows of the training, without those that were rolled back."""
    (path,) = root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def samples_of(rows: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """The samples that all ranks together got in each epoch, sorted."""
    got: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        for of_rank in row["ranks"].values():
            got[row["epoch"]] += of_rank["rows"]
    return {epoch: sorted(samples) for epoch, samples in got.items()}


def check_numbers(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Raises AssertionError unless the ranks of one attempt are numbered as under torchrun.

    Returns the node of each rank.
    """
    places = {note["rank"]: note for note in notes}
    assert sorted(places) == list(range(len(notes)))
    nodes = [places[rank]["node"] for rank in range(len(notes))]
    first_of = {name: nodes.index(name) for name in nodes}
    assert nodes == sorted(nodes, key=first_of.__getitem__), "not consecutive on their nodes"
    for rank, name in enumerate(nodes):
        own = [rank - first_of[name], nodes.count(name), list(first_of).index(name)]
        assert (places[rank]["local"], places[rank]["ranks"]) == (own, len(nodes))
    return nodes
