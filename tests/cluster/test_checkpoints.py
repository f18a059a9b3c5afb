"""Checkpoints of trials on nodes: they go straight to storage, and no loss of a node loses one."""

from __future__ import annotations

import pytest

from tests.rig.bench import Bench, epochs_of, results

pytestmark = pytest.mark.process


def test_checkpoints_of_nodes_are_in_storage_at_the_end(bench: Bench) -> None:
    script = bench.start(num_to_keep=2).succeeds()
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert [found["checkpoint"] for found in results(script)] == [4, 4]
    assert bench.problems(tensorboard=True) == []
