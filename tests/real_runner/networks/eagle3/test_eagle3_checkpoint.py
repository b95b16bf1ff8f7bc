"""EAGLE-3 heads on disk: what is saved is loaded, released names and fields, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from commands import output_of
from random_eagle3 import eagle3_config, make_eagle3, random_eagle3
from safetensors.torch import load_file, save_file

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.head import load_eagle3, save_eagle3
from simlab.real_runner.networks.eagle3.pool import eagle3_producer
from simlab.real_runner.targets.loading import load_target

HIDDEN, VOCAB, OWN = 32, 40, 12

RELEASED: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "draft_vocab_size": OWN,
    "eos_token_id": 151645,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCAB,
}
"""The fields of a released head for Qwen3-8B, with smaller sizes."""

SHAPES = {
    "fc.weight": (HIDDEN, 3 * HIDDEN),
    "norm.weight": (HIDDEN,),
    "lm_head.weight": (OWN, HIDDEN),
    "midlayer.hidden_norm.weight": (HIDDEN,),
    "midlayer.input_layernorm.weight": (HIDDEN,),
    "midlayer.post_attention_layernorm.weight": (HIDDEN,),
    "midlayer.mlp.gate_proj.weight": (48, HIDDEN),
    "midlayer.mlp.up_proj.weight": (48, HIDDEN),
    "midlayer.mlp.down_proj.weight": (HIDDEN, 48),
    "midlayer.self_attn.q_proj.weight": (32, 2 * HIDDEN),
    "midlayer.self_attn.k_proj.weight": (16, 2 * HIDDEN),
    "midlayer.self_attn.v_proj.weight": (16, 2 * HIDDEN),
    "midlayer.self_attn.o_proj.weight": (HIDDEN, 32),
}


def released(folder: Path, changed: dict[str, Any] | None = None, prefix: str = "midlayer.") -> Path:
    """A head in the released names, shapes and fields."""
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(shape, generator=generator).bfloat16() for name, shape in SHAPES.items()}
    ids = torch.tensor([0, 1, 2, 5, 7, 11, 12, 20, 21, 30, 38, 39])
    mask = torch.zeros(VOCAB, dtype=torch.bool)
    mask[ids] = True
    tensors |= {"d2t": ids - torch.arange(OWN), "t2d": mask}
    renamed = {name.replace("midlayer.", prefix): tensor for name, tensor in tensors.items()}
    return written(folder, renamed, RELEASED | (changed or {}))


def written(folder: Path, tensors: dict[str, torch.Tensor], fields: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


@pytest.mark.parametrize("own", [None, 20])
def test_what_is_saved_is_loaded(tmp_path: Path, own: int | None) -> None:
    config = replace(eagle3_config(HIDDEN, VOCAB, 4, own), fc_norm=True, norm_before_residual=True, attention_bias=True)
    head = random_eagle3(config, seed=2, owns_embedding=own is None)
    save_eagle3(head, tmp_path / "head", torch.float32)
    again = load_eagle3(tmp_path / "head", torch.float32)
    assert again.config == config
    assert set(again.state_dict()) == set(head.state_dict())
    assert all(torch.equal(one, again.state_dict()[name]) for name, one in head.state_dict().items())
    if head.vocabulary is not None:
        assert again.vocabulary is not None
        assert np.array_equal(again.vocabulary.target_ids, head.vocabulary.target_ids)


@pytest.mark.parametrize("prefix", ["midlayer.", "layers.0."])
def test_the_released_layout_loads(tmp_path: Path, prefix: str) -> None:
    head = load_eagle3(released(tmp_path / "head", prefix=prefix), torch.float32)
    stored = load_file(tmp_path / "head" / "model.safetensors")
    assert torch.equal(head.midlayer.self_attn.q_proj.weight, stored[f"{prefix}self_attn.q_proj.weight"].float())
    assert head.vocabulary is not None
    assert head.vocabulary.target_ids.tolist() == [0, 1, 2, 5, 7, 11, 12, 20, 21, 30, 38, 39]
    assert head.config.target_layer_ids == ()
    assert head.config.for_target(36).target_layer_ids == (1, 17, 32)
    assert (head.config.rope_theta, head.config.head_dim) == (1e6, 8)


def test_own_tokens_in_another_order_are_sorted_with_their_rows(tmp_path: Path) -> None:
    stored = load_file(released(tmp_path / "one") / "model.safetensors")
    order = torch.randperm(OWN, generator=torch.Generator().manual_seed(0))
    ids = (stored["d2t"] + torch.arange(OWN))[order]
    shuffled = stored | {"d2t": ids - torch.arange(OWN), "lm_head.weight": stored["lm_head.weight"][order].contiguous()}
    heads = [
        load_eagle3(folder, torch.float32)
        for folder in (tmp_path / "one", written(tmp_path / "other", shuffled, RELEASED))
    ]
    rows = [head.lm_head.weight for head in heads if head.lm_head is not None]
    assert torch.equal(*rows)


def test_inspect_says_what_it_is_and_no_drafter_is_made_of_it(tmp_path: Path) -> None:
    folder = released(tmp_path / "head")
    said = " ".join(output_of("inspect", folder).split())
    assert "EAGLE-3" in said
    assert "layers 1, L/2 - 1 and L - 4 of L, as its release does, counted from 0" in said
    make_eagle3(tmp_path / "typed")
    assert "reads outputs of the target's layers 0, 3, counted from 0" in " ".join(
        output_of("inspect", tmp_path / "typed").split()
    )
    with pytest.raises(ModelError, match="an EAGLE-3 head and no DFlash drafter, which is wanted here"):
        load_drafter(folder, torch.float32)


@pytest.mark.parametrize(
    ("dropped", "added", "said"),
    [
        (("d2t", "t2d"), {}, "no d2t that says which"),
        ((), {"t2d": torch.ones(VOCAB, dtype=torch.bool)}, "t2d"),
        ((), {"d2t": torch.full((OWN,), VOCAB)}, "d2t|vocabulary"),
        (("fc.weight",), {}, "fc.weight"),
        ((), {"fc.weight": torch.zeros(HIDDEN, HIDDEN)}, "fc.weight"),
        ((), {"layers.1.mlp.up_proj.weight": torch.zeros(2, 2)}, "layers.1"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, dropped: tuple[str, ...], added: dict[str, torch.Tensor], said: str
) -> None:
    tensors = load_file(released(tmp_path / "head") / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if name not in dropped} | added
    with pytest.raises(ModelError, match=said) as refused:
        load_eagle3(written(tmp_path / "bad", kept, RELEASED), torch.float32)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_act": "gelu"}, "another activation"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope|rotary"),
        ({"draft_vocab_size": VOCAB + 1}, "not within"),
    ],
)
def test_what_is_not_run_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        load_eagle3(released(tmp_path / "head", changed), torch.float32)


def test_a_head_that_ends_no_text_is_refused(tmp_path: Path) -> None:
    target = load_target(str(tiny_models.make_target(tmp_path / "target")), torch.float32)
    head = load_eagle3(make_eagle3(tmp_path / "head"), torch.float32)
    reach = Eagle3Reach(2, 3, 2)
    eagle3_producer(head, target, reach)
    assert head.vocabulary is not None
    ends = sorted(target.stop_token_ids)
    others = [token for token in range(tiny_models.VOCAB_SIZE) if token not in ends]
    head.vocabulary = own(others[:40])
    with pytest.raises(ModelError, match="none of the 40 tokens of this EAGLE-3 head ends a text"):
        eagle3_producer(head, target, reach)
    head.vocabulary = own([*others[:39], ends[0]])
    eagle3_producer(head, target, reach)


def own(tokens: list[int]) -> DraftVocabulary:
    return DraftVocabulary(read_only(np.array(sorted(tokens), np.int32)), tiny_models.VOCAB_SIZE)
