"""Losslessness: whatever is drafted, the text is plain decoding's, token for token."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from depth import THOROUGH, examples, some
from every_policy import EVERY_POLICY, WITH_A_DRAFTER, LongerAfterSuccess
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from lossless_checks import Case, check_case, check_rounds, check_text, fixed_cases, kinds_of
from made_up_heads import with_producers

from simlab.draft import Draft, Prompt
from simlab.errors import ModelError, PolicyError
from simlab.policies.named.chain import Chain
from simlab.policy import AnyPolicy, Needs, Stateless
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

SAMPLINGS = [Sampling(0.0, 0, 1.0, 0), Sampling(0.9, 0, 1.0, 1), Sampling(1.2, 8, 0.9, 2)]
SAMPLING_IDS = ["greedy", "sampled", "filtered"]

# What must happen among the fixed cases, at temperature 0 and above it, so that the tests are known to see it.
KINDS = {
    "ended by stop",
    "ended by length",
    "ended by stop inside an accepted path",
    "ended by length inside an accepted path",
    "ended by stop at the bonus token",
    "ended by length at the bonus token",
    "drafted on beyond the stop",
    "drafted on beyond the length",
    "one token, ended by stop",
    "one token, ended by length",
    "accepted rows that are not side by side",
}


@settings(max_examples=examples(120))
@given(
    case=st.builds(
        Case,
        family=st.sampled_from(random_trees.FAMILIES),
        model_seed=st.integers(0, 10_000),
        prompt_seed=st.integers(0, 1 << 30),
        tree_seed=st.integers(0, 1 << 30),
        vocab_size=st.sampled_from([5, 12, 40]),
        max_new_tokens=st.integers(1, 30),
        budget=st.integers(1, 24),
        most_deep=st.integers(1, 8),
        true_share=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    ),
    sampling=st.one_of(
        st.just((0.0, 0, 1.0)),
        st.tuples(st.floats(0.2, 2.0), st.just(0), st.just(1.0)),
        st.tuples(st.floats(0.2, 2.0), st.integers(0, 8), st.floats(0.3, 1.0)),
    ),
    noise_seed=st.integers(0, 1 << 40),
)
@example(Case("llama", 2, 7, 1), (0.0, 0, 1.0), 0)
@example(Case("qwen3", 3, 7, 1), (0.9, 6, 0.9), 5)
def test_random_trees_give_the_text_of_plain_decoding(
    case: Case, sampling: tuple[float, int, float], noise_seed: int
) -> None:
    temperature, top_k, top_p = sampling
    case = replace(case, temperature=temperature, top_k=top_k, top_p=top_p, noise_seed=noise_seed)
    for kind in kinds_of(check_case(case)):
        event(kind)


def test_the_fixed_cases_hold_and_every_kind_of_end_is_among_them() -> None:
    seen: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for case in fixed_cases(examples(240, quick=120)):
        seen[case.temperature > 0].update(kinds_of(check_case(case)))
    for sampled, kinds in seen.items():
        assert set(kinds) == KINDS, (sampled, kinds)
        assert min(kinds.values()) >= 2, (sampled, kinds)


@pytest.mark.parametrize(("family", "sampling"), some([*itertools.product(random_trees.FAMILIES, SAMPLINGS)], quick=3))
def test_every_policy_gives_the_text_of_plain_decoding(family: str, sampling: Sampling) -> None:
    """With a drafter of the real class, in float32; a policy that is new in the table is among them."""
    accepted: Counter[str] = Counter()
    for seed in some(range(4)):
        models = with_producers(random_trees.random_models(family, seed, 12, torch.float32), EVERY_POLICY, seed)
        for prompt in prompts_for(models, examples(3, quick=1)):
            plain = random_trees.plain_text(models.target, prompt, sampling, 24)
            for policy in [*WITH_A_DRAFTER, LongerAfterSuccess()]:
                decoded = decode(models, policy, prompt, sampling, 24)
                check_text(decoded, plain, models, 24)
                check_rounds(decoded, policy)
                accepted[type(policy).__name__] += decoded.totals.accepted
    if THOROUGH:
        assert all(accepted[name] > 0 for name in accepted if name != "Autoregressive"), accepted
    assert accepted.total() > 5


def prompts_for(models: Models, num: int) -> Iterator[Prompt]:
    generator = np.random.default_rng(5)
    for number in range(num):
        ids = generator.integers(models.target.vocab_size, size=1 + 4 * number).tolist()
        yield random_trees.prompt_of(ids, f"p{number}")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_names_of_a_prompt_choose_its_noise(temperature: float) -> None:
    """Turn and sample enter it, as they do where texts are recorded."""
    models = random_trees.random_models("llama", 2, 12)
    policy = random_trees.RandomTrees(3, 12, 6, (), 0.5, 12)
    texts = set()
    for turn, sample in ((0, 0), (1, 0), (0, 1), (2, 7)):
        prompt = replace(random_trees.prompt_of([3, 4, 5]), turn=turn, sample=sample)
        sampling = Sampling(temperature, 0, 1.0, 4)
        plain = random_trees.plain_text(models.target, prompt, sampling, 24)
        check_text(decode(models, policy, prompt, sampling, 24), plain, models, 24)
        texts.add(tuple(plain))
    assert len(texts) == (1 if temperature == 0 else 4)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=SAMPLING_IDS)
def test_equal_logits_are_no_matter(sampling: Sampling) -> None:
    """Tokens 2 and 7, and 3 and 5, have one row of the head each: at every position they tie."""
    models = random_trees.random_models.__wrapped__("llama", 2, 12)
    rows = models.target.head.weight
    assert isinstance(rows, torch.Tensor)
    rows[7], rows[5] = rows[2].clone(), rows[3].clone()
    num_tied = 0
    for seed, prompt in enumerate(prompts_for(models, 6)):
        plain = random_trees.plain_text(models.target, prompt, sampling, 30)
        truth = random_trees.endless_text(models.target, prompt, sampling, 38)
        for share in (0.5, 0.9):
            policy = random_trees.RandomTrees(seed, 16, 6, truth, share, 12)
            check_text(decode(models, policy, prompt, sampling, 30), plain, models, 30)
        num_tied += len({2, 3} & set(plain))
        assert sampling.temperature > 0 or not {5, 7} & set(plain)
    assert num_tied > 0


class _Tree(Stateless):
    """The same tokens below every root."""

    needs = Needs(draft=False)

    def __init__(self, tokens: tuple[int, ...], budget: int = 8, root: int | None = None):
        self.tokens, self.budget, self.root = tokens, budget, root

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token if self.root is None else self.root, self.tokens)


@pytest.mark.parametrize("token", [-1, 12, 1 << 30])
def test_a_token_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(PolicyError, match="ids go from 0 to 11"):
        run(_Tree((1, token)))


def test_a_tree_above_its_budget_or_below_another_root_is_refused() -> None:
    with pytest.raises(PolicyError, match="its budget is 2"):
        run(_Tree((1, 2, 3), budget=2))
    with pytest.raises(PolicyError, match="the root is"):
        run(_Tree((1, 2, 3), root=-7))


@pytest.mark.parametrize("policy", [Chain(), EVERY_POLICY[0]], ids=repr)
def test_a_text_that_may_outrun_the_targets_positions_is_refused(policy: AnyPolicy) -> None:
    models = random_trees.random_models("llama", 2, 12)
    most = random_trees.MAX_POSITIONS - 3 - models.drafter.config.depth
    decode(models, policy, random_trees.prompt_of([3, 4, 5]), SAMPLINGS[0], most)
    with pytest.raises(ModelError, match=f"needs {random_trees.MAX_POSITIONS + 1} positions"):
        decode(models, policy, random_trees.prompt_of([3, 4, 5]), SAMPLINGS[0], most + 1)


def run(policy: AnyPolicy) -> None:
    models = random_trees.random_models("llama", 2, 12)
    decode(models, policy, random_trees.prompt_of([3, 4, 5]), SAMPLINGS[0], 8)
