"""Random models, random trees, and a policy made of them: what losslessness is tested on.

Models are made in memory, with vocabularies so small that random tokens are often right and texts
often end with a stop token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import tiny_models
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from simlab.arrays import Ints
from simlab.draft import Draft, Prompt
from simlab.policy import Needs
from simlab.real_runner.attention import grouped as attention
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, noise_key
from simlab.tree import DraftTree

HIDDEN_SIZE = 16
MAX_POSITIONS = 96
BLOCK_SIZE = 5
FAMILIES = ("llama", "qwen3")

Model = TypeVar("Model", bound=torch.nn.Module)


@dataclass(frozen=True, slots=True)
class RandomTrees:
    """Random trees of random tokens, with true ones among them.

    A tree grows node by node below a random node, so that a true path has siblings and strangers
    between its nodes and lies anywhere in the order of nodes. The same root gives the same tree.

    Attributes:
        budget: the most drafted tokens; a tree has any number up to it.
        most_deep: no node lies deeper.
        truth: int ``[T']``, what the target says after the prompt, as far as it is given away.
        true_share: the chance that a node below a true one is the true one.
        vocab_size: random tokens are below it.
    """

    seed: int
    budget: int
    most_deep: int
    truth: tuple[int, ...]
    true_share: float
    vocab_size: int
    needs: Needs = field(default=Needs(draft=False))

    def start(self, prompt: Prompt) -> int:
        """Remember where the text begins."""
        return len(prompt.token_ids)

    def select(self, draft: Draft, state: int) -> DraftTree:
        generator = np.random.default_rng([self.seed, draft.context_length])
        follows = self.truth[draft.context_length - state + 1 :]
        return random_tree(
            generator, draft.root_token, self.budget, self.most_deep, follows, self.true_share, self.vocab_size
        )

    def update(self, state: int, outcome: object) -> int:
        return state


def random_tree(
    generator: np.random.Generator,
    root_token: int,
    most_drafted: int,
    most_deep: int,
    follows: tuple[int, ...],
    true_share: float,
    vocab_size: int,
) -> DraftTree:
    """A tree of at most ``most_drafted`` nodes, in the order in which they were drawn."""
    tokens, parents, depths, is_true = [root_token], [-1], [0], [True]
    taken: set[tuple[int, int]] = set()
    for _ in range(int(generator.integers(most_drafted + 1))):
        inner = [node for node, depth in enumerate(depths) if depth < most_deep]
        true_ones = [node for node in inner if is_true[node]]
        parent = int(generator.choice(true_ones if true_ones and generator.random() < true_share else inner))
        depth = depths[parent]
        truth = follows[depth] if is_true[parent] and depth < len(follows) else -1
        token = truth if truth >= 0 and generator.random() < true_share else int(generator.integers(vocab_size))
        if (parent, token) in taken:
            continue
        taken.add((parent, token))
        tokens.append(token)
        parents.append(parent)
        depths.append(depth + 1)
        is_true.append(token == truth)
    return DraftTree(np.array(tokens, np.int32), np.array(parents, np.int32))


def prompt_of(token_ids: Ints | list[int], name: str = "made-up") -> Prompt:
    return Prompt(name, "made-up", 0, 0, np.array(token_ids, np.int32))


def random_prompt(generator: np.random.Generator, vocab_size: int) -> Prompt:
    return prompt_of(generator.integers(vocab_size, size=int(generator.integers(1, 9))).tolist())


def plain_text(target: Target, prompt: Prompt, sampling: Sampling, max_new_tokens: int) -> list[int]:
    """The text of the batched plain decoding that recordings are made with."""
    key = noise_key(sampling.seed, prompt.prompt_id, prompt.turn, prompt.sample)
    ((token_ids, _),) = generate(target, [prompt.token_ids.tolist()], [key], sampling, max_new_tokens)
    return token_ids


def endless_text(target: Target, prompt: Prompt, sampling: Sampling, num_tokens: int) -> tuple[int, ...]:
    """What the target would say if nothing stopped it: trees may hold it beyond the end of the text."""
    return tuple(plain_text(replace(target, stop_token_ids=()), prompt, sampling, num_tokens))


def random_target(
    family: str, seed: int, vocab_size: int, dtype: torch.dtype = torch.float64, num_stops: int = 1
) -> Target:
    """A target of one of the two families; sizes differ from seed to seed."""
    generator = np.random.default_rng(seed)
    kv_heads = int(generator.integers(1, 3))
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": int(generator.choice([12, 24])),
        "num_hidden_layers": int(generator.integers(2, 4)),
        "num_attention_heads": kv_heads * int(generator.integers(1, 3)),
        "num_key_value_heads": kv_heads,
        "head_dim": int(generator.choice([4, 8])),
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": bool(generator.integers(2)),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(generator.choice([100.0, 10000.0]))},
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    with _fixed_chance(seed):
        if family == "llama":
            made: Any = LlamaForCausalLM._from_config(LlamaConfig(**sizes), attn_implementation=attention.NAME)
        else:
            made = Qwen3ForCausalLM._from_config(Qwen3Config(**sizes), attn_implementation=attention.NAME)
        _sharpen(made, vocab_size)
    stops = tuple(sorted(generator.choice(vocab_size, size=num_stops, replace=False).tolist()))
    return Target(f"{family}-{seed}", "", "", made.to(dtype).eval().requires_grad_(False), _tokenizer(), stops)


def random_drafter(target: Target, seed: int, dtype: torch.dtype = torch.float32) -> DFlashDrafter:
    """A drafter of the real class that fits a random target."""
    num_layers = len(target.layers)
    config = DFlashConfig(
        block_size=BLOCK_SIZE,
        mask_token_id=0,
        target_layer_ids=tuple(range(num_layers - 1)),
        num_target_layers=num_layers,
        num_hidden_layers=1 + seed % 2,
        hidden_size=HIDDEN_SIZE,
        intermediate_size=12,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        vocab_size=target.vocab_size,
        max_position_embeddings=MAX_POSITIONS,
    )
    with _fixed_chance(seed):
        drafter = DFlashDrafter(config)
        _sharpen(drafter, target.vocab_size)
    return drafter.to(dtype).eval().requires_grad_(False)


@lru_cache(maxsize=64)
def random_models(family: str, seed: int, vocab_size: int, dtype: torch.dtype = torch.float64) -> Models:
    """Both, as the runner takes them."""
    # They are kept for other tests, which may join their weights; whoever asks first may be in inference mode.
    with torch.inference_mode(mode=False):
        target = random_target(family, seed, vocab_size, dtype, num_stops=1 + seed % 3)
        return Models(target, random_drafter(target, seed, dtype), Path("made-up"), "")


def _sharpen(model: torch.nn.Module, vocab_size: int) -> None:
    """Draw every matrix anew, large enough that layers and positions matter and the law has peaks."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                scale = 0.8 if parameter.shape[0] == vocab_size else 2.0 / parameter.shape[1] ** 0.5
                parameter.copy_(torch.randn(parameter.shape) * scale)


@contextmanager
def _fixed_chance(seed: int) -> Iterator[None]:
    """Torch's chance starts from a seed, and is afterwards as it was before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@lru_cache(maxsize=1)
def _tokenizer() -> Any:  # noqa: ANN401
    """A target has one; decoding does not look at it."""
    return tiny_models.tiny_tokenizer()
