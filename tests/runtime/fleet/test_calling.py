"""How an agent looks for its controller, and gives up."""

import socket

import pytest

from holdfast.runtime.fleet import handshake
from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.handshake import Invited, NotReached, TlsCall


def test_an_agent_whose_controller_has_ended_gives_up_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshake, "_REFUSED_S", 0.1)
    monkeypatch.setattr(handshake, "_PAUSE_S", 0.02)
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        invited = Invited(
            ticket="t",
            token=b"x",
            address="127.0.0.1",
            port=port,
            credentials=Authority().agent("t"),
        )
        with pytest.raises(NotReached, match=rf"port {port} cannot be reached within 0\.1 s"):
            TlsCall(invited)
