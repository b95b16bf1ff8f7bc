"""The configuration of a DFlash drafter, in whichever format its checkpoint is written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self

from simlab.errors import ModelError

TAP_OFFSETS = (0, 1)
"""What may lie between a checkpoint's layer numbers and the states of a target: see ``DFlashConfig.tap_offset``."""

MOST_SLOTS = 1024
"""No block is longer: a pass takes room for each slot beside each other."""

MARKOV_DRAFTS = "dspark"
"""What the draft set of a drafter with a Markov head is called."""

_LARGEST = 1 << 24
_COUNTS = (
    "vocab_size",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
)


# What the layers of a drafter show to the slots of a block.
#
# A plain layer shows every slot the whole context before the root and the whole block. The two publishers
# of DFlash checkpoints restrict this in two ways:
#
# * dflash 0.1.0 (PyPI) measures a window from each slot's own position, in context and block alike;
# * speculators 0.9 (PyPI) measures it from the root, for all slots, and never cuts the block.


@dataclass(frozen=True, slots=True)
class LayerView:
    """What one layer shows.

    Attributes:
        causal: a slot sees no later slot of its block.
        window: tokens; None: no window.
        from_root: the window is measured from the root (``context >= root - window``) and spares the block;
            otherwise from each slot (``|slot - other| < window``).
    """

    causal: bool = False
    window: int | None = None
    from_root: bool = False

    @property
    def shows_all(self) -> bool:
        """Whether this is a plain layer."""
        return not self.causal and self.window is None

    def __str__(self) -> str:
        parts = []
        if self.window is not None:
            parts.append(f"the last {self.window:,} tokens from {'the root' if self.from_root else 'each slot'}")
        if self.causal:
            parts.append("of the block what is before a slot")
        return " and ".join(parts) or "everything"


PLAIN = LayerView()
CAUSAL = LayerView(causal=True)
"""A layer of a causal head, after JetSpec (2026), arXiv 2606.18394: the whole context, and the slots before."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """The convolutions of DFlash 2, over the slots of a block: see `simlab.real_runner.drafters.dflash.Convolved`.

    Attributes:
        kernel_size: slots that meet in one, the last of them its own.
        group_size: neighbouring elements of a state that have one computed weight.
    """

    kernel_size: int
    group_size: int

    def __post_init__(self) -> None:
        check_counts("a convolution's", {"kernel_size": self.kernel_size}, MOST_SLOTS)
        check_counts("a convolution's", {"group_size": self.group_size}, _LARGEST)


@dataclass(frozen=True, slots=True)
class Markov:
    """The Markov head of DSpark: see `simlab.real_runner.drafters.dflash.MarkovHead`.

    Attributes:
        rank: of its tables.
        is_gated: whether a gate that reads the drafter's state stands before its second table.
    """

    rank: int
    is_gated: bool

    def __post_init__(self) -> None:
        check_counts("a Markov head's", {"rank": self.rank}, _LARGEST)


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """Sizes and choices of one drafter; sizes in elements, ids in the target's vocabulary.

    Attributes:
        noise: what stands in place of masks; None: masks, or nothing.
        root_seen: whether it reads the root's own token.
        no_blocks: why there is no pass of blocks, in words; empty where there is one.
        num_masks: masks of the target's own behind a token.
        target_layer_ids: the target's layers whose outputs are read, from 0; -1 is its embedding, and the last
            layer is read after the final norm, as transformers hands it out.
        num_target_layers: None where the checkpoint does not say.
        vocab_size: of the target.
        layer_views: what each layer shows; none given: everything.
        final_logit_softcapping: the logits are ``cap x tanh(logits / cap)``; None: as they are.
        output_multiplier: of the logits, before that.
        input_embedding_scale: of the embedded root and masks.
        convolution: around attention and perceptron of every layer; None: there is none.
        markov: a head that corrects the logits of a slot for the token before it; None: there is none.
        predicts_from_root: the root's own slot predicts the token after it, and every other slot one further.
        draft_vocab_size: tokens that it can propose; None: all of the target's.
        tap_offset: what was added to a layer number of the checkpoint to find its state, where state 0 is the
            embedding and state i the output of the i-th layer; each layout of checkpoints has its own.
    """

    noise: ClassVar[None] = None
    root_seen: ClassVar[bool] = True
    no_blocks: ClassVar[str] = ""
    num_masks: ClassVar[int] = 0

    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None
    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    attention_bias: bool = False
    max_position_embeddings: int = 8192
    layer_views: tuple[LayerView, ...] = ()
    final_logit_softcapping: float | None = None
    output_multiplier: float = 1.0
    input_embedding_scale: float = 1.0
    predicts_from_root: bool = False
    draft_vocab_size: int | None = None
    tap_offset: int = 1
    convolution: Convolution | None = None
    markov: Markov | None = None

    def __post_init__(self) -> None:
        counted = _COUNTS if self.num_target_layers is None else ("num_target_layers", *_COUNTS)
        check_counts("a drafter's", {name: getattr(self, name) for name in counted}, _LARGEST)
        self._check_arithmetic()
        if self.num_attention_heads % self.num_key_value_heads:
            raise ModelError(
                f"a drafter's {self.num_attention_heads} attention heads cannot share "
                f"{self.num_key_value_heads} key-value heads evenly"
            )
        if not self.target_layer_ids:
            raise ModelError("a drafter must tap at least one layer of its target; target_layer_ids is empty")
        if not 2 <= self.block_size <= MOST_SLOTS:
            raise ModelError(
                f"a drafter's block_size must be at least 2 and at most {MOST_SLOTS:,}; got {self.block_size}"
            )
        if not 0 <= self.mask_token_id < self.vocab_size:
            raise ModelError(
                f"mask_token_id {self.mask_token_id} is not in the target's vocabulary of {self.vocab_size}"
            )
        check_taps(self.target_layer_ids, self.num_target_layers)
        if self.layer_views and len(self.layer_views) != self.num_hidden_layers:
            raise ModelError(f"layer_types has {len(self.layer_views)} entries for {self.num_hidden_layers} layers")
        if any(view.window is not None and view.window < 1 for view in self.layer_views):
            raise ModelError("a drafter's sliding_window must be at least 1")
        if self.draft_vocab_size is not None and not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise ModelError(f"draft_vocab_size {self.draft_vocab_size} is not within the {self.vocab_size} tokens")
        if self.convolution is not None and self.hidden_size % self.convolution.group_size:
            raise ModelError(
                f"a drafter's states of {self.hidden_size} do not split into groups of {self.convolution.group_size}"
            )

    def _check_arithmetic(self) -> None:
        """Refuse what no layer can work with, or would make numbers that are none."""
        if self.head_dim % 2:
            raise ModelError(f"a drafter's head_dim must be even, for its halves are rotated; got {self.head_dim}")
        cap = 1.0 if self.final_logit_softcapping is None else self.final_logit_softcapping
        check_within("a drafter's rms_norm_eps", self.rms_norm_eps, 1e-12, 1.0)
        check_within("a drafter's rope_theta", self.rope_theta, 1.0, 1e30)
        check_within("a drafter's final_logit_softcapping", cap, 1e-3, 1e30)
        check_within("a drafter's size of output_multiplier", abs(self.output_multiplier), 0.0, 1e6)
        check_within("a drafter's size of input_embedding_scale", abs(self.input_embedding_scale), 0.0, 1e6)

    @property
    def kind(self) -> str:
        """What this configures, in words."""
        return "drafter"

    @property
    def draft_name(self) -> str:
        """What its draft set is called in a new recording."""
        return "dflash" if self.markov is None else MARKOV_DRAFTS

    @property
    def is_chain(self) -> bool:
        """Whether its rows stand behind its own chain: those of a Markov head do."""
        return self.markov is not None

    @property
    def target_hidden_size(self) -> int:
        """Width of the target's states: that of the drafter itself."""
        return self.hidden_size

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead: one less than the block, or as many where the root's slot predicts."""
        return self.block_size - self.first_slot

    @property
    def first_slot(self) -> int:
        """The first slot of the block that predicts."""
        return 0 if self.predicts_from_root else 1

    @property
    def views(self) -> tuple[LayerView, ...]:
        """What each layer shows."""
        return self.layer_views or (PLAIN,) * self.num_hidden_layers

    @property
    def is_causal_head(self) -> bool:
        """Whether no slot of a block sees a later one, in any layer, and every layer shows the whole context."""
        return all(view == CAUSAL for view in self.views)

    @property
    def variants(self) -> tuple[str, ...]:
        """In what this drafter is no plain DFlash, in words."""
        present = {
            "blocks that are causal inside": self.is_causal_head,
            "layers that do not show everything": not self.is_causal_head
            and any(not view.shows_all for view in self.layer_views),
            "a soft-capped head": self.final_logit_softcapping is not None,
            "a scaled head": self.output_multiplier != 1,
            "scaled embeddings": self.input_embedding_scale != 1,
            "convolutions over the block": self.convolution is not None,
            "a Markov head": self.markov is not None,
            "predictions from the root's own slot": self.predicts_from_root,
            "a vocabulary of its own": self.draft_vocab_size is not None,
            "a tap of the embedding or of the final norm": not all(
                self._is_plain(tap) for tap in self.target_layer_ids
            ),
        }
        return tuple(what for what, has in present.items() if has)

    def _is_plain(self, tap: int) -> bool:
        return tap >= 0 and (self.num_target_layers is None or tap < self.num_target_layers - 1)

    def with_tap_offset(self, offset: int) -> "DFlashConfig":
        """This checkpoint with its layer numbers read in another convention."""
        moved = tuple(tap + offset - self.tap_offset for tap in self.target_layer_ids)
        return replace(self, target_layer_ids=moved, tap_offset=offset)

    def as_causal_head(self) -> "DFlashConfig":
        """These sizes with blocks that are causal inside, after JetSpec (2026), arXiv 2606.18394."""
        return replace(self, layer_views=(CAUSAL,) * self.num_hidden_layers)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The tensors that every drafter of this configuration has, each with its shape."""
        hidden, inner, head = self.hidden_size, self.intermediate_size, self.head_dim
        queries, keys = self.num_attention_heads * head, self.num_key_value_heads * head
        yield "fc.weight", (hidden, len(self.target_layer_ids) * hidden)
        yield from (("hidden_norm.weight", (hidden,)), ("norm.weight", (hidden,)))
        projections = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "o": (hidden, queries)}
        for layer in (f"layers.{number}" for number in range(self.num_hidden_layers)):
            yield from ((f"{layer}.{name}_layernorm.weight", (hidden,)) for name in ("input", "post_attention"))
            yield from ((f"{layer}.self_attn.{name}_norm.weight", (head,)) for name in "qk")
            yield from ((f"{layer}.mlp.{name}_proj.weight", (inner, hidden)) for name in ("gate", "up"))
            yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
            if self.convolution is not None:
                size, groups = self.convolution.kernel_size, hidden // self.convolution.group_size
                for name in ("attention_conv", "mlp_conv"):
                    yield f"{layer}.{name}.base_kernel", (2, size, hidden)
                    yield f"{layer}.{name}.kernel_projection.weight", (2 * size * groups, hidden)
            for name, shape in projections.items():
                yield f"{layer}.self_attn.{name}_proj.weight", shape
                if self.attention_bias:
                    yield f"{layer}.self_attn.{name}_proj.bias", shape[:1]
        if self.markov is not None:
            rank = self.markov.rank
            yield from ((f"markov_head.markov_w{number}.weight", (self.vocab_size, rank)) for number in (1, 2))
            if self.markov.is_gated:
                yield "markov_head.gate_proj.weight", (rank, hidden + rank)
                yield "markov_head.gate_proj.bias", (rank,)

    def of_vocabulary(self, size: int) -> "DFlashConfig":
        """This configuration with so many tokens of the target."""
        if self.markov is not None and size != self.vocab_size:
            raise ModelError(
                f"the Markov head of this drafter has {self.vocab_size:,} tokens, and its target {size:,}; choose the "
                "target that it was trained for"
            )
        return replace(self, vocab_size=size)

    def for_target(self, num_layers: int) -> "DFlashConfig":
        """This configuration where the target has so many layers: the layers that it reads are named."""
        return self

    def with_block(self, size: int) -> "DFlashConfig":
        """This checkpoint drafting in blocks of another size, the root's slot counted, as engines run it.

        What it drafts then differs from the first tokens of its own block where slots see those behind them.
        """
        return replace(self, block_size=size)


def check_counts(whose: str, counts: Mapping[str, int], most: int) -> None:
    """Refuse counts by their names that are below 1, or beyond what anything has; ``whose`` such as "a head's"."""
    for name, value in counts.items():
        if not 1 <= value <= most:
            raise ModelError(f"{whose} {name} must be at least 1 and at most {most:,}; got {value}")


def check_within(what: str, value: float, low: float, high: float) -> None:
    """Refuse a number with which no layer can work, or that would make numbers that are none."""
    if not low <= value <= high:
        raise ModelError(f"{what} must be from {low:g} to {high:g}; got {value}")


def check_taps(taps: tuple[int, ...], num_target_layers: int | None) -> None:
    """Refuse layers that a target does not have."""
    if any(tap < -1 or (num_target_layers is not None and tap >= num_target_layers) for tap in taps):
        raise ModelError(
            f"target_layer_ids {list(taps)} do not fit a target of {num_target_layers} layers; choose the target that "
            "they are of"
        )


class MadeForTarget(Protocol):
    """What configurations say of the target that they were made for."""

    @property
    def kind(self) -> str:
        """What is configured, in words."""
        ...

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """The target's layers that are read."""
        ...

    @property
    def num_target_layers(self) -> int | None:
        """Layers of the target; None: not said."""
        ...

    @property
    def target_hidden_size(self) -> int:
        """Width of the target's states."""
        ...

    @property
    def vocab_size(self) -> int:
        """Tokens of the target."""
        ...

    @property
    def draft_vocab_size(self) -> int | None:
        """Tokens that it can propose; None: all of the target's."""
        ...

    def of_vocabulary(self, size: int) -> Self:
        """This configuration with so many tokens of the target."""
        ...


_MOST_PADDING = 1024
"""Rows by which a padded vocabulary differs at most; what differs by more is the vocabulary of another target."""


def is_padding(stated: int, size: int) -> bool:
    """Whether a drafter's number of tokens is another one than its target's, and by rows of padding alone."""
    return 0 < abs(stated - size) <= _MOST_PADDING


def padding_note(stated: int, target: str, size: int) -> str:
    """What to tell people of a drafter without embedding and head whose ``vocab_size`` is not its target's."""
    return (
        f"the drafter's config.json says vocab_size {stated:,}, and {target} has {size:,}; the target's holds, for the "
        "drafter borrows its embedding and head"
    )


def check_sizes(config: MadeForTarget, target: str, num_layers: int, hidden_size: int, vocab_size: int) -> None:
    """Refuse a configuration that was made for a target of other sizes.

    Args:
        config: of a drafter or head.
        target: its name.
        num_layers: of the target, and so on.
        hidden_size: the same.
        vocab_size: the same.
    """
    check_taps(config.target_layer_ids, num_layers)
    pairs = {
        "layers": (config.num_target_layers, num_layers),
        "hidden size": (config.target_hidden_size, hidden_size),
        "vocabulary": (config.vocab_size, vocab_size),
    }
    for what, (wanted, present) in pairs.items():
        if wanted not in (None, present):
            raise ModelError(
                f"this {config.kind} was made for a target with {what} {wanted}; {target} has {present}; "
                "choose the target it was trained for"
            )


@dataclass(frozen=True, slots=True)
class KeptCandidates:
    """How many candidates of a drafter a trace keeps.

    Depth d keeps at least ``min_width`` ranks, and every rank that the exact best-first tree of ``exact_budget``
    drafted tokens reads there.
    """

    min_width: int = 64
    exact_budget: int = 512

    @property
    def most(self) -> int:
        """No depth keeps more."""
        return max(self.min_width, self.exact_budget)
