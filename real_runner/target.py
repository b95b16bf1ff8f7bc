"""The target model: loading, and reading hidden states off its layers."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner import builtin


@dataclass(frozen=True, slots=True)
class Target:
    """A causal language model with its tokenizer, ready to run.

    ``digest`` hashes the weights' files, so that a trace can say whose text it holds.
    """

    name: str
    revision: str
    digest: str
    model: nn.Module
    tokenizer: Any
    stop_token_ids: tuple[int, ...]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the weights run in."""
        return self.embedding.weight.dtype

    @property
    def embedding(self) -> nn.Embedding:
        """The input embedding, which the drafter borrows."""
        found = self.model.get_input_embeddings()  # type: ignore[operator]
        assert isinstance(found, nn.Embedding)
        return found

    @property
    def head(self) -> nn.Module:
        """The output head, which the drafter borrows."""
        found = self.model.get_output_embeddings()  # type: ignore[operator]
        assert isinstance(found, nn.Module)
        return found

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers, in order."""
        found = self.model.get_decoder().layers  # type: ignore[operator]
        assert isinstance(found, nn.ModuleList)
        return found

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return int(self.model.config.vocab_size)  # type: ignore[union-attr,arg-type]


def load_target(name: str, dtype: torch.dtype, device: str = "cpu") -> Target:
    """Load the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = str(builtin.builtin_target_dir()) if name == builtin.NAME else name
    try:
        model = AutoModelForCausalLM.from_pretrained(place, dtype=dtype, attn_implementation="sdpa")
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"the target {name!r} could not be loaded ({reason}); expected {builtin.NAME!r}, a folder "
            "with config.json and safetensors, or a Hugging Face id"
        ) from error
    revision = getattr(model.config, "_commit_hash", None) or ""
    return Target(
        name=name,
        revision=str(revision),
        digest=_weights_digest(Path(place), model),
        model=model.to(device).eval().requires_grad_(False),
        tokenizer=tokenizer,
        stop_token_ids=_stop_token_ids(model, tokenizer),
    )


def _stop_token_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    found = model.generation_config.eos_token_id
    ids = set(found if isinstance(found, list) else [found]) | {tokenizer.eos_token_id}
    return tuple(sorted(token for token in ids if token is not None))


def _weights_digest(folder: Path, model: Any) -> str:
    """A digest of the weights' files, or of a hub model's id and revision."""
    if not folder.is_dir():
        identity = {"config": model.config.to_dict(), "revision": getattr(model.config, "_commit_hash", None)}
        return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
    return files_digest(sorted(folder.glob("*.safetensors")))


def files_digest(paths: Sequence[Path]) -> str:
    """sha256 over the contents of the files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def tapped(target: Target, layer_ids: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect the raw output of some layers during forward passes.

    The yielded dictionary holds, per layer id, ``[S, L, H]`` of the latest pass: before the
    final norm, also for the last layer.
    """
    taken: dict[int, Tensor] = {}

    def hook_for(layer_id: int) -> Any:
        def keep(_module: nn.Module, _inputs: object, output: object) -> None:
            taken[layer_id] = output[0] if isinstance(output, tuple) else output  # type: ignore[assignment]

        return keep

    handles = [target.layers[i].register_forward_hook(hook_for(i)) for i in layer_ids]
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


def features_of(taken: dict[int, Tensor], layer_ids: Sequence[int]) -> Tensor:
    """The tapped states side by side, ``[S, L, taps x H]``, in the order of the ids."""
    return torch.cat([taken[i] for i in layer_ids], dim=-1)
