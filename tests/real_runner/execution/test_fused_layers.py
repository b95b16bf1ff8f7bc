"""Fused layers and their attention: the sizes of real models, made up, against the models' own modules."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pytest
import random_trees
import tiny_models
import torch
from captured_rehearsals import captured
from systems import GREEDY, endless, prompts_for, random_models, redraft_models, self_models
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.self_speculation import SelfSpeculation
from simlab.policy import AnyPolicy
from simlab.real_runner.attention import grouped, tree_attention
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.execution.fused_layers import PackedTarget, Regions, as_it_is, can_fuse_target
from simlab.real_runner.execution.kv_buffers import FixedRows
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target

# The attention.


Drawn: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int, float]


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Drawn:
    num_rows, heads, groups, size, room, root = shape
    random = torch.Generator().manual_seed(num_rows + room)
    query = torch.randn(num_rows, heads, size, generator=random).to(dtype)
    # Behind the tree lie numbers of earlier rounds, which nobody may see.
    keys, values = (torch.randn(2, groups, room, size, generator=random) * 3).to(dtype)
    ancestors = (torch.rand(num_rows, num_rows, generator=random) < 0.3) | torch.eye(num_rows, dtype=torch.bool)
    seen = min(-(-(root + num_rows) // 256) * 256, room)
    return query, keys, values, torch.tensor([root]), ancestors, seen, size**-0.5


SHAPES: list[tuple[int, ...]] = [
    (1, 9, 3, 64, 512, 200),
    (8, 4, 2, 8, 256, 100),
    (72, 9, 3, 64, 512, 190),
    (24, 8, 8, 128, 1024, 700),
]


def by_hand(query: Tensor, keys: Tensor, values: Tensor, root: Tensor, ancestors: Tensor, scaling: float) -> Tensor:
    """In float64, node by node."""
    mixed, start = torch.empty(query.shape, dtype=torch.float64), int(root)
    for node in range(len(query)):
        slots = [*range(start), *(start + other for other in range(len(query)) if ancestors[node, other])]
        for head in range(query.shape[1]):
            group = head // (query.shape[1] // len(keys))
            scores = keys[group, slots].double() @ query[node, head].double() * scaling
            mixed[node, head] = scores.softmax(0) @ values[group, slots].double()
    return mixed.flatten(1)


@pytest.mark.parametrize("shape", [SHAPES[1], (3, 2, 1, 4, 16, 0), (5, 4, 2, 8, 40, 30)])
def test_plain_attention_is_each_nodes_own_sum(shape: tuple[int, ...]) -> None:
    args = drawn(shape, torch.float32)
    found = tree_attention.plain_tree_attention(*args)
    query, keys, values, root, ancestors, _, scaling = args
    wanted = by_hand(query, keys, values, root, ancestors, scaling)
    torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=1e-5)


def check_kernels() -> None:
    """The kernels as Triton runs them without a GPU, against all keys at once."""
    for shape in [*SHAPES, (16, 4, 1, 32, 256, 0), (1, 8, 1, 16, 4096, 4000)]:
        for dtype, most in ((torch.float32, 3e-5), (torch.float16, 1e-2)):
            args = drawn(shape, dtype)
            found = tree_attention.split_tree_attention(*args).float()
            difference = (found - tree_attention.plain_tree_attention(*args).float()).abs().max()
            assert difference < most, (shape, dtype, difference)


@pytest.mark.thorough
def test_keys_in_parts_give_what_all_at_once_give() -> None:
    pytest.importorskip("triton", reason="Triton is not installed, so its kernels are tested on a GPU only")
    ran = subprocess.run(
        [sys.executable, __file__],
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


# The layers.


@pytest.mark.parametrize("kind", [LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config])
@torch.inference_mode()
def test_fused_layers_are_the_modules_of_each_family(kind: type[LlamaConfig]) -> None:
    """A tree below a text, in float32: states and every tap. Biases are drawn too, where a family has them."""
    torch.manual_seed(0)
    config = kind(**{**tiny_models.TARGET_SIZES, "sliding_window": None})
    config._attn_implementation = grouped.NAME
    model: Any = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.normal_(1.0, 0.3)
    target = Target("made up", "", "", model, tiny_models.tiny_tokenizer(), ())
    ids = torch.randint(5, 90, (1, 20))
    ancestors = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    positions = torch.tensor([16, 17, 17, 18])
    visible = torch.cat([torch.ones(4, 16, dtype=torch.bool), ancestors], dim=1)
    whole = torch.cat([torch.ones(16, 20, dtype=torch.bool).tril(), visible])[None, None]
    at = torch.cat([torch.arange(16), positions])[None]
    wanted = model.model(
        ids, attention_mask=grouped.additive_mask(whole, target.heads_per_group, torch.float32), position_ids=at,
        output_hidden_states=True, use_cache=False,
    )  # fmt: skip

    fused = PackedTarget(target, Regions(as_it_is))
    rows = FixedRows(torch.empty(2 * len(target.layers), 1, tiny_models.TARGET_SIZES["num_key_value_heads"], 0, 8), 32)
    rotations, weight = fused.rotations(32), target.embedding.weight
    taken: dict[int, Tensor] = {}
    text = torch.ones(16, 16, dtype=torch.bool).tril()
    fused.states(ids[0, :16], weight, torch.arange(16), text, rotations, rows, 16)
    before, states = fused.states(ids[0, 16:], weight, positions, ancestors, rotations, rows, 32, taken.__setitem__)
    torch.testing.assert_close(states, wanted.last_hidden_state[0, 16:], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(model.model.norm(before), states, atol=2e-5, rtol=1e-4)
    for number, hidden in enumerate(wanted.hidden_states):
        torch.testing.assert_close(taken[number - 1], hidden[0, 16:], atol=2e-5, rtol=1e-4)
    # The modules' own weights are views of the joined ones: the same values, held once.
    again = model.model(ids, attention_mask=None, use_cache=False).last_hidden_state
    assert again.isfinite().all()
    query = model.model.layers[0].self_attn.q_proj.weight
    assert query.untyped_storage().data_ptr() == fused.each()[0].inputs.untyped_storage().data_ptr()


def test_products_of_another_kind_are_not_joined() -> None:
    """As those of a quantised checkpoint: such a target is captured with its own modules."""

    class Quantised(torch.nn.Linear):
        pass

    model: Any = AutoModelForCausalLM.from_config(LlamaConfig(**tiny_models.TARGET_SIZES))
    target = Target("made up", "", "", model, tiny_models.tiny_tokenizer(), ())
    assert can_fuse_target(target)
    model.model.layers[1].mlp.up_proj = Quantised(32, 48, bias=False)
    assert not can_fuse_target(target)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of torch.compile but the generated code."""
    torch._dynamo.reset()
    monkeypatch.setattr(
        "simlab.real_runner.execution.graph_models.as_it_is",
        lambda region: torch.compile(region, dynamic=True, fullgraph=True, backend="eager"),
    )
    yield
    torch._dynamo.reset()


def num_compiled(models: Models, policies: Sequence[AnyPolicy]) -> list[int]:
    """Regions that were compiled so far, after a text under each policy; the text is that of eager passes."""
    graphed, (prompt,) = captured(endless(models)), prompts_for(5, 1)
    wanted = random_trees.plain_text(graphed.target, prompt, GREEDY, 24)
    counts = []
    for policy in policies:
        assert decode(graphed, policy, prompt, GREEDY, 24).text.tolist() == wanted
        counts.append(int(counters["stats"]["unique_graphs"]))
    return counts


@pytest.mark.usefixtures("traced")
def test_regions_are_compiled_once_for_all_sizes() -> None:
    counts = num_compiled(random_models(3, "qwen3"), [DDTree(budget) for budget in (1, 20, 9, 40, 70, 1)])
    assert counts[-1] == counts[2]


@pytest.mark.usefixtures("traced")
def test_masks_and_second_drafts_are_compiled_once_too() -> None:
    masked = [SelfSpeculation(budget, masks) for budget, masks in ((3, 1), (9, 8), (5, 2), (20, 3))]
    counts = num_compiled(self_models(1), [*masked, *masked])
    assert counts[-1] == counts[3]
    counts = num_compiled(redraft_models(1), [D2SD(40, branches=num) for num in (1, 2, 3, 2)])
    assert counts[-1] == counts[1]


if __name__ == "__main__":
    check_kernels()
