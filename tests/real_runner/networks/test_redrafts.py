"""Redrafts of a second drafter: against one block a beginning, and against the first drafter's own rows."""

import numpy as np
import pytest
import torch
from random_heads import PROMPT_LENGTH, TEXT, VOCAB_SIZE, drafted
from random_redrafts import redraft_producer, second_drafter
from random_trees import random_models

from simlab.channels import BRANCHES
from simlab.errors import MissingChannelError
from simlab.grid import to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import logits_of
from simlab.real_runner.models import Models
from simlab.real_runner.networks.redraft import RedraftProducer, RedraftReach
from simlab.real_runner.record.texts import forward_text
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import BranchColumns

TOP_K = 4


def models_of() -> Models:
    return random_models("qwen3", 1, VOCAB_SIZE, torch.float64)


def rows_of(models: Models) -> DraftRows:
    """What the first drafter says at every root."""
    _, marginals, _ = drafted(models)
    flat = [np.concatenate([getattr(marginal, name) for marginal in marginals]) for name in ("ids", "log_probs")]
    counts = np.stack([np.diff(marginal.offsets) for marginal in marginals]).astype(np.int32)
    return DraftRows(flat[0], flat[1], counts, np.full_like(counts, -1))


def columns_of(models: Models, producer: RedraftProducer) -> BranchColumns:
    features = forward_text(models.target, TEXT, producer.taps)[0]
    return producer.columns(features, TEXT, rows_of(models))


@torch.inference_mode()
def law_of(producer: RedraftProducer, root: int, beginning: list[int]) -> list[list[float]]:
    """What one block says at each depth behind some tokens, alone."""
    drafter, target = producer.drafter, producer.target
    config = drafter.config
    ids = [int(TEXT[root]), *beginning] + [config.mask_token_id] * (config.block_size - 1 - len(beginning))
    embedded = torch.nn.functional.embedding(torch.tensor([[ids]]), target.embedding.weight)
    context = drafter.context(forward_text(target, TEXT, producer.taps)[0][None])
    states = drafter(embedded * config.input_embedding_scale, torch.tensor([[root]]), context)
    behind = states[0, 0, config.first_slot + len(beginning) :]
    return [to_grid(law.double().numpy()).tolist() for law in logits_of(drafter, target, behind).log_softmax(-1)]


@pytest.mark.parametrize("deeper", [-2, 0, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_is_what_one_block_with_its_slots_filled_says(deeper: int, causal: bool) -> None:
    models = models_of()
    second = second_drafter(models.target, 3, models.drafter.config.block_size + deeper)
    if causal:
        second.config = second.config.as_causal_head()
    producer = redraft_producer(models, second, TOP_K)
    columns, chains = columns_of(models, producer), [row.top_tokens(99).tolist() for row in rows_of(models).rows()]
    depth, base_depth = second.config.depth, models.drafter.config.depth
    for t, row in enumerate(columns.rows.rows()):
        assert row.lengths.tolist() == list(range(min(base_depth, depth - 1) + 1))
        index = 0
        for length in row.lengths.tolist():
            laws = law_of(producer, PROMPT_LENGTH + t, chains[t][:length])
            assert len(laws) == depth - length
            for law in laws:
                best = sorted(range(VOCAB_SIZE), key=lambda token: (-law[token], token))[:TOP_K]
                assert row.ids[index].tolist() == best
                assert np.allclose(row.log_probs[index], [law[token] for token in best], atol=2**-15)
                index += 1
    mass = np.exp(columns.rows.log_probs.astype(np.float64)).sum(1) + np.exp(
        columns.outside_log_mass.astype(np.float64)
    )
    assert np.allclose(mass, 1, atol=1e-3)


def test_a_redraft_of_the_whole_block_by_the_first_drafter_is_its_own_row() -> None:
    models = models_of()
    producer = redraft_producer(models, models.block_drafter, VOCAB_SIZE)
    branches, own = list(columns_of(models, producer).rows.rows()), list(rows_of(models).rows())
    for branch, marginals in zip(branches, own, strict=True):
        rows = branch.only([0])
        for depth in range(1, marginals.depth + 1):
            ids, log_probs = marginals.at(depth)
            assert rows.ids[depth - 1, : len(ids)].tolist() == ids.tolist()
            assert np.allclose(rows.log_probs[depth - 1, : len(ids)], log_probs, atol=2**-15)


def test_passes_of_few_roots_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    models = models_of()
    producer = redraft_producer(models, second_drafter(models.target, 3, 6), TOP_K)
    whole = columns_of(models, producer)
    monkeypatch.setattr("simlab.real_runner.networks.redraft.blocks_per_pass", lambda *_: 1)
    one_by_one = columns_of(models, producer)
    assert np.array_equal(whole.rows.ids, one_by_one.rows.ids)
    assert np.allclose(whole.rows.log_probs, one_by_one.rows.log_probs, atol=2**-15)


def test_no_more_is_made_than_a_policy_reads() -> None:
    models = models_of()
    producer = redraft_producer(models, second_drafter(models.target, 3, 6), TOP_K)
    narrow = producer.within(ChannelNeed("d2sd", BRANCHES, least=(("branches", 2), ("top_k", 1))))
    assert narrow.reach.top_k == 1
    for least, words in ((("branches", 99), "branches 99"), (("top_k", TOP_K + 1), "top_k 5")):
        with pytest.raises(MissingChannelError, match=words):
            producer.within(ChannelNeed("d2sd", BRANCHES, least=(least,)))
    with pytest.raises(ValueError, match="at least 1; got 0"):
        RedraftReach(5, 0)
    assert RedraftReach(7).num_scores(7) == (7 + 6 + 5 + 4 + 3 + 2 + 1) * 8
    assert RedraftReach(7).settings(4) == {"depth": 7, "branches": 5, "top_k": 8}
