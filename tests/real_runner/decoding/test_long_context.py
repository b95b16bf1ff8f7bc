"""A context of 8k: no tensor of a pass is quadratic in it, and no mask of a round grows with it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import random_trees
import torch
from lossless_checks import assert_same_rounds
from watched_operations import Watched

from simlab.draft import Prompt
from simlab.policies.named.ddtree import DDTree
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding import eager_passes
from simlab.real_runner.decoding.plain import PlainDecoding
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling

CONTEXT, VOCAB_SIZE, BUDGET = 8192, 12, 48
GREEDY = Sampling(0.0, 0, 1.0, 0)


class Made(Watched):
    """Notes every tensor that an operation makes; views of others are none."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.shapes: list[tuple[tuple[int, ...], torch.dtype]] = []

    def _note(self, _name: str, given: tuple[Any, ...], made: list[torch.Tensor]) -> None:
        stored = {storage_of(one) for one in given if isinstance(one, torch.Tensor)}
        self.shapes += [(tuple(one.shape), one.dtype) for one in made if storage_of(one) not in stored]

    @property
    def largest(self) -> int:
        """Elements of the largest."""
        return max(math.prod(shape) for shape, _ in self.shapes)

    def masks(self) -> list[tuple[int, ...]]:
        """Shapes of what is boolean."""
        return [shape for shape, dtype in self.shapes if dtype == torch.bool]


def storage_of(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def models_of(family: str) -> Models:
    return random_trees.random_models(family, 3, VOCAB_SIZE, torch.float32)


def prompt_of(length: int, name: str = "long") -> Prompt:
    ids = np.random.default_rng(length).integers(VOCAB_SIZE, size=length).tolist()
    return random_trees.prompt_of(ids, name)


def begun(models: Models, policy: AnyPolicy, length: int, most: int) -> Speculation:
    running = Speculation(models, policy, GREEDY, most, lambda: 0.0)
    running.add(prompt_of(length))
    return running


def biggest_state(models: Models) -> int:
    """Elements of the largest state of a token: what a pass needs per token however it attends."""
    config = models.target.config
    num_taps = len(models.drafter.config.target_layer_ids)
    return 2 * max(config.intermediate_size, (1 + num_taps) * config.hidden_size, 64)


def grows_with_context(shapes: Sequence[tuple[int, ...]], nodes: int) -> list[tuple[int, ...]]:
    """Masks with both a dimension of the context and one of some nodes."""
    return [shape for shape in shapes if max(shape, default=0) >= CONTEXT // 2 and math.prod(shape) >= nodes * CONTEXT]


@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_a_long_text_is_read_and_gone_on_with_in_linear_memory(family: str) -> None:
    models = models_of(family)
    with Made() as made:
        running = begun(models, DDTree(BUDGET), CONTEXT, 32)
    assert made.largest <= CONTEXT * biggest_state(models)
    assert not grows_with_context(made.masks(), 2)
    with Made() as made:
        (ran,) = running.round()
    assert ran.round.num_drafted == BUDGET
    assert not grows_with_context(made.masks(), random_trees.BLOCK_SIZE + 1)
    with Made() as made:
        plain = PlainDecoding(models.target, prompt_of(CONTEXT), GREEDY, 4, lambda: 0.0)
        plain.step()
    assert made.largest <= CONTEXT * biggest_state(models)
    assert not grows_with_context(made.masks(), 2)


def test_a_mask_over_the_whole_context_is_seen_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the length from which text and tree are attended to apart: later rounds write into what the first made."""
    monkeypatch.setattr(eager_passes, "LONG_CONTEXT", 1 << 30)
    running = begun(models_of("llama"), DDTree(BUDGET), CONTEXT, 32)
    seen = []
    for _ in range(3):
        with Made() as made:
            running.round()
        seen.append(grows_with_context([shape for shape, _ in made.shapes], BUDGET))
    assert seen[0]
    assert seen[1:] == [[], []]


def test_a_batch_of_long_and_short_texts_makes_masks_of_trees_alone() -> None:
    models = models_of("qwen3")
    running = Speculation(models, DDTree(BUDGET), GREEDY, 32, lambda: 0.0, 3, CONTEXT)
    with Made() as made:
        for number, length in enumerate((CONTEXT, 7, 900)):
            running.add(prompt_of(length, f"p{number}"))
    assert not grows_with_context(made.masks(), 2)
    running.take_ended()
    with Made() as made:
        running.round()
    # The drafter hides the padding of shorter contexts, once for each text and not for each node.
    assert not grows_with_context(made.masks(), 4 * random_trees.BLOCK_SIZE)


@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_text_and_tree_apart_give_the_same_rounds(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds() -> list[Any]:
        running = begun(models_of(family), DDTree(9), 40, 40)
        while not running.running[0].ended:
            running.round()
        return [ran.round for ran in running.running[0].rounds]

    together = rounds()
    monkeypatch.setattr(eager_passes, "LONG_CONTEXT", 0)
    assert_same_rounds(rounds(), together)
