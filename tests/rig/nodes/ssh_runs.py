"""A user's script whose trials run on machines that ssh reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.rig.bench import Bench
from tests.rig.nodes.machines import Machines, machines, missing

SCRATCH = "/tmp/fast disk"


@contextmanager
def ssh_nodes(
    bench: Bench,
    home: Path,
    count: int = 2,
    *,
    only: Mapping[str, Sequence[Path]] = MappingProxyType({}),
    **settings: object,
) -> Iterator[Machines]:
    """Machines with one CPU each, which share the folder of the bench and nothing else but what
    `only` some see. `settings` are those of the cluster's URI."""
    if why := missing():
        pytest.skip(why)
    with machines(count, home, [bench.folder], only) as made:
        bench.environ["HOLDFAST_CLUSTER"] = uri_of(made, **settings)
        yield made


def uri_of(made: Machines, **settings: object) -> str:
    return made.cluster(**{"cpus_per_node": 1, "scratch": SCRATCH, **settings})
