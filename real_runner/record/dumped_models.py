"""Recording along hidden states that were dumped: the target's layers never run here."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.execution.executions import EAGER
from simlab.real_runner.models import Models, check_device, dtype_of, settle_device
from simlab.real_runner.networks.drafter import Asked, find_drafter
from simlab.real_runner.networks.loading import load_drafter
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import Source, given_turns
from simlab.real_runner.tap_offset import parse_tap_offset
from simlab.real_runner.targets.dumped_states import check_layers, load_partial_target, normed, open_dump
from simlab.real_runner.targets.model import final_norm
from simlab.traces.format.frames import TokenRows


def load_dumped_models(options: RecordOptions) -> Models:
    """A drafter, of its target what stands before and after the layers, and a folder of dumped states.

    Raises:
        ModelError: one of them cannot be loaded, or the states are not those that are needed.
    """
    if options.hidden_states is None:
        raise ValueError("hidden_states must be given")
    kind = dtype_of(options.model_dtype)
    check_device(options.first_device)
    settle_device(options.first_device)
    files = find_drafter(options.draft_name)
    offset = parse_tap_offset(options.tap_offset)
    with_target = load_drafter(
        Asked(files.folder, kind, options.first_device, offset, EAGER, False, options.block, options.noise)
    )
    target = load_partial_target(options.target_name, kind, options.first_device)
    drafter = with_target(target)
    check_layers(options.hidden_layers, dumped_taps(drafter.config.target_layer_ids), target.num_layers)
    dumped = open_dump(Path(options.hidden_states), tuple(options.hidden_layers), target.config.hidden_size)
    return Models(target, drafter, draft_folder=files.folder, draft_revision=files.revision, dumped=dumped)


def dumped_taps(layer_ids: Sequence[int]) -> tuple[int, ...]:
    """States behind layers as engines number them: behind layer i, counted from 0, is i + 1; -1 is the embedding."""
    return tuple(layer + 1 for layer in layer_ids)


def check_dumped(models: Models, sources: Sequence[Source], template_kwargs: Mapping[str, object]) -> None:
    """See that every text has its file, before anything is recorded."""
    if models.dumped is None:
        return
    for source in sources:
        if isinstance(source, PromptRecord):
            raise ModelError("hidden states can be dumped only for texts that are there; give --completions")
        for turn in given_turns(source, models.target, template_kwargs):
            models.dumped.file_of(np.concatenate([turn.prompt.token_ids, turn.text]), turn.prompt.prompt_id)


_FEW_TOKENS = 8


def check_likely(laws: TokenRows, vocab_size: int, prompt_id: str) -> None:
    """Refuse states under which a text is less probable than blind guesses: they are of another text or target.

    States that a drafter reads in layers below the last can be checked by nothing, and are trusted.

    Args:
        laws: of the target's tokens, out of the states.
        vocab_size: V; a blind guess is right in one of V cases.
        prompt_id: for the message.
    """
    mean = float(laws.log_prob.mean()) if len(laws.log_prob) >= _FEW_TOKENS else 0.0
    if mean < -math.log(vocab_size):
        raise ModelError(
            f"under the hidden states of {prompt_id!r} its text has a mean log-probability of {mean:.1f}, less than "
            f"blind guesses of {vocab_size:,} tokens: they are not the states of this text, layer and target; see what "
            "--hidden-layers and --target the engine had, and dump again"
        )


def dumped_text(models: Models, tokens: Tensor, prompt_id: str) -> tuple[Tensor, Tensor]:
    """What a pass of the target over a text would give: tapped states ``[L, taps x H]``, last states ``[L, H]``.

    A drafter that taps the last layer reads its state after the final norm, as in `simlab.real_runner.targets.model`.

    Args:
        models: with dumped states.
        tokens: int64 ``[L]``.
        prompt_id: for messages.
    """
    if models.dumped is None:
        raise ValueError("these models have no dumped states")
    target, taps = models.target, dumped_taps(models.drafter.config.target_layer_ids)
    held_states = models.dumped.states(tokens.cpu().numpy(), prompt_id, [*taps, target.num_layers])
    *tapped, last = (states.to(target.device, target.dtype) for states in held_states)
    final = normed(last, final_norm(target), repr(prompt_id))
    # A drafter that taps the last layer reads its state after the norm, as everywhere in this runner.
    read = [final if tap == target.num_layers else states for tap, states in zip(taps, tapped, strict=True)]
    return torch.cat(read, dim=-1), final
