"""Drafting at every root of a text at once, or below one text that grows."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from tqdm import tqdm

from simlab.real_runner.drafters.candidate_keys import ids_at, keys_of
from simlab.real_runner.drafters.config import MadeForTarget, check_sizes, is_padding, padding_note
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.targets.model import KeyValueRows, Target


@dataclass(frozen=True, slots=True, eq=False)
class BlockStates:
    """Hidden states of the slots that predict, ``[R, D, H]``, before and after the drafter's final norm.

    Attributes:
        before: the norm, and so on.
        after: the norm.
        seen: ``[R, taps x H]``, the tapped states of the target at the token before each root; empty where no drafter
            of blocks reads them.
    """

    before: Tensor
    after: Tensor
    seen: Tensor = torch.empty(0)


class OutputConfig(Protocol):
    """Sizes of what drafts, and what is done to its logits; see `simlab.real_runner.drafters.config.DFlashConfig`."""

    @property
    def hidden_size(self) -> int: ...

    @property
    def num_attention_heads(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def depth(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def draft_vocab_size(self) -> int | None: ...

    @property
    def output_multiplier(self) -> float: ...

    @property
    def final_logit_softcapping(self) -> float | None: ...


class Outputs(Protocol):
    """What drafts, as far as it is read behind its layers: a head goes on from its states."""

    @property
    def config(self) -> OutputConfig:
        """The sizes of what drafts."""
        ...

    @property
    def norm(self) -> Callable[[Tensor], Tensor]:
        """Behind its last layer."""
        ...

    @property
    def embed_tokens(self) -> nn.Embedding | None:
        """An embedding of its own; None: the target's."""
        ...

    @property
    def lm_head(self) -> nn.Linear | None:
        """An output head of its own; None: the target's."""
        ...

    @property
    def vocabulary(self) -> DraftVocabulary | None:
        """Which tokens its own head proposes; None: those of the target."""
        ...


MadeFor = TypeVar("MadeFor", bound=MadeForTarget)


class Fitted(Protocol[MadeFor]):
    """What drafts for one target: whose embedding and head it may borrow."""

    config: MadeFor
    embed_tokens: nn.Embedding | None
    lm_head: nn.Linear | None
    vocabulary: DraftVocabulary | None


def check_fit(target: Target, drafter: Fitted[MadeFor]) -> None:
    """Refuse a drafter that was made for another target; one that borrows embedding and head has its vocabulary.

    Args:
        target: that it is to draft for.
        drafter: whose configuration then has the number of the target's tokens.
    """
    stated, size, own = drafter.config.vocab_size, target.vocab_size, drafter.vocabulary
    borrows = drafter.embed_tokens is None and (drafter.lm_head is None or own is not None)
    is_padded = borrows and is_padding(stated, size)
    config = drafter.config.of_vocabulary(size) if is_padded else drafter.config
    check_sizes(config, target.name, target.num_layers, target.embedding.embedding_dim, size)
    if is_padded:
        drafter.config = config
        drafter.vocabulary = None if own is None else DraftVocabulary(own.target_ids, size)
        tqdm.write(padding_note(stated, target.name, size), file=sys.stderr)


@torch.inference_mode()
def draft_logits(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, roots: Tensor, blocks_per_pass: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The drafter's logits at many roots of one sequence.

    Args:
        drafter: that proposes.
        target: lends the drafter its embedding and head.
        features: ``[C, taps x H]``, tapped target states of positions 0 .. C-1.
        tokens: int64 ``[L]``, the whole sequence.
        roots: int64 ``[R]``, absolute positions, each at most C.
        blocks_per_pass: bounds the memory of a pass.

    Yields:
        The roots of a pass, and float32 logits ``[R', D, V]``; V is the drafter's own vocabulary, where it has one.
    """
    for part, states in draft_states(drafter, target, features, tokens, roots, blocks_per_pass):
        yield part, drafted_logits(drafter, target, states.after, tokens[part])


@torch.inference_mode()
def draft_states(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, roots: Tensor, blocks_per_pass: int
) -> Iterator[tuple[Tensor, BlockStates]]:
    """The roots of each pass of `draft_logits`, and the states that its logits are made of.

    The context is projected once; a block sees only what lies before its own root, and its own
    masks, so a row is what drafting at that root alone would give.
    """
    context = drafter.context(features[None])
    for start in range(0, len(roots), blocks_per_pass):
        part = roots[start : start + blocks_per_pass]
        yield part, replace(block_states(drafter, target, tokens[part], part, context), seen=features[part - 1])


def block_logits(
    drafter: DFlashDrafter, target: Target, root_tokens: Tensor, positions: Tensor, context: DrafterContext
) -> Tensor:
    """float32 logits ``[R, D, V]`` of blocks below root tokens ``[R]`` at absolute positions ``[R]``.

    The context is of one sequence, or of R sequences with a root each.

    V is the target's vocabulary, or the drafter's own, whose ids `DraftVocabulary` maps.
    """
    states = block_states(drafter, target, root_tokens, positions, context)
    return drafted_logits(drafter, target, states.after, root_tokens)


def block_states(
    drafter: DFlashDrafter, target: Target, root_tokens: Tensor, positions: Tensor, context: DrafterContext
) -> BlockStates:
    """The states behind `block_logits`, in one pass; arguments as there."""
    num_sequences = context.keys[0].shape[0]
    blocks = blocks_of(drafter, root_tokens)
    return states_of_blocks(drafter, target, blocks.view(num_sequences, -1, blocks.shape[1]), positions, context)


def blocks_of(drafter: DFlashDrafter, root_tokens: Tensor, filled: Tensor | None = None) -> Tensor:
    """Blocks below some roots, int64 ``[R, L]``: the root, tokens that are known, masks.

    Args:
        drafter: of blocks.
        root_tokens: int64 ``[R]``.
        filled: int64 ``[R, i]``, tokens that slots 1 .. i of each block hold in place of masks; None: no slot does. A
            causal head with filled slots is run up to the first one that predicts behind them, and the block ends
            there: that one sees none of the others.
    """
    config = drafter.config
    size = config.block_size
    if filled is not None and config.is_causal_head:
        size = min(size, 1 + filled.shape[1] + config.first_slot)
    blocks = torch.full((len(root_tokens), size), config.mask_token_id, device=root_tokens.device)
    blocks[:, 0] = root_tokens
    if filled is not None:
        blocks[:, 1 : 1 + filled.shape[1]] = filled
    return blocks


def states_of_blocks(
    drafter: DFlashDrafter, target: Target, blocks: Tensor, positions: Tensor, context: DrafterContext
) -> BlockStates:
    """The states of blocks of any tokens, in one pass.

    Args:
        drafter: of blocks.
        target: lends the drafter its embedding.
        blocks: int64 ``[S, R / S, slots]``, of each of the S sequences; slot 0 holds a root, what is not known a mask.
        positions: int64 ``[R]``, absolute, of the roots.
        context: of the S sequences.
    """
    config = drafter.config
    embedded = _scaled(embedded_tokens(drafter, target, blocks), config.input_embedding_scale)
    both = drafter.states(embedded, positions.view(blocks.shape[:2]), context)
    before, after = (part[:, :, config.first_slot :].flatten(0, 1) for part in both)
    return BlockStates(before, after)


BlockPasses: TypeAlias = Callable[[Tensor, Tensor], BlockStates]
"""Passes of a drafter below one text: from blocks, int64 ``[R, L]``, and their roots' positions, int64 ``[R]``, to the
states of the slots that predict. Slot 0 holds the root, and what is not known a mask."""


def passes_along(drafter: DFlashDrafter, target: Target, context: DrafterContext) -> BlockPasses:
    """The passes of a drafter below roots of one text; a block sees what lies before its own root."""
    return lambda blocks, positions: states_of_blocks(drafter, target, blocks[None], positions, context)


class TextContext:
    """A drafter's context of one text that is being written, and its passes below the text.

    What the target has read since the last draft is projected when the next one is made.
    """

    def __init__(self, drafter: DFlashDrafter, target: Target, room: int) -> None:
        """Begin with nothing read of the text, and room for so many tokens."""
        self._drafter, self._target = drafter, target
        self._rows = KeyValueRows(2 * drafter.config.num_hidden_layers, room)
        self._held = DrafterContext((), ())
        self._length = 0
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._waiting.append(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; the last few are left to be projected again."""
        self.catch_up()
        num_again = min(self._last.shape[1], length)
        self._length = length - num_again
        self._waiting = [self._last[:, :num_again]]

    def states(self, blocks: Tensor, positions: Tensor) -> BlockStates:
        """One pass below the text that was read; see `BlockPasses`."""
        self.catch_up()
        states = states_of_blocks(self._drafter, self._target, blocks[None], positions, self._held)
        return replace(states, seen=self._last[:, -1])

    def catch_up(self) -> None:
        """Project what was read since the last time."""
        if self._waiting:
            features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting, dim=1)
            self._waiting, self._last = [], features[:, -3:]
            self._append(features)
            self._length += features.shape[1]

    def _append(self, features: Tensor) -> None:
        """Project states of tokens from `_length` on."""
        new, rows, start = self._drafter.context(features, self._length), self._rows, self._length
        keys = [rows.write(2 * layer, start, part) for layer, part in enumerate(new.keys)]
        values = [rows.write(2 * layer + 1, start, part) for layer, part in enumerate(new.values)]
        self._held = DrafterContext(tuple(keys), tuple(values))


def embedded_tokens(drafter: Outputs, target: Target, tokens: Tensor) -> Tensor:
    """Embeddings ``[..., H]`` of tokens ``[...]``, not scaled: the drafter's own, or the target's."""
    # The bare rows: some targets scale what their embedding hands out, and drafters ask for their own scale.
    return torch.nn.functional.embedding(tokens, (drafter.embed_tokens or target.embedding).weight)


def logits_of(drafter: Outputs, target: Target, states: Tensor) -> Tensor:
    """float32 logits ``[..., V]`` of states ``[..., H]`` after the final norm.

    V is the drafter's own vocabulary, where it has one; logits are scaled and soft-capped as it asks.
    """
    # One contiguous matrix: a strided batch sends some CPU kernels down a path 60 times slower.
    hidden = states.reshape(-1, states.shape[-1])
    logits = target.logits(hidden) if drafter.lm_head is None else drafter.lm_head(hidden).float()
    return finished_logits(drafter, logits).view(*states.shape[:-1], -1)


def drafted_logits(drafter: DFlashDrafter, target: Target, after: Tensor, root_tokens: Tensor) -> Tensor:
    """float32 logits ``[R, D, V]`` of a pass: those of a Markov head stand behind the head's own most probable tokens.

    Args:
        drafter: whose states they are.
        target: lends the drafter its head.
        after: ``[R, D, H]``, states after the final norm.
        root_tokens: int64 ``[R]``.
    """
    base, head = logits_of(drafter, target, after), drafter.markov_head
    if head is None:
        return base
    above, laws = root_tokens.to(after.device), list[Tensor]()
    for depth in range(after.shape[1]):
        added: Tensor = head.markov_w2(head(after[:, depth], above))
        laws.append(base[:, depth] + added.to(base.device).float())
        # In the order of rows, in which a tie of the grid goes to the smaller id.
        above = ids_at(keys_of(laws[-1].log_softmax(-1)).amin(-1)).to(after.device)
    return torch.stack(laws, dim=1)


def finished_logits(drafter: Outputs, logits: Tensor) -> Tensor:
    """What an output head says, scaled and soft-capped as the drafter asks."""
    logits = _scaled(logits, drafter.config.output_multiplier)
    cap = drafter.config.final_logit_softcapping
    return logits if cap is None else torch.tanh(logits / cap) * cap


def _scaled(values: Tensor, scale: float) -> Tensor:
    return values if scale == 1 else values * scale
