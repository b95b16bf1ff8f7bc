"""What a network predicts, and seconds: the best route by hand, the same at one root and at many."""

from dataclasses import replace

import numpy as np
import pytest
from channel_texts import with_channels
from hypothesis import given
from hypothesis import strategies as st
from made_up_artefacts import FullArtefacts, MadeUpArtefacts
from made_up_costs import random_table

from simlab.channels import FeatureRows, Features
from simlab.channels.features import features_to_grid
from simlab.draft import Draft
from simlab.errors import MissingChannelError, PolicyError
from simlab.policies.engine.routed import RouteLayers
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.router import seconds_of_largest
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import CutRule, NetworkRule, RouteSeconds
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.sequence_replay import rounds
from simlab.testing.random_texts import random_sequence

ROUTES: tuple[AnyPolicy, ...] = (DDTree(9), Chain(2), Autoregressive())
NAMES = ("ddtree:budget=9", "chain:length=2", "ar")
SECONDS = RouteSeconds(np.array([2, 9]), np.array([[0.3, 0.2, 0.1], [0.9, 0.2, 0.1]]))
SEEDS = st.integers(0, 10**6)


def rule_of(beta: float = 1.0, rate: float | None = None, seconds: RouteSeconds = SECONDS) -> NetworkRule:
    return NetworkRule("router", NAMES, seconds, beta, rate)


def text_for(policy: AnyPolicy, seed: int, values: np.ndarray | None = None) -> RecordedSequence:
    generator = np.random.default_rng(seed)
    recorded = with_channels(random_sequence(generator, 6), [policy])
    if values is None:
        values = generator.choice([0.5, 1.0, 1.5, 3.0, 6.0], (len(recorded.text) - 1, 3))
    rows = FeatureRows(features_to_grid(np.broadcast_to(values, (len(recorded.text) - 1, 3))))
    return replace(recorded, channels={**recorded.channels, "router": rows})


def best_by_hand(values: list[float], context: int, beta: float, rate: float | None) -> int:
    """One route after the other; a later one must be worth more."""
    share = min(max((context - 2) / 7, 0.0), 1.0)
    seconds = [(1 - share) * first + share * last for first, last in zip([0.3, 0.2, 0.1], [0.9, 0.2, 0.1], strict=True)]
    worths = [
        tokens / taken**beta if rate is None else tokens - rate * taken
        for tokens, taken in zip(values, seconds, strict=True)
    ]
    best = 0
    for index, worth in enumerate(worths):
        best = index if worth > worths[best] + 1e-12 else best
    return best


@given(seed=SEEDS, beta=st.sampled_from([0.0, 0.3, 1.0]), rate=st.sampled_from([None, 0.0, 2.0, 30.0]))
def test_each_round_takes_the_route_that_is_worth_most(seed: int, beta: float, rate: float | None) -> None:
    router = RoutedPolicy(ROUTES, rule_of(beta, rate))
    recorded = text_for(router, seed)
    features = recorded.channels["router"]
    assert isinstance(features, FeatureRows)
    at_all = router.rule.routes_of(texts_of([recorded]), 9)[:, 0].tolist()
    for root in range(len(recorded.text) - 1):
        context = len(recorded.prompt.token_ids) + root
        draft = Draft(None, 0, np.zeros(context + 1, np.int32), context, {"router": features.row(root, root)})
        wanted = best_by_hand(features.values[root].tolist(), context, beta, rate)
        assert (router.route(draft), at_all[root]) == (wanted, wanted)


@given(seed=SEEDS, beta=st.sampled_from([0.0, 0.37, 1.0]), rate=st.sampled_from([None, 7.3]))
def test_whole_texts_at_once_are_the_rounds_one_by_one(seed: int, beta: float, rate: float | None) -> None:
    """With numbers of any size, so that no last bit of a power may part the two."""
    generator = np.random.default_rng(seed)
    seconds = RouteSeconds(np.array([1, 5, 60]), generator.uniform(0.01, 1, (3, 3)))
    router = RoutedPolicy(ROUTES, rule_of(beta, rate, seconds))
    recorded = text_for(router, seed)
    values = features_to_grid(generator.uniform(0, 9, (len(recorded.text) - 1, 3)))
    recorded = replace(recorded, channels={**recorded.channels, "router": FeatureRows(values)})
    played = RouteLayers(texts_of([recorded])).rounds(router)
    assert played.routes is not None
    by_round = [(one.position, one.num_accepted, one.route) for one in rounds(router, recorded)]
    whole = zip(played.roots.tolist(), played.num_accepted.tolist(), played.routes.tolist(), strict=True)
    assert list(whole) == by_round


@pytest.mark.parametrize("place", range(3))
@given(seed=SEEDS)
def test_a_constant_network_is_that_route(place: int, seed: int) -> None:
    router = RoutedPolicy(ROUTES, rule_of(beta=0.0))
    values = np.ones(3)
    values[place] = 2.0
    recorded = text_for(router, seed, values)
    alone = [(one.position, one.path, one.num_drafted) for one in rounds(ROUTES[place], recorded)]
    assert [(one.position, one.path, one.num_drafted) for one in rounds(router, recorded)] == alone


@given(seed=SEEDS, rate=st.sampled_from([None, 5.0]))
def test_equal_routes_give_equal_rounds(seed: int, rate: float | None) -> None:
    router = RoutedPolicy((DDTree(7), DDTree(7), DDTree(7)), rule_of(1.0, rate))
    recorded = text_for(router, seed)
    alone = [(one.position, one.path, one.num_drafted) for one in rounds(DDTree(7), recorded)]
    assert [(one.position, one.path, one.num_drafted) for one in rounds(router, recorded)] == alone


def test_seconds_are_those_of_whole_trees() -> None:
    cost = random_table(np.random.default_rng(3), 9, 200)
    found = seconds_of_largest(cost, ROUTES)
    for row, context in enumerate(cost.contexts.tolist()):
        for column, route in enumerate(ROUTES):
            stages = ("draft", "select", "verify", "commit") if route.needs.draft else ("select", "verify", "commit")
            wanted = sum(float(cost.curve(stage, context)[route.budget]) for stage in stages)
            assert found.seconds[row, column] == pytest.approx(wanted)
    assert found.at(cost.contexts).tolist() == found.seconds.tolist()
    with pytest.raises(ValueError, match="made-up ends at 9"):
        seconds_of_largest(cost, [DDTree(10)])
    deep = replace(cost, block_size=5)
    assert seconds_of_largest(deep, [Chain()]).seconds.tolist() == seconds_of_largest(deep, [Chain(4)]).seconds.tolist()


def test_a_router_as_typed() -> None:
    typed = 'router:routes="ddtree:budget=9 | chain:length=2|ar",by=network,beta=0.5'
    (policy,) = parse_policies([typed], FullArtefacts())
    assert isinstance(policy.policy, RoutedPolicy)
    assert policy.policy.needs.predicted == (ChannelNeed("router", "features", trained_for="|".join(NAMES)),)
    assert set(policy.policy.artefacts) == {"route 0", "route 1", "route 2", "cost"}
    assert set(policy.policy.route_ids) == {"route 0", "route 1", "route 2"}
    others = [typed.replace("beta=0.5", other) for other in ("beta=0.4", "rate=3", "beta=0.5,channel=mine")]
    ids = [made.policy_id for made in parse_policies([typed, *others], FullArtefacts())]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ('router:routes="chain|ar",by=network,cuts=1', "by=network has no cuts"),
        ('router:routes="chain|ar",by=network,beta=2', "beta is from 0"),
        ('router:routes="chain|ar",by=network,rate=-1', "rate must be tokens per second"),
        ("whiflash:network=router,beta=-1", "beta is from 0"),
    ],
)
def test_what_is_refused_in_a_sentence(typed: str, says: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policies([typed], FullArtefacts())
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_whiflash_goes_by_its_network_where_no_entropy_is_given() -> None:
    cut, predicted = parse_policies(["whiflash:entropy=1", "whiflash:network=mine"], FullArtefacts())
    assert isinstance(cut.policy, RoutedPolicy)
    assert isinstance(predicted.policy, RoutedPolicy)
    assert cut.policy.rule == CutRule("entropy", (1.0,))
    assert set(cut.policy.artefacts) == {"route 0", "route 1"}
    assert predicted.policy.needs.predicted == (ChannelNeed("mine", "features", trained_for="chain|eagle3:budget=59"),)


def test_without_prices_there_is_no_such_rule() -> None:
    with pytest.raises(PolicyError, match=r"router:.*latency profile"):
        parse_policies(['router:routes="ddtree:budget=9|ar",by=network'])
    short = MadeUpArtefacts(random_table(np.random.default_rng(0), 4, 50))
    with pytest.raises(PolicyError, match="drafts up to 9 tokens, and the cost file made-up ends at 4"):
        parse_policies(['router:routes="ddtree:budget=9|ar",by=network'], short)


def test_numbers_that_are_not_there_or_too_few() -> None:
    rule, recorded = rule_of(), random_sequence(np.random.default_rng(3), 4)
    with pytest.raises(MissingChannelError, match="read them with the texts"):
        rule.routes_of(texts_of([recorded]), 3)
    two = RecordedTexts((recorded,), None, {"router": FeatureRows(np.zeros((len(recorded.text) - 1, 2), np.float32))})
    with pytest.raises(ValueError, match="3 routes want as many features router; got 2"):
        rule.routes_of(two, 3)
    draft = Draft(None, 0, np.zeros(1, np.int32), 0, {"router": Features(np.zeros(2, np.float32))})
    with pytest.raises(ValueError, match="3 routes want"):
        rule.route(draft, 0)
    with pytest.raises(ValueError, match="2 routes want as many names"):
        RoutedPolicy(ROUTES[:2], rule)
