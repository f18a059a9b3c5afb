"""Lists of hosts, as `scontrol show hostnames` expands them."""

import pytest

from holdfast.runtime.engines.slurm.commands import hosts_in


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[1,3-4],gpu-a", ["n1", "n3", "n4", "gpu-a"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("r[1-2]-ib", ["r1-ib", "r2-ib"]),
        ("", []),
    ],
)
def test_lists(text: str, hosts: list[str]) -> None:
    assert hosts_in(text) == hosts


@pytest.mark.parametrize("text", ["n[1-", "n]1", "n[a-b]", "n[3-1]", "n[1-999999999]", "n[]"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        hosts_in(text)
