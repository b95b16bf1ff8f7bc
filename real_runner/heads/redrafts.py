"""Redrafts: what a second block drafter says behind beginnings of the first one's chain (D²SD 2026, arXiv 2606.04446).

The first slots of a block hold the root and the chain's first i tokens, the others masks; the slots that predict behind
them say the rest. The drafter should have learnt with filled slots (`simlab train dflash --variable-prefix`).

One arithmetic serves the dense record, with all beginnings at many roots, and a round, with those that it asks for.

Letters: N roots, D depths of the chain, D2 of the second drafter, B beginnings, K tokens of a row, S rows of a root.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Floats, Ints
from simlab.channels import BRANCHES, BranchRows
from simlab.channels.rows import WHOLE_CHAIN
from simlab.errors import ModelError
from simlab.grid import to_grid
from simlab.real_runner.drafters.dense import states_of_blocks
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.heads.rows import first_of_all, outside_log_mass
from simlab.real_runner.targets.model import Target
from simlab.traces.format.manifest_entries import branch_lengths

_BYTES_OF_SCORE = 4.5
"""On disk, of a token of a row with its share of the rest, as in transitions of a TreeFlash head."""


@dataclass(frozen=True, slots=True)
class RedraftReach:
    """How much a second drafter says.

    Attributes:
        depth: D2, its last one.
        top_k: K, tokens of a row.
        block: slots of its block, the root's counted, where that is another one than its checkpoint has; else None.
        whole: 1: behind the whole chain alone; 0: behind every beginning.
    """

    depth: int
    top_k: int = 8
    block: int | None = None
    whole: int = 0

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise ValueError(f"top_k of redrafts must be at least 1; got {self.top_k}")
        if self.whole not in (0, 1):
            raise ValueError(
                f"{WHOLE_CHAIN}=1 is the branch behind the whole chain alone; got {self.whole}, leave it out for all"
            )

    @property
    def kind(self) -> str:
        """The kind of channel that redrafts make: branches."""
        return BRANCHES

    @property
    def width(self) -> int:
        """How many candidates of each depth of the first drafter are read: the chain."""
        return 1

    def within(self, num_tokens: int) -> "RedraftReach":
        """This reach: what the first drafter proposes does not bound it."""
        return self

    def lengths(self, depth: int) -> range:
        """Behind how many tokens of a chain of ``depth`` there are branches."""
        found = branch_lengths(depth, self.depth, self.whole == 1)
        if not found:
            raise ModelError(
                f"a drafter that looks {self.depth} tokens ahead says nothing behind a whole chain of {depth}; run it "
                f"in a longer block, such as block={2 * depth + 1}"
            )
        return found

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the branches behind a chain of ``depth`` tokens."""
        own = {"depth": self.depth, "branches": len(self.lengths(depth)), "top_k": self.top_k}
        typed = {"block": self.block, WHOLE_CHAIN: self.whole or None}
        return {**own, **{key: value for key, value in typed.items() if value is not None}}

    def num_scores(self, depth: int) -> int:
        """Tokens of all rows of a root."""
        return sum(self.depth - length for length in self.lengths(depth)) * self.top_k

    def disk_bytes(self, depth: int) -> float:
        """Bytes that the rows of a root take in a trace, foreseen."""
        return self.num_scores(depth) * _BYTES_OF_SCORE

    def widest(self, width: int) -> str:
        """The setting that must be smaller where a row keeps so many candidates."""
        return f"top_k={width}"


@torch.inference_mode()
def redrafts(
    drafter: DFlashDrafter,
    target: Target,
    root_tokens: Tensor,
    positions: Tensor,
    context: DrafterContext,
    chains: Ints,
    lengths: Sequence[int],
    top_k: int,
) -> tuple[BranchRows, Floats]:
    """The branches below some roots of one text, all in one pass.

    Args:
        drafter: the second one, and its target, whose embedding and head it may borrow.
        target: see there.
        root_tokens: int64 ``[N]``.
        positions: int64 ``[N]``, absolute.
        context: of the text, as this drafter keeps it; a block sees what lies before its own root.
        chains: int32 ``[N, D]``, of the first drafter.
        lengths: of the beginnings, rising, each below D2.
        top_k: K.

    Returns:
        the rows; float32 ``[N S]``, the log of the mass of each that is not kept.
    """
    config, device = drafter.config, positions.device
    filled = np.arange(chains.shape[1]) < np.array(lengths, np.int64).reshape(-1, 1)
    tokens = np.where(filled, chains[:, None], config.mask_token_id).astype(np.int64)
    num_roots, num_blocks = len(chains), len(chains) * len(lengths)
    slots = min(chains.shape[1], config.block_size - 1)
    blocks = torch.full((num_roots, len(lengths), config.block_size), config.mask_token_id, device=device)
    blocks[:, :, 0] = root_tokens[:, None]
    blocks[:, :, 1 : 1 + slots] = torch.from_numpy(tokens[:, :, :slots]).to(device)
    places = positions.repeat_interleave(len(lengths))
    states = states_of_blocks(drafter, target, blocks.view(1, num_blocks, -1), places, context).after
    behind = torch.arange(config.depth)[None] >= torch.tensor(lengths, dtype=torch.int64)[:, None]
    said = states.view(num_roots, len(lengths), config.depth, -1)[:, behind.to(device)]
    ids, log_probs = first_of_all(drafter, target, said, top_k)
    of_roots = np.tile(np.array(lengths, np.int32), (num_roots, 1))
    return BranchRows(of_roots, config.depth, ids, to_grid(log_probs)), outside_log_mass(log_probs)
