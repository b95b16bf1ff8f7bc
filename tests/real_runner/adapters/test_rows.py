"""Rows of a text: the law of each mask at every root, made of nothing behind the token before it."""

import numpy as np
import pytest
import random_trees
import torch
from random_adapter import masks_alone, random_adapter

from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.real_runner.adapters import rows as rows_module
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.own_drafter import OwnDrafter
from simlab.real_runner.adapters.rows import LiveMasks, mask_columns
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns

VOCAB_SIZE, NUM_MASKS, PROMPT_LENGTH, WIDTH = 23, 3, 5, 6
TEXT = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB_SIZE, 24))
LAST_STEP = 1.5 / STEPS_PER_NAT


def made() -> tuple[Target, GatedAdapter]:
    target = random_trees.random_models("qwen3", 1, VOCAB_SIZE, torch.float64).target
    return target, random_adapter(target, 5, NUM_MASKS)


def rows_of(target: Target, adapter: GatedAdapter, text: torch.Tensor = TEXT) -> DraftColumns:
    return mask_columns(adapter, target, text, PROMPT_LENGTH, KeptCandidates(WIDTH, 1))


@pytest.mark.parametrize("roots_per_pass", [1, 4, 64])
def test_rows_are_the_laws_of_masks_behind_the_token_before(
    roots_per_pass: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_roots_per_pass", lambda *_: roots_per_pass)
    target, adapter = made()
    found = rows_of(target, adapter)
    roots = list(range(PROMPT_LENGTH, len(TEXT) - 1))
    assert found.context_length.tolist() == roots
    shape = (len(roots), NUM_MASKS, WIDTH)
    ids, log_probs = found.ids.reshape(shape), found.log_probs.reshape(shape)
    for place, root in enumerate(roots):
        laws = target.logits(masks_alone(target, adapter, TEXT, root - 1)).log_softmax(-1).numpy()
        for depth, law in enumerate(to_grid(laws)):
            by_rank = sorted(range(VOCAB_SIZE), key=lambda token: (-law[token], token))
            assert np.abs(log_probs[place, depth] - law[by_rank[:WIDTH]]).max() <= LAST_STEP
            assert set(ids[place, depth].tolist()) <= set(by_rank[: WIDTH + 2])
            if root + depth + 1 < len(TEXT):
                assert bool(found.valid[place, depth])
                true = int(TEXT[root + depth + 1])
                assert found.true_log_prob[place, depth] == pytest.approx(law[true], abs=LAST_STEP)


def test_a_row_has_not_seen_its_root_nor_what_follows() -> None:
    target, adapter = made()
    before = rows_of(target, adapter)
    changed = TEXT.clone()
    changed[12:] = (changed[12:] + 1) % VOCAB_SIZE
    after = rows_of(target, adapter, changed)
    width = NUM_MASKS * WIDTH
    first = (12 - PROMPT_LENGTH + 1) * width
    assert before.ids[:first].tolist() == after.ids[:first].tolist()
    assert before.ids[first : first + width].tolist() != after.ids[first : first + width].tolist()


def test_a_live_draft_is_what_was_handed_over() -> None:
    target, adapter = made()
    live = LiveMasks(OwnDrafter(adapter, target), CandidatesRead(WIDTH))
    assert live.marginals() is None
    live.take(OwnDrafter(adapter, target).states(TEXT[None], torch.tensor([[10]])))
    first = live.marginals()
    assert first is not None
    columns, place = rows_of(target, adapter), 10 - PROMPT_LENGTH
    assert first.ids.tolist() == columns.ids.reshape(-1, NUM_MASKS * WIDTH)[place].tolist()
    live.take(None)
    assert live.marginals() is None
    live.rewind()
    again = live.marginals()
    assert again is not None
    assert again.ids.tolist() == first.ids.tolist()


def test_a_text_of_one_token_has_no_rows() -> None:
    target, adapter = made()
    assert len(rows_of(target, adapter, TEXT[: PROMPT_LENGTH + 1]).context_length) == 0
