"""PyPI speculators' own classes: small random checkpoints, saved by them, and their logits at some roots.

The package wants others that only its training needs (and a torch built for CUDA), so it is installed without
them; what it imports of them at its beginning stands here as empty modules.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast
from unittest.mock import MagicMock

import torch
from tiny_models import HIDDEN_SIZE, MASK_TOKEN_ID, VOCAB_SIZE
from torch import Tensor, nn

_OF_TRAINING = ("aiohttp", "datasets", "hs_connectors", "loguru", "openai", "pydantic_settings")


class Settings(Protocol):
    """What is read of their configuration."""

    sample_from_anchor: bool


class Drafter(Protocol):
    """What is used of their class, which comes without types."""

    config: Settings
    block_size: int
    hidden_size: int
    use_draft_vocab: bool
    target_layer_ids: list[int]
    embed_tokens: nn.Embedding
    lm_head: nn.Linear

    markov_head: Any

    def load_vocab_mappings(self, t2d: Tensor, d2t: Tensor) -> None: ...

    def save_pretrained(self, folder: Path) -> None: ...

    def _backbone_forward(
        self,
        hidden_states: Tensor,
        input_ids: Tensor,
        loss_mask: Tensor,
        verifier_last_hidden_states: Tensor,
        document_ids: Tensor,
        *,
        max_anchors: int,
    ) -> tuple[Tensor, ...]: ...


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of the packages that are absent, and makes them of nothing."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        wanted = fullname.partition(".")[0] in self.names
        return ModuleSpec(fullname, self, is_package=True) if wanted else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        vars(module)["__getattr__"] = lambda name: MagicMock(name=name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def speculators() -> ModuleType:
    """The package. Raises ModuleNotFoundError where it is not installed."""
    absent = _Absent([name for name in _OF_TRAINING if importlib.util.find_spec(name) is None])
    sys.meta_path.append(absent)
    try:
        return importlib.import_module("speculators")
    finally:
        sys.meta_path.remove(absent)
        for name in [name for name in sys.modules if name.partition(".")[0] in absent.names]:
            del sys.modules[name]


def made(
    seed: int = 0,
    block_size: int = 4,
    draft_vocab_size: int = VOCAB_SIZE,
    layers: Mapping[str, object] | None = None,
    taps: tuple[int, ...] = (1, 2, 3),
    kind: str = "DFlash",
    **settings: int,
) -> Drafter:
    """A random drafter of their class, for the tiny target; ``layers`` go to its transformer configuration."""
    from transformers import Qwen3Config

    speculators()
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 1024,
    }
    inner = Qwen3Config(**{**sizes, **(layers or {})})
    inner._attn_implementation = "eager"
    classes = importlib.import_module(f"speculators.models.{kind.lower()}")
    config = getattr(classes, f"{kind}SpeculatorConfig")(
        transformer_layer_config=inner,
        block_size=block_size,
        draft_vocab_size=draft_vocab_size,
        mask_token_id=MASK_TOKEN_ID,
        aux_hidden_state_layer_ids=list(taps),
        **settings,
    )
    drafter = getattr(classes, f"{kind}DraftModel")(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in drafter.parameters():
        around, spread = (1.0, 0.3) if parameter.dim() == 1 else (0.0, 1.5 * parameter.shape[1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return cast(Drafter, drafter)


def give_vocabulary(drafter: Drafter, kept: Tensor) -> None:
    """Let the drafter propose the tokens where ``kept``, bool ``[V]``, is true."""
    ids = kept.nonzero()[:, 0]
    drafter.load_vocab_mappings(kept, ids - torch.arange(len(ids)))


def lend(drafter: Drafter, embedding: Tensor, head: Tensor | None) -> None:
    """The target's embedding, and its head where the drafter has none of its own, as their loader does."""
    drafter.embed_tokens.weight.copy_(embedding)
    if head is not None:
        drafter.lm_head.weight.copy_(head)


@torch.inference_mode()
def logits_at(drafter: Drafter, features: Tensor, tokens: Tensor, roots: list[int]) -> Tensor:
    """``[R, B, V]``, every slot's logits at some roots of a text, each with at least a block behind it.

    Their training pass draws its anchors at random among the positions of a mask; as many as there are positions,
    it takes them all, in order.

    features: ``[C, taps x H]``; tokens: ``[C]``.
    """
    length = len(tokens)
    mask = torch.zeros(1, length)
    mask[0, roots] = 1
    _, logits, _, _, _ = drafter._backbone_forward(
        features[None],
        tokens[None],
        mask,
        torch.zeros(1, length, drafter.hidden_size),
        torch.zeros(1, length, dtype=torch.int64),
        max_anchors=len(roots),
    )
    found: Tensor = logits[0].view(len(roots), drafter.block_size, -1)
    return found


@torch.inference_mode()
def chain_at(drafter: Drafter, features: Tensor, tokens: Tensor, roots: list[int]) -> Tensor:
    """``[R, D, V]`` of a drafter of DSpark: each slot's logits behind the most probable tokens of those before it."""
    mask = torch.zeros(1, len(tokens))
    mask[0, roots] = 1
    states = torch.zeros(1, len(tokens), drafter.hidden_size)
    texts = torch.zeros(1, len(tokens), dtype=torch.int64)
    hidden, base, *_ = drafter._backbone_forward(
        features[None], tokens[None], mask, states, texts, max_anchors=len(roots)
    )
    slots = slice(0 if drafter.config.sample_from_anchor else 1, None)
    hidden = hidden.view(len(roots), drafter.block_size, -1)[:, slots]
    base = base.view(len(roots), drafter.block_size, -1)[:, slots]
    above, laws = tokens[roots], list[Tensor]()
    for slot in range(base.shape[1]):
        made = drafter.markov_head.block_bias(prev_token_ids=above[:, None], hidden_states=hidden[:, slot : slot + 1])
        laws.append(base[:, slot] + made[:, 0])
        above = laws[-1].argmax(-1)
    return torch.stack(laws, dim=1)


def save(drafter: Drafter, folder: Path) -> Path:
    """With their own function."""
    drafter.save_pretrained(folder)
    return folder
