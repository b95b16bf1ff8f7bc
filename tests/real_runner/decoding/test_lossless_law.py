"""At temperature > 0 texts under tree decoding follow the law of plain sampling.

The exact law is computed here from the model's own logits, with another attention and by another rule
for top-k and top-p; then the counts of many texts, each with its own seed, are held against it. Seeds
are fixed; for a runner that is right, the chance that any of these tests had failed is below 1e-6.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import random_trees
import torch
from depth import examples, some
from scipy import stats
from transformers import AutoModelForCausalLM

from simlab.arrays import Doubles
from simlab.draft import Draft
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy, Needs, Stateless
from simlab.real_runner.decoding import tree_pass
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import Choose
from simlab.real_runner.decoding.tree_pass import follow
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

VOCAB_SIZE = 5
NUM_TEXTS = examples(600, quick=300)
NUM_TOKENS = 4
LEAST_EXPECTED = 5.0
FALSE_ALARM = 1e-7
"""Of one test; there are fewer than ten."""

PROMPT = random_trees.prompt_of([3, 1, 4, 1], "law")
WHOLE, FILTERED = Sampling(1.0, 0, 1.0, 0), Sampling(0.8, 4, 0.9, 0)
EVEN = Sampling(3.0, 0, 1.0, 0)
RANDOM_TREES = random_trees.RandomTrees(1, 12, 3, (), 0.5, VOCAB_SIZE)

Text = tuple[int, ...]


@lru_cache(maxsize=2)
def models_of(family: str) -> Models:
    return random_trees.random_models(family, 0, VOCAB_SIZE)


def texts_of(family: str, policy: AnyPolicy, sampling: Sampling, num_texts: int) -> list[Text]:
    """One text a seed."""
    models = models_of(family)
    settings = (replace(sampling, seed=seed) for seed in range(num_texts))
    return [tuple(decode(models, policy, PROMPT, setting, NUM_TOKENS).text.tolist()) for setting in settings]


class ExactLaw:
    """The law of the next token after a prefix, float64 ``[V]``, with the model's eager attention."""

    def __init__(self, models: Models, sampling: Sampling) -> None:
        model = models.target.model
        self.model = AutoModelForCausalLM.from_config(model.config, attn_implementation="eager").double().eval()
        self.model.load_state_dict(model.state_dict())
        self.sampling = sampling

    @torch.inference_mode()
    def after(self, prefix: Text) -> Doubles:
        ids = torch.tensor([[*PROMPT.token_ids.tolist(), *prefix]])
        law = (self.model(ids).logits[0, -1].double() / self.sampling.temperature).softmax(-1)
        found: Doubles = _filtered(law.numpy(), self.sampling)
        return found


def _filtered(law: Doubles, sampling: Sampling) -> Doubles:
    """Top-k, then the shortest prefix of what is left that holds the share of top-p."""
    order = np.argsort(-law)
    kept = order[: sampling.top_k or len(order)]
    shares = np.cumsum(law[kept]) / law[kept].sum()
    kept = kept[: 1 + int((shares < sampling.top_p).sum())]
    out = np.zeros_like(law)
    out[kept] = law[kept] / law[kept].sum()
    return out


def p_values(texts: list[Text], law: ExactLaw, stops: tuple[int, ...]) -> Iterator[float]:
    """Chi-square tests of the tokens at each place, given everything before them; then one of all places.

    The statistics of all prefixes are added up; tokens seldom expected after a prefix are taken together.
    """
    sums = []
    for index in range(NUM_TOKENS):
        statistic, freedom = 0.0, 0
        for prefix, counts in counted(texts, index).items():
            assert not prefix or prefix[-1] not in stops
            expected = law.after(prefix) * counts.sum()
            assert not counts[expected == 0].any(), f"{prefix} was followed by a token that the law forbids"
            value, cells = chi_square(counts.tolist(), expected.tolist())
            statistic, freedom = statistic + value, freedom + cells - 1
        assert freedom > 0
        sums.append((statistic, freedom))
    sums.append((sum(statistic for statistic, _ in sums), sum(freedom for _, freedom in sums)))
    for total, num in sums:
        yield float(stats.chi2.sf(total, num))


def counted(texts: list[Text], place: int) -> dict[Text, Doubles]:
    """Of each prefix of so many tokens, how often each token follows, float64 ``[V]``."""
    counts: dict[Text, Doubles] = {}
    for (prefix, token), num in Counter((text[:place], text[place]) for text in texts if len(text) > place).items():
        counts.setdefault(prefix, np.zeros(VOCAB_SIZE))[token] = num
    return counts


def chi_square(counts: list[float], expected: list[float]) -> tuple[float, int]:
    """The statistic and its number of cells; a rare token shares a cell with the next rarest."""
    cells: list[tuple[float, float]] = []
    count = wanted = 0.0
    for hoped, seen in sorted(zip(expected, counts, strict=True)):
        count, wanted = count + seen, wanted + hoped
        if wanted >= LEAST_EXPECTED:
            cells.append((count, wanted))
            count = wanted = 0.0
    if wanted > 0 and cells:
        cells[-1] = (cells[-1][0] + count, cells[-1][1] + wanted)
    return sum((seen - hoped) ** 2 / hoped for seen, hoped in cells), max(len(cells), 1)


def fits(texts: list[Text], models: Models, sampling: Sampling) -> bool:
    """Whether texts may have been drawn from the exact law."""
    found = list(p_values(texts, ExactLaw(models, sampling), models.target.stop_token_ids))
    return min(found) > FALSE_ALARM / len(found)


@pytest.mark.parametrize(
    ("policy", "sampling"),
    [(RANDOM_TREES, WHOLE), (DDTree(6), FILTERED)],
    ids=["random trees, whole law", "ddtree, top-k and top-p"],
)
@pytest.mark.parametrize("family", some(random_trees.FAMILIES))
def test_tree_decoding_samples_the_targets_law(family: str, policy: AnyPolicy, sampling: Sampling) -> None:
    assert fits(texts_of(family, policy, sampling, NUM_TEXTS), models_of(family), sampling)


class EveryToken(Stateless):
    """All tokens below the root and below each of these: two are accepted in every round that has room."""

    needs, budget = Needs(draft=False), VOCAB_SIZE + VOCAB_SIZE**2

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        tokens = [draft.root_token, *range(VOCAB_SIZE), *(VOCAB_SIZE * list(range(VOCAB_SIZE)))]
        parents = [-1, *(VOCAB_SIZE * [0]), *np.repeat(np.arange(1, VOCAB_SIZE + 1), VOCAB_SIZE).tolist()]
        return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32))


def test_one_noise_for_a_whole_round_is_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token by itself would have the right law; not so what follows what."""

    def faulty(tree: DraftTree, choose: Choose, position: int, *rest: object) -> object:
        return follow(tree, lambda row, _: choose(row, position + 1), position, *rest)  # type: ignore[arg-type]

    models = models_of("llama")
    assert fits(texts_of("llama", EveryToken(), EVEN, 300), models, EVEN)
    monkeypatch.setattr(tree_pass, "follow", faulty)
    assert not fits(texts_of("llama", EveryToken(), EVEN, 300), models, EVEN)


@pytest.mark.thorough
def test_the_check_passes_what_is_drawn_from_the_law_and_little_else() -> None:
    """By ordinary sampling from the exact law: as it is, too hot, and with another top-p."""
    models = models_of("llama")
    assert fits(drawn(models, WHOLE), models, WHOLE)
    assert fits(drawn(models, FILTERED), models, FILTERED)
    assert not fits(drawn(models, replace(WHOLE, temperature=1.5)), models, WHOLE)
    assert not fits(drawn(models, replace(FILTERED, top_p=0.8)), models, FILTERED)
    with pytest.raises(AssertionError, match="the law forbids"):
        fits(drawn(models, replace(FILTERED, top_p=1.0)), models, FILTERED)


def drawn(models: Models, sampling: Sampling) -> list[Text]:
    generator = np.random.default_rng(0)
    law = lru_cache(ExactLaw(models, sampling).after)
    texts = []
    for _ in range(NUM_TEXTS):
        text: Text = ()
        while len(text) < NUM_TOKENS and not (text and text[-1] in models.target.stop_token_ids):
            text = (*text, int(generator.choice(VOCAB_SIZE, p=law(text))))
        texts.append(text)
    return texts
