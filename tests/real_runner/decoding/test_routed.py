"""Routers in the runner: lossless, own rows replay, what a route does not read does not run and catches up later."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from made_up_heads import made_up_router
from random_eagle3 import random_eagle3_for
from random_redrafts import random_redrafts

from simlab.arrays import Floats
from simlab.channels import TARGET, Channel, Features, TargetLaw, TargetLawRows
from simlab.draft import Prompt
from simlab.errors import MissingChannelError, PolicyError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.eagle3 import Eagle3
from simlab.policies.routing.cut_rule import CutRule, NetworkRule, RouteSeconds
from simlab.policies.routing.routed_policy import RoutedPolicy, RouteRule
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding import speculation
from simlab.real_runner.decoding.batched_decode import decode_batch
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.drafting import LiveDrafter
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.heads.eagle3.pool import Eagle3Reach
from simlab.real_runner.heads.eagle3.producer import Eagle3Producer, Eagle3Text, eagle3_producer
from simlab.real_runner.heads.producer import AnyProducer, StagedProducer
from simlab.real_runner.heads.router.producer import RouterProducer
from simlab.real_runner.models import Models
from simlab.real_runner.record.record import forward_text, token_rows
from simlab.real_runner.targets import model as target_model
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sampling.choice import Sampling, sequence_key

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST = 12, 40
REACH = Eagle3Reach(beam=4, top_k=5, steps=3)
CLOSE = 1e-3
EAGLE = Eagle3(9, beam=4, top_k=5, steps=3)
NAMES = ("ddtree, eagle3", "three", "by accepted", "by context", "ar, d2sd", "by network")
ROUTED = ("ddtree", "eagle3")
NETWORK = NetworkRule("router", ROUTED, RouteSeconds(np.array([8]), np.ones((1, 2))))
EVERY = pytest.mark.parametrize("name", NAMES)


def models_of(seed: int = 0, family: str = "qwen3") -> Models:
    models = random_trees.random_models(family, seed, VOCAB_SIZE, torch.float32)
    head = random_eagle3_for(models.target, seed, draft_vocab_size=9)
    made: dict[str, AnyProducer] = {
        "eagle3": eagle3_producer(head, models.target, REACH),
        "d2sd": random_redrafts(models, seed, top_k=5),
        "router": made_up_router(models.target, ROUTED, seed),
    }
    return replace(models, channels=made)


@lru_cache
@torch.inference_mode()
def entropies_of(seed: int, family: str = "qwen3") -> Floats:
    """The entropies of a random target along a text of its own, in rising order."""
    models = models_of(seed, family)
    router = RoutedPolicy((Autoregressive(),), CutRule("entropy", ()))
    laws = [ran.channels[TARGET] for ran in long_text(models, router).rounds]
    return np.sort(np.array([law.entropy for law in laws if isinstance(law, TargetLaw)], np.float32))


def router_of(name: str, seed: int, family: str = "qwen3") -> RoutedPolicy:
    """A router whose cuts lie among the entropies of this target."""
    third, half, most = (float(np.quantile(entropies_of(seed, family), share)) for share in (0.33, 0.5, 0.66))
    routers: dict[str, tuple[tuple[AnyPolicy, ...], RouteRule]] = {
        "ddtree, eagle3": ((DDTree(9), EAGLE), CutRule("entropy", (half,))),
        "three": ((Autoregressive(), Chain(), EAGLE), CutRule("entropy", (third, most))),
        "by accepted": ((Autoregressive(), DDTree(5)), CutRule("accepted", (-0.5,))),
        "by context": ((D2SD(12, branches=2), EAGLE, Chain(2)), CutRule("context", (8.0, 12.0))),
        "ar, d2sd": ((Autoregressive(), D2SD(12, branches=2)), CutRule("entropy", (half,))),
        "by network": ((DDTree(9), EAGLE), NETWORK),
    }
    routes, rule = routers[name]
    return RoutedPolicy(routes, rule, label=name)


def prompts_for(seed: int, num: int = 2) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [random_trees.random_prompt(generator, VOCAB_SIZE) for _ in range(num)]


def endless(models: Models) -> Models:
    return replace(models, target=replace(models.target, stop_token_ids=()))


def long_text(models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY, seed: int = 5) -> DecodedText:
    return decode(endless(models), policy, prompts_for(seed)[0], sampling, MOST)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    taken: Counter[tuple[str, int | None]] = Counter()
    for seed in range(3):
        models = models_of(seed, family)
        for prompt in prompts_for(seed):
            plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
            for router in (router_of(name, seed, family) for name in NAMES):
                decoded = decode(models, router, prompt, sampling, MOST)
                check_text(decoded, plain, models, MOST)
                check_rounds(decoded, router)
                assert first_unequal(router, decoded) is None
                taken.update((repr(router), ran.round.route) for ran in decoded.rounds)
    wanted = {(name, route) for name in NAMES for route in range(len(router_of(name, 0, family).routes))}
    assert set(taken) == wanted, "a route was never taken"


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText) -> RecordedSequence:
    """The same text as a recording has it: candidates, pools, branches and the target's entropies at every root."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    drafter, start, num = models.block_drafter, len(decoded.prompt.token_ids), len(decoded.text)
    features, hidden = forward_text(models.target, tokens, drafter.config.target_layer_ids)
    drafts = draft_columns(drafter, models.target, features, tokens, start, KeptCandidates(VOCAB_SIZE, 16))
    rows = DraftRows(drafts.ids, drafts.log_probs, drafts.counts, drafts.true_rank)
    eagle, redrafts = models.channels["eagle3"], models.channels["d2sd"]
    assert isinstance(eagle, Eagle3Producer)
    assert isinstance(redrafts, StagedProducer)
    pools = eagle.columns(forward_text(models.target, tokens, eagle.taps)[0], tokens, num - 1).rows
    branches = redrafts.columns(forward_text(models.target, tokens, redrafts.taps)[0], tokens, rows).rows
    key = sequence_key(GREEDY, decoded.prompt)
    laws = token_rows(models.target, hidden[start - 1 : -1], tokens[start:], GREEDY, key, start)
    router = models.channels["router"]
    assert isinstance(router, RouterProducer)
    foreseen = router.columns(forward_text(models.target, tokens, router.taps)[0], tokens, num - 1).rows
    channels = {"eagle3": pools, "d2sd": branches, "router": foreseen, TARGET: TargetLawRows(laws.entropy[:-1])}
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, channels)


@EVERY
def test_rounds_are_those_of_a_record(name: str) -> None:
    """Whoever did not run for a while has read all of the text when it does."""
    for seed in range(3):
        models, router = models_of(seed), router_of(name, seed)
        decoded = long_text(models, router, seed=seed)
        found = compare_with_record(router, decoded, recorded_of(models, decoded))
        assert found.rounds_equal
        assert found.largest_size <= CLOSE
        assert found.largest_channel_size <= CLOSE
        assert found.num_unpaired == 0


def test_what_is_read_late_and_wrong_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle drafter that loses what it should catch up on drafts otherwise than the record."""
    router, models, whole = router_of("ddtree, eagle3", 1), models_of(1), LiveDrafter.read

    def forgetting(self: LiveDrafter, features: torch.Tensor) -> None:
        waiting = self._text._waiting
        if waiting:
            waiting[-1] = torch.zeros_like(waiting[-1])
        whole(self, features)

    monkeypatch.setattr(LiveDrafter, "read", forgetting)
    decoded = long_text(models, router)
    monkeypatch.undo()
    routes = [ran.round.route for ran in decoded.rounds]
    assert (1, 0) in pairwise(routes), "the drafter was never late"
    assert compare_with_record(router, decoded, recorded_of(models, decoded)).largest_size > CLOSE


def test_the_law_of_another_node_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    router, models, whole = router_of("ddtree, eagle3", 2), models_of(2), target_model.entropies_of

    def shifted(log_probs: torch.Tensor) -> torch.Tensor:
        return whole(log_probs) + 0.5

    monkeypatch.setattr(speculation, "entropies_of", shifted)
    decoded = long_text(models, router)
    monkeypatch.undo()
    assert compare_with_record(router, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


def counting(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, counts: Counter[str]) -> None:
    whole: Callable[..., object] = getattr(owner, name)

    def counted(self: object, *arguments: object) -> object:
        counts[owner.__name__] += 1
        return whole(self, *arguments)

    monkeypatch.setattr(owner, name, counted)


def test_what_a_route_does_not_read_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    router, counts = router_of("three", 1), Counter[str]()
    counting(monkeypatch, LiveDrafter, "drafted", counts)
    counting(monkeypatch, Eagle3Text, "at_root", counts)
    decoded = long_text(models_of(1), router)
    routes = Counter(ran.round.route for ran in decoded.rounds)
    assert min(routes[route] for route in range(3)) > 0
    assert counts == {"LiveDrafter": routes[1], "Eagle3Text": routes[2]}
    for ran in decoded.rounds:
        assert (ran.marginals is not None) == (ran.round.route == 1)
        assert set(ran.channels) == ({TARGET, "eagle3"} if ran.round.route == 2 else {TARGET})
        assert (ran.seconds.channel_s > 0) == (ran.round.route == 2)


def test_a_network_is_asked_once_a_round_before_anything_is_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    router, counts = router_of("by network", 1), Counter[str]()
    counting(monkeypatch, RouterProducer, "foresee", counts)
    counting(monkeypatch, LiveDrafter, "drafted", counts)
    decoded = long_text(models_of(1), router)
    routes = Counter(ran.round.route for ran in decoded.rounds)
    assert counts == {"RouterProducer": len(decoded.rounds), "LiveDrafter": routes[0]}
    for ran in decoded.rounds:
        assert isinstance(ran.channels["router"], Features)
        assert ran.seconds.channel_s > 0


def test_the_state_of_another_node_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that always reads the root's own node says otherwise than the record."""
    models, router, whole = models_of(2), router_of("by network", 2), speculation.Speculation._kept

    def shifted(
        self: speculation.Speculation, state: torch.Tensor, logits: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        return whole(self, state + 1.0, logits)

    monkeypatch.setattr(speculation.Speculation, "_kept", shifted)
    decoded = long_text(models, router)
    monkeypatch.undo()
    assert compare_with_record(router, decoded, recorded_of(models, decoded)).largest_channel_size > CLOSE


def test_a_network_for_other_routes_is_refused() -> None:
    other = NetworkRule("router", ("ddtree", "chain"), NETWORK.seconds)
    with pytest.raises(
        MissingChannelError, match=r"with routes ddtree\|chain, and its network makes it with ddtree\|eagle3"
    ):
        long_text(models_of(1), RoutedPolicy((DDTree(9), EAGLE), other))


def test_a_router_whose_other_route_was_never_taken_replays() -> None:
    """No round drafted, or none made the pools: the replay does without them too."""
    models = models_of(1)
    for cut in (float("inf"), float("-inf")):
        router = RoutedPolicy((Chain(), EAGLE), CutRule("entropy", (cut,)))
        decoded = long_text(models, router)
        assert len({ran.round.route for ran in decoded.rounds}) == 1
        assert first_unequal(router, decoded) is None
        alone = long_text(models, Chain() if cut > 0 else EAGLE)
        assert [one.round.path for one in decoded.rounds] == [one.round.path for one in alone.rounds]


def test_entropies_are_those_of_the_root() -> None:
    models, router = models_of(3), router_of("ddtree, eagle3", 3)
    decoded = long_text(models, router)
    law = recorded_of(models, decoded).channels[TARGET]
    assert isinstance(law, TargetLawRows)
    entropies: Floats = law.entropies
    for ran in decoded.rounds:
        seen: Channel = ran.channels[TARGET]
        assert isinstance(seen, TargetLaw)
        assert seen.entropy == pytest.approx(float(entropies[ran.round.position]), abs=CLOSE)


@EVERY
def test_several_texts_at_a_time_are_refused(name: str) -> None:
    with pytest.raises(PolicyError, match="replay and run it on one text at a time"):
        decode_batch(models_of(), router_of(name, 0), prompts_for(1), GREEDY, MOST, 2)
