"""Every kind of drafter and channel that the runner has, each as random models and policies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import random_trees
import torch
from made_up_heads import made_up_router, with_producers
from random_adapter import random_adapter
from random_eagle3 import random_eagle3_for
from random_heads import FLASH, flash_policy, random_head
from random_redrafts import random_redrafts, redraft_producer, second_drafter
from recorded_texts import record_texts

from simlab.arrays import Floats
from simlab.channels import TARGET, Branches, ChannelRows, TargetLaw, TargetLawRows
from simlab.draft import Prompt
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.eagle3 import Eagle3
from simlab.policies.named.jetspec import JetSpec
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.policies.named.mfd import MFD
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policies.named.served.engine_first import Uno
from simlab.policies.named.taps import Taps
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.cut_rule import CutRule, NetworkRule, RouteSeconds
from simlab.policies.routing.routed_policy import RoutedPolicy, RouteRule
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.drafters.config import Convolution, KeptCandidates, Markov
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.dflash2.config import SelectorConfig
from simlab.real_runner.networks.dflash2.selector import Selector, SelectorProducer
from simlab.real_runner.networks.dspark.head import MarkovProducer
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.pool import eagle3_producer
from simlab.real_runner.networks.lilicorr.config import LatticeConfig
from simlab.real_runner.networks.lilicorr.head import LatticeHead, LatticeProducer
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.producer import RootProducer, StagedProducer, TextProducer
from simlab.real_runner.networks.treeflash.head import TreeFlashProducer
from simlab.real_runner.record.texts import forward_text, token_rows
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sampling.choice import Sampling, sequence_key

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
VOCAB_SIZE, MOST, NUM_MASKS, DEEPER = 12, 24, 3, 3
CLOSE = 1e-3

FLASH_REACH = HeadReach(previous=6, top_k=5)
EAGLE_REACH = Eagle3Reach(beam=4, top_k=5, steps=5)
EAGLE = Eagle3(9, beam=4, top_k=5, steps=3)
ROUTED = ("ddtree", "eagle3")
NETWORK = NetworkRule("router", ROUTED, RouteSeconds(np.array([8]), np.ones((1, 2))))
SOMETIMES = JetSpecExtended(60, width=2, gap=0.9, length=DEEPER)
LINEAR, ROOT_ONLY, QUADRATIC = -1, 0, 8
MODES = (LINEAR, ROOT_ONLY, 2, QUADRATIC)
IN_TURN = RoutedPolicy((Chain(2), flash_policy(8)), CutRule("context", (12.0,)), label="chain, then a tree")
POOLED: list[AnyPolicy] = [Taps(9, beam=4), JetSpec(9, beam=3, width=4)]
REDRAFTED = [D2SD(40, branches=2), D2SD(12, branches=3, exclude=True), D2SD(14, branches=4, width=3)]
OF_MASKS: list[AnyPolicy] = [
    Chain(),
    DDTree(9),
    *(SelfSpeculation(QUADRATIC, masked) for masked in MODES),
    SelfSpeculation(3, 1, "chain"),
    *(one.policy for one in parse_policies(["tree:budget=7,ngram_weight=0.3,counts=text,masked=1"])),
]


def random_models(seed: int, family: str, dtype: torch.dtype = torch.float32) -> Models:
    return random_trees.random_models(family, seed, VOCAB_SIZE, dtype)


def flash_models(
    seed: int = 0, family: str = "qwen3", dtype: torch.dtype = torch.float32, reach: HeadReach = FLASH_REACH
) -> Models:
    """A TreeFlash head of random weights on the block drafter."""
    models = random_models(seed, family, dtype)
    made = TreeFlashProducer(models.block_drafter, models.target, reach, random_head(models))
    return replace(models, channels={FLASH: made})


def eagle3_models(seed: int = 0, family: str = "qwen3") -> Models:
    models = random_models(seed, family)
    head = random_eagle3_for(models.target, seed, draft_vocab_size=9)
    return replace(models, channels={"eagle3": eagle3_producer(head, models.target, EAGLE_REACH)})


def head_models(seed: int = 0, family: str = "qwen3") -> Models:
    """An EAGLE-3 head as the drafter: its own chain, token by token."""
    models = random_models(seed, family)
    return replace(models, drafter=random_eagle3_for(models.target, seed, draft_vocab_size=9))


def pool_models(seed: int = 0, family: str = "qwen3") -> Models:
    """Pools of a TAPS scorer, and of the drafter run again behind each path."""
    return with_producers(random_models(seed, family), POOLED, seed)


def redraft_models(seed: int = 0, family: str = "qwen3", deeper: int | None = None) -> Models:
    """A second drafter behind each node of the first one's chain, up to three tokens deeper."""
    models = random_models(seed, family)
    made = random_redrafts(models, seed, top_k=5, deeper=seed if deeper is None else deeper)
    return replace(models, channels={"d2sd": made})


def extended_models(seed: int = 0, family: str = "qwen3") -> Models:
    """A drafter, and a second one of a longer block that makes the branch behind the whole chain alone."""
    models = random_models(seed, family)
    second = second_drafter(models.target, seed, models.drafter.config.block_size + DEEPER)
    made = redraft_producer(models, second.to(models.target.device), top_k=3)
    return replace(models, channels={"extension": replace(made, reach=replace(made.reach, whole=1))})


def routed_models(seed: int = 0, family: str = "qwen3") -> Models:
    models = random_models(seed, family)
    made = {**eagle3_models(seed, family).channels, **redraft_models(seed, family, deeper=0).channels}
    head = random_eagle3_for(models.target, seed, draft_vocab_size=9)
    made["eagle3"] = eagle3_producer(head, models.target, replace(EAGLE_REACH, steps=3))
    made["router"] = made_up_router(models.target, ROUTED, seed)
    return replace(models, channels=made)


def self_models(
    seed: int = 0, family: str = "qwen3", dtype: torch.dtype = torch.float32, noise: Noise | None = None
) -> Models:
    """A target that drafts for itself, with an adapter of random weights."""
    models = random_models(seed, family, dtype)
    return replace(models, drafter=random_adapter(models.target, seed, NUM_MASKS, noise=noise))


def self_flash_models(seed: int = 0, family: str = "qwen3", dtype: torch.dtype = torch.float32) -> Models:
    """A TreeFlash head on a target's own masks."""
    models = self_models(seed, family, dtype)
    made = TreeFlashProducer(models.first_stage, models.target, FLASH_REACH, random_head(models, seed))
    return replace(models, channels={FLASH: made})


@torch.no_grad()
def selecting_models(seed: int = 0, family: str = "qwen3") -> Models:
    """A drafter with convolutions, and a selector of random weights on it."""
    models = random_models(seed, family)
    plain, generator = models.block_drafter, torch.Generator().manual_seed(seed)
    drafter = DFlashDrafter(replace(plain.config, convolution=Convolution(2, 4))).to(models.target.dtype)
    drafter.load_state_dict(plain.state_dict(), strict=False)
    selector = Selector(SelectorConfig(plain.config.hidden_size, VOCAB_SIZE, 4, 5)).to(models.target.dtype)
    new = [parameter for name, parameter in drafter.named_parameters() if "_conv." in name]
    for parameter in (*new, *selector.parameters()):
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.7)
    for network in (drafter, selector):
        network.eval().requires_grad_(False)
    reach = HeadReach(previous=5, top_k=5, candidates=5)
    return replace(models, drafter=drafter, channels={FLASH: SelectorProducer(drafter, models.target, reach, selector)})


@lru_cache
@torch.inference_mode()
def entropies_of(seed: int, family: str = "qwen3") -> Floats:
    """The entropies of a random target along a text of its own, in rising order."""
    router = RoutedPolicy((Autoregressive(),), CutRule("entropy", ()))
    laws = [ran.channels[TARGET] for ran in long_text(routed_models(seed, family), router).rounds]
    return np.sort(np.array([law.entropy for law in laws if isinstance(law, TargetLaw)], np.float32))


def routers_of(seed: int = 0, family: str = "qwen3") -> dict[str, RoutedPolicy]:
    """Routers whose cuts lie among the entropies of this target."""
    third, half, most = (float(np.quantile(entropies_of(seed, family), share)) for share in (0.33, 0.5, 0.66))
    routers: dict[str, tuple[tuple[AnyPolicy, ...], RouteRule]] = {
        "ddtree, eagle3": ((DDTree(9), EAGLE), CutRule("entropy", (half,))),
        "three": ((Autoregressive(), Chain(), EAGLE), CutRule("entropy", (third, most))),
        "by accepted": ((Autoregressive(), DDTree(5)), CutRule("accepted", (-0.5,))),
        "by context": ((D2SD(12, branches=2), EAGLE, Chain(2)), CutRule("context", (8.0, 12.0))),
        "ar, d2sd": ((Autoregressive(), D2SD(12, branches=2)), CutRule("entropy", (half,))),
        "by network": ((DDTree(9), EAGLE), NETWORK),
    }
    return {name: RoutedPolicy(routes, rule, label=name) for name, (routes, rule) in routers.items()}


def eagle3_policy(budget: int = 9, steps: int = 5) -> Eagle3:
    return Eagle3(budget, beam=4, top_k=5, steps=steps)


def prompts_for(seed: int, num: int = 2) -> list[Prompt]:
    generator = np.random.default_rng(seed)
    return [random_trees.random_prompt(generator, VOCAB_SIZE) for _ in range(num)]


def endless(models: Models) -> Models:
    """The same models without a stop token."""
    return replace(models, target=replace(models.target, stop_token_ids=()))


def long_text(
    models: Models, policy: AnyPolicy, sampling: Sampling = GREEDY, seed: int = 5, most: int = MOST
) -> DecodedText:
    """A text that nothing ends before its limit."""
    return decode(endless(models), policy, prompts_for(seed)[0], sampling, most)


@torch.inference_mode()
def recorded_of(models: Models, decoded: DecodedText, sampling: Sampling = GREEDY) -> RecordedSequence:
    """The same text as a recording has it: candidates, channels and the target's entropies at every root."""
    tokens = torch.from_numpy(np.concatenate([decoded.prompt.token_ids, decoded.text]).astype(np.int64))
    start, num, target = len(decoded.prompt.token_ids), len(decoded.text), models.target
    if not isinstance(models.drafter, DFlashDrafter):
        (record,) = record_texts(endless(models), [decoded.prompt], sampling, num)
        rows, features = record.recorded(models.drafter.config.draft_name).rows, torch.empty(len(tokens), 0)
    else:
        features = forward_text(target, tokens, models.block_drafter.config.target_layer_ids)[0]
        kept = KeptCandidates(VOCAB_SIZE, exact_budget=8)
        found = draft_columns(models.block_drafter, target, features, tokens, start, kept)
        rows = DraftRows(found.ids, found.log_probs, found.counts, found.true_rank)
    assert rows is not None
    channels: dict[str, ChannelRows] = {}
    for name, producer in models.channels.items():
        if isinstance(producer, TextProducer | RootProducer):
            seen = forward_text(target, tokens, producer.taps)[0]
            channels[name] = producer.columns(seen, tokens, num - 1).rows
        else:
            seen = forward_text(target, tokens, producer.taps)[0] if isinstance(producer, StagedProducer) else features
            channels[name] = producer.columns(seen, tokens, rows).rows
    hidden = forward_text(target, tokens, ())[1]
    key = sequence_key(sampling, decoded.prompt)
    laws = token_rows(target, hidden[start - 1 : -1], tokens[start:], sampling, key, start)
    channels[TARGET] = TargetLawRows(laws.entropy[:-1])
    return RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, channels)


def _deep(decoded: DecodedText) -> Iterator[str]:
    depth = random_trees.BLOCK_SIZE - 1
    yield from ("deeper than the drafter" for ran in decoded.rounds if int(ran.round.tree.depths().max()) > depth)
    assert all(ran.marginals is None for ran in decoded.rounds)


def _asked(decoded: DecodedText) -> Iterator[str]:
    seen = (ran.channels["extension"] for ran in decoded.rounds)
    yield from (f"{len(branches.lengths)} branches" for branches in seen if isinstance(branches, Branches))


@dataclass(frozen=True)
class System:
    """Models by seed and family, and the policies of it.

    Attributes:
        models: of random weights, in float32.
        policies: for the models of a seed and family.
        seen: names of what happened in a text.
        wanted: what must have happened in some text, so that the tests are known to see it.
        recorded: how many of the policies a record is compared under.
        most: tokens of a text.
        equal: whether rounds are those of a record to the last node; else nodes that nearly tie may change places.
    """

    models: Callable[[int, str], Models]
    policies: Callable[[int, str], list[AnyPolicy]]
    seen: Callable[[DecodedText], Iterator[str]] = lambda _: iter(())
    wanted: frozenset[str] = frozenset()
    recorded: int = 9
    most: int = MOST
    equal: bool = True


@torch.no_grad()
def spark_models(seed: int = 0, family: str = "qwen3") -> Models:
    """A drafter with a Markov head of random weights, with a gate or without, and what follows other candidates."""
    models = random_models(seed, family)
    plain, generator = models.block_drafter, torch.Generator().manual_seed(seed)
    config = replace(plain.config, markov=Markov(4, is_gated=seed % 2 == 0), predicts_from_root=seed % 3 > 0)
    drafter = DFlashDrafter(config).to(models.target.dtype)
    drafter.load_state_dict(plain.state_dict(), strict=False)
    assert drafter.markov_head is not None
    for parameter in drafter.markov_head.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    drafter.eval().requires_grad_(False)
    made = MarkovProducer(drafter, models.target, FLASH_REACH, drafter.markov_head)
    return replace(models, drafter=drafter, channels={FLASH: made})


@torch.no_grad()
def lattice_models(seed: int = 0, family: str = "qwen3") -> Models:
    """A lattice head of random weights on the block drafter."""
    models = random_models(seed, family)
    own, generator = models.drafter.config, torch.Generator().manual_seed(seed)
    sizes = (own.hidden_size, own.block_size, 1e-6, 12, 4, 1, 2, 6, 2.0, 1e-6, 4.0)
    head = LatticeHead(LatticeConfig(*sizes)).to(models.target.dtype).eval().requires_grad_(False)
    for parameter in head.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    reach = HeadReach(previous=4, top_k=4, candidates=4)
    made = LatticeProducer(models.block_drafter, models.target, reach, head)
    return replace(models, channels={FLASH: made})


def _only_router(name: str, seed: int, family: str) -> list[AnyPolicy]:
    return [routers_of(seed, family)[name]]


def _fixed(policies: list[AnyPolicy]) -> Callable[[int, str], list[AnyPolicy]]:
    return lambda _seed, _family: policies


SYSTEMS = {
    "flash": System(flash_models, _fixed([flash_policy(8), flash_policy(3, previous=1, top_k=2)])),
    "dflash2": System(selecting_models, _fixed([flash_policy(8)])),
    "dspark": System(spark_models, _fixed([Chain(), IN_TURN, flash_policy(8), flash_policy(3, previous=1, top_k=2)])),
    "lilicorr": System(lattice_models, _fixed([flash_policy(8), IN_TURN, flash_policy(3, previous=1, top_k=2)])),
    "eagle3": System(
        eagle3_models,
        _fixed([eagle3_policy(), eagle3_policy(4, steps=2), eagle3_policy(105)]),
        _deep,
        frozenset({"deeper than the drafter"}),
        recorded=2,
    ),
    "eagle3 chain": System(head_models, _fixed([Chain(), DDTree(7)])),
    "pools": System(pool_models, _fixed(POOLED)),
    "d2sd": System(redraft_models, _fixed([*REDRAFTED, D2SD(40, branches=2, whole=True), MFD(16, top_k=3)])),
    "extension": System(
        extended_models,
        _fixed([SOMETIMES, replace(SOMETIMES, gap=-1.0), JetSpecExtended(9, 2, gap=0.7)]),
        _asked,
        frozenset({"0 branches", "1 branches"}),
        recorded=1,
        equal=False,
    ),
    **{
        f"routed, {name}": System(
            routed_models,
            partial(_only_router, name),
            lambda decoded: (f"route {ran.round.route}" for ran in decoded.rounds),
            frozenset(f"route {route}" for route in range(num)),
            most=40,
        )
        for name, num in {
            "ddtree, eagle3": 2,
            "three": 3,
            "by accepted": 2,
            "by context": 3,
            "ar, d2sd": 2,
            "by network": 2,
        }.items()
    },
    "self": System(self_models, _fixed(OF_MASKS)),
    "uno": System(
        partial(self_models, noise=Noise(below=VOCAB_SIZE, salt=3, temperature=0.7)),
        _fixed([DDTree(9), Uno(9, top_k=3), *(SelfSpeculation(QUADRATIC, masked) for masked in (-2, *MODES))]),
    ),
    "self, flash": System(
        self_flash_models, _fixed([replace(flash_policy(7), masked=masked) for masked in (None, -1, 0, 2)])
    ),
}
