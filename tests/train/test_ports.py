"""Ports for libraries that open them later."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from holdfast.train import ports
from holdfast.trial.errors import TuneError

IN_ANOTHER_PROCESS = """
from holdfast.train.ports import set_aside
kept = set_aside(200)
print(*(port for port, _ in kept), flush=True)
input()
"""


def test_the_interface_of_an_address_is_found_or_the_error_names_both() -> None:
    assert ports.interface_of("127.0.0.1").startswith("lo")
    with pytest.raises(TuneError, match=r"meet at 192\.0\.2\.1.*\("):
        ports.interface_of("192.0.2.1")


def test_no_port_is_given_to_two_processes() -> None:
    others = [
        subprocess.Popen(
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        given = [other.stdout.readline().split() for other in others if other.stdout]
    finally:
        for other in others:
            other.communicate("\n")
    assert [len(numbers) for numbers in given] == [200, 200, 200]
    assert len({port for numbers in given for port in numbers}) == 600


def test_a_port_can_be_opened_by_number_and_is_given_again_once_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((port, name),) = ports.set_aside(1)
    with socket.socket() as opened:
        opened.bind(("", port))
        opened.listen()
    monkeypatch.setattr(ports, "_FIRST", port)
    monkeypatch.setattr(ports, "_lowest_of_kernel", lambda: port + 1)
    with pytest.raises(TuneError, match=f"no 1 free ports from {port}"):
        ports.set_aside(1)
    name.close()
    ((again, kept),) = ports.set_aside(1)
    kept.close()
    assert again == port


def test_a_port_that_another_process_has_opened_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", port)
        monkeypatch.setattr(ports, "_lowest_of_kernel", lambda: port + 1)
        with pytest.raises(TuneError, match="no 2 free ports"):
            ports.set_aside(2)


def test_where_the_kernel_does_not_say_which_are_its_own_it_chooses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_lowest_of_kernel", lambda: 0)
    assert len({port for port, _ in ports.set_aside(5)}) == 5
