"""Drafting at all roots in masked passes equals drafting live; the kept candidates are enough."""

import numpy as np
import pytest
import tiny_models
import torch
from depth import some
from marginals import kept_marginals

from simlab.arrays import Floats
from simlab.draft import Marginals
from simlab.policies.orders.best_first import best_first
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import block_logits, draft_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import draft_columns
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.sampling.candidates import top_candidates
from simlab.traces.format.frames import DraftColumns

TOLERANCE = 1e-4
PROMPT_LENGTH = 20
TEXT = torch.from_numpy(np.random.default_rng(0).integers(5, tiny_models.VOCAB_SIZE, 90))


@pytest.fixture(scope="module", params=some(["qwen3", "llama"]))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(str(tiny_models.make_target(tmp_path_factory.mktemp("t"), request.param)), torch.float32)


@pytest.fixture(scope="module", params=[(4, 1), (8, 3)], ids=["block4", "block8"])
def drafter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DFlashDrafter:
    block_size, num_layers = request.param
    return load_drafter(tiny_models.make_drafter(tmp_path_factory.mktemp("d"), block_size, num_layers), torch.float32)


@torch.inference_mode()
def dense_columns(target: Target, drafter: DFlashDrafter, kept: KeptCandidates) -> DraftColumns:
    features, _ = forward_text(target, TEXT, drafter.config.target_layer_ids)
    return draft_columns(drafter, target, features, TEXT, PROMPT_LENGTH, kept)


@torch.inference_mode()
def live_laws(target: Target, drafter: DFlashDrafter, seed: int) -> dict[int, Floats]:
    """Log-probs ``[D, V]`` at the roots of a live run: caches of target and drafter grow round by round."""
    lengths = np.random.default_rng(seed)
    taps = drafter.config.target_layer_ids
    cache, context, laws = BufferCache(target), None, {}
    start, root = 0, PROMPT_LENGTH
    while root < len(TEXT) - 1:
        with tapped(target, taps) as taken:
            positions = torch.arange(start, root)[None]
            past = torch.ones(1, 1, root - start, root, dtype=torch.bool).tril(start)
            target.states(TEXT[None, start:root], cache, past, positions)
            fresh = drafter.context(features_of(taken, taps), start)
        context = fresh if context is None else context.extended(fresh)
        assert context.length == root
        logits = block_logits(drafter, target, TEXT[root : root + 1], torch.tensor([root]), context)
        laws[root] = logits[0].log_softmax(-1).numpy()
        start, root = root, root + int(lengths.integers(1, drafter.config.block_size + 1))
    return laws


def assert_same_candidates(marginals: Marginals, law: Floats, kept: KeptCandidates) -> None:
    """Log-probs within the tolerance, and the same ids but where two lie within it of each other."""
    other = kept_marginals(law, kept)
    for depth in range(1, marginals.depth + 1):
        ids, log_probs = marginals.at(depth)
        live_ids, live_log_probs = other.at(depth)
        shared = min(len(ids), len(live_ids))
        assert np.abs(log_probs[:shared] - live_log_probs[:shared]).max() < TOLERANCE
        moved = ids[:shared] != live_ids[:shared]
        assert np.abs(law[depth - 1, ids[:shared]] - live_log_probs[:shared])[moved].max(initial=0) < TOLERANCE
        assert abs(len(ids) - len(live_ids)) <= 1


@pytest.mark.parametrize("seed", [0, 1])
def test_dense_rows_are_live_rows(target: Target, drafter: DFlashDrafter, seed: int) -> None:
    kept = KeptCandidates(min_width=64, exact_budget=512)
    columns = dense_columns(target, drafter, kept)
    rows = list(columns.rows().rows())
    live = live_laws(target, drafter, seed)
    assert len(live) > 10
    for root, law in live.items():
        assert_same_candidates(rows[root - PROMPT_LENGTH], law, kept)
        t = root - PROMPT_LENGTH
        for d in range(min(drafter.config.depth, len(TEXT) - 1 - root)):
            assert abs(columns.true_log_prob[t, d] - law[d, TEXT[root + 1 + d]]) < TOLERANCE


@torch.inference_mode()
def test_passes_of_any_size_give_the_same_rows(target: Target, drafter: DFlashDrafter) -> None:
    features, _ = forward_text(target, TEXT, drafter.config.target_layer_ids)
    roots = torch.arange(PROMPT_LENGTH, len(TEXT) - 1)
    whole, small = (
        torch.cat([logits for _, logits in draft_logits(drafter, target, features, TEXT, roots, size)])
        for size in (1000, 7)
    )
    assert whole.shape == (len(roots), drafter.config.depth, tiny_models.VOCAB_SIZE)
    assert torch.allclose(whole, small, atol=TOLERANCE)


@torch.inference_mode()
def test_what_follows_the_root_changes_nothing(target: Target, drafter: DFlashDrafter) -> None:
    """A row sees no token after its root, and no hidden state from its root on."""
    root = 50
    features, _ = forward_text(target, TEXT, drafter.config.target_layer_ids)
    changed, other = TEXT.clone(), features.clone()
    changed[root + 1 :] = 9
    other[root:] = 1e3
    one, two = (
        next(draft_logits(drafter, target, states, tokens, torch.tensor([root]), 8))[1]
        for states, tokens in ((features, TEXT), (other, changed))
    )
    assert torch.equal(one, two)


@pytest.mark.parametrize("budget", [1, 12, 40])
def test_kept_candidates_give_the_tree_of_the_whole_vocabulary(
    target: Target, drafter: DFlashDrafter, budget: int
) -> None:
    columns = dense_columns(target, drafter, KeptCandidates(min_width=1, exact_budget=budget))
    whole = dense_columns(target, drafter, KeptCandidates(min_width=tiny_models.VOCAB_SIZE, exact_budget=1))
    assert (whole.counts == tiny_models.VOCAB_SIZE).all()
    assert columns.counts.sum() < whole.counts.sum() / 2
    for fewer, everything in zip(columns.rows().rows(), whole.rows().rows(), strict=True):
        for size in {1, budget}:
            nodes, other = best_first(5, fewer, size), best_first(5, everything, size)
            assert nodes.tokens.tolist() == other.tokens.tolist()
            assert nodes.parents.tolist() == other.parents.tolist()


def test_the_order_of_candidates_is_the_shared_one(target: Target, drafter: DFlashDrafter) -> None:
    law = next(iter(live_laws(target, drafter, 0).values()))
    ids, log_probs = top_candidates(law, 6)
    first = kept_marginals(law, KeptCandidates(min_width=6, exact_budget=1))
    assert first.ids.tolist() == ids.ravel().tolist()
    assert first.log_probs.tolist() == log_probs.ravel().tolist()
