"""Bundles go to nodes as their strategy says, whatever else runs there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.nodes.cluster import Cluster, arrange, has_room, has_room_instead, serves
from holdfast.trial.resources import STRATEGIES, NodeKind, Place, PlacementGroupFactory

Amounts = dict[str, float]
BUNDLES: st.SearchStrategy[Amounts] = st.sampled_from(
    [{}, {"CPU": 1}, {"CPU": 2}, {"GPU": 1, "CPU": 1}, {"GPU": 0.5}, {"disk": 1}, {"CPU": 0}]
)
NODES: st.SearchStrategy[list[Amounts]] = st.lists(
    st.sampled_from([{"CPU": 1}, {"CPU": 2}, {"CPU": 4, "GPU": 2}, {"CPU": 2, "disk": 1}]),
    max_size=4,
)
REQUESTS = st.builds(
    PlacementGroupFactory, st.lists(BUNDLES, min_size=1, max_size=4), st.sampled_from(STRATEGIES)
)
EQUAL_REQUESTS = st.builds(
    lambda bundle, count, strategy: PlacementGroupFactory([bundle] * count, strategy),
    st.sampled_from([{"CPU": 1}, {"GPU": 1, "CPU": 1}, {"GPU": 0.5}]),
    st.integers(1, 4),
    st.sampled_from(STRATEGIES),
)


def cluster_of(nodes: Sequence[Mapping[str, float]]) -> Cluster:
    cluster = Cluster([NodeKind(name="k")])
    for number, resources in enumerate(nodes):
        cluster.join(f"n{number}", resources, kind="k", hostname="", address="")
    return cluster


def used(places: Sequence[Place]) -> list[str]:
    """The nodes of the bundles that request something."""
    return [place.node for place in places if any(place.amounts.values())]


def free(cluster: Cluster) -> dict[str, str]:
    return {name: repr(capacity) for name, capacity in cluster.capacities.items()}


def every_way(cluster: Cluster, request: PlacementGroupFactory) -> list[tuple[Place, ...]]:
    """All ways to place the bundles, found by trying each node for each bundle."""
    found = []
    for names in product(cluster.nodes, repeat=len(request.bundles)):
        taken = []
        for name, bundle in zip(names, request.bundles, strict=True):
            place = cluster.take(name, bundle)
            if place is not None:
                taken.append(place)
        if len(taken) == len(names) and serves(taken, request):
            found.append(tuple(taken))
        cluster.give_back(taken)
    return found


@given(nodes=NODES, before=st.lists(REQUESTS, max_size=3), request=REQUESTS)
def test_places_have_what_the_bundles_ask_for(
    nodes: list[Amounts], before: list[PlacementGroupFactory], request: PlacementGroupFactory
) -> None:
    cluster = cluster_of(nodes)
    held = [places for other in before if (places := arrange(cluster, other)) is not None]
    was = free(cluster)
    fits = has_room(cluster, request)
    assert free(cluster) == was, "a question changes something"
    places = arrange(cluster, request)
    assert (places is not None) is fits
    if places is None:
        assert free(cluster) == was, "something is still held"
        return
    assert serves(places, request)
    for place in places:
        assert len(place.gpus) == (1 if place.amounts.get("GPU") else 0)
    cluster.give_back(places)
    assert free(cluster) == was
    for other in held:
        cluster.give_back(other)
    assert free(cluster) == free(cluster_of(nodes))


@given(nodes=NODES, before=st.lists(EQUAL_REQUESTS, max_size=2), request=EQUAL_REQUESTS)
def test_equal_bundles_are_placed_as_well_as_they_can_be(
    nodes: list[Amounts], before: list[PlacementGroupFactory], request: PlacementGroupFactory
) -> None:
    cluster = cluster_of(nodes)
    for other in before:
        arrange(cluster, other)
    ways = every_way(cluster, request)
    places = arrange(cluster, request)
    assert (places is not None) is bool(ways)
    if places is None:
        return
    counts = [len(set(used(way))) for way in ways]
    best = max(counts) if "SPREAD" in request.strategy else min(counts)
    assert len(set(used(places))) == best


@given(nodes=NODES, before=REQUESTS, request=REQUESTS)
def test_bundles_that_differ_are_placed_if_there_is_a_way(
    nodes: list[Amounts], before: PlacementGroupFactory, request: PlacementGroupFactory
) -> None:
    cluster = cluster_of(nodes)
    arrange(cluster, before)
    assert has_room(cluster, request) is bool(every_way(cluster, request))


@given(
    nodes=NODES,
    steps=st.lists(st.tuples(st.sampled_from("jlct"), st.integers(0, 9), REQUESTS), max_size=12),
)
def test_nothing_is_placed_on_a_node_that_is_gone_or_goes(
    nodes: list[Amounts], steps: list[tuple[str, int, PlacementGroupFactory]]
) -> None:
    cluster = cluster_of(nodes)
    held: list[tuple[Place, ...]] = []
    for what, number, request in steps:
        open_ = [name for name in cluster.nodes if cluster.is_open(name)]
        if what == "j":
            name = f"n{len(cluster.nodes) + len(cluster.former)}"
            cluster.join(name, {"CPU": number}, kind="k", hostname="", address="")
        elif what == "t":
            places = arrange(cluster, request, near=f"n{number}")
            assert {place.node for place in places or ()} <= set(open_)
            held += [places] if places else []
        elif what == "c" and open_:
            cluster.close(open_[number % len(open_)])
        elif what == "l" and cluster.nodes:
            cluster.lose([*cluster.nodes][number % len(cluster.nodes)])
        if held and number % 3 == 0:
            cluster.give_back(held.pop(0))
    for places in held:
        cluster.give_back(places)
    total = {name: node.resources for name, node in cluster.nodes.items()}
    assert {name: capacity.total for name, capacity in cluster.capacities.items()} == total
    assert set(cluster.held.values()) <= {0}


def test_a_node_with_the_checkpoint_is_preferred_if_it_is_as_good() -> None:
    pair = PlacementGroupFactory([{"CPU": 1}] * 2)
    for strategy in STRATEGIES:
        cluster = cluster_of([{"CPU": 2}] * 3)
        request = PlacementGroupFactory(pair.bundles, strategy)
        places = arrange(cluster, request, near="n2")
        assert places is not None
        assert places[0].node == "n2"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_four_of_eight_ranks_each_are_on_as_many_nodes_as_they_should(strategy: str) -> None:
    cluster = cluster_of([{"CPU": 8, "GPU": 8}] * 4)
    request = PlacementGroupFactory([{}, *[{"CPU": 1, "GPU": 2}] * 8], strategy)
    places = arrange(cluster, request)
    if strategy.startswith("STRICT"):
        assert places is None
        return
    assert places is not None
    assert places[0].node == places[1].node
    counts = Counter(used(places))
    assert counts == ({"n0": 4, "n1": 4} if strategy == "PACK" else dict.fromkeys(counts, 2))
    assert all(len(place.gpus) == 2 for place in places[1:])


def test_a_trial_may_move_into_its_own_places() -> None:
    cluster = cluster_of([{"CPU": 3}])
    held = arrange(cluster, PlacementGroupFactory([{"CPU": 1}] * 2))
    assert held is not None
    three = PlacementGroupFactory([{"CPU": 1}] * 3)
    assert not has_room(cluster, three)
    assert has_room_instead(cluster, held, three)
    assert not has_room_instead(cluster, held, PlacementGroupFactory([{"CPU": 1}] * 4))
    assert cluster.capacities["n0"].free == {"CPU": 1}


def test_what_an_idle_worker_has_serves_only_the_same_request() -> None:
    places = [Place(node="a", amounts={"CPU": 1}), Place(node="b", amounts={"CPU": 1})]
    fit = {
        strategy: serves(places, PlacementGroupFactory([{"CPU": 1}] * 2, strategy))
        for strategy in STRATEGIES
    }
    assert fit == {"PACK": True, "SPREAD": True, "STRICT_PACK": False, "STRICT_SPREAD": True}
    assert not serves(places, PlacementGroupFactory([{"CPU": 2}]))
    assert not serves(places, PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}]))
