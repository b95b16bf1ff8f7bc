"""Routers in the runner: lossless, own rows replay, what a route does not read does not run and catches up later."""

from collections import Counter
from collections.abc import Callable

import pytest
from systems import CLOSE, EAGLE, long_text, recorded_of, routed_models, routers_of

from simlab.arrays import Floats
from simlab.channels import TARGET, Channel, Features, TargetLaw, TargetLawRows
from simlab.policies.named.chain import Chain
from simlab.policies.routing.cut_rule import CutRule
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.networks.drafter import LiveDrafter
from simlab.real_runner.networks.eagle3.pool import Eagle3Text
from simlab.real_runner.networks.router.network import RouterProducer


def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, counts: Counter[str]) -> None:
    whole: Callable[..., object] = getattr(owner, name)

    def counted(self: object, *arguments: object) -> object:
        counts[owner.__name__] += 1
        return whole(self, *arguments)

    monkeypatch.setattr(owner, name, counted)


def test_what_a_route_does_not_read_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    router, counts = routers_of(1)["three"], Counter[str]()
    counting(monkeypatch, LiveDrafter, "draft", counts)
    counting(monkeypatch, Eagle3Text, "at_root", counts)
    decoded = long_text(routed_models(1), router)
    routes = Counter(ran.round.route for ran in decoded.rounds)
    assert min(routes[route] for route in range(3)) > 0
    assert counts == {"LiveDrafter": routes[1], "Eagle3Text": routes[2]}
    for ran in decoded.rounds:
        assert (ran.marginals is not None) == (ran.round.route == 1)
        assert set(ran.channels) == ({TARGET, "eagle3"} if ran.round.route == 2 else {TARGET})
        assert (ran.seconds.channel_s > 0) == (ran.round.route == 2)


def test_a_network_is_asked_once_a_round_before_anything_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    router, counts = routers_of(1)["by network"], Counter[str]()
    counting(monkeypatch, RouterProducer, "predict", counts)
    counting(monkeypatch, LiveDrafter, "draft", counts)
    decoded = long_text(routed_models(1), router)
    routes = Counter(ran.round.route for ran in decoded.rounds)
    assert counts == {"RouterProducer": len(decoded.rounds), "LiveDrafter": routes[0]}
    for ran in decoded.rounds:
        assert isinstance(ran.channels["router"], Features)
        assert ran.seconds.channel_s > 0


def test_a_router_whose_other_route_was_never_taken_replays() -> None:
    """No round drafted, or none made the pools: the replay does without them too."""
    models = routed_models(1)
    for cut in (float("inf"), float("-inf")):
        router = RoutedPolicy((Chain(), EAGLE), CutRule("entropy", (cut,)))
        decoded = long_text(models, router)
        assert len({ran.round.route for ran in decoded.rounds}) == 1
        assert first_unequal(router, decoded) is None
        alone = long_text(models, Chain() if cut > 0 else EAGLE)
        assert [one.round.path for one in decoded.rounds] == [one.round.path for one in alone.rounds]


def test_entropies_are_those_of_the_root() -> None:
    models, router = routed_models(3), routers_of(3)["ddtree, eagle3"]
    decoded = long_text(models, router)
    law = recorded_of(models, decoded).channels[TARGET]
    assert isinstance(law, TargetLawRows)
    entropies: Floats = law.entropies
    for ran in decoded.rounds:
        seen: Channel = ran.channels[TARGET]
        assert isinstance(seen, TargetLaw)
        assert seen.entropy == pytest.approx(float(entropies[ran.round.position]), abs=CLOSE)
