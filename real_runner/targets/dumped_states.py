"""Hidden states that a serving engine dumped, in place of a pass of the target.

The layout is that of vLLM's hidden-state extraction (its documentation, "Hidden State Extraction", and
``example_hidden_states_connector.py`` at commit 015a95c8, read in November 2026): one safetensors file a request
with ``hidden_states`` ``[L, N, H]`` and ``token_ids`` ``[L]``. State k is the one after the first k layers: 0 is the
embedding, the number of layers is the last, which is dumped before the final norm. The file does not say which of
them it holds. A dump of prompt and answer in one request has a state for every token, one with
``include_output_tokens`` has none for the last.

Letters: L tokens of a prompt and its text, N states dumped for each, H hidden size.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from tqdm import tqdm

from simlab.arrays import Ints
from simlab.errors import ModelError

_STATES, _TOKENS = "hidden_states", "token_ids"
_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_NORMED_WITHIN = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class DumpedStates:
    """The files of a folder, found by the tokens that they are about. Nothing but headers and tokens is held.

    Attributes:
        layers: which states each file holds, rising, numbered as in the module.
        dtype: of all files.
        files: by the digest of their tokens.
    """

    folder: Path
    layers: tuple[int, ...]
    dtype: str
    files: Mapping[bytes, Path]

    def file_of(self, tokens: Ints, prompt_id: str) -> Path:
        """The file with the states of a sequence.

        Args:
            tokens: int ``[L]``, prompt and text.
            prompt_id: for the message.
        """
        for part in (tokens, tokens[:-1]):
            path = self.files.get(_digest(part))
            if path is not None:
                return path
        raise ModelError(
            f"no file in {self.folder} has the {len(tokens)} token_ids of prompt and text of {prompt_id!r}, with or "
            "without the last; let the engine dump both (send them together as a prompt, or ask with "
            "include_output_tokens), and give the ids themselves as prompt_token_ids and token_ids"
        )

    def states(self, tokens: Ints, prompt_id: str, layers: Sequence[int]) -> list[Tensor]:
        """The states of one sequence, ``[L, H]`` for each of ``layers``; a last token that has none gets zeros."""
        path = self.file_of(tokens, prompt_id)
        with _readable(path) as file:
            states = file.get_tensor(_STATES)
        if states.ndim != 3 or states.shape[1] != len(self.layers) or len(tokens) - len(states) not in (0, 1):
            raise ModelError(f"{path} has changed since this recording began; record again")
        if not torch.isfinite(states).all():
            raise ModelError(f"{path} holds hidden states that are not numbers; dump this sequence again")
        missing = states.new_zeros(len(tokens) - len(states), states.shape[2])
        return [torch.cat([states[:, self.layers.index(layer)], missing]) for layer in layers]


def open_dump(folder: Path, layers: Sequence[int], hidden_size: int) -> DumpedStates:
    """Look at every ``*.safetensors`` file of a folder: its header and its tokens.

    Args:
        folder: see there.
        layers: which states each file holds, as the engine was asked for them.
        hidden_size: H.

    Raises:
        ModelError: there are none, or one is damaged or of another shape.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(f"{folder} holds no *.safetensors file; give the folder that the engine dumped into")
    files: dict[bytes, Path] = {}
    dtypes: dict[str, Path] = {}
    for path in tqdm(paths, desc="looking at hidden states", unit="file", leave=False, delay=1.0):
        tokens, kind = _looked_at(path, len(layers), hidden_size)
        files.setdefault(_digest(tokens), path)
        dtypes.setdefault(kind, path)
    if len(dtypes) > 1:
        (one, first), (other, second) = list(dtypes.items())[:2]
        raise ModelError(f"{first} is {one} and {second} is {other}; give the dumps of one engine")
    return DumpedStates(folder, tuple(layers), next(iter(dtypes)), files)


def check_layers(layers: Sequence[int], taps: Sequence[int], num_layers: int) -> None:
    """Refuse a dump that lacks a state that is needed.

    Args:
        layers: which states were dumped, as the engine was asked for them.
        taps: which states the drafter reads, numbered likewise.
        num_layers: of the target; the number of the last state.
    """
    wanted = sorted({*taps, num_layers})
    ask = f"dump with eagle_aux_hidden_state_layer_ids {wanted} and give --hidden-layers {','.join(map(str, wanted))}"
    if not layers:
        raise ModelError(
            "the files do not say which hidden states they hold; give --hidden-layers as the engine was given "
            f"eagle_aux_hidden_state_layer_ids; this drafter and the target's law need {wanted}"
        )
    if list(layers) != sorted(set(layers)):
        raise ModelError(f"--hidden-layers must rise, as engines dump in the order of the layers; got {list(layers)}")
    if layers[0] < 0 or layers[-1] > num_layers:
        raise ModelError(f"--hidden-layers must lie from 0 to {num_layers}, the target's layers; got {list(layers)}")
    if num_layers not in layers:
        raise ModelError(f"without the state after the last layer, {num_layers}, the target's law is not known; {ask}")
    if missing := [tap for tap in wanted if tap not in layers]:
        raise ModelError(f"this drafter reads hidden states that were not dumped, {missing}; {ask}")


def normed(states: Tensor, norm: nn.Module, where: str) -> Tensor:
    """The target's final norm of the states ``[L, H]`` after its last layer."""
    weight = norm.weight
    assert isinstance(weight, Tensor)
    used = weight.abs() > 1e-3
    rows = states[states.any(dim=-1)]
    size = (rows[:, used].float() / weight[used].float()).pow(2).mean(dim=-1).sqrt()
    if len(size) and bool(((size - 1).abs() < _NORMED_WITHIN).all()):
        raise ModelError(
            f"the last hidden states of {where} have passed the target's final norm; expected those before it, as "
            "vLLM dumps them"
        )
    states_after: Tensor = norm(states)
    return states_after


def _looked_at(path: Path, num_states: int, hidden_size: int) -> tuple[Ints, str]:
    """The tokens of a file and the dtype of its states; the states themselves are not read."""
    with _readable(path) as file:
        missing = {_STATES, _TOKENS} - set(file.keys())
        if missing:
            raise ModelError(f"{path} has no tensor {min(missing)!r}; expected vLLM's dumped hidden states")
        tokens = file.get_tensor(_TOKENS)
        about = file.get_slice(_STATES)
        shape, kind = list(about.get_shape()), str(about.get_dtype())
    if tokens.ndim != 1 or tokens.is_floating_point() or not len(tokens):
        raise ModelError(f"token_ids of {path} are {list(tokens.shape)} {tokens.dtype}; expected a row of token ids")
    if shape != [len(tokens), num_states, hidden_size]:
        raise ModelError(
            f"hidden_states of {path} are {shape}; expected {[len(tokens), num_states, hidden_size]}: tokens, the "
            "layers of --hidden-layers, the target's hidden size"
        )
    if kind not in _DTYPES:
        raise ModelError(f"hidden_states of {path} are {kind}; expected float32, bfloat16 or float16")
    return tokens.numpy(), _DTYPES[kind]


@contextmanager
def _readable(path: Path) -> Iterator[safe_open]:
    """A safetensors file; what is wrong with it is said in a sentence."""
    try:
        with safe_open(path, "pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{path} cannot be read as safetensors ({reason}); dump it again, or take it out of the folder"
        ) from error


def _digest(tokens: Ints) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(tokens, np.int64).tobytes()).digest()
