"""An EAGLE-3 head as a drafter: its chain against the head called token by token, dense rows against a round's."""

import numpy as np
import pytest
import torch
from random_eagle3 import random_eagle3_for
from random_heads import PROMPT_LENGTH, TEXT, VOCAB_SIZE
from random_trees import random_models

from simlab.draft import Marginals
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead
from simlab.real_runner.models import Models
from simlab.real_runner.networks.eagle3 import pool as chain_module
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.head import Eagle3Head
from simlab.real_runner.networks.eagle3.pool import Eagle3Chain, Eagle3Producer
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns

BLOCK, WIDTH = 5, 6
ROOTS = (PROMPT_LENGTH, 17, len(TEXT) - 2)
LAST_STEP = 1 / STEPS_PER_NAT


def made(draft_vocab_size: int | None = None) -> tuple[Eagle3Head, Target]:
    models = random_models("qwen3", 1, VOCAB_SIZE, torch.float64)
    head = random_eagle3_for(models.target, 5, draft_vocab_size)
    head.config = head.config.with_block(BLOCK)
    return head, models.target


def features_of(head: Eagle3Head, target: Target) -> torch.Tensor:
    return forward_text(target, TEXT, head.config.target_layer_ids)[0]


@torch.inference_mode()
def plain_chain(head: Eagle3Head, target: Target, root: int) -> list[dict[int, float]]:
    """The law of each depth by the target's ids, on the grid: the whole text and path read anew for every token."""
    features, path, laws = features_of(head, target), list[int](), list[dict[int, float]]()
    hidden = [head.fused(feature) for feature in features[:root]]
    for index in range(BLOCK - 1):
        upto = root + index
        tokens = [*TEXT[1 : root + 1].tolist(), *path][:upto]
        embedded = target.embedding.weight[tokens]
        output, _ = head(torch.stack(hidden)[None], embedded[None], torch.arange(upto)[None])
        hidden.append(output[0, -1])
        law = to_grid(head.logits(target, hidden[-1]).log_softmax(-1).double().numpy())
        ids = range(len(law)) if head.vocabulary is None else head.vocabulary.target_ids.tolist()
        laws.append(dict(zip(ids, law.tolist(), strict=True)))
        path.append(min(laws[-1], key=lambda token: (-laws[-1][token], token)))
    return laws


def live(head: Eagle3Head, target: Target, root: int) -> Marginals:
    text = Eagle3Chain(head, target).live(CandidatesRead(WIDTH), 0)
    text.read(features_of(head, target)[None, :root])
    return text.draft(TEXT[: root + 1].numpy().astype(np.int32)).marginals


def dense(head: Eagle3Head, target: Target) -> DraftColumns:
    kept = KeptCandidates(min_width=WIDTH, exact_budget=WIDTH)
    return Eagle3Chain(head, target).columns(features_of(head, target), TEXT, PROMPT_LENGTH, kept)


@pytest.mark.parametrize("draft_vocab_size", [None, 9])
def test_a_chain_is_the_head_called_token_by_token(draft_vocab_size: int | None) -> None:
    head, target = made(draft_vocab_size)
    for root in ROOTS:
        found, laws = live(head, target, root), plain_chain(head, target, root)
        for depth, law in enumerate(laws):
            ids = found.ids[found.offsets[depth] : found.offsets[depth + 1]].tolist()
            log_probs = found.log_probs[found.offsets[depth] : found.offsets[depth + 1]]
            assert ids == sorted(law, key=lambda token: (-law[token], token))[:WIDTH]
            assert np.abs(log_probs - np.array([law[one] for one in ids])).max() <= LAST_STEP


@pytest.mark.parametrize("roots_per_pass", [1, 3, 64])
def test_dense_rows_are_those_of_a_round(roots_per_pass: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_module, "_ROOTS_PER_PASS", roots_per_pass)
    head, target = made(9)
    rows = dense(head, target)
    assert rows.context_length.tolist() == list(range(PROMPT_LENGTH, len(TEXT) - 1))
    assert (rows.counts == WIDTH).all()
    ids, log_probs = (array.reshape(len(rows.counts), BLOCK - 1, WIDTH) for array in (rows.ids, rows.log_probs))
    for t, root in enumerate(range(PROMPT_LENGTH, len(TEXT) - 1)):
        found = live(head, target, root)
        assert ids[t].ravel().tolist() == found.ids.tolist()
        assert np.abs(log_probs[t].ravel() - found.log_probs).max() <= LAST_STEP


def test_a_tree_of_one_path_is_the_chain() -> None:
    """The head's pool of a beam of one, with as many children, holds the same rows."""
    head, target = made()
    producer = Eagle3Producer(head, target, Eagle3Reach(1, WIDTH, BLOCK - 2))
    for root in ROOTS:
        text = producer.begin()
        text.read(features_of(head, target)[None, :root])
        pool, found = text.at_root(TEXT[: root + 1].numpy().astype(np.int32)), live(head, target, root)
        assert pool.tokens.tolist() == found.ids.tolist()  # type: ignore[union-attr]


def test_a_text_that_is_read_in_parts_and_gone_back_in_has_the_chains_of_one_read_whole() -> None:
    head, target = made()
    features, tokens = features_of(head, target), TEXT.numpy().astype(np.int32)
    text, read = Eagle3Chain(head, target).live(CandidatesRead(WIDTH), 0), 0
    for root in (PROMPT_LENGTH, PROMPT_LENGTH + 1, 13, 20):
        text.read(features[None, read:root])
        read = root
        assert text.draft(tokens[: root + 1]).marginals.ids.tolist() == live(head, target, root).ids.tolist()
    # The last states that were read are those of positions 17 to 19.
    text.rewind(20)
    assert text.draft(tokens[:21]).marginals.ids.tolist() == live(head, target, 20).ids.tolist()


def test_models_with_a_head_have_no_pass_of_blocks() -> None:
    head, target = made()
    models = Models(target, head, draft_folder=None, draft_revision="")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="an EAGLE-3 head, which drafts token by token"):
        _ = models.block_drafter
