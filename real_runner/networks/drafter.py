"""Drafters: those of blocks on disk, and whatever drafts along a text. No code of a checkpoint is run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import config_file, packaged_checkpoints
from simlab.real_runner.checkpoints.files import load_weights, write_checkpoint
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.candidate_keys import on_host
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import Fitted, MadeFor, blocks_of, drafted_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import (
    CandidatesRead,
    draft_columns,
    first_marginals,
    first_on_device,
    marginals_at,
)
from simlab.real_runner.execution.fixed_drafter import text_context
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.known import DraftConfig, read_config, read_fields
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.producer import Drafted, Reader
from simlab.real_runner.targets.hub_files import ModelFiles, fetch_model, is_hub_id
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns


def save_drafter(drafter: DFlashDrafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint in the published layout; each file is written beside and renamed."""
    write_checkpoint(folder, drafter.state_dict(), dtype, config_to_json(drafter.config))


PACKAGED = "dflash-smollm2-135m"
"""The drafter that comes with simlab."""


def find_drafter(name: str) -> ModelFiles:
    """The files of a packaged drafter, head or scorer, of a local one, or of one fetched from the hub.

    Raises:
        ModelError: there is none of that name.
    """
    packaged = packaged_checkpoints()
    if name in packaged:
        return ModelFiles(packaged[name], "")
    if Path(name).is_dir() or name.endswith(".safetensors"):
        return ModelFiles(Path(name), "")
    if Path(name).is_file():
        raise ModelError(f"{name} is no safetensors file; simlab reads a drafter's weights from no other kind")
    if not is_hub_id(name):
        raise ModelError(
            f"the drafter {name!r} could not be found: there is nothing of that name; expected {PACKAGED!r}, a folder "
            "with config.json and model.safetensors, such a file beside its config.json, or a Hugging Face id such as "
            "ORG/NAME"
        )
    return fetch_model("drafter", name)


def load_drafter(folder: Path, dtype: torch.dtype, device: str = "cpu", tap_offset: int | None = None) -> DFlashDrafter:
    """Read a checkpoint, in any of the layouts.

    Args:
        folder: with ``config.json`` and the weights, or the one file with weights beside its ``config.json``.
        dtype: in which it runs.
        device: as torch names it.
        tap_offset: what to add to its layer numbers (see `DFlashConfig`); None: as its format has it.

    Raises:
        ModelError: files are missing or damaged, or the weights do not fit the configuration.
    """
    parts = checked_parts(folder)
    config, stored = parts.drafter, parts.drafter_tensors
    if config is None:
        # Its layout refuses it, in words of its own.
        config = read_config(read_fields(config_file(folder)))
    drafter = DFlashDrafter(config if tap_offset is None else config.with_tap_offset(tap_offset))
    load_weights(drafter, folder, stored)
    return drafter.to(device, dtype).eval().requires_grad_(False)


# What drafts along a text: a drafter of blocks, a head that goes token by token, or the target's own masks.


class AnyDrafter(Protocol):
    """A drafter of blocks, a head that drafts a chain, or an adapter with which the target drafts for itself."""

    @property
    def config(self) -> DraftConfig: ...


class LiveDraft(Reader, Protocol):
    """What drafts along one text that is being written."""

    def draft(self, committed: Ints) -> Drafted | None:
        """Draft below the last of the tokens of prompt and text, int32, all before it read; None: there is no draft."""
        ...


class Drafts(Protocol):
    """A drafter and its target, as what drafts."""

    def columns(self, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates) -> DraftColumns:
        """The rows at every root of one text, to be recorded.

        Args:
            features: ``[C, taps x H]``, the states that the drafter reads, from position 0 on.
            tokens: int64 ``[P + T]``, prompt and text.
            prompt_length: P.
            kept: how many candidates.
        """
        ...

    def live(self, read: CandidatesRead, room: int, graphs: GraphedModels | None = None) -> LiveDraft:
        """A text of which nothing is read yet.

        Args:
            read: what is given at each depth.
            room: tokens that the text will have.
            graphs: which capture its passes; None: these are run as they come.
        """
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A drafter that is to be loaded, and how it is to run.

    Attributes:
        location: of its checkpoint.
        dtype: in which it runs.
        device: as torch names it.
        tap_offset: what to add to its layer numbers; None: as its format has it.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.
        is_mapped: whether the target is spread over devices.
        block: slots of its block, the root's counted; None: as the checkpoint has it.
        noise: that stands in place of masks; None: as the checkpoint has it.
    """

    location: Path
    dtype: torch.dtype
    device: str
    tap_offset: int | None
    execution: str
    is_mapped: bool
    block: int | None
    noise: Noise | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BlockDrafts:
    """A drafter of blocks, and the target whose embedding and head it may borrow; see `Drafts`."""

    drafter: DFlashDrafter
    target: Target

    def columns(self, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates) -> DraftColumns:
        return draft_columns(self.drafter, self.target, features, tokens, prompt_length, kept)

    def live(self, read: CandidatesRead, room: int, graphs: GraphedModels | None = None) -> "LiveDrafter":
        return LiveDrafter(self, read, room, graphs)


class LiveDrafter:
    """Drafts for one sequence, see `LiveDraft`; what the target has read since the last draft is projected then."""

    def __init__(self, own: BlockDrafts, read: CandidatesRead, room: int, graphs: GraphedModels | None) -> None:
        """Begin with nothing read of the text; arguments as of `Drafts.live`."""
        self._own, self._wanted, self._graphs = own, read, graphs
        self._text = text_context(graphs, own.drafter, own.target, room)
        self.read, self.rewind = self._text.read, self._text.rewind

    def draft(self, committed: Ints) -> Drafted:
        root_token, position = int(committed[-1]), len(committed) - 1
        drafter, target = self._own.drafter, self._own.target
        root, at = (torch.tensor([number], device=target.device) for number in (root_token, position))
        states = self._text.states(blocks_of(drafter, root), at)
        marginals = drafted_marginals(self._logits, drafter, self._wanted, self._graphs, states.after, root)
        return Drafted(root_token, position, marginals, states, self._text.states)

    def _logits(self, after: Tensor, root: Tensor) -> Tensor:
        return drafted_logits(self._own.drafter, self._own.target, after, root)[0]


def drafted_marginals(
    logits: Callable[..., Tensor],
    drafter: Fitted[MadeFor],
    read: CandidatesRead,
    graphs: GraphedModels | None,
    *states: Tensor,
) -> Marginals:
    """The first candidates at each depth of a draft, in the target's vocabulary.

    Args:
        logits: from the states to float32 ``[D, V]``.
        drafter: whose these are.
        read: what is read at each depth.
        graphs: which capture it; None: it is run as it comes.
        states: of the draft, and what else its logits are made of.
    """
    if graphs is None:
        marginals = first_marginals(logits(*states), read)
    else:

        def work(*states: Tensor) -> tuple[Tensor, ...]:
            return first_on_device(logits(*states), read)

        marginals = marginals_at(*on_host(*graphs.call(("marginals", drafter, read), work, *states)))
    return marginals if drafter.vocabulary is None else drafter.vocabulary.in_target(marginals)
