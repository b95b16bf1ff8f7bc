"""Several texts at a time: each text and each of its rounds is what it is alone."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
import random_trees
import torch
from decoded_batches import decode_batch
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_checks import assert_same_rounds, check_rounds
from made_up_artefacts import MadeUpArtefacts
from replay_is_the_runner import with_true_ranks

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.draft import Draft, Marginals, Prompt
from simlab.errors import ModelError, PolicyError
from simlab.policies.composition import Composition
from simlab.policies.engine.lock_step import rounds_of_policy, serve
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.joint_budget import JointBudget
from simlab.policies.named.joint_throughput import JointThroughput
from simlab.policy import AnyPolicy, Needs
from simlab.real_runner.attention.packed import PackedPart
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models
from simlab.recorded import DraftRows, RecordedSequence, texts_of
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

VOCAB_SIZE = 12
GREEDY, WARM = Sampling(0.0, 0, 1.0, 0), Sampling(1.1, 6, 0.9, 3)
SAMPLINGS = (GREEDY, WARM)


@dataclass(frozen=True, slots=True)
class TreesByPrompt:
    """Random trees of each prompt's own: `random_trees.RandomTrees`, told what follows each prompt."""

    each: tuple[tuple[str, random_trees.RandomTrees], ...]
    needs: Needs = Needs(draft=False)

    @property
    def budget(self) -> int:
        return max(trees.budget for _, trees in self.each)

    def start(self, prompt: Prompt) -> tuple[str, int]:
        return prompt.prompt_id, len(prompt.token_ids)

    def select(self, draft: Draft, state: tuple[str, int]) -> DraftTree:
        return dict(self.each)[state[0]].select(draft, state[1])

    def update(self, state: tuple[str, int], outcome: object) -> tuple[str, int]:
        return state


def prompts_of(seed: int, num: int) -> list[Prompt]:
    """Of different lengths and names."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 12, num).tolist()
    return [
        random_trees.prompt_of(generator.integers(VOCAB_SIZE, size=size).tolist(), f"{seed}-{number}")
        for number, size in enumerate(sizes)
    ]


@lru_cache(maxsize=256)
def trees_of(
    family: str, model_seed: int, seed: int, num: int, sampling: Sampling, most: int, share: float
) -> TreesByPrompt:
    target = random_trees.random_models(family, model_seed, VOCAB_SIZE, torch.float32).target
    each = []
    for number, prompt in enumerate(prompts_of(seed, num)):
        truth = random_trees.endless_text(target, prompt, sampling, most + 8)
        budget = (3, 9, 20)[number % 3]
        each.append((prompt.prompt_id, random_trees.RandomTrees(seed + number, budget, 5, truth, share, VOCAB_SIZE)))
    return TreesByPrompt(tuple(each))


def models_of(family: str, seed: int) -> Models:
    return random_trees.random_models(family, seed, VOCAB_SIZE, torch.float32)


def alone(
    models: Models, policy: AnyPolicy, prompts: Sequence[Prompt], sampling: Sampling, most: int
) -> list[DecodedText]:
    return [decode(models, policy, prompt, sampling, most) for prompt in prompts]


def assert_same(ours: Sequence[DecodedText], theirs: Sequence[DecodedText]) -> None:
    """Equal texts, ends and rounds."""
    for our, other in zip(ours, theirs, strict=True):
        assert our.prompt is other.prompt
        assert our.text.tolist() == other.text.tolist()
        assert our.text.dtype == np.int32
        assert our.stop_reason == other.stop_reason
        assert_same_rounds([ran.round for ran in our.rounds], [ran.round for ran in other.rounds])


@settings(max_examples=examples(40, quick=10))
@given(
    family=st.sampled_from(random_trees.FAMILIES),
    model_seed=st.integers(0, 11),
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 6),
    batch=st.integers(1, 5),
    most=st.integers(1, 24),
    share=st.sampled_from([0.0, 0.6, 0.95]),
    sampling=st.sampled_from(SAMPLINGS),
)
def test_random_trees_in_a_batch_give_the_rounds_of_each_text_alone(
    family: str, model_seed: int, seed: int, num: int, batch: int, most: int, share: float, sampling: Sampling
) -> None:
    models, prompts = models_of(family, model_seed), prompts_of(seed, num)
    policy = trees_of(family, model_seed, seed, num, sampling, most, share)
    found = decode_batch(models, policy, prompts, sampling, most, batch)
    assert_same(found, alone(models, policy, prompts, sampling, most))
    for text in found:
        check_rounds(text, policy)


NEAR = 1e-4

LIVE: tuple[AnyPolicy, ...] = (DDTree(7), Chain(3), Autoregressive())


@pytest.mark.parametrize(
    ("policy", "sampling", "family"), some([*itertools.product(LIVE, SAMPLINGS, random_trees.FAMILIES)], quick=3)
)
def test_live_drafts_in_a_batch_give_the_rounds_of_each_text_alone(
    family: str, sampling: Sampling, policy: AnyPolicy
) -> None:
    for seed in some(range(4), quick=2):
        models, prompts = models_of(family, seed), prompts_of(seed, 5)
        found = decode_batch(models, policy, prompts, sampling, 20, 3)
        theirs = alone(models, policy, prompts, sampling, 20)
        assert_same(found, theirs)
        for text, other in zip(found, theirs, strict=True):
            assert first_unequal(policy, text) is None
            for ran, there in zip(text.rounds, other.rounds, strict=True):
                assert (ran.marginals is None) == (there.marginals is None)
                if ran.marginals is not None and there.marginals is not None:
                    assert_near(ran.marginals, there.marginals)


def assert_near(marginals: Marginals, other: Marginals) -> None:
    """Candidates of another batch: tokens that nearly tie may change places, and no others."""
    assert marginals.offsets.tolist() == other.offsets.tolist()
    assert np.abs(marginals.log_probs - other.log_probs).max() < NEAR
    for first, last in itertools.pairwise(marginals.offsets.tolist()):
        theirs = dict(zip(other.ids[first:last].tolist(), other.log_probs[first:last].tolist(), strict=True))
        for token, log_prob in zip(
            marginals.ids[first:last].tolist(), marginals.log_probs[first:last].tolist(), strict=True
        ):
            # One that is not among theirs nearly ties with the last of them.
            assert abs(theirs.get(token, min(theirs.values())) - log_prob) < NEAR


def test_seconds_are_those_of_the_batch() -> None:
    ticks = iter(range(10_000))
    models, prompts = models_of("qwen3", 1), prompts_of(1, 3)
    for policy in LIVE:
        found = decode_batch(models, policy, prompts, GREEDY, 9, 3, clock=lambda: float(next(ticks)))
        stages = (0.0, 0.0, 4.0, 0.0) if isinstance(policy, Autoregressive) else (1.0, 1.0, 1.0, 1.0)
        for ran in (ran for text in found for ran in text.rounds):
            seconds = ran.seconds
            assert (seconds.draft_s, seconds.select_s, seconds.verify_s, seconds.commit_s) == stages


# A budget of the batch


def own_text(number: int, text: DecodedText) -> RecordedSequence:
    """The runner's own rows, none where nothing was drafted, with the true tokens' places among them."""
    own = with_true_ranks(own_sequence(text))
    none = np.zeros((len(text.text) - 1, random_trees.BLOCK_SIZE - 1), np.int32)
    rows = DraftRows(np.empty(0, np.int32), np.empty(0, np.float32), none, none - 1) if own.rows is None else own.rows
    return replace(own, index=number, rows=rows)


def by_throughput(budget: int, most_priced: int) -> Composition:
    """The number of drafted tokens by made-up prices, at which a token should be likely to be worth its time."""
    each: Doubles = 1 + 0.25 * np.arange(most_priced + 1, dtype=np.float64)[None]
    seconds = dict.fromkeys(GRID_STAGES, each)
    cost = CostTable("made-up", np.array([8]), seconds | {PLAIN: np.ones((1, 1))})
    return JointThroughput(budget).compose(MadeUpArtefacts(cost))


OF_THE_BATCH: tuple[AnyPolicy, ...] = (JointBudget(9), by_throughput(24, 24))


@pytest.mark.parametrize("sampling", some(SAMPLINGS))
@pytest.mark.parametrize("batch", some([2, 1, 4]))
@pytest.mark.parametrize("policy", OF_THE_BATCH, ids=["joint", "throughput"])
def test_a_policy_of_the_batch_runs_as_it_replays_on_its_own_rows(
    policy: AnyPolicy, batch: int, sampling: Sampling
) -> None:
    totals = set()
    for family, seed in (("llama", 3), ("qwen3", 4), ("llama", 7)):
        models, prompts = models_of(family, seed), prompts_of(seed, 7)
        found = decode_batch(models, policy, prompts, sampling, 18, batch)
        plain = alone(models, Autoregressive(), prompts, sampling, 18)
        assert [text.text.tolist() for text in found] == [text.text.tolist() for text in plain]
        texts = texts_of([own_text(number, text) for number, text in enumerate(found)])
        served = serve(texts, batch, rounds_of_policy(policy, texts), range(len(prompts)))
        columns = served.text_rounds(texts).columns(texts)
        for text, replayed in zip(found, columns, strict=True):
            ran = [ran.round for ran in text.rounds]
            assert [round_.position for round_ in ran] == replayed.positions.tolist()
            assert [round_.num_drafted for round_ in ran] == replayed.num_drafted.tolist()
            assert [round_.num_accepted for round_ in ran] == replayed.num_accepted.tolist()
            assert [round_.num_committed for round_ in ran] == replayed.num_committed.tolist()
        totals |= set((served.mean_drafted * batch).tolist())
    assert isinstance(policy, JointBudget) or len(totals) > 3


def test_a_batch_that_empties_tries_no_number_without_a_price() -> None:
    models, prompts = models_of("llama", 3), prompts_of(3, 4)
    policy = by_throughput(12, 3)
    found = decode_batch(models, policy, prompts, GREEDY, 18, 4)
    plain = alone(models, Autoregressive(), prompts, GREEDY, 18)
    assert [text.text.tolist() for text in found] == [text.text.tolist() for text in plain]
    with pytest.raises(PolicyError, match="budget of at most 9"):
        decode_batch(models, policy, prompts, GREEDY, 18, 3)


def test_a_joint_budget_alone_is_ddtree_and_in_a_batch_is_shared() -> None:
    models, prompts = models_of("qwen3", 4), prompts_of(8, 4)
    assert_same(
        decode_batch(models, JointBudget(6), prompts, GREEDY, 16, 1), alone(models, DDTree(6), prompts, GREEDY, 16)
    )
    running = Speculation(models, JointBudget(6), GREEDY, 16, lambda: 0.0, 4, 12)
    for prompt in prompts:
        running.add(prompt)
    running.take_ended()
    num = len(running.running)
    assert num > 1
    sizes = [ran.round.num_drafted for ran in running.round()]
    assert sum(sizes) == 6
    assert len(sizes) == num


# Refusals


def test_what_cannot_be_run_is_refused() -> None:
    models, prompts = models_of("llama", 0), prompts_of(0, 2)
    with pytest.raises(ModelError, match="positions"):
        decode_batch(models, DDTree(3), prompts, GREEDY, random_trees.MAX_POSITIONS, 2)
    truth = random_trees.RandomTrees(0, 4, 3, (), 0.5, 10 * VOCAB_SIZE)
    with pytest.raises(PolicyError, match="ids go from 0"):
        decode_batch(models, truth, prompts_of(3, 6), GREEDY, 24, 2)
    full = Speculation(models, DDTree(3), GREEDY, 4, lambda: 0.0, 1, 4)
    full.add(prompts[0])
    with pytest.raises(ValueError, match="running already"):
        full.add(prompts[1])
    with pytest.raises(ValueError, match="need a tree"):
        PackedPart(0, 4, 0, 2, None)


# Going back


def test_texts_go_back_together() -> None:
    models, prompts = models_of("llama", 1), [random_trees.prompt_of([1, 2, 3, 4, 5], f"p{n}") for n in range(3)]
    models = replace(models, target=replace(models.target, stop_token_ids=()))
    running = Speculation(models, DDTree(5), GREEDY, 30, lambda: 0.0, 3, 5)
    for prompt in prompts:
        running.add(prompt)
    first = running.running[0].root
    for _ in range(4):
        running.round()
    before = [text.text.tolist() for text in running.running]
    running.rewind(5, first)
    assert [text.text.tolist() for text in running.running] == [[first]] * 3
    for _ in range(4):
        running.round()
    for text, earlier in zip(running.running, before, strict=True):
        num = min(len(text.text), len(earlier))
        assert num > 4
        assert text.text.tolist()[:num] == earlier[:num]
