"""Checkpoints of others: what they say and what they leave out is understood, or refused by name."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from commands import json_of, output_of, ran, refusal_of
from random_adapter import make_adapter
from random_eagle3 import eagle3_config, make_eagle3, random_eagle3
from safetensors.torch import load_file, save_file
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.drafters.dense import check_fit
from simlab.real_runner.drafters.vocabulary import DraftVocabulary, vocabulary_of
from simlab.real_runner.networks.drafter import Asked
from simlab.real_runner.networks.eagle3.head import load_eagle3
from simlab.real_runner.networks.loading import load_drafter
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record
from simlab.real_runner.targets.loading import load_target
from simlab.traces.reader import open_trace

H, V = tiny_models.HIDDEN_SIZE, tiny_models.VOCAB_SIZE
NOTHING: Mapping[str, Any] = {}


def changed(
    folder: Path,
    fields: Mapping[str, Any] = NOTHING,
    inside: Mapping[str, Any] = NOTHING,
    tensors: Mapping[str, Tensor] = NOTHING,
) -> Path:
    """A checkpoint with other fields, at the top and in ``dflash_config``, and more tensors; None takes one away."""
    path = folder / "config.json"
    said = json.loads(path.read_text()) | fields
    if inside:
        said["dflash_config"] |= inside
    path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))
    if tensors:
        save_file(load_file(folder / "model.safetensors") | dict(tensors), folder / "model.safetensors")
    return folder


def problem_of(place: Path) -> str:
    """Why a checkpoint will not run, as inspect says it; the loader says the same, and no line calls it plain."""
    found = json_of("inspect", place, "--json")
    assert found["will_run"] is False
    with pytest.raises(ModelError) as caught:
        load_drafter(Asked(place, torch.float32, "cpu", None, "eager", False, None))
    assert str(caught.value) == found["problem"]
    assert "plain DFlash\n" not in output_of("inspect", place)
    return str(found["problem"])


OF_SELECTOR = {"selector.next.weight": torch.ones(V, 8), "selector.prev.weight": torch.ones(V, 8)}
HEADS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Tensor], str]] = {
    "UBTree": (
        {"architectures": ["Ling3UBTreeModel"]},
        {"candidate_topk": 16},
        OF_SELECTOR,
        "UBTree .*bigram selector; .* marginals alone",
    ),
    "MFD": ({}, {"num_modes": 8}, {"mode_embed": torch.ones(8, H)}, "MFD .*learned modes.* of its own$"),
    "DSpine": (
        {"architectures": ["DSpineDraftModel"], "dspine_config": {"inject": "adjacent"}},
        {},
        {"layers.1.inject.weight": torch.ones(H, H)},
        "DSpine .*injection between layers$",
    ),
    "Domino": (
        {"architectures": ["DominoDraftModel"]},
        {"projector_type": "domino"},
        {},
        "Domino .*recurrent head, by",
    ),
    "Domino by its tensors": (
        {},
        {},
        {"prefix_gru.weight_ih_l0": torch.ones(6, H)},
        "the recurrent head of Domino: pre",
    ),
    "xPress": ({"architectures": ["Qwen3XPressDraftModel"]}, {}, {}, "of xPress .*mix over earlier slots, by"),
    "tensors alone": ({}, {}, OF_SELECTOR, "does not know beside those of DFlash: selector.next.weight, selector.prev"),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_on_dflash_are_refused_by_their_names(tmp_path: Path, name: str) -> None:
    fields, inside, tensors, said = HEADS[name]
    place = changed(tiny_models.make_drafter(tmp_path / "drafter"), fields, inside, tensors)
    assert re.search(said, problem_of(place))


def test_below_a_head_of_its_own_the_marginals_run_as_the_refusal_says(tmp_path: Path) -> None:
    """From a copy without its fields and tensors, with DFlash's class."""
    plain = tiny_models.make_drafter(tmp_path / "plain")
    fields, inside, tensors, _ = HEADS["UBTree"]
    place = changed(tiny_models.make_drafter(tmp_path / "head"), fields, inside, tensors)
    said = json.loads((place / "config.json").read_text()) | {"architectures": ["DFlashDraftModel"]}
    for name in inside:
        del said["dflash_config"][name]
    (place / "config.json").write_text(json.dumps(said))
    kept = {name: one for name, one in load_file(place / "model.safetensors").items() if "selector" not in name}
    save_file(kept, place / "model.safetensors")
    assert json_of("inspect", place, "--json")["config"] == json_of("inspect", plain, "--json")["config"]


QUANTISED: dict[str, tuple[dict[str, Any] | None, dict[str, Tensor], str]] = {
    "INT4": (
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128, "strategy": "group"}}},
        },
        {},
        "quantised (compressed-tensors, pack-quantized, int4 in groups of 128)",
    ),
    "NVFP4": ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, {}, "quantised (modelopt, NVFP4)"),
    "FP8": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, "quantised (fp8, blocks of 128 x 128)"),
    "GPTQ": ({"quant_method": "gptq", "bits": 4}, {}, "quantised (gptq, 4 bits)"),
    "unsaid": ({"group_size": 16}, {}, "quantised (by a method that its config.json does not say)"),
    "by tensors": (None, {"fc.weight_scale": torch.ones(H, 1)}, "(quantised weights: fc.weight_scale)"),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_drafters_are_refused_with_their_method(tmp_path: Path, name: str) -> None:
    method, tensors, said = QUANTISED[name]
    drafter = changed(tiny_models.make_drafter(tmp_path / "d"), {"quantization_config": method}, tensors=tensors)
    assert said in problem_of(drafter)
    if method is not None:
        head = changed(make_eagle3(tmp_path / "h"), {"quantization_config": method})
        assert said in problem_of(head)
        assert "give the release of this drafter that is not quantised" in problem_of(head)


@pytest.mark.parametrize(
    "beside", ["adapter/adapter_config.json", "calibration/scales.json", "more/w.safetensors", "mask_embedding.pt"]
)
def test_what_lies_beside_and_changes_a_drafter_is_refused_by_name(tmp_path: Path, beside: str) -> None:
    drafter = tiny_models.make_drafter(tmp_path / "d")
    for name in ("README.md", "figures/a.png", "checkpoint-5/model.safetensors", "features/features-0.safetensors"):
        (drafter / name).parent.mkdir(exist_ok=True)
        (drafter / name).write_bytes(b"")
    assert json_of("inspect", drafter, "--json")["will_run"] is True
    (drafter / beside).parent.mkdir(exist_ok=True)
    (drafter / beside).write_bytes(b"{}")
    assert f"{beside.partition('/')[0]}" in problem_of(drafter)
    prompts = tiny_models.write_prompts(tmp_path / "p.jsonl", 1)
    target = tiny_models.make_target(tmp_path / "t")
    typed = ("record", "--target", target, "--draft", drafter, "--prompts", prompts, "--out", tmp_path / "o")
    assert "may change what the drafter computes" in refusal_of(*typed, "--dry-run")


def test_an_embedding_of_its_own_with_a_tied_head_is_refused(tmp_path: Path) -> None:
    own = {"embed_tokens.weight": torch.ones(V, H)}
    place = changed(tiny_models.make_drafter(tmp_path / "d"), {"tie_word_embeddings": True}, tensors=own)
    assert "whether its head is this embedding or the target's head is not said" in problem_of(place)
    assert json_of("inspect", changed(place, {"tie_word_embeddings": False}), "--json")["will_run"] is True


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "biases of the perceptron": ({"mlp_bias": True}, "mlp_bias=True"),
    "windows": ({"use_sliding_window": True}, "use_sliding_window=True"),
    "fused states": ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state=False"),
    "other taps": ({"target_layer_ids": [0, 1]}, "target_layer_ids=[0, 1]"),
    "layers": ({"num_hidden_layers": 2}, "has 2 layers"),
    "class": ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "the class Eagle3DeepseekV2ForCausalLM"),
    "sizes of another family": ({"model_type": "qwen3", "head_dim": None}, "where a whole number belongs"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_field_of_an_eagle3_head_is_understood_or_refused(tmp_path: Path, name: str) -> None:
    fields, said = UNKNOWN[name]
    assert said in problem_of(changed(make_eagle3(tmp_path / "h"), fields))


def test_an_eagle3_head_without_a_vocabulary_of_its_own_has_the_targets(tmp_path: Path) -> None:
    with_key, without = (make_eagle3(tmp_path / name, draft_vocab_size=None) for name in ("with", "without"))
    changed(without, {"draft_vocab_size": None})
    assert "draft_vocab_size" not in json.loads((without / "config.json").read_text())
    shown = json_of("inspect", without, "--json")
    assert (shown["will_run"], shown["format"]) == (True, "eagle3")
    assert load_eagle3(without, torch.float32).config == load_eagle3(with_key, torch.float32).config


def test_a_map_of_zeros_is_refused_where_nothing_else_says_which_tokens() -> None:
    zeros, first = np.zeros(3, np.int64), np.array([True, True, True, False])
    with pytest.raises(ModelError, match="d2t is all zeros, as before it is filled in"):
        vocabulary_of(zeros, None, 3, 4)
    assert vocabulary_of(zeros, first, 3, 4)[0].tolist() == [0, 1, 2]
    assert vocabulary_of(zeros, None, 3, 3)[0].tolist() == [0, 1, 2]


def test_an_adapter_of_peft_that_asks_for_more_is_refused(tmp_path: Path) -> None:
    target = tiny_models.make_target(tmp_path / "target")
    own = make_adapter(tmp_path / "own", target)
    fields = json.loads((own / "adapter_config.json").read_text())
    (own / "adapter_config.json").write_text(json.dumps(fields | {"rank_pattern": {"q_proj": 2}}))
    assert "asks for rank_pattern, which simlab does not run" in problem_of(own)


@pytest.mark.parametrize("says", [V + 4, V - 4])
def test_a_padded_vocabulary_plays_no_part_where_the_target_lends_its_own(tmp_path: Path, says: int) -> None:
    tiny_models.make_pair(tmp_path)
    tiny_models.write_prompts(tmp_path / "p.jsonl", 2)
    padded = changed(tiny_models.make_drafter(tmp_path / "padded", seed=1), {"vocab_size": says})
    assert json_of("inspect", padded, "--json")["will_run"] is True
    note = f"says vocab_size {says}, and {tmp_path / 'target'} has {V}; the target's holds"
    typed = ["record", "--target", tmp_path / "target", "--prompts", tmp_path / "p.jsonl", "--max-new-tokens", 12]
    typed += ["--min-width", 8, "--exact-budget", 16]
    assert note in output_of(*typed, "--draft", padded, "--out", tmp_path / "b", "--dry-run")
    _, _, err = ran(*typed, "--draft", padded, "--out", tmp_path / "b")
    assert note in err
    assert ran(*typed, "--draft", tmp_path / "drafter", "--out", tmp_path / "a")[0] == 0
    one, other = open_trace(tmp_path / "a"), open_trace(tmp_path / "b")
    assert other.manifest.draft_sets["dflash"].vocab_size == V
    for mine, theirs in zip(one.records(["dflash"]), other.records(["dflash"]), strict=True):
        assert np.array_equal(mine.drafts["dflash"].ids, theirs.drafts["dflash"].ids)
        assert np.array_equal(mine.drafts["dflash"].log_probs, theirs.drafts["dflash"].log_probs)


def test_a_head_with_tokens_of_its_own_takes_the_targets_embedding_padded_or_not(tmp_path: Path) -> None:
    target = load_target(str(tiny_models.make_target(tmp_path)), torch.float32)
    config = eagle3_config(H, V + 4, tiny_models.NUM_LAYERS, draft_vocab_size=40)
    head = random_eagle3(config)
    head.vocabulary = DraftVocabulary(np.arange(40, dtype=np.int32), V + 4)
    check_fit(target, head)
    assert (head.config.vocab_size, head.vocabulary.target_vocab_size) == (V, V)
    with pytest.raises(ModelError, match=f"made for a target with vocabulary {V + 4}"):
        check_fit(target, random_eagle3(replace(config, draft_vocab_size=None), owns_embedding=True))


@pytest.mark.parametrize(
    ("fields", "inside", "own", "said"),
    [
        ({"vocab_size": V + 4}, {"mask_token_id": V + 1}, {}, f"mask_token_id {V + 1} is not in the target's"),
        ({"vocab_size": V + 4}, {}, {"embed_tokens.weight": torch.ones(V + 4, H)}, f"vocabulary {V + 4}; .* has {V}"),
        ({"vocab_size": V + 4000}, {}, {}, f"vocabulary {V + 4000}; .* has {V}"),
    ],
)
def test_a_vocabulary_that_plays_a_part_is_that_of_the_target(
    tmp_path: Path, fields: dict[str, Any], inside: dict[str, Any], own: dict[str, Tensor], said: str
) -> None:
    tiny_models.make_pair(tmp_path)
    prompts = tiny_models.write_prompts(tmp_path / "p.jsonl", 1)
    place = changed(tmp_path / "drafter", fields | {"tie_word_embeddings": False}, inside, own)
    options = RecordOptions(target=str(tmp_path / "target"), draft=str(place), prompts=prompts, out=tmp_path / "o")
    with pytest.raises(ModelError, match=said):
        record(options)
    typed = ("record", "--target", tmp_path / "target", "--draft", place, "--prompts", prompts, "--out", tmp_path / "o")
    assert str(V) in refusal_of(*typed, "--dry-run")
    assert not (tmp_path / "o").exists()
