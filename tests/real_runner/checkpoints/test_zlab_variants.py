"""Variants of DFlash in z-lab's layout: the authors' class gives the same logits from the same files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from released_dflash import assert_close, check_growing_cache, drawn, model, random_drafter, their_block, theirs
from tiny_models import VOCAB_SIZE, drafter_config, make_target
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.networks.drafter import load_drafter, save_drafter
from simlab.real_runner.record.texts import forward_text
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target

TOKENS = torch.arange(5, 75) % VOCAB_SIZE
ROOTS = [1, 2, 6, 13, 40, 66]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(str(make_target(tmp_path_factory.mktemp("target"), "qwen3")), torch.float32)


def written(folder: Path, taps: tuple[int, ...] = (0, 1, 2), num_layers: int = 2, **fields: object) -> Path:
    """A random checkpoint whose ``config.json`` says something more."""
    nested = fields.pop("dflash_config", {})
    assert isinstance(nested, dict)
    config = replace(drafter_config(4, num_layers), target_layer_ids=taps)
    save_drafter(random_drafter(config, seed=len(str(fields))), folder, torch.float32)
    said: Any = config_to_json(config) | fields
    said["dflash_config"] |= nested
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def their_logits(folder: Path, target: Target, roots: list[int]) -> Tensor:
    """``[R, D, V]`` of the authors' class, block after block, from the hidden states that transformers gives."""
    released: Any = theirs(folder)
    with torch.inference_mode():
        hidden = target.model(TOKENS[None], output_hidden_states=True).hidden_states
        features = model.extract_context_feature(hidden, released.target_layer_ids)
        found = []
        for root in roots:
            block = torch.tensor([[int(TOKENS[root]), *[released.mask_token_id] * (released.block_size - 1)]])
            scale = float(model._draft_value(released.config, "input_embedding_scale", 1.0))
            embedded = model._raw_input_embeddings(target.model, block, scale)
            states = their_block(released, features[:, :root], embedded, root)
            found.append(released.compute_logits(states[:, 1:], target.head)[0])
        return torch.stack(found)


def our_logits(folder: Path, target: Target, roots: list[int]) -> Tensor:
    drafter = load_drafter(folder, torch.float32)
    features, _ = forward_text(target, TOKENS, drafter.config.target_layer_ids)
    passes = draft_logits(drafter, target, features, TOKENS, torch.tensor(roots), blocks_per_pass=4)
    return torch.cat([logits for _, logits in passes])


SLIDING: dict[str, object] = {"layer_types": ["sliding_attention", "full_attention"]}
VARIANTS: dict[str, dict[str, Any]] = {
    "soft cap": {"final_logit_softcapping": 3.0},
    "soft cap inside": {"dflash_config": {"final_logit_softcapping": 3.0}},
    "no soft cap": {"final_logit_softcapping": 0},
    "multiplied": {"output_multiplier": 0.25, "dflash_config": {"final_logit_softcapping": 2.0}},
    "scaled embedding": {"dflash_config": {"input_embedding_scale": 5.5}},
    "causal": {"is_causal": True},
    "window": SLIDING | {"use_sliding_window": True, "sliding_window": 6},
    "window of two": SLIDING | {"use_sliding_window": True, "sliding_window": 2},
    "window both ways": SLIDING | {"use_sliding_window": True, "sliding_window": 2, "is_causal": False},
    "window, all causal": SLIDING | {"use_sliding_window": True, "sliding_window": 9, "is_causal": True},
    "sliding without a window": SLIDING | {"use_sliding_window": False, "sliding_window": 6},
    "window by depth": {
        "layer_types": None,
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
    },
    "window not in use": {"use_sliding_window": True, "sliding_window": 5},
    "Qwen3.5": {
        "num_layers": 6,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "use_sliding_window": True,
        "sliding_window": 16,
        "taps": (0, 1, 1, 2, 2, 0, 1, 2),
    },
    "last layer": {"taps": (0, 3)},
    "from the embedding": {"taps": (-1, 1)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_released_class_gives_the_same_logits(tmp_path: Path, target: Target, name: str) -> None:
    folder = written(tmp_path, **dict(VARIANTS[name]))
    ours, released = our_logits(folder, target, ROOTS), their_logits(folder, target, ROOTS)
    assert_close(ours, released)
    if name not in ("no soft cap", "window not in use"):
        num_layers = VARIANTS[name].get("num_layers", 2)
        taps = tuple(min(max(tap, 0), 2) for tap in VARIANTS[name].get("taps", (0, 1, 2)))
        plain = written(tmp_path / "plain", taps=taps, num_layers=num_layers)
        assert (ours - our_logits(plain, target, ROOTS)).abs().max() > 1e-2


def test_a_growing_cache_with_windows_is_the_released_protocol(tmp_path: Path) -> None:
    """Their cache drops what has left the window, ours hides it."""
    check_growing_cache(written(tmp_path, **VARIANTS["window"]), (1, 4, 3, 1, 4, 2))


def test_an_embedding_and_a_head_of_its_own_are_used(tmp_path: Path, target: Target) -> None:
    from safetensors.torch import load_file, save_file

    folder = written(tmp_path)
    before = our_logits(folder, target, ROOTS)
    tensors = load_file(folder / "model.safetensors")
    own = {"embed_tokens.weight": drawn(VOCAB_SIZE, 32, seed=1), "lm_head.weight": drawn(VOCAB_SIZE, 32, seed=2)}
    save_file(tensors | own, folder / "model.safetensors")
    drafter = load_drafter(folder, torch.float32)
    features, _ = forward_text(target, TOKENS, (0, 1, 2))
    blocks = torch.tensor([[[int(TOKENS[13]), 4, 4, 4]]])
    hidden = drafter(own["embed_tokens.weight"][blocks], torch.tensor([[13]]), drafter.context(features[None]))
    expected = hidden[0, :, 1:] @ own["lm_head.weight"].T
    found = our_logits(folder, target, [13])
    assert_close(found, expected)
    assert (found - before[ROOTS.index(13)]).abs().max() > 1e-2
    save_file(tensors | {"lm_head.weight": torch.zeros(7, 32)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"lm_head.weight in .* is \[7, 32\]"):
        load_drafter(folder, torch.float32)


def test_a_single_file_and_parts_of_one_are_the_folder(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = written(tmp_path / "whole")
    whole = load_drafter(folder, torch.float32).state_dict()
    alone = load_drafter(folder / "model.safetensors", torch.float32).state_dict()
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    (tmp_path / "parts").mkdir()
    for part, some in enumerate((names[:9], names[9:]), 1):
        save_file({name: tensors[name] for name in some}, tmp_path / "parts" / f"model-0000{part}-of-00002.safetensors")
    (tmp_path / "parts" / "config.json").write_text((folder / "config.json").read_text())
    parts = load_drafter(tmp_path / "parts", torch.float32).state_dict()
    for name, tensor in whole.items():
        assert torch.equal(tensor, alone[name])
        assert torch.equal(tensor, parts[name])
