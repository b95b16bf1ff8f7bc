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
from typing import cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from tqdm import tqdm
from transformers import (
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from simlab.arrays import Ints
from simlab.errors import ModelError
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.hub_files import every_tensor, repository_of
from simlab.real_runner.targets.loading import (
    DAMAGED,
    load_tokenizer,
    stop_token_ids,
    target_config,
    target_files,
    target_shape,
    weights_digest,
)
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.placement import check_head
from simlab.real_runner.targets.quantised import QUANTISATION, quantisation_of

# The part of a target that drafting from dumped hidden states needs: embedding, final norm and head.
#
# The layers stay on disk: they are read neither into memory nor, where the hub has the checkpoint in several
# files, from the network.


def load_partial_target(name: str, dtype: torch.dtype, device: str = "cpu") -> Target:
    """A target without its layers, from the built-in target, a folder, or a Hugging Face id.

    Its ``states`` are of no use; ``embedding``, ``logits`` and ``final_norm`` are those of the whole model.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    files = target_files(name, _is_needed)
    folder = files.folder
    try:
        whole = target_config(name, folder)
        config = whole.get_text_config()
        num_layers = int(config.num_hidden_layers)
        stored = quantisation_of({QUANTISATION: getattr(whole, QUANTISATION, None)})
        model = _without_layers(name, config, dtype)
        _fill(name, model, folder)
        if (folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        tokenizer = load_tokenizer(name, folder)
    except DAMAGED as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"embedding, final norm and head of the target {name!r} could not be loaded ({reason}); expected "
            f"{builtin.NAME!r}, a folder with config.json and safetensors, or a Hugging Face id"
        ) from error
    model.config.num_hidden_layers = num_layers
    # A window limits the target's own passes, which have been made.
    model.config.sliding_window = None
    # Of a folder all files are at hand, as for `load_target`; of the hub's only those that were fetched.
    is_hashed = _is_needed if files.revision else every_tensor
    return Target(
        name=repository_of(name),
        revision=files.revision,
        digest=builtin.GGUF_SHA256 if name == builtin.NAME else weights_digest(folder, is_hashed),
        model=cast(PreTrainedModel, cast(nn.Module, model).to(device).eval().requires_grad_(False)),
        tokenizer=tokenizer,
        stop_token_ids=stop_token_ids(model, tokenizer),
        quantised=stored,
    )


def _is_needed(tensor: str) -> bool:
    return ".layers." not in tensor


def _without_layers(name: str, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    check_head(name, config)
    try:
        config.num_hidden_layers = 0
        if getattr(config, "layer_types", None) is not None:
            config.layer_types = []
    except AttributeError as error:
        raise ModelError(
            f"the target {name!r} is a {config.model_type} model, whose layers cannot be left out"
        ) from error
    if hasattr(config, QUANTISATION):
        delattr(config, QUANTISATION)
    return target_shape(name, config, dtype)


def _fill(name: str, model: PreTrainedModel, folder: Path) -> None:
    """Read the tensors of a model that was built without values."""
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    cast("nn.Module", model).to_empty(device="cpu")
    model.tie_weights()
    head = "lm_head.weight"
    if model.config.tie_word_embeddings:
        shapes.pop(head, None)
    tensors = _read(sorted(folder.glob("*.safetensors")), list(shapes))
    for key, shape in shapes.items():
        value = tensors.get(key)
        if value is None:
            raise ModelError(f"the checkpoint of the target {name!r} has no tensor {key!r}; it is not whole")
        if tuple(value.shape) != shape or not value.is_floating_point() or value.element_size() < 2:
            kind = str(value.dtype).removeprefix("torch.")
            raise ModelError(
                f"{key!r} of the target {name!r} is {kind} {list(value.shape)}; expected {list(shape)} in float32, "
                "bfloat16 or float16; give the checkpoint that is not quantised"
            )
    cast("nn.Module", model).load_state_dict(tensors, strict=False)


def _read(paths: Sequence[Path], names: Sequence[str]) -> dict[str, Tensor]:
    """The named tensors, out of the files that have them; of the others only the headers are read.

    Where a model reads pictures too, its names have ``language_model.`` in them, which those of its text alone lack.
    """
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with safe_open(path, "pt") as file:
            held = {key.replace("language_model.", ""): key for key in file.keys()}  # noqa: SIM118
            for key in set(held) & set(names):
                tensors[key] = file.get_tensor(held[key])
    return tensors


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
        folder: of the files.
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
    for path in tqdm(paths, desc="looking at hidden states", unit="file", leave=False, delay=1.0, disable=None):
        tokens, kind = _looked_at(path, len(layers), hidden_size)
        files.setdefault(_digest(tokens), path)
        dtypes.setdefault(kind, path)
    if len(dtypes) > 1:
        (dtype, first), (other_dtype, second) = list(dtypes.items())[:2]
        raise ModelError(f"{first} is {dtype} and {second} is {other_dtype}; give the dumps of one engine")
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
