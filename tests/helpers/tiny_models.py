"""Tiny random-weight models on disk: a target of two families, and DFlash drafters that fit it.

The same arguments make the same bytes. Weights are large, so that greedy text varies and ends
now and then with a stop token.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from simlab.cli.main import main
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import save_drafter

# Matrices this small gain nothing from threads, and lose much where cores are busy. The last bits of
# a product depend on the number of threads, so it is the same in every process of a test.
torch.set_num_threads(1)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "<|mask|>")
CHARACTERS = ("\n", *map(chr, range(32, 127)))
VOCAB_SIZE = len(SPECIAL) + len(CHARACTERS)
STOP_TOKEN_IDS = (0, 2)
MASK_TOKEN_ID = 4
NUM_LAYERS = 4
HIDDEN_SIZE = 32

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "no-think\n{% endif %}{% endif %}"
)

TARGET_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 48,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": None,
}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and a chat template that knows ``enable_thinking``."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    plain.decoder = decoders.Fuse()
    plain.add_special_tokens(list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", unk_token="<unk>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_target(folder: Path, family: str = "llama", seed: int = 0, max_positions: int = 1024) -> Path:
    """A target of the ``llama`` or the ``qwen3`` family (the latter with tied embeddings)."""
    torch.manual_seed(seed)
    if family == "llama":
        made: LlamaForCausalLM | Qwen3ForCausalLM = LlamaForCausalLM(
            LlamaConfig(**TARGET_SIZES, max_position_embeddings=max_positions, tie_word_embeddings=False)
        )
    else:
        made = Qwen3ForCausalLM(
            Qwen3Config(**TARGET_SIZES, max_position_embeddings=max_positions, tie_word_embeddings=True)
        )
    _sharpen(made, seed)
    made.generation_config = GenerationConfig(eos_token_id=list(STOP_TOKEN_IDS))
    made.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def make_sharded(target: Path, folder: Path) -> Path:
    """The same target in several files and an index."""
    AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).save_pretrained(folder, max_shard_size="20KB")
    tiny_tokenizer().save_pretrained(folder)
    return folder


def _sharpen(model: torch.nn.Module, seed: int) -> None:
    """Draw every matrix anew, large enough that layers matter and the law has peaks."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                scale = 0.7 if parameter.shape[0] == VOCAB_SIZE else 1.7 / parameter.shape[1] ** 0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def drafter_config(block_size: int = 4, num_layers: int = 2) -> DFlashConfig:
    """The sizes of a drafter for `make_target`."""
    return DFlashConfig(
        block_size=block_size,
        mask_token_id=MASK_TOKEN_ID,
        target_layer_ids=(0, 1, 2),
        num_target_layers=NUM_LAYERS,
        num_hidden_layers=num_layers,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=40,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=1024,
    )


def make_drafter(folder: Path, block_size: int = 4, num_layers: int = 2, seed: int = 0) -> Path:
    """A random drafter for `make_target`, float32."""
    drafter = DFlashDrafter(drafter_config(block_size, num_layers))
    _sharpen(drafter, seed + 1000)
    save_drafter(drafter, folder, torch.float32)
    return folder


def make_pair(folder: Path, family: str = "llama", seed: int = 1, block_size: int = 4) -> tuple[Path, Path]:
    """A target and a drafter that fits it, in ``target/`` and ``drafter/``."""
    return make_target(folder / "target", family, seed), make_drafter(folder / "drafter", block_size, seed=seed)


def write_prompts(path: Path, num_prompts: int, num_turns: int = 1) -> Path:
    """A prompt file; prompts differ, also in length, and every other one is of another data set."""
    words = ("tree", "draft", "a root", "token", "why?", "count to ten", "x = 3")
    rows = [
        {
            "id": f"p{i}",
            "dataset": "even" if i % 2 == 0 else "odd",
            "turns": [
                f"{i}. " + " ".join(words[(i * (turn + 2) + k) % 7] for k in range(1 + i % 5))
                for turn in range(num_turns)
            ],
        }
        for i in range(num_prompts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run_simlab(arguments: Sequence[str]) -> None:
    """Run the command line; in a process of its own this also brings the settings of this module."""
    sys.exit(main(arguments))
