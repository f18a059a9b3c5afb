"""A launcher whose every process must be gone at the end of its test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.runtime.local_launcher import LocalLauncher
from tests.rig.free_tasks import free_tasks
from tests.rig.workers.processes import Lifeline, no_process_is_left


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def lifeline() -> Iterator[Lifeline]:
    """Waits at the end of the test until all processes that inherited it are gone."""
    line = Lifeline()
    with no_process_is_left():
        yield line
        line.wait_until_all_are_gone()
    line.close()


@pytest.fixture
async def launcher(lifeline: Lifeline) -> AsyncIterator[LocalLauncher]:
    """A launcher that is not open yet: each test chooses what is loaded."""
    launcher = LocalLauncher(tasks=free_tasks(), environ=os.environ, inherited_fds=[lifeline.fd])
    yield launcher
    await launcher.close()
