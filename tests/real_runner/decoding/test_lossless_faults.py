"""Faults planted in the runner: each must be caught by the checks that the runner passes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from depth import examples
from lossless_checks import Case, check_case, fixed_cases
from torch import Tensor

from simlab.errors import SimlabError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy
from simlab.real_runner.attention.grouped import additive_mask
from simlab.real_runner.confirm.record_comparison import compare_rows
from simlab.real_runner.decoding import decoded, eager_passes, tree_pass
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import Choose, RunningText
from simlab.real_runner.decoding.eager_passes import EagerPasses
from simlab.real_runner.decoding.tree_pass import TreeMask, Walked, follow, pass_of
from simlab.real_runner.drafters.dense import BlockStates, draft_logits, states_of_blocks
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.model import Target, features_of
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

Plant = Callable[[pytest.MonkeyPatch], None]
Pass = tuple[Tensor, Tensor, Tensor]

CASES = list(fixed_cases(examples(150, quick=60), seed=1))


def in_the_pass(change: Callable[[DraftTree, int, Tensor, Tensor, Tensor], None]) -> Plant:
    """Change, in place, what the target reads (token ids), sees and where."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        def faulty(tree: DraftTree, position: int, mask: TreeMask) -> Pass:
            ids, added, positions = pass_of(tree, position, mask)
            visible = added[:, :, : tree.num_nodes] == 0
            change(tree, position, ids, visible, positions)
            return ids, additive_mask(visible, added.shape[2] // tree.num_nodes, added.dtype), positions

        monkeypatch.setattr(eager_passes, "pass_of", faulty)

    return plant


def one_deeper(tree: DraftTree, position: int, ids: Tensor, visible: Tensor, positions: Tensor) -> None:
    positions[0, 1:] += 1


def one_sibling(tree: DraftTree, position: int, ids: Tensor, visible: Tensor, positions: Tensor) -> None:
    """Of a pair of siblings the second sees the first, and nothing else is wrong."""
    parents = tree.parents.tolist()
    for node in range(1, tree.num_nodes):
        if parents[node] in parents[1:node]:
            visible[0, 0, node, position + parents.index(parents[node])] = True
            return


def last_of_the_context_hidden(tree: DraftTree, position: int, ids: Tensor, visible: Tensor, positions: Tensor) -> None:
    visible[0, 0, 1:, position - 1] = False


def in_compaction(compact: Callable[[BufferCache, int, Tensor], None]) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(BufferCache, "compact", compact)


COMPACT = BufferCache.compact


def last_row_not_moved(cache: BufferCache, num_before: int, kept: Tensor) -> None:
    wrong = kept.clone()
    wrong[-1] = len(kept) - 1
    COMPACT(cache, num_before, wrong)


def values_not_moved(cache: BufferCache, num_before: int, kept: Tensor) -> None:
    rows = cache.rows.tensor
    assert rows is not None
    before = rows[1::2].clone()
    COMPACT(cache, num_before, kept)
    rows[1::2] = before


Walk = Callable[..., Walked]


def in_the_walk(walk: Walk) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(tree_pass, "follow", walk)


def accepted_not_clipped(
    tree: DraftTree, choose: Choose, position: int, num_left: int, stops: tuple[int, ...]
) -> Walked:
    """The text ends where it must, but the path goes on."""
    path, committed = follow(tree, choose, position, 1 << 20, stops)
    return path, committed[:num_left]


def past_the_stop(tree: DraftTree, choose: Choose, position: int, num_left: int, stops: tuple[int, ...]) -> Walked:
    return follow(tree, choose, position, num_left, ())


def last_accepted_is_the_bonus(
    tree: DraftTree, choose: Choose, position: int, num_left: int, stops: tuple[int, ...]
) -> Walked:
    """The bonus token is dropped and the text is right, one token a round later."""
    path, committed = follow(tree, choose, position, num_left, stops)
    return (path[:-1], committed[:-1]) if path and len(committed) > len(path) else (path, committed)


def noise_of_the_root(tree: DraftTree, choose: Choose, position: int, num_left: int, stops: tuple[int, ...]) -> Walked:
    """Every choice of a round is made with the noise of the first."""
    return follow(tree, lambda row, _: choose(row, position + 1), position, num_left, stops)


def row_of_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice after a node is read off the row before."""
    whole = decoded.chooser

    def shifted(*given: object) -> Choose:
        choose = whole(*given)  # type: ignore[arg-type]
        return lambda row, position: choose(max(row - 1, 0), position)

    monkeypatch.setattr(tree_pass, "chooser", shifted)


PLANTS: dict[str, Plant] = {
    "wrong position: nodes one deeper": in_the_pass(one_deeper),
    "sibling visible: one": in_the_pass(one_sibling),
    "context: its last token hidden": in_the_pass(last_of_the_context_hidden),
    "KV rows: the last one not moved": in_compaction(last_row_not_moved),
    "KV rows: values not moved": in_compaction(values_not_moved),
    "last round's path not clipped": in_the_walk(accepted_not_clipped),
    "runs past the stop token": in_the_walk(past_the_stop),
    "bonus dropped with the last accepted node": in_the_walk(last_accepted_is_the_bonus),
    "row of another node": row_of_another_node,
}


def is_caught(cases: list[Case]) -> bool:
    """Whether any case fails: by the check's own assertion, or because the runner breaks.

    A fault that reads rows nobody wrote may read numbers or not; the runner refuses the latter with a ModelError.
    """
    for case in cases:
        try:
            check_case(case)
        except (AssertionError, RuntimeError, ValueError, IndexError, SimlabError):
            return True
    return False


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, sampled: bool) -> None:
    cases = [case for case in CASES if (case.temperature > 0) == sampled]
    PLANTS[name](monkeypatch)
    assert is_caught(cases)


def test_noise_of_another_position_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    in_the_walk(noise_of_the_root)(monkeypatch)
    assert not is_caught([case for case in CASES if case.temperature == 0])
    assert is_caught([case for case in CASES if case.temperature > 0])


# What the drafter is fed changes no text: rows that were drafted live are held against rows drafted densely.

TOLERANCE = 1e-4


@torch.inference_mode()
def live_rows_are_dense_rows(models: Models, policy: AnyPolicy, sampling: Sampling) -> bool:
    """Whether what a policy saw in a run is what one dense pass over the finished text gives."""
    prompt = random_trees.prompt_of([3, 4, 5, 1], "live")
    decoded = decode(models, policy, prompt, sampling, 30)
    tokens = torch.from_numpy(np.concatenate([prompt.token_ids, decoded.text]).astype(np.int64))
    features, _ = forward_text(models.target, tokens, models.drafter.config.target_layer_ids)
    roots = torch.tensor([len(prompt.token_ids) + ran.round.position for ran in decoded.rounds])
    ((_, logits),) = draft_logits(models.block_drafter, models.target, features, tokens, roots, len(roots))
    same = True
    for ran, row in zip(decoded.rounds, logits, strict=True):
        assert ran.marginals is not None
        dense = first_marginals(row, CandidatesRead(models.target.vocab_size))
        found, size = compare_rows(ran.round.position, ran.marginals, dense)
        same &= size < TOLERANCE and all(difference.gap < TOLERANCE for difference in found)
    return same


def live_models() -> list[Models]:
    """Nothing stops them, so that there are rounds enough."""
    found = [
        random_trees.random_models(family, seed, 12, torch.float32)
        for family in random_trees.FAMILIES
        for seed in (2, 3)
    ]
    return [replace(models, target=replace(models.target, stop_token_ids=())) for models in found]


LIVE_POLICIES: list[AnyPolicy] = [Chain(), DDTree(4), DDTree(16)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_drafted_live_are_rows_drafted_densely(temperature: float) -> None:
    sampling = Sampling(temperature, 0, 1.0, 1)
    for models in live_models():
        for policy in LIVE_POLICIES:
            assert live_rows_are_dense_rows(models, policy, sampling)


def rejected_rows_read(self: EagerPasses, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
    """The drafter reads as many rows as were accepted, but the first ones of the pass."""
    (path, _), features = walks[0], self._features
    assert features is not None
    self._features = features.clone()
    self._features[:, [0, *path]] = features[:, : 1 + len(path)]
    KEEP(self, texts, walks)


KEEP = EagerPasses.keep


def wrong_taps(taken: dict[int, Tensor], layer_ids: tuple[int, ...]) -> Tensor:
    return features_of(taken, layer_ids).roll(1, dims=-2)


def one_further(
    drafter: DFlashDrafter, target: Target, blocks: Tensor, positions: Tensor, context: DrafterContext
) -> BlockStates:
    return states_of_blocks(drafter, target, blocks, positions + 1, context)


@pytest.mark.parametrize(
    ("place", "name", "fault"),
    [
        ("simlab.real_runner.decoding.eager_passes.EagerPasses", "keep", rejected_rows_read),
        ("simlab.real_runner.decoding.eager_passes", "features_of", wrong_taps),
        ("simlab.real_runner.drafters.dense", "states_of_blocks", one_further),
    ],
    ids=["rejected rows read", "states of the token before", "root one further"],
)
def test_a_drafter_that_is_fed_wrongly_is_caught(
    monkeypatch: pytest.MonkeyPatch, place: str, name: str, fault: Callable[..., object]
) -> None:
    monkeypatch.setattr(f"{place}.{name}", fault)
    sampling = Sampling(0.0, 0, 1.0, 1)
    seen = [live_rows_are_dense_rows(models, policy, sampling) for models in live_models() for policy in LIVE_POLICIES]
    assert not all(seen)


def test_plain_decoding_is_held_against_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's own plain decoding is another path than the one that texts are compared with."""

    def plain_texts() -> list[list[int]]:
        return [
            decode(case.models, Autoregressive(), case.prompt, case.sampling, case.max_new_tokens).text.tolist()
            for case in CASES
        ]

    expected = [
        random_trees.plain_text(case.models.target, case.prompt, case.sampling, case.max_new_tokens) for case in CASES
    ]
    assert plain_texts() == expected
    monkeypatch.setattr(decoded, "sequence_key", lambda sampling, prompt: 1)
    assert plain_texts() != expected
