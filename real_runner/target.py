"""The target model: loading, and reading hidden states off its layers."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from simlab.arrays import Floats
from simlab.errors import ModelError
from simlab.real_runner import attention, builtin
from simlab.real_runner.hub_files import fetch_target, is_hub_id, repository_of, weight_names
from simlab.real_runner.target_support import check_supported, longest_context

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.cache_utils import Cache

    from simlab.real_runner.batch_invariant import FixedPass
    from simlab.real_runner.packed_attention import PackedPass


_EXPECTED = f"{builtin.NAME!r}, a folder with config.json and safetensors, or a Hugging Face id such as ORG/NAME"


class TargetConfig(Protocol):
    """What is read of a target's ``config.json``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    rope_parameters: dict[str, float]
    max_position_embeddings: int
    num_hidden_layers: int


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A causal language model with its tokenizer, ready to run.

    ``digest`` hashes the published weights' files, so that a trace can say whose text it holds.
    """

    name: str
    revision: str
    digest: str
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    stop_token_ids: tuple[int, ...]

    @property
    def end_of_turn_id(self) -> int | None:
        """The tokenizer's own stop token."""
        found = self.tokenizer.eos_token_id
        return found if isinstance(found, int) else None

    @property
    def config(self) -> TargetConfig:
        """The model's sizes."""
        return cast(TargetConfig, self.model.config)

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
        found = self.model.get_input_embeddings()
        assert isinstance(found, nn.Embedding)
        return found

    @property
    def head(self) -> nn.Module:
        """The output head, which the drafter borrows."""
        found = self.model.get_output_embeddings()
        assert isinstance(found, nn.Module)
        return found

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers, in order."""
        found = self.model.get_decoder().layers
        assert isinstance(found, nn.ModuleList)
        return found

    @property
    def num_layers(self) -> int:
        """Decoder layers of the published model, also where they were not loaded."""
        return self.config.num_hidden_layers

    @property
    def longest_context(self) -> int:
        """Tokens that a text may have: its positions, or its sliding window where that is shorter."""
        return longest_context(self.model.config)

    @property
    def reach(self) -> str:
        """What bounds the length of a text, in words that follow "and"."""
        length, positions = self.longest_context, self.config.max_position_embeddings
        if length == positions:
            return f"{self.name} has {positions:,}"
        return f"{self.name} has sliding windows of {length:,} tokens, within which simlab runs it"

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self.config.vocab_size

    @property
    def heads_per_group(self) -> int:
        """Query heads that share a key."""
        return self.config.num_attention_heads // self.config.num_key_value_heads

    def states(
        self,
        ids: Tensor,
        cache: "Cache | None" = None,
        visible: Tensor | None = None,
        positions: Tensor | None = None,
        packed: "PackedPass | None" = None,
        fixed: "FixedPass | None" = None,
    ) -> Tensor:
        """One pass through the decoder.

        Args:
            ids: int64 ``[S, L]``.
            cache: takes part in the pass and receives its keys and values.
            visible: bool ``[S, 1, L, past + L]``; None: everything before each token.
            positions: int64 ``[S, L]``; None: they follow the cache.
            packed: which token belongs to which sequence, in place of ``visible``; positions must be given.
            fixed: likewise, what each row of a pass of fixed shape attends to.

        Returns:
            ``[S, L, H]``, after the final norm.
        """
        decoder = cast(Callable[..., nn.Module], self.model.get_decoder())
        num_before = 0 if cache is None else cache.get_seq_length()
        places = {name: value for name, value in (("packed", packed), ("fixed", fixed)) if value is not None}
        if not places and visible is None and num_before and ids.shape[1] > 1:
            visible = attention.causal_after(num_before, ids.shape[1], self.device)
        added = None if visible is None else attention.additive_mask(visible, self.heads_per_group, self.dtype)
        masks = {"attention_mask": added, "position_ids": positions}
        found = decoder(ids.to(self.device), past_key_values=cache, use_cache=cache is not None, **masks, **places)
        return cast(Tensor, found.last_hidden_state)

    def logits(self, states: Tensor) -> Tensor:
        """float32 logits ``[..., V]`` of final states ``[..., H]``."""
        return cast(Tensor, self.head(states)).float()

    def rows(self, logits: Tensor) -> Floats:
        """Logits ``[R, V]`` as an array, each row seen to be a law.

        Raises:
            ModelError: one holds NaN, +inf, or -inf alone.
        """
        rows: Floats = logits.cpu().numpy()
        if not np.isfinite(rows.max(axis=-1)).all():
            raise self.no_law()
        return rows

    def no_law(self) -> ModelError:
        """What is raised where a row of logits is no law."""
        kind = str(self.dtype).removeprefix("torch.")
        return ModelError(f"the logits of {self.name} are not numbers in {kind}; give another --dtype, such as float32")


def load_target(name: str, dtype: torch.dtype, device: str = "cpu") -> Target:
    """Load the built-in target, a local folder, or a Hugging Face id.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    folder, revision = target_files(name)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention.NAME, use_safetensors=True, trust_remote_code=False
        )
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, and simlab runs no code of a checkpoint"
        remedy = f"expected {_EXPECTED}"
        if name == builtin.NAME:
            remedy = f"delete {folder} and run the command again"
        raise ModelError(f"the target {name!r} could not be loaded ({reason}); {remedy}") from error
    check_supported(name, model)
    return Target(
        name=repository_of(name),
        revision=revision,
        digest=builtin.GGUF_SHA256 if name == builtin.NAME else weights_digest(folder),
        model=cast("nn.Module", model).to(device).eval().requires_grad_(False),  # type: ignore[arg-type]
        tokenizer=tokenizer,
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


def stop_token_ids(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
    """The tokens that end a text: those of the model's generation settings, and the tokenizer's own."""
    found = model.generation_config.eos_token_id
    ids: list[object] = [*(found if isinstance(found, list) else [found]), tokenizer.eos_token_id]
    return tuple(sorted({token for token in ids if isinstance(token, int)}))


def target_files(name: str, is_needed: Callable[[str], bool] = lambda _tensor: True) -> tuple[Path, str]:
    """The folder of the built-in target, of a local one, or of one fetched from the hub, and its revision there.

    Args:
        name: see `load_target`.
        is_needed: by the name of a tensor; what the hub keeps in files of other tensors is not fetched.

    Raises:
        ModelError: there is none of that name.
    """
    if name == builtin.NAME:
        return builtin.builtin_target_dir(), ""
    if Path(name).is_dir():
        return Path(name), ""
    if not is_hub_id(name):
        raise ModelError(f"the target {name!r} could not be loaded: nothing has that name; expected {_EXPECTED}")
    found = fetch_target(name, is_needed)
    return found.folder, found.revision


def weights_digest(folder: Path, is_needed: Callable[[str], bool] = lambda _tensor: True) -> str:
    """A digest of the weights' files. The built-in target has another: that of the file it is unpacked from."""
    listed = [folder / name for name in weight_names(folder, is_needed)]
    return files_digest(listed if all(path.is_file() for path in listed) else sorted(folder.glob("*.safetensors")))


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
    """Collect the output of some layers during forward passes.

    The yielded dictionary holds, per layer id, ``[S, L, H]`` of the latest pass: the state that transformers
    hands out behind that layer. That is the raw output, but for the last layer, whose state has passed the final
    norm, and for -1, the embedding.
    """
    taken: dict[int, Tensor] = {}

    def hook_for(layer_id: int) -> Callable[[nn.Module, object, object], None]:
        def keep(_module: nn.Module, _inputs: object, output: object) -> None:
            taken[layer_id] = cast(Tensor, output[0] if isinstance(output, tuple) else output)

        return keep

    handles = [_tap(target, i).register_forward_hook(hook_for(i)) for i in layer_ids]
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


def _tap(target: Target, layer_id: int) -> nn.Module:
    """The module whose output is the state behind a layer."""
    if layer_id == -1:
        return target.embedding
    if layer_id < len(target.layers) - 1:
        return target.layers[layer_id]
    norm = getattr(target.model.get_decoder(), "norm", None)
    if not isinstance(norm, nn.Module) or layer_id >= len(target.layers):
        raise ModelError(f"the target {target.name!r} has no state behind a layer {layer_id}")
    return norm


def features_of(taken: dict[int, Tensor], layer_ids: Sequence[int]) -> Tensor:
    """The tapped states side by side, ``[S, L, taps x H]``, in the order of the ids."""
    return torch.cat([taken[i] for i in layer_ids], dim=-1)
