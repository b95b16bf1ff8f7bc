"""Targets that this runner would compute wrongly are refused; windows no shorter than a text are not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from commands import refusal_of
from tiny_models import TARGET_SIZES, make_drafter, make_target, tiny_tokenizer, write_prompts
from transformers import AutoModelForCausalLM

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.targets.dumped_states import load_partial_target
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.placement import check_supported, longest_context, window_of
from simlab.sampling.choice import Sampling

SIZES: dict[str, Any] = {**TARGET_SIZES, "max_position_embeddings": 256}
_COUNTED = [key for key in SIZES if not key.endswith("_token_id")]
EXPERTS: dict[str, object] = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
LINEAR: dict[str, object] = {
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}


def built(name: str, **fields: object) -> transformers.PreTrainedModel:
    config = getattr(transformers, name)(**(SIZES | fields))
    with torch.device("meta"):
        model: transformers.PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


HYBRIDS: dict[str, tuple[str, dict[str, object], str]] = {
    "Qwen3-Next": ("Qwen3NextConfig", EXPERTS | LINEAR, "linear_attention.*--hidden-states DIR"),
    "Gemma 2": ("Gemma2Config", {"final_logit_softcapping": None}, "attn_logit_softcapping.*--hidden-states DIR"),
    "Gemma 2, capped": ("Gemma2Config", {}, "after the head .* choose one of these$"),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 2, "num_experts_per_tok": 1}, "sinks"),
    "Mamba": ("MambaConfig", {"state_size": 4}, "linear_attention"),
    "Falcon H1": ("FalconH1Config", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8}, "layers of hybrid"),
    "Llama 4": ("Llama4TextConfig", {"num_local_experts": 1, "intermediate_size_mlp": 8}, "chunked_attention"),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids_are_refused_in_one_sentence(name: str) -> None:
    kind, fields, said = HYBRIDS[name]
    with pytest.raises(ModelError, match=said) as caught:
        check_supported(name, built(kind, **fields))
    assert "\n" not in str(caught.value)
    assert "Llama and Qwen3 families" in str(caught.value)


ROPES = {f"{kind}_attention": {"rope_theta": 1e4, "rope_type": "default"} for kind in ("full", "sliding")}
LLAMA = SIZES | {"model_type": "llama"}
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    **{f"{key} -4": (LLAMA | {key: -4}, f"holds {key}=-4; expected a whole number from 1") for key in _COUNTED},
    "no layers": (LLAMA | {"num_hidden_layers": 0}, "holds num_hidden_layers=0"),
    "a tower": (LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000; expected .* from 1 to 1,024"),
    "within": ({"model_type": "qwen3_5", "text_config": {"num_hidden_layers": -4}}, "num_hidden_layers=-4"),
    "a text": (LLAMA | {"hidden_size": "32"}, "hidden_size='32'"),
    "uneven heads": (LLAMA | {"num_key_value_heads": 3}, "4 attention heads, which 3 key-value heads cannot share"),
    "no rotation": (LLAMA | {"rope_theta": 0}, "rope_theta=0; expected 1 to 1e30"),
    "no window": (LLAMA | {"model_type": "mistral", "sliding_window": -3}, "sliding_window=-3; expected at least 1"),
    "rotations unread": (LLAMA | {"rope_parameters": ROPES}, "rotary positions by layer type .* does not read"),
    "rotations that fail": (
        LLAMA | {"model_type": "qwen3", "rope_parameters": ROPES},
        "rotary positions by layer type",
    ),
    "gpt-oss": (LLAMA | {"model_type": "gpt_oss", "num_local_experts": 2}, "attention sinks; .* --hidden-states DIR"),
    "no such type": (LLAMA | {"model_type": "nonsense"}, "no causal language model of its model_type"),
    "no activation": (LLAMA | {"hidden_act": "nope"}, "it lacks or misnames nope"),
    "of another kind": (LLAMA | {"rms_norm_eps": "x"}, "'rms_norm_eps' expected float, got str"),
    "a list": ([1], "is no JSON object"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_that_cannot_run_is_refused_before_weights_are_read(tmp_path: Path, name: str) -> None:
    """There are none here: the loader and the dry run say the same, and dumped states where sizes cannot be."""
    fields, said = CONFIGS[name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(ModelError, match=said) as caught:
        load_target(str(tmp_path), torch.float32)
    assert "\n" not in str(caught.value)
    prompts, drafter = write_prompts(tmp_path / "p.jsonl", 1), make_drafter(tmp_path / "drafter")
    typed = ("--target", tmp_path, "--draft", drafter, "--prompts", prompts, "--out", tmp_path / "out")
    assert re.search(said, refusal_of("record", *typed, "--dry-run"))
    if name.endswith(" -4"):
        with pytest.raises(ModelError, match=said):
            load_partial_target(str(tmp_path), torch.float32)


def test_an_adapter_beside_a_target_is_not_left_out(tmp_path: Path) -> None:
    path = make_target(tmp_path / "target")
    (path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="with that adapter it is another model; merge the adapter into its base"):
        load_target(str(path), torch.float32)


@pytest.mark.parametrize(
    ("kind", "fields", "window"),
    [
        ("LlamaConfig", {}, None),
        ("Qwen3Config", {}, None),
        ("Qwen3Config", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}, 64),
        ("Qwen3Config", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 9}, None),
        ("MistralConfig", {"sliding_window": 48}, 48),
        ("Gemma3TextConfig", {"sliding_window": 32}, 32),
    ],
)
def test_windows_bound_the_text(kind: str, fields: dict[str, object], window: int | None) -> None:
    model = built(kind, **fields)
    check_supported(kind, model)
    assert window_of(model.config) == window
    assert longest_context(model.config) == (window or 256)


def saved(folder: Path, kind: str, **fields: object) -> Path:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(getattr(transformers, kind)(**(SIZES | fields)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(torch.randn_like(parameter) * 1.7 / parameter.shape[1] ** 0.5)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "fields"), [("MistralConfig", {"sliding_window": 48}), ("Gemma3TextConfig", {"sliding_window": 48})]
)
@torch.inference_mode()
def test_up_to_its_window_a_target_is_what_transformers_runs(
    tmp_path: Path, kind: str, fields: dict[str, object]
) -> None:
    path = saved(tmp_path, kind, **fields)
    target = load_target(str(path), torch.float32)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(5, 101, (1, 60), generator=torch.Generator().manual_seed(1))
    expected = theirs(ids, use_cache=False).logits
    ours = target.logits(target.states(ids))
    assert (ours[:, :48] - expected[:, :48]).abs().max() < 1e-4
    assert (ours[:, 48:] - expected[:, 48:]).abs().max() > 1e-3
    ((written, _),) = generate(target, [ids[0, :10].tolist()], [0], Sampling(0.0, 0, 1.0, 0), 30)
    again = theirs.generate(ids[:, :10], max_new_tokens=len(written), do_sample=False, eos_token_id=2, pad_token_id=0)
    assert again[0, 10:].tolist() == written


def test_a_text_longer_than_the_window_is_refused_before_the_work(tmp_path: Path) -> None:
    path = saved(tmp_path / "target", "MistralConfig", sliding_window=96)
    prompts, drafter = write_prompts(tmp_path / "p.jsonl", 1), make_drafter(tmp_path / "drafter")
    common = ["record", "--target", str(path), "--draft", str(drafter), "--prompts", str(prompts)]
    small = ["--min-width", "8", "--exact-budget", "16"]
    assert main([*common, *small, "--max-new-tokens", "20", "--out", str(tmp_path / "a")]) == 0
    assert main(["inspect", str(tmp_path / "a")]) == 0
    trace = ["confirm", "--trace", str(tmp_path / "a"), "-p", "ddtree:budget=8", "--out", str(tmp_path / "c")]
    assert main(trace) == 0
    assert "96" in refusal_of(*common, *small, "--max-new-tokens", "90", "--out", tmp_path / "b")
