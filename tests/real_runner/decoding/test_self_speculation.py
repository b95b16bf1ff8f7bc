"""A target that drafts for itself, in the runner: lossless in every mode, its own rows replay, and a record's hold."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from random_adapter import random_adapter
from random_heads import FLASH, flash_policy
from recorded_texts import record_texts
from systems import (
    CLOSE,
    FLASH_REACH,
    GREEDY,
    LINEAR,
    MODES,
    MOST,
    NUM_MASKS,
    QUADRATIC,
    ROOT_ONLY,
    VOCAB_SIZE,
    endless,
    long_text,
    prompts_for,
    recorded_of,
    self_flash_models,
    self_models,
)

from simlab.channels import Transitions
from simlab.cost.table import rows_of_pass
from simlab.draft import Draft, Prompt
from simlab.errors import MissingChannelError, ModelError
from simlab.grid import to_grid
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.decoding import eager_passes
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText, RunningText
from simlab.real_runner.decoding.eager_passes import EagerPasses
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import LiveMasks, OwnDrafter
from simlab.tree import DraftTree


def has_draft(decoded: DecodedText) -> list[bool]:
    return [ran.marginals is not None for ran in decoded.rounds]


def test_a_root_has_a_draft_where_the_last_node_carried_masks() -> None:
    """Linear takes turns; quadratic has one everywhere, as a policy has that knows no masks; in between it hangs on."""
    seen = set()
    for seed in range(4):
        models = self_models(seed)
        linear = has_draft(long_text(models, SelfSpeculation(QUADRATIC, LINEAR)))
        assert linear == [turn % 2 == 0 for turn in range(len(linear))]
        assert all(has_draft(long_text(models, SelfSpeculation(QUADRATIC, QUADRATIC))))
        for masked in (ROOT_ONLY, 2):
            decoded = long_text(models, SelfSpeculation(QUADRATIC, masked))
            expected = [True]
            for ran in decoded.rounds[:-1]:
                last = ran.round.path[-1] if ran.round.path else 0
                expected.append(not expected[-1] or last <= masked)
            assert has_draft(decoded) == expected
            seen |= set(itertools.pairwise(expected))
    assert seen == {(True, True), (True, False), (False, True)}


class Passes:
    """Rows of each pass of a target."""

    def __init__(self, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        decoder = models.target.model.get_decoder()
        whole = decoder.forward

        def counted(ids: torch.Tensor, *given: object, **named: object) -> object:
            self.rows.append(ids.shape[1])
            return whole(ids, *given, **named)

        monkeypatch.setattr(decoder, "forward", counted)


@pytest.mark.parametrize("masked", MODES)
def test_passes_have_as_many_rows_as_are_priced(masked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    models = self_models(1)
    passes = Passes(models, monkeypatch)
    decoded = long_text(models, SelfSpeculation(QUADRATIC, masked))
    prompt, behind, *of_rounds = passes.rows
    assert (prompt, behind) == (len(decoded.prompt.token_ids), NUM_MASKS)
    drafted = np.array([ran.round.num_drafted for ran in decoded.rounds])
    assert of_rounds == rows_of_pass(drafted, masked, NUM_MASKS).tolist()
    assert drafted.max() == QUADRATIC


def test_nothing_that_drafts_nothing_is_given_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    models = self_models()
    passes = Passes(models, monkeypatch)
    assert has_draft(long_text(models, Autoregressive())) == [False] * (MOST - 1)
    assert set(passes.rows[1:]) == {1}


class Fixed:
    """The same trees whatever the draft, so that passes have the same shapes whatever the adapter."""

    budget = 6
    needs = DDTree(6).needs

    def start(self, prompt: Prompt) -> None: ...

    def update(self, state: None, outcome: object) -> None: ...

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        generator = np.random.default_rng(draft.context_length)
        return random_trees.random_tree(generator, draft.root_token, self.budget, 3, (), 0.5, VOCAB_SIZE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_states_of_nodes_are_bit_for_bit_those_without_a_change(
    family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every round of a text, over keys and values that earlier rounds left: also these are the target's own."""
    whole, found = EagerPasses._read_with_masks, list[list[torch.Tensor]]()

    def kept(self: EagerPasses, tree: DraftTree, text: RunningText) -> tuple[torch.Tensor, torch.Tensor | None]:
        states, features = whole(self, tree, text)
        found[-1].append(states)
        return states, features

    monkeypatch.setattr(EagerPasses, "_read_with_masks", kept)
    for seed in (None, 0, 1):
        models = self_models(3, family, dtype)
        adapter = random_adapter(models.target, seed or 0, NUM_MASKS)
        if seed is None:
            for parameter in adapter.parameters():
                parameter.zero_()
        found.append([])
        long_text(replace(models, drafter=adapter), Fixed())
    plain, *others = found
    assert len(plain) > 5
    for states in others:
        assert all(torch.equal(one, other) for one, other in zip(plain, states, strict=True))


def test_a_draft_of_the_wrong_node_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    models, whole = endless(self_models(2)), LiveMasks.take
    prompt = prompts_for(2)[0]
    (record,) = record_texts(models, [prompt], GREEDY, MOST)
    turned = iter(range(MOST))

    def wrong(self: LiveMasks, states: BlockStates | None) -> None:
        is_kept = states is None or next(turned) == 0
        whole(self, states if is_kept or states is None else BlockStates(states.before, states.after.flip(1)))

    monkeypatch.setattr(LiveMasks, "take", wrong)
    decoded = decode(models, DDTree(6), prompt, GREEDY, MOST)
    monkeypatch.undo()
    assert compare_with_record(DDTree(6), decoded, record.recorded("self")).largest_size > CLOSE


def test_a_long_context_reads_masks_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text and tree are then attended to apart, and masks stand in the tree."""
    models = self_models(1, dtype=torch.float64)
    expected = long_text(models, SelfSpeculation(QUADRATIC, 2))
    monkeypatch.setattr(eager_passes, "LONG_CONTEXT", 0)
    found = long_text(models, SelfSpeculation(QUADRATIC, 2))
    for one, other in zip(found.rounds, expected.rounds, strict=True):
        assert one.round.tree.tokens.tolist() == other.round.tree.tokens.tolist()
        assert one.round.path == other.round.path


def test_a_round_can_be_timed_again() -> None:
    models = endless(self_models())
    running = Speculation(models, SelfSpeculation(4, LINEAR), GREEDY, MOST, lambda: 0.0)
    text = running.add(prompts_for(3)[0])
    root, start = text.root, text.position
    running.round()
    running.round()
    running.rewind(start, root)
    running.round()
    assert text.rounds[-1].round.num_drafted == text.rounds[0].round.num_drafted == 4


def test_what_does_not_fit_is_refused() -> None:
    plain, policy = random_trees.random_models("qwen3", 0, VOCAB_SIZE, torch.float32), SelfSpeculation()
    with pytest.raises(MissingChannelError, match="no adapter of the target; give one, or leave `masked` out"):
        decode(plain, policy, prompts_for(1)[0], GREEDY, MOST)
    with pytest.raises(ModelError, match="leave --batch-invariant out"):
        decode(replace(self_models(), fixed_rows=32), policy, prompts_for(1)[0], GREEDY, MOST)
    with pytest.raises(ModelError, match=r"an adapter, with which the target drafts in its own passes.*leave --batch"):
        _ = self_models().block_drafter


def test_texts_that_masks_would_outrun_are_refused() -> None:
    """Behind the deepest node of a tree stand masks."""
    models, prompt = self_models(), prompts_for(1)[0]
    most = random_trees.MAX_POSITIONS - len(prompt.token_ids) - 2 * NUM_MASKS
    decode(models, SelfSpeculation(), prompt, GREEDY, most)
    with pytest.raises(ModelError, match=f"a draft of {2 * NUM_MASKS} it needs"):
        decode(models, SelfSpeculation(), prompt, GREEDY, most + 1)


def test_fewer_masks_draft_less_deep_and_say_the_same() -> None:
    models = self_models()
    whole = long_text(models, Fixed())
    for num_masks in (1, 2):
        adapter = random_adapter(models.target, 0, NUM_MASKS)
        adapter.config = adapter.config.with_block(num_masks + 1)
        cut = long_text(replace(models, drafter=adapter), Fixed())
        for one, other in zip(cut.rounds, whole.rounds, strict=True):
            assert one.marginals is not None
            assert other.marginals is not None
            assert one.marginals.depth == num_masks
            for depth in range(1, num_masks + 1):
                (ids, log_probs), (others, other_log_probs) = one.marginals.at(depth), other.marginals.at(depth)
                theirs = dict(zip(others.tolist(), other_log_probs.tolist(), strict=True))
                ours = dict(zip(ids.tolist(), log_probs.tolist(), strict=True))
                assert max(abs(theirs[token] - ours[token]) for token in set(ours) & set(theirs)) < CLOSE


@torch.inference_mode()
def test_a_row_of_a_head_is_the_head_on_a_masks_state_and_the_token_above() -> None:
    """Plainly, at one root: the state of each mask, corrected for the embedding above, behind the target's own norm."""
    models = self_flash_models(1, dtype=torch.float64)
    target, own, head = models.target, models.first_stage, models.channels[FLASH].head  # type: ignore[union-attr]
    assert isinstance(own, OwnDrafter)
    recorded = recorded_of(models, long_text(models, flash_policy(7), seed=1))
    start, t = len(recorded.prompt.token_ids), 2
    tokens = torch.from_numpy(np.concatenate([recorded.prompt.token_ids, recorded.text]).astype(np.int64))
    states = own.states(tokens[None, : start + t], torch.tensor([[start + t]]))
    found = recorded.channels[FLASH].row(t, int(recorded.channels[FLASH].starts()[t]))
    assert isinstance(found, Transitions)
    above = [int(tokens[start + t]), *found.previous.tolist()]
    row = 0
    for depth, num_rows in enumerate([1, *[FLASH_REACH.previous] * (NUM_MASKS - 1)]):
        for _ in range(num_rows):
            embedded = target.embedding.weight[torch.tensor([[above[row]]])]
            corrected = head(states.before, states.after, embedded, torch.tensor([depth]))
            law = target.logits(own.norm(corrected))[0, 0].log_softmax(-1).numpy()
            kept = to_grid(law)[found.ids[row]]
            assert np.abs(kept - found.log_probs[row]).max() <= CLOSE
            row += 1


def test_states_behind_the_norm_are_the_norm_of_those_before() -> None:
    models = self_flash_models(2)
    own = models.first_stage
    assert isinstance(own, OwnDrafter)
    with torch.no_grad():
        states = own.states(torch.arange(9)[None], torch.tensor([[3, 8]]))
        assert states.before.shape == (2, NUM_MASKS, models.target.embedding.embedding_dim)
        assert torch.allclose(own.norm(states.before), states.after)
