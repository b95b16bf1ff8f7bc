"""Pools and chains of an EAGLE-3 head: against the head called path by path, dense ones against those of a round."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from depth import some
from marginals import paths_of_tree, token_paths
from pool_oracle import Path, first, plain_pool
from random_eagle3 import random_eagle3_for
from random_heads import PROMPT_LENGTH, TEXT, VOCAB_SIZE
from random_trees import random_models

from simlab.channels import POOL, Pool
from simlab.draft import Draft, Marginals
from simlab.errors import MissingChannelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policies.named.eagle3 import Eagle3
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.models import Models
from simlab.real_runner.networks.eagle3 import head as eagle3_head
from simlab.real_runner.networks.eagle3 import pool as eagle3_pool
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.pool import Eagle3Chain, Eagle3Producer, Eagle3Text, LiveChain
from simlab.real_runner.record.texts import forward_text
from simlab.tree import DraftTree

REACHES = [Eagle3Reach(3, 4, 3), Eagle3Reach(1, 1, 1), Eagle3Reach(1, 5, 4), Eagle3Reach(6, 2, 3)]
ROOTS = (PROMPT_LENGTH, 17, len(TEXT) - 2)
NUM_ROOTS = len(TEXT) - 1 - PROMPT_LENGTH
LAST_STEP = 1 / STEPS_PER_NAT
BLOCK, WIDTH = 5, 6


def producer_of(reach: Eagle3Reach, draft_vocab_size: int | None = None, double: bool = False) -> Eagle3Producer:
    models = random_models("qwen3", 1, VOCAB_SIZE, torch.float64 if double else torch.float32)
    return Eagle3Producer(random_eagle3_for(models.target, 5, draft_vocab_size), models.target, reach)


def features_of(producer: Eagle3Producer) -> torch.Tensor:
    return forward_text(producer.target, TEXT, producer.taps)[0]


def at_root(producer: Eagle3Producer, root: int) -> Pool:
    text = producer.begin()
    text.read(features_of(producer)[None, :root])
    pool = text.at_root(TEXT[: root + 1].numpy().astype(np.int32))
    assert isinstance(pool, Pool)
    return pool


def dense(producer: Eagle3Producer) -> list[Pool]:
    return list(producer.columns(features_of(producer), TEXT, NUM_ROOTS).rows.rows())


class PathByPath:
    """The head below one root, one token after the other, with all of the text and the path before it."""

    def __init__(self, producer: Eagle3Producer, root: int) -> None:
        self._made, self._root = producer, root
        self._features = features_of(producer)

    @torch.inference_mode()
    def law(self, path: Path) -> dict[int, float]:
        """Log-probabilities of what follows, on the grid, by the target's ids."""
        head, target = self._made.head, self._made.target
        hidden = [head.fused(feature) for feature in self._features[: self._root]]
        tokens = [*TEXT[1 : self._root + 1].tolist(), *path]
        for index in range(len(path) + 1):
            upto = self._root + index
            weight = target.embedding.weight
            output, _ = head(torch.stack(hidden)[None], weight[tokens[:upto]][None], torch.arange(upto)[None])
            hidden.append(output[0, -1])
        law = to_grid(head.logits(target, hidden[-1]).log_softmax(-1).double().numpy())
        ids = range(len(law)) if head.vocabulary is None else head.vocabulary.target_ids.tolist()
        return dict(zip(ids, law.tolist(), strict=True))


def paths_of(tree: Pool | DraftTree) -> list[Path]:
    """The path of each node, the root's left out."""
    if isinstance(tree, DraftTree):
        return paths_of_tree(tree)
    return token_paths(tree.tokens.tolist(), tree.parents.tolist())


@pytest.mark.parametrize("draft_vocab_size", [None, 9])
@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_a_pool_is_the_head_called_path_by_path(reach: Eagle3Reach, draft_vocab_size: int | None) -> None:
    producer = producer_of(reach, draft_vocab_size, double=True)
    for root in ROOTS:
        law = PathByPath(producer, root).law
        pool, expected = at_root(producer, root), plain_pool(law, reach.beam, reach.top_k, reach.steps)
        assert paths_of(pool) == list(expected)
        scores, expanded = zip(*expected.values(), strict=True)
        assert np.abs(pool.log_probs - np.array(scores)).max() <= LAST_STEP
        assert pool.expanded.tolist() == list(expanded)
        assert (len(pool.tokens), pool.depth) == (reach.num_scores(), reach.depth)


@pytest.mark.parametrize(
    ("reach", "per_pass"), some([*itertools.product(REACHES, (1, 1 << 12, 1 << 26))], quick=3), ids=str
)
def test_dense_pools_are_those_of_a_round(reach: Eagle3Reach, per_pass: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where text and roots are read in parts."""
    producer = producer_of(reach, double=True)
    for module in (eagle3_pool, eagle3_head):
        monkeypatch.setattr(module, "WEIGHTS_PER_PASS", per_pass)
    together = dense(producer)
    assert len(together) == NUM_ROOTS
    for root, pool in enumerate(together, PROMPT_LENGTH):
        alone = at_root(producer, root)
        assert paths_of(pool) == paths_of(alone)
        assert np.array_equal(pool.expanded, alone.expanded)
        assert np.abs(pool.log_probs - alone.log_probs).max() <= LAST_STEP


def test_steps_that_are_cut_are_those_of_a_shorter_pool() -> None:
    producer = producer_of(Eagle3Reach(3, 4, 4))
    need = ChannelNeed("eagle3", POOL, least=(("steps", 2),), equal=(("beam", 3), ("top_k", 4)))
    shorter = producer.within(need)
    assert shorter.reach == Eagle3Reach(3, 4, 2)
    for whole, cut in zip(dense(producer), dense(shorter), strict=True):
        found = whole.first(need.deepest or 0)
        for name in ("tokens", "parents", "log_probs", "expanded"):
            assert np.array_equal(getattr(found, name), getattr(cut, name))


def test_other_pools_than_are_made_are_refused() -> None:
    producer = producer_of(Eagle3Reach(3, 4, 2))
    longer = ChannelNeed("eagle3", POOL, least=(("steps", 3),), equal=(("beam", 3), ("top_k", 4)))
    with pytest.raises(MissingChannelError, match="with steps 3 at least, and its network makes it with 2"):
        producer.within(longer)
    wider = ChannelNeed("eagle3", POOL, equal=(("beam", 4), ("top_k", 4)))
    with pytest.raises(MissingChannelError, match="with beam 4, and its network makes it with 3"):
        producer.within(wider)


# The head as a drafter: its chain is the pool of a beam of one with as many children.


@pytest.mark.parametrize("draft_vocab_size", [None, 9])
def test_a_chain_is_a_tree_of_one_path(draft_vocab_size: int | None) -> None:
    producer = producer_of(Eagle3Reach(1, WIDTH, BLOCK - 2), draft_vocab_size, double=True)
    for root in ROOTS:
        pool, found = at_root(producer, root), live(producer, root)
        assert pool.tokens.tolist() == found.ids.tolist()
        assert found.offsets.tolist() == list(range(0, WIDTH * BLOCK, WIDTH))
        assert np.abs(pool.log_probs - found.log_probs).max() <= LAST_STEP


def chain_of(producer: Eagle3Producer) -> Eagle3Chain:
    producer.head.config = producer.head.config.with_block(BLOCK)
    return Eagle3Chain(producer.head, producer.target)


def live(producer: Eagle3Producer, root: int) -> Marginals:
    text = chain_of(producer).live(CandidatesRead(WIDTH), 0)
    text.read(features_of(producer)[None, :root])
    return text.draft(TEXT[: root + 1].numpy().astype(np.int32)).marginals


@pytest.mark.parametrize("roots_per_pass", [1, 3, 64])
def test_dense_rows_are_those_of_a_round(roots_per_pass: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eagle3_pool, "_ROOTS_PER_PASS", roots_per_pass)
    producer = producer_of(REACHES[0], 9, double=True)
    kept = KeptCandidates(min_width=WIDTH, exact_budget=WIDTH)
    rows = chain_of(producer).columns(features_of(producer), TEXT, PROMPT_LENGTH, kept)
    assert rows.context_length.tolist() == list(range(PROMPT_LENGTH, len(TEXT) - 1))
    assert (rows.counts == WIDTH).all()
    ids, log_probs = (array.reshape(len(rows.counts), -1) for array in (rows.ids, rows.log_probs))
    for t, root in enumerate(range(PROMPT_LENGTH, len(TEXT) - 1)):
        found = live(producer, root)
        assert ids[t].tolist() == found.ids.tolist()
        assert np.abs(log_probs[t] - found.log_probs).max() <= LAST_STEP


def said(text: Eagle3Text | LiveChain, root: int) -> tuple[list[list[int]], np.ndarray]:
    """What a text has below a root: integers, and log-probabilities."""
    committed = TEXT[: root + 1].numpy().astype(np.int32)
    if isinstance(text, LiveChain):
        found = text.draft(committed).marginals
        return [found.ids.tolist(), found.offsets.tolist()], found.log_probs
    pool = text.at_root(committed)
    assert isinstance(pool, Pool)
    return [pool.tokens.tolist(), pool.parents.tolist(), pool.expanded.tolist()], pool.log_probs


@pytest.mark.parametrize("drafts", [False, True], ids=["pools", "chains"])
def test_a_text_that_is_read_in_parts_and_gone_back_in_is_one_read_whole(drafts: bool) -> None:
    producer = producer_of(REACHES[0], double=True)
    features = features_of(producer)

    def begun(upto: int) -> Eagle3Text | LiveChain:
        text = chain_of(producer).live(CandidatesRead(WIDTH), 0) if drafts else producer.begin()
        text.read(features[None, :upto])
        return text

    def check(root: int) -> None:
        (ours, log_probs), (theirs, others) = said(text, root), said(begun(root), root)
        assert ours == theirs
        assert np.abs(log_probs - others).max() <= LAST_STEP

    text, read = begun(PROMPT_LENGTH), PROMPT_LENGTH
    for root in (PROMPT_LENGTH, PROMPT_LENGTH + 1, 13, 20):
        text.read(features[None, read:root])
        read = root
        check(root)
    # The last states that were read are those of positions 17 to 19.
    text.rewind(20)
    check(20)
    text.read(features[None, 20:27])
    text.rewind(25)
    check(25)


def test_models_with_a_head_have_no_pass_of_blocks() -> None:
    producer = producer_of(REACHES[0])
    models = Models(producer.target, producer.head, draft_folder=None, draft_revision="")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="an EAGLE-3 head, which drafts token by token"):
        _ = models.block_drafter


def best_first(laws: PathByPath, budget: int, depth: int) -> Iterator[Path]:
    """The best nodes, with the head asked for each as soon as it enters."""
    scores: dict[Path, tuple[float, tuple[int, ...]]] = {}

    def open_below(path: Path, score: float, ranks: tuple[int, ...]) -> None:
        law = laws.law(path)
        for rank, token in enumerate(first(law, budget)):
            scores[*path, token] = (score + law[token], (*ranks, rank))

    open_below((), 0.0, ())
    for _ in range(budget):
        best = min(scores, key=lambda path: (-scores[path][0], scores[path][1]))
        score, ranks = scores.pop(best)
        yield best
        if len(best) < depth:
            open_below(best, score, ranks)


@pytest.mark.parametrize("draft_vocab_size", [None, 9])
def test_a_pool_as_wide_as_the_tree_is_best_first_on_the_head(draft_vocab_size: int | None) -> None:
    budget = 7
    producer = producer_of(Eagle3Reach(budget, budget, 3), draft_vocab_size, double=True)
    policy = Eagle3(budget, beam=budget, top_k=budget, steps=3)
    for root in ROOTS:
        committed = TEXT[: root + 1].numpy().astype(np.int32)
        draft = Draft(None, int(committed[-1]), committed, root, {"eagle3": at_root(producer, root)})
        expected = set(best_first(PathByPath(producer, root), budget, depth=4))
        assert set(paths_of(policy.select(draft))) == expected
