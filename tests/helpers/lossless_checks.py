"""What it means that a text is the target's own, checked on one text under one policy."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import random_trees

from simlab.draft import Prompt
from simlab.policy import AnyPolicy, is_plain_decoding
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.models import Models
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import Round, rounds

BEYOND = 8
"""So many tokens past the end of a text are given away to random trees."""


@dataclass(frozen=True, slots=True)
class Case:
    """A random target, a random prompt and random trees; see `random_trees`."""

    family: str
    model_seed: int
    prompt_seed: int
    tree_seed: int
    vocab_size: int = 12
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    noise_seed: int = 0
    max_new_tokens: int = 24
    budget: int = 12
    most_deep: int = 6
    true_share: float = 0.7

    @property
    def models(self) -> Models:
        return random_trees.random_models(self.family, self.model_seed, self.vocab_size)

    @property
    def prompt(self) -> Prompt:
        return random_trees.random_prompt(np.random.default_rng(self.prompt_seed), self.vocab_size)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.noise_seed)

    def policy(self) -> random_trees.RandomTrees:
        return random_trees.RandomTrees(
            self.tree_seed, self.budget, self.most_deep, endless_of(self), self.true_share, self.vocab_size
        )


@lru_cache(maxsize=512)
def endless_of(case: Case) -> tuple[int, ...]:
    """What the target would say if neither stop token nor limit ended it."""
    length = case.max_new_tokens + BEYOND
    return random_trees.endless_text(case.models.target, case.prompt, case.sampling, length)


@lru_cache(maxsize=512)
def plain_of(case: Case) -> list[int]:
    """What batched plain decoding says."""
    return random_trees.plain_text(case.models.target, case.prompt, case.sampling, case.max_new_tokens)


def fixed_cases(num: int, seed: int = 0) -> Iterator[Case]:
    """The same cases every time, of all kinds."""
    generator = np.random.default_rng(seed)
    for number in range(num):
        temperature, top_k, top_p = ((0.0, 0, 1.0), (0.9, 0, 1.0), (1.3, 6, 0.9))[number % 3]
        yield Case(
            random_trees.FAMILIES[number % 2],
            model_seed=int(generator.integers(12)),
            prompt_seed=int(generator.integers(1 << 30)),
            tree_seed=int(generator.integers(1 << 30)),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            noise_seed=int(generator.integers(1 << 30)),
            max_new_tokens=int(generator.choice([1, 2, 9, 24])),
            budget=int(generator.choice([1, 4, 12, 24])),
            true_share=float(generator.choice([0.3, 0.7, 0.95])),
        )


def check_case(case: Case) -> DecodedText:
    """Decode with random trees; the text must be plain decoding's, and the rounds must be its rounds."""
    decoded = decode(case.models, case.policy(), case.prompt, case.sampling, case.max_new_tokens)
    check_text(decoded, plain_of(case), case.models, case.max_new_tokens)
    check_rounds(decoded, case.policy())
    return decoded


def check_text(decoded: DecodedText, plain: list[int], models: Models, max_new_tokens: int) -> None:
    """The text is that of plain decoding, to its last token."""
    assert decoded.text.dtype == np.int32
    assert decoded.text.tolist() == plain
    stops = [index for index, token in enumerate(plain) if token in models.target.stop_token_ids]
    assert stops in ([], [len(plain) - 1])
    assert decoded.stop_reason == ("stop" if stops else "length")
    assert len(plain) == max_new_tokens or stops


def check_rounds(decoded: DecodedText, policy: AnyPolicy) -> None:
    """The rounds commit each token of the text once; without a drafter they are those of a replay."""
    position, last = 0, len(decoded.text) - 1
    for ran in decoded.rounds:
        round_ = ran.round
        left = last - position
        assert round_.position == position
        assert left > 0
        assert round_.tree.tokens[0] == decoded.text[position]
        assert round_.path == round_.tree.accepted_path(decoded.text[position + 1 :])
        assert round_.num_committed == min(round_.num_accepted + 1, left)
        assert round_.clipped == (round_.num_accepted == left)
        assert round_.num_drafted <= policy.budget
        position += round_.num_committed
    assert position == last
    assert decoded.totals.committed == last
    if not policy.needs.draft:
        assert all(ran.marginals is None for ran in decoded.rounds)
    if not policy.needs.draft and not policy.needs.channels:
        recorded = RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, None)
        assert_same_rounds([ran.round for ran in decoded.rounds], list(rounds(policy, recorded)))
    if is_plain_decoding(policy):
        assert len(decoded.rounds) == last


def assert_same_rounds(ours: list[Round], theirs: list[Round]) -> None:
    """Equal roots, trees, paths and commitments."""
    for our, other in zip(ours, theirs, strict=True):
        assert our.position == other.position
        assert our.tree.tokens.tolist() == other.tree.tokens.tolist()
        assert our.tree.parents.tolist() == other.tree.parents.tolist()
        assert (our.path, our.num_committed, our.clipped) == (other.path, other.num_committed, other.clipped)


def kinds_of(decoded: DecodedText) -> set[str]:
    """The special things that happened in a text."""
    kinds = {f"ended by {decoded.stop_reason}"}
    if len(decoded.text) == 1:
        kinds.add(f"one token, ended by {decoded.stop_reason}")
    for ran in decoded.rounds:
        round_, path = ran.round, list(ran.round.path)
        if path and path != list(range(1, len(path) + 1)):
            kinds.add("accepted rows that are not side by side")
        if round_.clipped:
            kinds.add(f"ended by {decoded.stop_reason} inside an accepted path")
            if round_.path[-1] in round_.tree.parents:
                kinds.add(f"drafted on beyond the {decoded.stop_reason}")
    if decoded.rounds and not decoded.rounds[-1].round.clipped:
        kinds.add(f"ended by {decoded.stop_reason} at the bonus token")
    return kinds
