"""What a login shell prints before the agent starts is skipped."""

from __future__ import annotations

import pytest

from holdfast.runtime.errors import WireError
from holdfast.runtime.fleet.handshake import MAGIC, MOST_NOISE, AgentPipeCodec, ControllerPipeCodec


@pytest.mark.parametrize("noise", [b"", b"Welcome to n1\n", MAGIC[:5], bytes(MOST_NOISE)])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_frames_begin_after_the_first_line_of_the_agent(noise: bytes, step: int) -> None:
    if len(noise) > 1000 and step < 1000:
        step = 4096
    ours, agent = ControllerPipeCodec(), AgentPipeCodec()
    agent.send(b"frames")
    data = noise + agent.take()
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    assert b"".join(map(ours.receive, parts)) == b"frames"
    assert ours.receive(MAGIC) == MAGIC  # now it is part of a frame
    agent.send(b"more")
    assert agent.take() == b"more"


def test_noise_without_an_agent_is_shown() -> None:
    ours = ControllerPipeCodec()
    with pytest.raises(WireError, match="bash: python: command not found"):
        ours.receive(b"bash: python: command not found\n" * 3000)
