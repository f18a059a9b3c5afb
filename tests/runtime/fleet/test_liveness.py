"""When a silent peer is lost, on a virtual clock."""

from __future__ import annotations

from holdfast.runtime.fleet.link import Liveness


def test_a_peer_is_lost_when_its_lease_is_over() -> None:
    peer = Liveness(10.0, now=100.0, forgives=True)
    assert peer.due == 110.0
    assert peer.is_lost(due=110.0, now=110.0, heard=100.0)


def test_a_peer_that_was_heard_has_its_whole_lease_from_then_on() -> None:
    peer = Liveness(10.0, now=100.0, forgives=True)
    assert not peer.is_lost(due=110.0, now=110.0, heard=104.0)
    assert peer.due == 114.0
    assert peer.is_lost(due=114.0, now=114.0, heard=104.0)


def test_a_watcher_that_was_late_finds_what_has_arrived_meanwhile() -> None:
    """`heard` is when this end has read it, which is now."""
    peer = Liveness(10.0, now=100.0, forgives=False)
    assert not peer.is_lost(due=110.0, now=160.0, heard=160.0)
    assert peer.due == 170.0


def test_a_late_controller_gives_the_agent_its_whole_lease_again_but_once() -> None:
    agent = Liveness(10.0, now=100.0, forgives=True)
    assert not agent.is_lost(due=110.0, now=130.0, heard=100.0)
    assert agent.due == 140.0
    assert agent.is_lost(due=140.0, now=140.0, heard=100.0)


def test_a_late_agent_forgives_nothing_because_its_trials_may_run_elsewhere() -> None:
    controller = Liveness(10.0, now=100.0, forgives=False)
    assert controller.is_lost(due=110.0, now=130.0, heard=100.0)


def test_an_agent_whose_link_is_cut_gives_up_before_the_controller_does() -> None:
    """The controller's answers follow the agent's beats, so the agent was heard no earlier than
    it has heard, but for the time that an answer travels."""
    cut, travels = 103.0, 0.2
    agent = Liveness(10.0, now=100.0, forgives=False)
    controller = Liveness(10.0 + 1.0, now=100.0, forgives=True)
    agent.is_lost(due=110.0, now=110.0, heard=cut)
    controller.is_lost(due=111.0, now=111.0, heard=cut - travels)
    assert agent.due < controller.due
