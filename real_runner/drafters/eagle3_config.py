"""The configuration of an EAGLE-3 head, in whichever form its checkpoint is written."""

from dataclasses import dataclass, replace

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import MOST_SLOTS, check_taps

_LARGEST = 1 << 24
_COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "target_hidden_size",
    "max_position_embeddings",
)
NUM_DEFAULT_TAPS = 3
"""Layers of the target that are read where a checkpoint names none."""

DEFAULT_BLOCK = 8
"""Root and a chain of seven tokens: as many passes as the published tree has."""


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """Sizes and choices of one head; sizes in elements, ids in the target's vocabulary.

    Attributes:
        vocab_size: of the target.
        target_hidden_size: of the target's states.
        target_layer_ids: the target's layers whose outputs are read, from 0; empty: those of the release, which
            `for_target` fills in.
        num_target_layers: None where the checkpoint does not say.
        draft_vocab_size: tokens that it can propose; None: all of the target's.
        attention_bias: whether the projections of the attention have biases.
        fc_norm: whether each tapped state is normed before it is fused.
        norm_before_residual: whether the normed state, and not the state itself, is added to what attention says.
        norm_output: whether the head's next input is its output behind the last norm.
        block_size: root and drafted tokens of a chain, where the head is a trace's drafter; no checkpoint says it.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    target_hidden_size: int
    target_layer_ids: tuple[int, ...] = ()
    num_target_layers: int | None = None
    draft_vocab_size: int | None = None
    max_position_embeddings: int = 8192
    attention_bias: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    block_size: int = DEFAULT_BLOCK

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if not 1 <= getattr(self, name) <= _LARGEST:
                raise ModelError(
                    f"an EAGLE-3 head's {name} must be at least 1 and at most {_LARGEST:,}; got {getattr(self, name)}"
                )
        if self.head_dim % 2 or self.num_attention_heads % self.num_key_value_heads:
            raise ModelError(
                "an EAGLE-3 head needs an even head_dim, and key-value heads that its attention heads share evenly; "
                f"got {self.head_dim}, {self.num_key_value_heads} and {self.num_attention_heads}"
            )
        for name, low, high in (("rms_norm_eps", 1e-12, 1.0), ("rope_theta", 1.0, 1e30)):
            if not low <= getattr(self, name) <= high:
                raise ModelError(
                    f"an EAGLE-3 head's {name} must be from {low:g} to {high:g}; got {getattr(self, name)}"
                )
        if not 2 <= self.block_size <= MOST_SLOTS:
            raise ModelError(
                f"a chain has at least 2 and at most {MOST_SLOTS:,} tokens, the root counted; got {self.block_size}"
            )
        if self.draft_vocab_size is not None and not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise ModelError(f"draft_vocab_size {self.draft_vocab_size} is not within the {self.vocab_size} tokens")
        if self.target_layer_ids:
            check_taps(self.target_layer_ids, self.num_target_layers)

    @property
    def kind(self) -> str:
        """What this configures, in words."""
        return "EAGLE-3 head"

    @property
    def depth(self) -> int:
        """D, the tokens of a drafted chain."""
        return self.block_size - 1

    @property
    def num_taps(self) -> int:
        """Layers of the target that are read."""
        return len(self.target_layer_ids) or NUM_DEFAULT_TAPS

    @property
    def num_tokens(self) -> int:
        """Tokens that it can propose."""
        return self.draft_vocab_size or self.vocab_size

    def with_block(self, size: int) -> "Eagle3Config":
        """This head drafting chains of another length, the root counted."""
        return replace(self, block_size=size)

    def for_target(self, num_layers: int) -> "Eagle3Config":
        """This configuration where the target has so many layers.

        Where none are named, the release reads the inputs of layers 2, L/2 and L - 3, counted from 0 (Li and others
        2025, `modeling_llama_kv.py`): the outputs of the ones before.
        """
        if self.target_layer_ids:
            return self
        taps = (1, num_layers // 2 - 1, num_layers - 4)
        check_taps(taps, num_layers)
        return replace(self, target_layer_ids=taps)
