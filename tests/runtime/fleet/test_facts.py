"""The address at which other nodes reach this one."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from holdfast.runtime.fleet import facts
from holdfast.runtime.fleet.facts import own_address

ELSEWHERE = "198.51.100.7"


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of this machine's only interface besides loopback; nothing has a route."""
    own = "10.9.8.7"
    by_name = {"lo": ["127.0.0.1", "::1"], "eth1": [own, "fd00::7"]}
    every = {
        name: [SimpleNamespace(address=one) for one in several]
        for name, several in by_name.items()
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: every)
    monkeypatch.setattr(facts, "_towards", lambda target: "")
    return own


def by_ssh(address: str) -> dict[str, str]:
    return {"SSH_CONNECTION": f"{ELSEWHERE} 50000 {address} 22"}


def test_a_node_that_ssh_has_reached_has_the_address_that_ssh_used(nic: str) -> None:
    assert own_address(by_ssh(nic)) == nic
    assert own_address(by_ssh("fd00::7")) == "fd00::7"


def test_variables_of_ssh_that_came_from_another_machine_say_nothing(nic: str) -> None:
    assert own_address(by_ssh(ELSEWHERE)) == "127.0.0.1"
    assert own_address({"SSH_CONNECTION": "garbage"}) == "127.0.0.1"


@pytest.mark.parametrize("loopback", ["127.0.0.1", "::1"])
def test_ssh_to_this_machine_itself_is_no_address_for_others(
    nic: str, loopback: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_towards", lambda target: nic if target == "192.0.2.1" else "")
    assert own_address(by_ssh(loopback)) == nic


def test_a_node_of_slurm_is_reached_where_its_launcher_is(
    nic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_towards", lambda target: nic if target == ELSEWHERE else "")
    inherited = by_ssh("203.0.113.1")  # of the login node
    assert own_address({**inherited, "SLURM_LAUNCH_NODE_IPADDR": ELSEWHERE}) == nic


@pytest.mark.parametrize("target", ["", "node7", "127.0.0.1", "::1"])
def test_no_address_leads_to_loopback_or_to_no_address(target: str) -> None:
    assert facts._towards(target) == ""
