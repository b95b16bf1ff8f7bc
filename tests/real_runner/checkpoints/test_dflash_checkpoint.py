"""Drafter checkpoints on disk: variants and damage are refused in one sentence, and bytes are stable."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from tiny_models import drafter_config
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.checkpoints.zlab import ZLAB, config_from_json, config_to_json
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks import known, parts
from simlab.real_runner.networks.drafter import load_drafter, save_drafter
from simlab.real_runner.networks.known import LAYOUTS, drafter_fields, is_drafter, layout_of


def changed(**fields: object) -> dict[str, object]:
    return config_to_json(drafter_config()) | fields


def inside(**fields: object) -> dict[str, object]:
    written = config_to_json(drafter_config())
    return written | {"dflash_config": cast(dict[str, object], written["dflash_config"]) | fields}


VARIANTS = {
    "candidate selector": (changed(selector_rank=256), "drafter of DFlash 2.*no 'selector_top_k'"),
    "reduced vocabulary": (changed(draft_vocab_size=50), "reduced vocabulary"),
    "shifted labels": (inside(shift_label=True), "shifted labels"),
    "root slot": (changed(sample_from_anchor=True), "root's own slot"),
    "confidence head": (inside(use_confidence_head=True), "confidence head"),
    "Markov head": (changed(markov_rank=256), "drafter of DSpark.*no 'markov_head_type'"),
    "convolutions": (changed(conv_kernel_size=2), "drafter of DFlash 2.*no 'selector_rank'"),
    "linear attention": (changed(layer_types=["linear_attention", "full_attention"]), "linear_attention"),
    "too few layer types": (changed(layer_types=["full_attention"]), "each of 2 layers"),
    "contradiction": (changed(is_causal=True) | inside(causal=False), "both"),
    "part of a head": (changed(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}), "partial_rotary"),
    "no window": (
        changed(layer_types=["sliding_attention", "full_attention"], use_sliding_window=True, sliding_window=0),
        "at least 1",
    ),
    "latent attention": (inside(attention_mode="mla"), "another attention"),
    "activation": (changed(hidden_act="gelu"), "another activation"),
    "yarn": (changed(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "rotary"),
    "linear": (changed(rope_scaling={"type": "linear", "factor": 4.0}), "rotary"),
    "llama3": (changed(rope_parameters={"rope_theta": 1e4, "rope_type": "llama3"}), "rotary"),
    "no taps said": (changed(dflash_config={"mask_token_id": 4}), "no 'target_layer_ids'"),
    "no block": (changed(block_size=None), "no 'block_size'"),
    "no epsilon said": (changed(rms_norm_eps=None), "no 'rms_norm_eps'"),
    "heads of another family": (changed(model_type="llama", head_dim=None), "no 'head_dim'"),
    "other taps under another name": (inside(layer_ids=[1]), "target_layer_ids=.* its publisher must say which"),
    "two blocks": (inside(block_size=8), "block_size=8 and block_size=4"),
    "two bases": (changed(rope_parameters={"rope_theta": 7.0}), "rope_theta=7.0 and rope_theta=10000.0"),
    "unknown at the top": (changed(mixture=2), "config.json holds mixture=2, which simlab does not know"),
    "unknown inside": (inside(gate=False), "dflash_config of .* holds gate=False, which simlab does not know"),
    "no object": (changed(dflash_config=[4]), "where an object belongs"),
    "another class": (changed(architectures=["MyDraftModel"]), "of the class MyDraftModel, which simlab does not know"),
    "quantised": (changed(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"}), "modelopt, NVFP4"),
    "no mask": (changed(dflash_config={}), "mask_token_id"),
    "mask outside": (inside(mask_token_id=5000), "vocabulary"),
    "projector": (inside(projector_type="mean"), "another projector"),
    "tap outside": (inside(target_layer_ids=[0, 4]), "target of 4 layers"),
    "no taps": (inside(target_layer_ids=[]), "at least one layer"),
    "taps no list": (inside(target_layer_ids=3), "list of layer numbers"),
    "text for a number": (changed(hidden_size="32"), "whole number"),
    "uneven heads": (changed(num_key_value_heads=3), "evenly"),
    "no layers": (changed(num_hidden_layers=0), "at least 1"),
    "block of one": (changed(block_size=1), "at least 2"),
    "block without end": (changed(block_size=5000), "at most 1,024"),
    "heads of odd size": (changed(head_dim=7), "must be even"),
    "no epsilon": (changed(rms_norm_eps=0.0), "rms_norm_eps must be from 1e-12 to 1; got 0.0"),
    "epsilon below 0": (changed(rms_norm_eps=-1e-6), "rms_norm_eps must be from"),
    "not a number": (changed(rms_norm_eps=float("nan")), "where a number belongs"),
    "no rotation": (changed(rope_theta=0), "rope_theta must be from"),
    "sharp cap": (changed(final_logit_softcapping=1e-9), "final_logit_softcapping must be from"),
    "large head": (changed(output_multiplier=-1e9), "size of output_multiplier must be from"),
    "large embedding": (changed(input_embedding_scale=1e9), "size of input_embedding_scale must be from"),
    "text for a flag": (changed(attention_bias="false"), "true or false belongs"),
    "number for a flag": (changed(use_sliding_window=1), "true or false belongs"),
    "a list of causes": (changed(is_causal=[True]), "true or false belongs"),
    "a tower": (changed(num_hidden_layers=10**6), "at most 1,024"),
    "more than 32 bits": (changed(num_target_layers=10**400), "where a whole number belongs"),
    "too many tokens": (changed(vocab_size=1 << 25), "at most 16,777,216"),
    "list for an architecture": (
        changed(architectures=[["DFlash2DraftModel"]], markov_rank=[1]),
        "no 'markov_head_type'",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_not_plain_dflash_is_refused_in_one_sentence(name: str) -> None:
    fields, said = VARIANTS[name]
    with pytest.raises(ModelError, match=said) as caught:
        known.read_config(fields)
    assert "\n" not in str(caught.value)


def test_fields_that_ask_for_nothing_are_accepted() -> None:
    neutral = changed(
        final_logit_softcapping=None,
        output_multiplier=1.0,
        input_embedding_scale=1,
        draft_vocab_size=100,
        is_causal=False,
    )
    neutral |= {"vocab_size": 100, "rope_theta": None, "rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}}
    assert config_from_json(neutral).rope_theta == 7.0


def test_taps_may_be_called_layer_ids() -> None:
    assert config_from_json(changed(dflash_config={"mask_token_id": 4, "layer_ids": [1]})).target_layer_ids == (1,)


def test_a_window_without_its_use_is_accepted() -> None:
    config_from_json(changed(sliding_window=64))
    config_from_json(inside(projector_type="linear"))


def lacking(tensors: dict[str, Tensor]) -> None:
    del tensors["fc.weight"]


def fused(tensors: dict[str, Tensor]) -> None:
    tensors["layers.0.self_attn.qkv_proj.weight"] = torch.zeros(2)


def of_another_shape(tensors: dict[str, Tensor]) -> None:
    tensors["fc.weight"] = torch.zeros(3, 3)


@pytest.mark.parametrize(
    ("change", "said"), [(lacking, "lacks fc.weight"), (fused, "qkv_proj"), (of_another_shape, "do not fit")]
)
def test_foreign_weights_are_refused(tmp_path: Path, change: Callable[[dict[str, Tensor]], None], said: str) -> None:
    from safetensors.torch import load_file, save_file

    save_drafter(DFlashDrafter(drafter_config()), tmp_path, torch.float32)
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=said) as caught:
        load_drafter(tmp_path, torch.float32)
    assert "\n" not in str(caught.value)


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    save_drafter(DFlashDrafter(drafter_config()), tmp_path, torch.float32)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelError, match="cannot be read"):
        load_drafter(tmp_path, torch.float32)
    weights.unlink()
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        load_drafter(tmp_path, torch.float32)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ModelError):
        load_drafter(tmp_path, torch.float32)


def test_a_checkpoint_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    drafter = DFlashDrafter(drafter_config())
    for name in "ab":
        save_drafter(drafter, tmp_path / name)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["config.json", "model.safetensors"]


# The table of layouts: what is recognised, by which line, and what people are told of it


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"speculators_model_type": "eagle3", "dflash_config": {}}, "speculators"),
        ({"dflash_config": {}}, "z-lab"),
        ({"dflash_config": {}, "treeflash_config": {}}, "treeflash"),
        ({"block_size": 8, "architectures": ["TreeFlashDraftModel"]}, "treeflash"),
        ({"block_size": 8}, "z-lab"),
        ({"simlab_gated": True, "peft_type": "LORA"}, "peft"),
    ],
)
def test_the_first_layout_that_recognises_a_configuration_has_it(fields: Fields, name: str) -> None:
    assert is_drafter(fields)
    assert layout_of(fields).name == name


def test_every_configuration_has_a_layout_and_other_models_are_no_drafters() -> None:
    assert layout_of({}) is LAYOUTS[-1]
    assert not is_drafter({"model_type": "qwen3"})
    assert drafter_fields() == (
        "dflash_config",
        "draft_vocab_size",
        "router_config",
        "simlab_gated",
        "speculators_model_type",
        "taps_config",
        "treeflash_config",
        "block_size",
    )


def test_a_new_layout_is_a_line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    new = replace(
        ZLAB,
        name="mine",
        field="my_drafter",
        recognises=lambda fields: "my_drafter" in fields,
        named_target=lambda fields: str(fields["my_drafter"]),
        described=lambda fields: "mine, first version",
    )
    monkeypatch.setattr(known, "LAYOUTS", (new, *LAYOUTS))
    fields = config_to_json(drafter_config()) | {"my_drafter": "a target"}
    assert "my_drafter" in known.drafter_fields()
    assert known.layout_of(fields).name == "mine"
    _, _, lines = parts.explain_checkpoint(fields, {}, Path("here"))
    assert dict(lines)["format"] == "mine, first version"
    assert dict(lines)["made for"] == "a target"


def test_the_table_is_read_without_torch() -> None:
    code = "import sys, simlab.real_runner.networks.parts; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
