"""The sizes of an adapter. Nothing here imports torch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from simlab.errors import ModelError

MODULES = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
"""The products of every layer that an adapter changes at mask rows."""

MOST_MASKS = 64
_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """Sizes of a gated adapter, and whose it is.

    Attributes:
        rank: r, of each change.
        alpha: changes are scaled by alpha / r.
        num_masks: k, the tokens that it drafts behind one.
        target_digest: of the target's weights, see `simlab.real_runner.targets.model.Target`.
        num_layers: of the target.
        hidden_size: H, of the target.
        vocab_size: of the target.
    """

    rank: int
    alpha: float
    num_masks: int
    target_digest: str
    num_layers: int
    hidden_size: int
    vocab_size: int

    def __post_init__(self) -> None:
        for name, most in (
            ("rank", _LARGEST),
            ("num_masks", MOST_MASKS),
            ("num_layers", _LARGEST),
            ("hidden_size", _LARGEST),
            ("vocab_size", _LARGEST),
        ):
            if not 1 <= getattr(self, name) <= most:
                raise ModelError(
                    f"an adapter's {name} must be at least 1 and at most {most:,}; got {getattr(self, name)}"
                )
        if not 0 < self.alpha < math.inf:
            raise ModelError(f"an adapter's alpha must be above 0; got {self.alpha}")

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead: one for each mask."""
        return self.num_masks

    @property
    def block_size(self) -> int:
        """The token that masks stand behind, and these."""
        return self.num_masks + 1

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Layers of the target whose states are read: none, since its own passes draft."""
        return ()

    def with_block(self, size: int) -> "AdapterConfig":
        """This adapter with fewer masks: the first of them do not know of those behind.

        Args:
            size: the token that they stand behind is counted.
        """
        if not 2 <= size <= self.block_size:
            raise ModelError(
                f"an adapter of {self.num_masks} masks drafts in blocks of 2 to {self.block_size}, the root counted; "
                f"got {size}"
            )
        return replace(self, num_masks=size - 1)

    @property
    def scale(self) -> float:
        """What each change is multiplied by."""
        return self.alpha / self.rank

    def module_names(self) -> Iterator[str]:
        """The products that it changes, by their names in a decoder, such as ``layers.0.self_attn.q_proj``."""
        return (f"layers.{number}.{name}" for number in range(self.num_layers) for name in MODULES)
