"""Passes of one fixed shape: in every dtype each policy writes plain decoding's text, from the same bits of logits."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_trees
import torch
from commands import refusal_of
from confirm_runs import Made, confirmed
from depth import some
from every_policy import WITH_A_DRAFTER
from made_up_heads import with_producers
from torch import Tensor

from simlab.draft import Prompt
from simlab.errors import ModelError, PolicyError, TraceError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy
from simlab.real_runner.attention.batch_invariant import FixedShape, check_rows, fixed_shape, rows_for
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import check_rows_agree
from simlab.real_runner.decoding import eager_passes, plain, tree_pass
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import Choose, chooser
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree

DTYPES = [torch.bfloat16, torch.float32, torch.float16]
FAMILIES_AND_DTYPES = list(itertools.product(random_trees.FAMILIES, DTYPES))
SAMPLINGS = [Sampling(0.0, 0, 1.0, 0), Sampling(0.9, 0, 1.0, 1), Sampling(1.2, 8, 0.9, 2)]
MOST_BUDGET = 24
MAX_NEW_TOKENS = 24
VOCAB_SIZE = 12


def models_of(family: str, seed: int, dtype: torch.dtype, num_rows: int) -> Models:
    """Nothing stops them, so that there are rounds enough."""
    found = random_trees.random_models(family, seed, VOCAB_SIZE, dtype)
    return replace(found, fixed_rows=num_rows, target=replace(found.target, stop_token_ids=()))


def prompt_of(seed: int) -> Prompt:
    return random_trees.random_prompt(np.random.default_rng(seed), VOCAB_SIZE)


def trees_of(seed: int, truth: tuple[int, ...]) -> list[AnyPolicy]:
    """Trees in which the text's own tokens lie anywhere among strangers."""
    return [
        random_trees.RandomTrees(seed, budget, most_deep, truth, 0.8, VOCAB_SIZE)
        for budget, most_deep in ((1, 1), (7, 3), (MOST_BUDGET, 9))
    ]


@pytest.mark.parametrize(("family", "dtype"), some(FAMILIES_AND_DTYPES))
def test_every_policy_writes_plain_decodings_text(family: str, dtype: torch.dtype) -> None:
    policies = [policy for policy in WITH_A_DRAFTER if policy.budget <= MOST_BUDGET or isinstance(policy, Chain)][::3]
    num_rows = rows_for([*policies, DDTree(MOST_BUDGET)], random_trees.BLOCK_SIZE - 1)
    accepted = 0
    for seed, sampling in enumerate(SAMPLINGS):
        models = with_producers(models_of(family, seed, dtype, num_rows), policies, seed)
        prompt = prompt_of(seed)
        text = decode(models, Autoregressive(), prompt, sampling, MAX_NEW_TOKENS).text.tolist()
        for policy in [*policies, *trees_of(seed, tuple(text))]:
            decoded = decode(models, policy, prompt, sampling, MAX_NEW_TOKENS)
            assert decoded.text.tolist() == text, policy
            accepted += decoded.totals.accepted
    assert accepted > 100


def logits_of(models: Models, policy: AnyPolicy, prompt: Prompt, sampling: Sampling) -> dict[int, Tensor]:
    """The logits that decided each token, by its absolute position."""
    seen: dict[int, Tensor] = {}

    def watched(target: Target, logits: Tensor, sampling: Sampling, key: int) -> Choose:
        choose = chooser(target, logits, sampling, key)

        def noted(row: int, position: int) -> int:
            seen[position] = logits[row].clone()
            return choose(row, position)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for module in (plain, eager_passes, tree_pass):
            patch.setattr(module, "chooser", watched)
        decode(models, policy, prompt, sampling, MAX_NEW_TOKENS)
    return seen


def unequal_logits(family: str, dtype: torch.dtype, plain_rows: int, num_rows: int, device: str = "cpu") -> int:
    """Over some models, prompts and trees: positions up to where texts part at which a bit of the logits differs."""
    num_unequal = 0
    for seed, sampling in enumerate(SAMPLINGS):
        models, prompt = models_of(family, seed, dtype, num_rows), prompt_of(seed)
        models.target.model.to(device)  # type: ignore[arg-type]
        models.block_drafter.to(device)
        truth = decode(models, Autoregressive(), prompt, sampling, MAX_NEW_TOKENS).text.tolist()
        alone = logits_of(replace(models, fixed_rows=plain_rows), Autoregressive(), prompt, sampling)
        policies: list[AnyPolicy] = [Chain(), DDTree(16), *trees_of(seed, tuple(truth))]
        for policy in policies:
            found = logits_of(models, policy, prompt, sampling)
            assert found.keys() == alone.keys()
            num_unequal += sum(not torch.equal(found[index], alone[index]) for index in alone)
    return num_unequal


@pytest.mark.parametrize(("family", "dtype"), some(FAMILIES_AND_DTYPES, quick=3), ids=str)
def test_logits_are_the_same_bits(family: str, dtype: torch.dtype) -> None:
    assert unequal_logits(family, dtype, 32, 32) == 0


@pytest.mark.gpu
@pytest.mark.parametrize(("family", "dtype"), FAMILIES_AND_DTYPES, ids=str)
def test_logits_are_the_same_bits_on_a_gpu(family: str, dtype: torch.dtype) -> None:
    random_trees.random_models.cache_clear()
    assert unequal_logits(family, dtype, 32, 32, "cuda") == 0
    random_trees.random_models.cache_clear()


def random_tree_passes() -> Iterator[tuple[DraftTree, int, FixedShape]]:
    generator = np.random.default_rng(3)
    for _ in range(40):
        tree = random_trees.random_tree(generator, 3, 20, 7, (), 0.5, VOCAB_SIZE)
        yield tree, int(generator.integers(60)), FixedShape(24, 64)


def test_each_row_attends_to_its_own_text_in_order() -> None:
    """By listing: what was written, then the ancestors from the root down, then the row itself."""
    for tree, position, shape in random_tree_passes():
        ids, positions, fixed = shape.tree_pass(tree, position, 3, torch.float32, torch.device("cpu"))
        assert ids.shape == positions.shape == (1, 24)
        assert fixed.slots.shape == (24, 64)
        assert fixed.hidden.shape == (24, 1, 3, 64)
        assert fixed.num_live == tree.num_nodes
        for row in range(24):
            if row < tree.num_nodes:
                path = [row]
                while tree.parents[path[0]] >= 0:
                    path.insert(0, int(tree.parents[path[0]]))
                own = [*range(position), *(position + node for node in path)]
                assert ids[0, row] == tree.tokens[row]
                assert positions[0, row] == len(own) - 1
            else:
                own = [0]
            seen = fixed.hidden[row, 0] == 0
            assert torch.equal(seen, (torch.arange(64) < len(own)).expand(3, -1))
            assert bool(torch.isneginf(fixed.hidden[row, 0][~seen]).all())
            assert fixed.slots[row, seen[0]].tolist() == own[:64]


def test_the_shape_depends_on_budgets_and_lengths_alone() -> None:
    assert rows_for([Autoregressive()], 7) == 8
    assert rows_for([Autoregressive(), Chain()], 7) == 8
    assert rows_for([Chain(), DDTree(8), DDTree(16)], 7) == 24
    assert rows_for([Chain(), DDTree(40_000)], 7) == 40_008
    assert fixed_shape(8, 100, 28) == FixedShape(8, 128)
    assert fixed_shape(8, 100, 29) == FixedShape(8, 192)


def test_what_does_not_fit_is_refused() -> None:
    models = models_of("llama", 2, torch.float32, 8)
    check_rows(DDTree(7), 8, 4)
    check_rows(Chain(), 8, 7)
    with pytest.raises(PolicyError, match="9 rows with the root, and the fixed shape of this run has 8"):
        decode(models, DDTree(8), prompt_of(1), SAMPLINGS[0], 4)
    with pytest.raises(PolicyError, match="does not fit into 8 rows"):
        FixedShape(8, 64).tree_pass(DraftTree.chain(1, range(8)), 3, 1, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_this_machine_computes_all_rows_alike(dtype: torch.dtype) -> None:
    for family in random_trees.FAMILIES:
        check_rows_agree(models_of(family, 2, dtype, 24), prompt_of(3).token_ids, MAX_NEW_TOKENS)


def test_a_machine_that_does_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = Target.logits

    def later_rows_otherwise(target: Target, states: Tensor) -> Tensor:
        found = logits(target, states)
        return found * (1 + torch.arange(len(found))[:, None] * 2**-20)

    monkeypatch.setattr(Target, "logits", later_rows_otherwise)
    with pytest.raises(ModelError, match="depend on the row of a token among 24"):
        check_rows_agree(models_of("llama", 2, torch.float32, 24), prompt_of(3).token_ids, MAX_NEW_TOKENS)


def test_a_confirmation_counts_the_texts(made: Made, tmp_path: Path) -> None:
    done = confirmed(made, ConfirmOptions(tmp_path, dtype="bfloat16", batch_invariant=True))
    value = json.loads((tmp_path / "confirm.json").read_text(encoding="utf-8"))
    assert value["ran"]["fixed_rows"] == 16
    assert value["prices"]["cost_id"] is None
    ran = [row for row in value["rows"] if row["name"] != "hindsight"]
    assert [row["num_same_texts"] for row in ran] == [row["num_texts"] for row in ran] == [6, 6, 6]
    assert not done.has_failed
    text = " ".join(done.text().split())
    assert "batch-invariant passes of 16 rows" in text
    assert "token for token: chain 6 of 6, ddtree:budget=8 6 of 6." in text
    assert "no cost file was measured so: nothing is predicted." in text
    assert "which is not its fastest implementation" in text
    with pytest.raises(TraceError, match="--batch-invariant 16 rows; this run has none"):
        confirmed(made, ConfirmOptions(tmp_path, dtype="bfloat16", resume=True))


def test_what_goes_not_with_it_is_refused(made: Made, tmp_path: Path) -> None:
    command = ["confirm", "--trace", str(made.folder / "trace"), *made.models, "--out", str(tmp_path / "out")]
    for more, said in (
        (("--batch", "2"), "got --batch 2: leave it out"),
        (("--execution", "compiled"), "got --execution compiled: leave it out"),
        (("--batch", "2", "--execution", "compiled"), "got --batch 2 and --execution compiled: leave both out"),
    ):
        assert said in refusal_of(*command, "--batch-invariant", *more)
