"""A first-order head on a target's own masks: in rounds as in a record, with the token above, the root's too."""

from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import check_rounds, check_text
from random_adapter import random_adapter
from random_heads import FLASH, flash_policy, random_head
from recorded_texts import record_texts
from replay_is_the_runner import engine_unequal, with_true_ranks

from simlab.channels import Transitions
from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.policies.composition import Composition
from simlab.real_runner.adapters.own_drafter import OwnDrafter
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.own_rows import first_unequal, own_sequence
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.models import Models
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling

GREEDY, SAMPLED = Sampling(0.0, 0, 1.0, 0), Sampling(1.0, 0, 1.0, 1)
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
VOCAB_SIZE, MOST, NUM_MASKS = 12, 24, 3
REACH = HeadReach(previous=6, top_k=5)
CLOSE = 1e-3
MODES = (None, -1, 0, 2)


def policy_of(masked: int | None) -> Composition:
    return replace(flash_policy(7), masked=masked)


def models_of(seed: int = 0, family: str = "qwen3", dtype: torch.dtype = torch.float32) -> Models:
    models = random_trees.random_models(family, seed, VOCAB_SIZE, dtype)
    models = replace(models, drafter=random_adapter(models.target, seed, NUM_MASKS))
    made = TreeFlashProducer(random_head(models, seed), models.first_stage, models.target, REACH)
    return replace(models, channels={FLASH: made})


def producer_of(models: Models) -> TreeFlashProducer:
    made = models.channels[FLASH]
    assert isinstance(made, TreeFlashProducer)
    return made


def prompt_for(seed: int) -> Prompt:
    return random_trees.random_prompt(np.random.default_rng(seed), VOCAB_SIZE)


@SAMPLINGS
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_the_text_is_that_of_plain_decoding_and_own_rows_replay(family: str, sampling: Sampling) -> None:
    accepted = 0
    for seed in range(3):
        models, prompt = models_of(seed, family), prompt_for(seed)
        plain = random_trees.plain_text(models.target, prompt, sampling, MOST)
        for policy in map(policy_of, MODES):
            decoded = decode(models, policy, prompt, sampling, MOST)
            check_text(decoded, plain, models, MOST)
            check_rounds(decoded, policy)
            assert first_unequal(policy, decoded) is None
            if decoded.rounds:
                assert engine_unequal(policy, with_true_ranks(own_sequence(decoded))) == ""
            accepted += decoded.totals.accepted
    assert accepted > 5


@torch.inference_mode()
def with_rows(models: Models, recorded: RecordedSequence) -> RecordedSequence:
    """A record with the head's rows at every root."""
    tokens = torch.from_numpy(np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64))
    assert recorded.rows is not None
    rows = producer_of(models).columns(torch.empty(len(tokens), 0), tokens, recorded.rows).rows
    return replace(recorded, channels={FLASH: rows})


@SAMPLINGS
def test_rows_of_a_round_are_those_of_a_record(sampling: Sampling) -> None:
    for seed in range(3):
        models = models_of(seed)
        models = replace(models, target=replace(models.target, stop_token_ids=()))
        (record,) = record_texts(models, [prompt_for(seed)], sampling, MOST)
        recorded = with_rows(models, record.recorded("self"))
        for policy in map(policy_of, MODES):
            decoded = decode(models, policy, recorded.prompt, sampling, MOST)
            found = compare_with_record(policy, decoded, recorded)
            drafted = [ran for ran in decoded.rounds if ran.channels]
            assert found.num_channel_rows == len(drafted) > 0
            assert found.largest_channel_size <= CLOSE
            assert found.rounds_equal
            undrafted = [ran for ran in decoded.rounds if not ran.channels]
            assert all(ran.round.num_drafted == 0 for ran in undrafted)
            # In between it hangs on the text.
            assert bool(undrafted) == (policy.masked == -1) or policy.masked in (0, 2)


@torch.inference_mode()
def test_a_row_is_the_head_on_a_masks_state_and_the_token_above() -> None:
    """Plainly, at one root: the state of each mask, corrected for the embedding above, behind the target's own norm."""
    models = models_of(1, dtype=torch.float64)
    target, own, head = models.target, models.first_stage, producer_of(models).head
    assert isinstance(own, OwnDrafter)
    (record,) = record_texts(models, [prompt_for(1)], GREEDY, MOST)
    recorded = with_rows(models, record.recorded("self"))
    start, t = len(recorded.prompt.token_ids), 2
    tokens = torch.from_numpy(np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64))
    states = own.states(tokens[None, : start + t], torch.tensor([[start + t]]))
    found = recorded.channels[FLASH].row(t, int(recorded.channels[FLASH].starts()[t]))
    assert isinstance(found, Transitions)
    above = [int(tokens[start + t]), *found.previous.tolist()]
    row = 0
    for depth, num_rows in enumerate([1, *[REACH.previous] * (NUM_MASKS - 1)]):
        for _ in range(num_rows):
            embedded = target.embedding.weight[torch.tensor([[above[row]]])]
            corrected = head(states.before, states.after, embedded, torch.tensor([depth]))
            law = target.logits(own.norm(corrected))[0, 0].log_softmax(-1).numpy()
            kept = to_grid(law)[found.ids[row]]
            assert np.abs(kept - found.log_probs[row]).max() <= CLOSE
            row += 1


def test_states_behind_the_norm_are_the_norm_of_those_before() -> None:
    models = models_of(2)
    own = models.first_stage
    assert isinstance(own, OwnDrafter)
    with torch.no_grad():
        states = own.states(torch.arange(9)[None], torch.tensor([[3, 8]]))
        assert states.before.shape == (2, NUM_MASKS, models.target.embedding.embedding_dim)
        assert torch.allclose(own.norm(states.before), states.after)
