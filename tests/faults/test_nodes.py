"""A sample of the campaign of faults across nodes; `scripts/faults --nodes 4` is the long one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.rig.faults.node_mishaps import (
    Blow,
    Fact,
    NodeMishap,
    Resume,
    Wave,
    Workload,
    node_mishaps,
)
from tests.rig.faults.node_stage import NodeStage, node_stage
from tests.rig.nodes.machines import missing

pytestmark = [pytest.mark.process, pytest.mark.server]

USER_SCRIPT = Path(__file__).parents[1] / "restore" / "user_script.py"
NODES = 2


def in_epoch(*blows: Blow, at: int = 4, node: int = 0) -> Wave:
    return Wave(blows=blows, fact=Fact.EPOCH, at=at, node=node)


SAMPLE = (
    NodeMishap(
        waves=(in_epoch(Blow.DROP_OUT), in_epoch(Blow.SCRIPT_KILL, at=2)),
        workload=Workload.RANKS,
        resume=Resume.AUTO,
    ),
    NodeMishap(
        waves=(in_epoch(Blow.AGENT_STOP), in_epoch(Blow.KEEPER_KILL, at=2)),
        workload=Workload.IN_SYNC,
    ),
    NodeMishap(
        waves=(in_epoch(Blow.DISK_FULL), in_epoch(Blow.NO_BUCKET, Blow.WORKER_KILL, at=1)),
        workload=Workload.TRIALS,
    ),
    NodeMishap(
        waves=(in_epoch(Blow.REBOOT), in_epoch(Blow.SSH_KILL, at=1, node=1)),
        workload=Workload.POPULATION,
    ),
    NodeMishap(
        waves=(in_epoch(Blow.SCRIPT_STOP_BRIEFLY), in_epoch(Blow.SCRIPT_STOP, at=1)),
        workload=Workload.RANKS,
    ),
    NodeMishap(
        waves=(in_epoch(Blow.SSH_FAILS, Blow.CONTROLLER_OFF, at=12),), resume=Resume.ELSEWHERE
    ),
)


@pytest.fixture(scope="module")
def stage() -> Iterator[NodeStage]:
    if why := missing():
        pytest.skip(why)
    with node_stage(USER_SCRIPT, NODES) as made:
        yield made


@pytest.mark.nightly
@pytest.mark.parametrize("mishap", SAMPLE, ids=str)
def test_a_run_on_nodes_loses_nothing_whatever_happens_to_them(
    stage: NodeStage, mishap: NodeMishap
) -> None:
    story = stage.play(mishap)
    assert sum(story.injected.values()) == len(mishap.blows), f"{story.fell_on}\n{story.said}"
    assert list(story.problems) == [], f"{story.fell_on}:\n{story.said}"


def test_a_campaign_has_every_fault_and_the_same_ones_for_a_seed() -> None:
    series = list(islice(node_mishaps(4, 400, 36, random.Random(3)), 60))
    assert {blow for mishap in series for blow in mishap.blows} == set(Blow)
    assert series == list(islice(node_mishaps(4, 400, 36, random.Random(3)), 60))
