"""The contract of engines, on a real Slurm: jobs of sbatch, and steps of an allocation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.nightly import mostly_nightly
from tests.rig.nodes.engine_contract import EngineContract, EngineRig, contract_marks
from tests.rig.nodes.slurm import SlurmCluster
from tests.rig.nodes.slurm_rigs import LoginRig, allocated
from tests.rig.workers.processes import no_process_is_left, wait_for_end

pytestmark = contract_marks


@mostly_nightly()
class TestSlurmLogin(EngineContract):
    silent = ("sh", "-c", "exec sleep 1000")

    @pytest.fixture
    def rig(self, slurm: SlurmCluster, tmp_path: Path) -> Iterator[EngineRig]:
        with no_process_is_left():
            yield LoginRig(slurm, tmp_path)

    def check_stubborn(self, pid: int, warning: str) -> None:
        """Slurm may need longer than a second to kill it."""
        assert warning == "" or "Slurm jobs may still run" in warning
        wait_for_end(pid)


@mostly_nightly(
    "test_it_supplies_the_nodes_that_are_wanted",
    "test_an_agent_that_ends_is_told_once_with_its_last_lines_and_replaced",
)
class TestSlurmAllocation(EngineContract):
    @pytest.fixture
    def rig(self, slurm: SlurmCluster) -> Iterator[EngineRig]:
        with no_process_is_left(), allocated(slurm, "--nodes=2") as rig:
            yield rig

    def check_stubborn(self, pid: int, warning: str) -> None:
        """The second process of its srun ends it."""
        assert "may still run" in warning
        wait_for_end(pid)
