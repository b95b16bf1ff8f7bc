"""The rows of a first-order head: against a plain one in numpy, against the drafter's own, dense and one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_heads import PROMPT_LENGTH, TEXT, VOCAB_SIZE, base_at, drafted, random_head
from random_trees import random_models
from torch import nn
from treeflash_oracle import Row, corrected, rms, row_of

from simlab.channels import Transitions
from simlab.draft import Marginals
from simlab.grid import STEPS_PER_NAT
from simlab.real_runner.drafters.dense import BlockStates, block_states, draft_logits, logits_of
from simlab.real_runner.drafters.ranked import first_candidates
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.models import Models
from simlab.real_runner.networks.candidates import base_of, first_of, first_on_host
from simlab.real_runner.networks.first_order import candidates_by_numpy, candidates_on_device
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, TreeFlashProducer
from simlab.real_runner.record.texts import forward_text
from simlab.traces.channels.columns import TransitionColumns


def models_of(family: str = "qwen3", dtype: torch.dtype = torch.float64) -> Models:
    return random_models(family, 1, VOCAB_SIZE, dtype)


def rows_of(models: Models, head: TreeFlashHead, reach: HeadReach) -> TransitionColumns:
    states, marginals, roots = drafted(models)
    producer = TreeFlashProducer(models.block_drafter, models.target, reach, head)
    return producer.rows(states, roots, base_at(marginals, reach.width))


def by_hand(models: Models, head: TreeFlashHead, reach: HeadReach) -> list[list[Row]]:
    """The same, row after row in numpy."""
    states, marginals, roots = drafted(models)
    weights = {name: tensor.double().numpy() for name, tensor in head.state_dict().items()}
    norm, output = models.block_drafter.norm, models.target.head.weight
    assert isinstance(output, torch.Tensor)
    embedding, matrix = models.target.embedding.weight.double().numpy(), output.double().numpy()
    found = []
    for t, base in enumerate(marginals):
        of_root = []
        for d in range(base.depth):
            ids, log_probs = base.at(d + 1)
            above = [int(roots[t])] if d == 0 else base.at(d)[0][: reach.previous].tolist()
            for token in above:
                before, after = (one[t, d].double().numpy() for one in (states.before, states.after))
                state = rms(corrected(weights, before, after, embedding[token]), norm.weight.double().numpy(), norm.eps)
                scored = list(range(VOCAB_SIZE)) if reach.candidates is None else ids[: reach.candidates].tolist()
                mass = np.exp(log_probs[: reach.candidates].astype(np.float64)).sum() if reach.candidates else 1.0
                of_root.append(row_of(matrix[scored] @ state, scored, min(0.0, float(np.log(mass))), reach.top_k))
        found.append(of_root)
    return found


REACHES = (HeadReach(3, 5), HeadReach(1, 1), HeadReach(6, 7, candidates=9), HeadReach(4, 8, candidates=8))


def assert_said(found: TransitionColumns, expected: list[list[Row]]) -> None:
    """The same tokens, or such as lie a grid step from each other; log-probabilities to a grid step."""
    flat = [row for of_root in expected for row in of_root]
    transitions = found.rows
    assert len(flat) == len(transitions.ids)
    for (ids, log_probs, outside), row, said, mass in zip(
        flat, transitions.ids, transitions.log_probs, found.outside_log_mass, strict=True
    ):
        assert np.abs(said - log_probs).max() <= 2 / STEPS_PER_NAT
        moved = [i for i, (one, other) in enumerate(zip(row.tolist(), ids, strict=True)) if one != other]
        assert all(said[i] - said[i + 1] <= 2 / STEPS_PER_NAT for i in moved[:-1])
        assert abs(np.exp(np.float64(mass)) - np.exp(outside)) < 1e-4


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_rows_are_those_of_the_plain_one(family: str, reach: HeadReach) -> None:
    models = models_of(family)
    head = random_head(models)
    assert_said(rows_of(models, head, reach), by_hand(models, head, reach))


def test_a_head_at_its_start_says_what_the_marginals_say() -> None:
    models, reach = models_of(), HeadReach(previous=4, top_k=9)
    head = TreeFlashHead(models.block_drafter.config.hidden_size, 7).double().eval()
    _, marginals, roots = drafted(models)
    found = rows_of(models, head, reach).rows
    for base, row in zip(marginals, found.rows(), strict=True):
        assert row.num_rows.tolist() == [1, 4, 4, 4]
        above = np.concatenate([base.at(d)[0][:4] for d in (1, 2, 3)])
        assert row.previous.tolist() == above.tolist()
        for number, depth in enumerate(np.repeat([1, 2, 3, 4], row.num_rows)):
            ids, log_probs = base.at(int(depth))
            assert row.ids[number].tolist() == ids[:9].tolist()
            assert row.log_probs[number].tolist() == log_probs[:9].tolist()
    assert len(found) == len(roots)


@settings(max_examples=examples(20, quick=6))
@given(previous=st.integers(1, 8), top_k=st.integers(1, 9), candidates=st.sampled_from([None, 9, 12]))
def test_fewer_tokens_are_the_first_of_more(previous: int, top_k: int, candidates: int | None) -> None:
    models = models_of()
    head = random_head(models)
    whole = rows_of(models, head, HeadReach(8, 9, candidates)).rows
    some = rows_of(models, head, HeadReach(previous, top_k, candidates)).rows
    for row, other in zip(some.rows(), whole.rows(), strict=True):
        assert_same(row, other.first(previous, top_k))


def assert_same(transitions: Transitions, other: Transitions) -> None:
    for name in ("num_rows", "previous", "ids", "log_probs"):
        assert getattr(transitions, name).tolist() == getattr(other, name).tolist(), name


@torch.inference_mode()
@pytest.mark.parametrize("reach", REACHES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dense_rows_are_those_of_one_root(reach: HeadReach, dtype: torch.dtype) -> None:
    models = models_of(dtype=dtype)
    head = random_head(models)
    dense = list(rows_of(models, head, reach).rows.rows())
    _, marginals, roots = drafted(models)
    features, _ = forward_text(models.target, TEXT, models.block_drafter.config.target_layer_ids)
    for t, (base, root) in enumerate(zip(marginals, roots, strict=True)):
        position = torch.tensor([PROMPT_LENGTH + t])
        context = models.block_drafter.context(features[None, : PROMPT_LENGTH + t])
        states = block_states(models.block_drafter, models.target, TEXT[position], position, context)
        first = base_of(base, reach.width)
        live = TreeFlashProducer(models.block_drafter, models.target, reach, head).rows(states, np.array([root]), first)
        one = live.rows.row(0, 0)
        assert one.previous.tolist() == dense[t].previous.tolist()
        assert np.abs(one.log_probs - dense[t].log_probs).max() < 1e-4
        moved = one.ids != dense[t].ids
        closest = np.abs(np.diff(dense[t].log_probs, append=-300.0)).min(initial=300.0)
        assert not moved.any() or closest < 1e-4


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12))
def test_tokens_are_ranked_alike_on_any_device(seed: int, width: int, top_k: int) -> None:
    """Of the whole vocabulary and of some candidates; logits of few values, so that there are ties."""
    chance = np.random.default_rng(seed)
    values = np.array([0.0, 2.0**-17, 1.0, -3.0, -400.0, -np.inf], np.float32)
    logits = values[chance.integers(0, len(values), (2, 5, width))]
    logits[..., 0], kept = 0.0, min(top_k, width)
    log_probs = torch.from_numpy(logits).flatten(0, 1).log_softmax(-1)
    ids, said = first_on_host(first_of(log_probs, kept))
    expected, _ = first_candidates(log_probs, kept)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(said, np.take_along_axis(log_probs.numpy(), expected.astype(np.int64), -1))
    slots = np.array([0, 1, 1, 1, 1])
    theirs = np.sort(-chance.exponential(3.0, (2, 2, width)).astype(np.float32) - np.float32(np.log(width)))
    candidates = chance.permuted(np.tile(np.arange(50, dtype=np.int32), (2, 2, 1)), axis=-1)[..., :width][:, slots]
    scored = torch.from_numpy(logits).double()
    below, shared, depths = map(torch.from_numpy, (candidates.astype(np.int64), theirs, slots))
    ids, said = first_on_host(candidates_on_device(scored, below, shared, depths, kept))
    expected, wanted = candidates_by_numpy(scored, candidates, theirs, slots, kept)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(said, wanted, atol=1e-12)


def test_a_bias_and_a_finish_of_the_output_head_count() -> None:
    models = models_of()
    drafter = models.block_drafter
    config = replace(drafter.config, output_multiplier=0.7, final_logit_softcapping=3.0)
    head, bias = random_head(models), torch.linspace(-1, 1, VOCAB_SIZE).double()
    output = nn.Linear(drafter.config.hidden_size, VOCAB_SIZE)
    assert isinstance(models.target.head.weight, torch.Tensor)
    output.weight = nn.Parameter(models.target.head.weight, requires_grad=False)
    output.bias = nn.Parameter(bias)
    output = output.double().requires_grad_(False)
    try:
        drafter.config, drafter.lm_head = config, output
        whole = rows_of(models, head, HeadReach(4, VOCAB_SIZE)).rows
        some = rows_of(models, head, HeadReach(4, 9, candidates=9)).rows
    finally:
        drafter.config, drafter.lm_head = replace(config, output_multiplier=1.0, final_logit_softcapping=None), None
    # What the two give to a token differs within a row by the same number for all tokens.
    for number in range(len(some.ids)):
        there = dict(zip(whole.ids[number].tolist(), whole.log_probs[number].tolist(), strict=True))
        said = zip(some.ids[number].tolist(), some.log_probs[number].tolist(), strict=True)
        apart = [there[token] - log_prob for token, log_prob in said]
        assert max(apart) - min(apart) <= 3 / STEPS_PER_NAT


def test_a_drafter_with_tokens_of_its_own_is_read_in_the_targets() -> None:
    models = models_of()
    drafter, ids = models.block_drafter, np.arange(1, VOCAB_SIZE, 2, dtype=np.int32)
    assert isinstance(models.target.head.weight, torch.Tensor)
    output = nn.Linear(drafter.config.hidden_size, len(ids), bias=False).double().requires_grad_(False)
    output.weight = nn.Parameter(models.target.head.weight[torch.from_numpy(ids.astype(np.int64))])
    head, config = random_head(models), drafter.config
    plain = by_hand(models, head, HeadReach(3, VOCAB_SIZE))
    states, marginals, roots = drafted(models)
    odd = np.isin(marginals[0].ids, ids)
    assert odd.sum() == 4 * len(ids)
    try:
        drafter.config = replace(config, draft_vocab_size=len(ids))
        drafter.lm_head, drafter.vocabulary = output, DraftVocabulary(ids, VOCAB_SIZE)
        own = Marginals(marginals[0].ids[odd], marginals[0].log_probs[odd], np.arange(5, dtype=np.int32) * len(ids))
        one = BlockStates(states.before[:1], states.after[:1])
        for reach in (HeadReach(3, 5), HeadReach(3, 5, candidates=7)):
            producer = TreeFlashProducer(drafter, models.target, reach, head)
            found = producer.rows(one, roots[:1], base_of(own, reach.width))
            assert np.isin(found.rows.ids, ids).all()
            assert np.isin(found.rows.previous, ids).all()
        first = [(token, said) for token, said in zip(*plain[0][0][:2], strict=True) if token in ids]
        full = TreeFlashProducer(drafter, models.target, HeadReach(3, 5), head).rows(one, roots[:1], base_of(own, 3))
        assert full.rows.ids[0].tolist() == [token for token, _ in first][:5]
    finally:
        drafter.config, drafter.lm_head, drafter.vocabulary = config, None, None


def test_no_logits_of_the_base_change() -> None:
    """The pass that a head re-uses gives the logits that it gave without a head, bit for bit."""
    models = models_of(dtype=torch.float32)
    features, _ = forward_text(models.target, TEXT, models.block_drafter.config.target_layer_ids)
    roots = torch.arange(PROMPT_LENGTH, len(TEXT) - 1)
    ((_, logits),) = draft_logits(models.block_drafter, models.target, features, TEXT, roots, 99)
    states, _, _ = drafted(models)
    assert torch.equal(logits_of(models.block_drafter, models.target, states.after), logits)
    assert torch.equal(models.block_drafter.norm(states.before), states.after)


@pytest.mark.parametrize(
    ("settings_", "said"),
    [((0, 4, None), "previous of a head"), ((1, 0, None), "top_k of a head"), ((1, 5, 4), "at most its 4 candidates")],
)
def test_a_reach_that_cannot_be_is_refused(settings_: tuple[int, int, int | None], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HeadReach(*settings_)
