"""Masks behind many tokens at once are the masks behind each token alone, in a plain pass over text and masks."""

import numpy as np
import pytest
import random_trees
import torch
from random_adapter import masks_alone, random_adapter

from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.networks.adapter import masked as rows_module
from simlab.real_runner.networks.adapter.gated import GatedAdapter
from simlab.real_runner.networks.adapter.masked import (
    MASK,
    OwnDrafter,
    mask_rows,
    mask_states,
    read_texts,
    with_masks,
)
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns
from simlab.tree import DraftTree

VOCAB_SIZE, NUM_MASKS = 23, 3
TEXTS = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB_SIZE, (2, 19)))
CLOSE = 1e-5
"""Attention's own shares are float32, also in float64."""


def made(family: str = "llama") -> tuple[Target, GatedAdapter]:
    target = random_trees.random_models(family, 2, VOCAB_SIZE, torch.float64).target
    return target, random_adapter(target, 4, NUM_MASKS)


def test_each_group_is_that_of_a_pass_of_its_own() -> None:
    for family in random_trees.FAMILIES:
        target, adapter = made(family)
        anchors = torch.tensor([[0, 5, 5, 18], [17, 3, 11, 4]])
        with torch.no_grad():
            texts = read_texts(target, TEXTS)
            found = mask_states(target, adapter, texts, anchors)
        assert found.shape == (2, 4, NUM_MASKS, target.embedding.embedding_dim)
        for text, row in enumerate(anchors.tolist()):
            for group, anchor in enumerate(row):
                expected = masks_alone(target, adapter, TEXTS[text], anchor)
                assert torch.allclose(found[text, group], expected, atol=CLOSE)


@torch.no_grad()
def test_groups_know_nothing_of_each_other() -> None:
    """Masks change places with their groups, and a group says the same beside any others."""
    target, adapter = made()
    texts = read_texts(target, TEXTS[:1])
    found = mask_states(target, adapter, texts, torch.tensor([[2, 9, 16]]))
    turned = mask_states(target, adapter, texts, torch.tensor([[16, 2, 9]]))
    assert torch.allclose(found[0, [2, 0, 1]], turned[0], atol=CLOSE)
    single = mask_states(target, adapter, texts, torch.tensor([[9]]))
    assert torch.allclose(found[0, 1], single[0, 0], atol=CLOSE)


@torch.no_grad()
def test_a_pass_leaves_nothing_behind() -> None:
    target, adapter = made()
    texts = read_texts(target, TEXTS)
    first = mask_states(target, adapter, texts, torch.tensor([[4], [7]]))
    mask_states(target, adapter, texts, torch.tensor([[5, 6], [8, 9]]))
    assert torch.equal(first, mask_states(target, adapter, texts, torch.tensor([[4], [7]])))
    assert torch.equal(texts[0], target.states(TEXTS))


def test_gradients_reach_all_of_the_adapter_and_nothing_else() -> None:
    target, adapter = made()
    adapter.requires_grad_(True)
    with torch.no_grad():
        texts = read_texts(target, TEXTS)
    mask_states(target, adapter, texts, torch.tensor([[4, 6], [7, 9]])).square().sum().backward()
    assert all(
        parameter.grad is not None and bool(parameter.grad.abs().sum() > 0) for parameter in adapter.parameters()
    )
    assert all(parameter.grad is None for parameter in target.model.parameters())


def test_masks_in_a_tree_are_chains_behind_its_first_nodes() -> None:
    tree = DraftTree(np.array([7, 8, 9, 5]), np.array([-1, 0, 0, 2]))
    found = with_masks(tree, 2, NUM_MASKS)
    assert found.tokens.tolist() == [7, 8, 9, 5, *[MASK] * 6]
    assert found.parents.tolist() == [-1, 0, 0, 2, 0, 4, 5, 1, 7, 8]
    assert found.depths().tolist() == [0, 1, 1, 2, 1, 2, 3, 2, 3, 4]
    assert not found.ancestor_mask()[:4, 4:].any(), "a node sees a mask"
    rows = mask_rows(4, 2, NUM_MASKS)
    assert (rows.rows.tolist(), rows.slots.tolist()) == ([4, 5, 6, 7, 8, 9], [0, 1, 2, 0, 1, 2])
    assert with_masks(tree, 0, NUM_MASKS).tokens.tolist() == tree.tokens.tolist()


# Rows of a text: the law of each mask at every root, made of nothing behind the token before it


VOCAB_SIZE_ROWS, NUM_MASKS_ROWS, PROMPT_LENGTH, WIDTH = 23, 3, 5, 6
TEXT = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB_SIZE_ROWS, 24))
LAST_STEP = 1.5 / STEPS_PER_NAT


def made_of_masks() -> tuple[Target, GatedAdapter]:
    target = random_trees.random_models("qwen3", 1, VOCAB_SIZE_ROWS, torch.float64).target
    return target, random_adapter(target, 5, NUM_MASKS_ROWS)


def rows_of(target: Target, adapter: GatedAdapter, text: torch.Tensor = TEXT) -> DraftColumns:
    kept = KeptCandidates(WIDTH, 1)
    return OwnDrafter(adapter, target).columns(text[:, None], text, PROMPT_LENGTH, kept)


@pytest.mark.parametrize("roots_per_pass", [1, 4, 64])
def test_rows_are_the_laws_of_masks_behind_the_token_before(
    roots_per_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "blocks_per_pass", lambda *_: roots_per_pass)
    target, adapter = made_of_masks()
    found = rows_of(target, adapter)
    roots = list(range(PROMPT_LENGTH, len(TEXT) - 1))
    assert found.context_length.tolist() == roots
    shape = (len(roots), NUM_MASKS_ROWS, WIDTH)
    ids, log_probs = found.ids.reshape(shape), found.log_probs.reshape(shape)
    for index, root in enumerate(roots):
        laws = target.logits(masks_alone(target, adapter, TEXT, root - 1)).log_softmax(-1).numpy()
        for depth, law in enumerate(to_grid(laws)):
            by_rank = sorted(range(VOCAB_SIZE_ROWS), key=lambda token: (-law[token], token))
            assert np.abs(log_probs[index, depth] - law[by_rank[:WIDTH]]).max() <= LAST_STEP
            assert set(ids[index, depth].tolist()) <= set(by_rank[: WIDTH + 2])
            if root + depth + 1 < len(TEXT):
                assert bool(found.valid[index, depth])
                true = int(TEXT[root + depth + 1])
                assert found.true_log_prob[index, depth] == pytest.approx(law[true], abs=LAST_STEP)


def test_a_row_has_not_seen_its_root_nor_what_follows() -> None:
    target, adapter = made_of_masks()
    before = rows_of(target, adapter)
    changed = TEXT.clone()
    changed[12:] = (changed[12:] + 1) % VOCAB_SIZE_ROWS
    after = rows_of(target, adapter, changed)
    width = NUM_MASKS_ROWS * WIDTH
    first = (12 - PROMPT_LENGTH + 1) * width
    assert before.ids[:first].tolist() == after.ids[:first].tolist()
    assert before.ids[first : first + width].tolist() != after.ids[first : first + width].tolist()


def test_a_live_draft_is_what_was_handed_over() -> None:
    target, adapter = made_of_masks()
    live, tokens = OwnDrafter(adapter, target).live(CandidatesRead(WIDTH), 0), TEXT[:11].numpy().astype(np.int32)
    assert live.draft(tokens) is None
    live.take(OwnDrafter(adapter, target).states(TEXT[None], torch.tensor([[10]])))
    first = live.draft(tokens)
    assert first is not None
    columns, index = rows_of(target, adapter), 10 - PROMPT_LENGTH
    assert first.marginals.ids.tolist() == columns.ids.reshape(-1, NUM_MASKS_ROWS * WIDTH)[index].tolist()
    live.take(None)
    assert live.draft(tokens) is None
    live.rewind(11)
    again = live.draft(tokens)
    assert again is not None
    assert again.marginals.ids.tolist() == first.marginals.ids.tolist()


def test_a_text_of_one_token_has_no_rows() -> None:
    target, adapter = made_of_masks()
    assert len(rows_of(target, adapter, TEXT[: PROMPT_LENGTH + 1]).context_length) == 0
