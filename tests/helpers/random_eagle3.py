"""EAGLE-3 heads of random weights, in memory and on disk, for the random and the tiny models of the tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import tiny_models
import torch

from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.networks.eagle3.config import Eagle3Config
from simlab.real_runner.networks.eagle3.head import Eagle3Head, save_eagle3
from simlab.real_runner.targets.model import Target

_ENDS = (0, 2, 5, 20)
"""Tokens that end texts of the tests' targets; every head has those that its vocabulary has."""


def eagle3_config(
    target_hidden_size: int, vocab_size: int, num_layers: int, draft_vocab_size: int | None = None
) -> Eagle3Config:
    """A small head, of another width than its target."""
    return Eagle3Config(
        hidden_size=target_hidden_size,
        intermediate_size=24,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        vocab_size=vocab_size,
        target_hidden_size=target_hidden_size,
        target_layer_ids=(0, num_layers - 1),
        num_target_layers=num_layers,
        draft_vocab_size=draft_vocab_size,
    )


def random_eagle3(config: Eagle3Config, seed: int = 0, owns_embedding: bool = False) -> Eagle3Head:
    """Every weight drawn anew, large enough that each of them matters; float32."""
    generator = torch.Generator().manual_seed(seed)
    head = Eagle3Head(config)
    if config.draft_vocab_size is not None:
        ends = [end for end in _ENDS if end < config.vocab_size]
        others = np.setdiff1d(np.arange(config.vocab_size), ends)
        drawn = np.random.default_rng(seed).choice(others, config.draft_vocab_size - len(ends), replace=False)
        drawn = np.concatenate([ends, drawn])
        head.vocabulary = DraftVocabulary(np.sort(drawn).astype(np.int32), config.vocab_size)
        head.lm_head = torch.nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
    if owns_embedding:
        head.embed_tokens = torch.nn.Embedding(config.vocab_size, config.hidden_size)
    for parameter in head.eval().requires_grad_(False).parameters():
        around, spread = (1.0, 0.3) if parameter.dim() == 1 else (0.0, 1.6 * parameter.shape[1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return head


def random_eagle3_for(target: Target, seed: int = 0, draft_vocab_size: int | None = None) -> Eagle3Head:
    """A head for a target in memory, in its dtype."""
    config = eagle3_config(target.embedding.embedding_dim, target.vocab_size, target.num_layers, draft_vocab_size)
    return random_eagle3(config, seed).to(target.dtype)


def make_eagle3(folder: Path, seed: int = 0, draft_vocab_size: int | None = 40, wide: int = 0) -> Path:
    """A head for `tiny_models.make_target`, on disk; ``wide`` makes it one of a wider target."""
    config = eagle3_config(
        tiny_models.HIDDEN_SIZE, tiny_models.VOCAB_SIZE, tiny_models.NUM_LAYERS, draft_vocab_size=draft_vocab_size
    )
    wider = replace(config, target_hidden_size=config.target_hidden_size + wide)
    save_eagle3(random_eagle3(wider, seed), folder, torch.float32)
    return folder
