"""Fixtures for tests of Lightning."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

# Lightning 2.6 with torch 2.13, about calls of its own; literal text, of which a match is a start.
IGNORED = [
    "ignore:`isinstance:FutureWarning",
    "ignore:`_get_pg_default_device` will be deprecated:Warning",
    "ignore:Multiple backends are registered with this ProcessGroup:Warning",
    "ignore:Please use DTensor instead:Warning",
    "ignore:`load_state_dict` is deprecated:FutureWarning",
    # Only where Slurm is installed, whether or not a job runs.
    "ignore:The `srun` command is available on your system but is not used:UserWarning",
]


def pytest_configure(config: pytest.Config) -> None:
    for line in IGNORED:
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def ignored() -> Sequence[str]:
    return IGNORED
