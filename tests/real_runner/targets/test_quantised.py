"""Quantised targets run dequantised with the very numbers their files stand for, are named, or are refused by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import failure_of, output_of, refusal_of
from safetensors.torch import load_file, save_file
from tiny_models import VOCAB_SIZE, make_pair, make_target, tiny_tokenizer, write_prompts
from torch import Tensor
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

from simlab.errors import ModelError
from simlab.real_runner.targets import quantised
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.quantised import quantisation_of
from simlab.traces.format.manifest import read_manifest

Tensors = dict[str, Tensor]
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [16, 16]}
INT4: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 16, "strategy": "group"},
        }
    },
}


def in_blocks(scales: Tensor, weight: Tensor, size: tuple[int, int]) -> Tensor:
    """Each scale at all weights of its block."""
    rows, columns = weight.shape
    return scales.repeat_interleave(size[0], 0)[:rows].repeat_interleave(size[1], 1)[:, :columns]


def as_fp8(weight: Tensor) -> tuple[Tensors, Tensor]:
    """Blocks of 16 x 16 with a scale each; what is written, and the numbers that it stands for."""
    shape = [-(-size // 16) for size in weight.shape]
    scales = 0.01 * (1 + torch.arange(shape[0] * shape[1], dtype=torch.float32)).reshape(shape)
    stored = (weight / in_blocks(scales, weight, (16, 16))).to(torch.float8_e4m3fn)
    return {"weight": stored, "weight_scale_inv": scales}, stored.float() * in_blocks(scales, weight, (16, 16))


def as_int4(weight: Tensor) -> tuple[Tensors, Tensor]:
    """Groups of 16 in a row with a scale each, eight numbers in an int32, the first in its lowest bits."""
    scales = weight.reshape(weight.shape[0], -1, 16).abs().amax(2) / 7
    spread = in_blocks(scales, weight, (1, 16))
    numbers = (weight / spread).round().clamp(-8, 7)
    shifted = (numbers.long() + 8).reshape(weight.shape[0], -1, 8) << torch.arange(0, 32, 4)
    packed = shifted.sum(2)
    packed = torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)
    return {
        "weight_packed": packed,
        "weight_scale": scales,
        "weight_shape": torch.tensor(weight.shape),
    }, numbers * spread


def write(
    dense: Path, folder: Path, settings: dict[str, Any], stored: Callable[[Tensor], tuple[Tensors, Tensor]]
) -> Tensors:
    """A quantised copy of a target, and the dense tensors that it stands for."""
    shutil.copytree(dense, folder)
    tensors, meant = Tensors(), Tensors()
    for name, weight in load_file(dense / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            made, meant[name] = stored(weight)
            tensors |= {f"{name.removesuffix('weight')}{part}": value for part, value in made.items()}
        else:
            tensors[name] = meant[name] = weight.bfloat16()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    change(folder, quantization_config=settings)
    return meant


def change(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


KINDS: dict[str, tuple[dict[str, Any], Callable[[Tensor], tuple[Tensors, Tensor]], str]] = {
    "fp8": (FP8, as_fp8, "fp8, blocks of 16 x 16, activations too"),
    "int4": (INT4, as_int4, "compressed-tensors, pack-quantized, int4 in groups of 16"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_are_the_numbers_that_the_files_stand_for(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    settings, stored, text = KINDS[kind]
    meant = write(make_target(tmp_path / "dense"), tmp_path / "small", settings, stored)
    target = load_target(str(tmp_path / "small"), dtype)
    assert target.quantised == target.info.quantised == text
    read = dict(target.model.named_parameters())
    assert read.keys() == meant.keys()
    for name, weight in meant.items():
        assert read[name].dtype == dtype
        # What is computed in bfloat16 may round twice: scales first, then products.
        tolerance = 0.0 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(read[name].float(), weight.float(), rtol=tolerance, atol=0)


def bitsandbytes_target(folder: Path, width: int, bits: int) -> tuple[Tensor, Path]:
    """A target whose rows have so many numbers, quantised; a dense matrix of it, and where it lies."""
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install 'simlab[quantised]'")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width, "head_dim": width // 2}
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, **sizes
    )
    dense = LlamaForCausalLM(config)
    dense.save_pretrained(folder / "dense")
    asked = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8, bnb_4bit_quant_type="nf4")
    made = AutoModelForCausalLM.from_pretrained(folder / "dense", quantization_config=asked, dtype=torch.float32)
    made.save_pretrained(folder / "small")
    tiny_tokenizer().save_pretrained(folder / "small")
    return dense.model.layers[1].mlp.up_proj.weight, folder / "small"


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes_weights_run_dense(tmp_path: Path, bits: int) -> None:
    there, folder = bitsandbytes_target(tmp_path, 64, bits)
    target = load_target(str(folder), torch.float32)
    assert target.quantised == {4: "bitsandbytes, nf4", 8: "bitsandbytes, int8, activations too"}[bits]
    assert type(target.model.model.layers[1].mlp.up_proj) is torch.nn.Linear
    here = target.model.model.layers[1].mlp.up_proj.weight
    # Each row of 64 has a scale of its own: its largest number.
    errors = ((here - there).abs() / there.abs().amax(1, keepdim=True)).max()
    # Half the widest step of the sixteen numbers of nf4; half a step of 127, behind a rounding to float16.
    assert 0 < errors <= {4: 0.1525, 8: 0.5 / 127 + 2**-11}[bits]


def test_rows_that_bitsandbytes_reads_wrongly_are_refused(tmp_path: Path) -> None:
    _, folder = bitsandbytes_target(tmp_path, 32, 4)
    with pytest.raises(
        ModelError, match="has rows of 32, and bitsandbytes reads 4 bits rightly in rows of multiples of 64"
    ):
        load_target(str(folder), torch.float32)


def test_a_recording_names_how_its_target_is_stored(tmp_path: Path) -> None:
    dense, drafter = make_pair(tmp_path)
    write(dense, tmp_path / "small", FP8, as_fp8)
    prompts = write_prompts(tmp_path / "prompts.jsonl", 2)
    typed = ("--draft", drafter, "--prompts", prompts, "--max-new-tokens", 4)
    for target, out in ((dense, "a"), (tmp_path / "small", "b")):
        output_of("record", "--target", target, *typed, "--out", tmp_path / out)
    plain, named = (read_manifest(tmp_path / out) for out in "ab")
    assert named.target.quantised == KINDS["fp8"][2]
    assert named.held().text_id != plain.held().text_id
    assert "quantised" not in (tmp_path / "a" / "manifest.json").read_text()
    assert f"small ({KINDS['fp8'][2]}), vocabulary" in output_of("inspect", tmp_path / "b")
    dry = output_of("record", "--target", tmp_path / "small", *typed, "--out", tmp_path / "c", "--dry-run")
    assert f"weights         stored as {KINDS['fp8'][2]}; dequantised to float32 when loaded" in dry


def damage_of(folder: Path, change_tensors: Callable[[Tensors], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change_tensors(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_quantised_weights_that_nothing_explains_are_refused(tmp_path: Path) -> None:
    dense = make_target(tmp_path / "dense")
    write(dense, tmp_path / "no-scale", FP8, as_fp8)
    damage_of(tmp_path / "no-scale", lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight_scale_inv"))
    write(dense, tmp_path / "unsaid", FP8, as_fp8)
    change(tmp_path / "unsaid", quantization_config=None)
    for name, what in (("no-scale", "up_proj.weight'"), ("unsaid", "down_proj.weight_scale_inv'")):
        with pytest.raises(ModelError, match=f"has quantised weights that .* does not explain, such as .*{what}"):
            load_target(str(tmp_path / name), torch.float32)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
        ({"quant_method": "awq", "bits": 4}, "awq, 4 bits"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt, NVFP4"),
        ({"quant_method": "\x1b[2Jx"}, "?"),
    ],
)
def test_other_methods_are_refused_before_anything_runs(tmp_path: Path, settings: dict[str, object], text: str) -> None:
    target, drafter = make_pair(tmp_path)
    change(target, quantization_config=settings)
    prompts = write_prompts(tmp_path / "prompts.jsonl", 1)
    typed = ("record", "--target", target, "--draft", drafter, "--prompts", prompts, "--out", tmp_path / "out")
    for sentence in (refusal_of(*typed, "--dry-run"), failure_of(*typed)):
        assert f"is quantised ({text}), and simlab loads fp8, compressed-tensors and bitsandbytes" in sentence
        assert "--completions and --hidden-states" in sentence
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(make_target(tmp_path / "dense"), tmp_path / "small", INT4, as_int4)
    monkeypatch.setattr(quantised, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match="pip install compressed-tensors"):
        load_target(str(tmp_path / "small"), torch.float32)


def test_what_is_rounded_beside_the_weights_is_said() -> None:
    group = INT4["config_groups"]["group_0"] | {"input_activations": {"num_bits": 8}}
    settings = INT4 | {"config_groups": {"a": group}, "kv_cache_scheme": {"num_bits": 8}}
    said = quantisation_of({"text_config": {"quantization_config": settings}})
    assert said == "compressed-tensors, pack-quantized, int4 in groups of 16, activations too, keys and values too"
    assert quantisation_of({"quantization_config": "x"}) == "by a method that its config.json does not say"
    assert quantisation_of({}) == ""
