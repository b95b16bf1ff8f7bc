"""What a serving engine with vLLM's hidden-state extraction leaves behind, made with transformers alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM

from simlab.real_runner.attention import grouped as attention


def load_engine(folder: Path) -> nn.Module:
    """The whole target, as an engine would have it; our attention, so that equal can mean equal bits."""
    found = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention.NAME)
    return cast(nn.Module, found)


@torch.inference_mode()
def states_of(engine: nn.Module, tokens: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
    """The states ``[L, N, H]`` after the first k layers, for each k of ``layers``; the last before the final norm.

    transformers gives the states before each layer, and after the last layer only the normed one.
    """
    before_norm: list[torch.Tensor] = []
    decoder = engine.get_submodule("model")
    handle = decoder.get_submodule("norm").register_forward_pre_hook(
        lambda _module, inputs: before_norm.append(inputs[0])
    )
    found = decoder(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    handle.remove()
    every = [*found.hidden_states[:-1], before_norm[0]]
    return torch.stack([every[layer][0] for layer in layers], dim=1)


def dump(engine: nn.Module, path: Path, tokens: Sequence[int], layers: Sequence[int], without_last: bool) -> None:
    """Write one file: of a whole sequence sent as a prompt, or of one whose last token was never read.

    The second is cut from the first, as a pass over one token less has other last bits.
    """
    count = len(tokens) - without_last
    states = states_of(engine, tokens, layers)[:count].contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"hidden_states": states, "token_ids": torch.tensor(tokens[:count])}, path)
