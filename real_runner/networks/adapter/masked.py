"""Masks behind tokens of texts that are known, in passes of their own: how a target drafts at many places at once.

A mask behind an anchor sees the text up to that anchor, and the masks between the two; it stands where the token stands
that it is in place of, and predicts the one behind. So the k masks behind the token at position p say what follows the
token at p + 1, without having seen that token: they are the draft below it as a root.

Letters: S sequences, C tokens of each, G anchors of each, k masks behind each, H hidden size, E key-value heads, F head
size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from simlab.arrays import Ints, Longs
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import config_file
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import BlockStates, logits_of
from simlab.real_runner.drafters.ranked import CandidatesRead, blocks_per_pass, columns_of, first_marginals
from simlab.real_runner.execution.executions import COMPILED
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.adapter.config import adapter_from_json
from simlab.real_runner.networks.adapter.gated import GatedAdapter, MaskRows, adapted, load_adapter
from simlab.real_runner.networks.adapter.noise import TextNoise
from simlab.real_runner.networks.drafter import Asked
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.networks.producer import Drafted
from simlab.real_runner.targets.model import Target, final_norm
from simlab.traces.format.frames import DraftColumns
from simlab.tree import DraftTree

MASK = -1
"""Stands for the token of a mask in a tree: no token of any text, so that it is no sibling of one."""


class _ReadLayer(DynamicLayer):
    """One layer's keys and values of texts; what a pass adds to them is gone with the pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0
        self.text: tuple[Tensor, Tensor] | None = None

    def get_seq_length(self) -> int:
        return self.length

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self.text is None:
            self.text, self.length = (key_states, value_states), key_states.shape[2]
            return self.text
        keys, values = self.text
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)


def read_texts(target: Target, ids: Tensor) -> tuple[Tensor, Cache]:
    """Read texts, int64 ``[S, C]``, right-padded with any token.

    Returns:
        States ``[S, C, H]``, after the final norm; and keys and values of all of their tokens, which no pass changes
        any more.
    """
    cache = Cache(layers=[_ReadLayer() for _ in range(len(target.layers))])
    return target.states(ids, cache), cache


def mask_states(
    target: Target, adapter: GatedAdapter, texts: tuple[Tensor, Cache], anchors: Tensor, noise: Tensor | None = None
) -> Tensor:
    """States ``[S, G, k, H]``, after the final norm, of masks; arguments as of `mask_block_states`."""
    states = mask_block_states(target, adapter, texts, anchors, noise).after
    return states.view(*anchors.shape, adapter.config.num_masks, -1)


def mask_block_states(
    target: Target, adapter: GatedAdapter, texts: tuple[Tensor, Cache], anchors: Tensor, noise: Tensor | None = None
) -> BlockStates:
    """States ``[S G, k, H]`` of the masks behind some tokens of each text, before and after the final norm.

    Args:
        target: that drafts for itself.
        adapter: with which it does.
        texts: that it has read, as `read_texts` gives them.
        anchors: int64 ``[S, G]``, absolute positions.
        noise: int64 ``[S, G, k]``, what stands in place of masks; None: masks have embeddings of their own.
    """
    (states_of_texts, cache), (s, g) = texts, anchors.shape
    k, device = adapter.config.num_masks, anchors.device
    num_rows = g * k
    masks = mask_rows(0, g, k, noise).to(device)
    behind = anchors.repeat_interleave(k, dim=1)
    sees_text = torch.arange(states_of_texts.shape[1], device=device) <= behind[..., None]
    sees_masks = groups_visible(g, k, device).expand(s, -1, -1)
    visible = torch.cat([sees_text, sees_masks], dim=-1)[:, None]
    with adapted(target, adapter, masks), before_norm(target) as before:
        after = target.states(
            torch.zeros(s, num_rows, dtype=torch.int64, device=device),
            cache,
            visible,
            behind + 1 + masks.slots,
        )
    return BlockStates(*(states.reshape(s * g, k, -1) for states in (before[-1], after)))


@contextmanager
def before_norm(target: Target) -> Iterator[list[Tensor]]:
    """Collect the states ``[S, L, H]`` of passes before the final norm, one for each pass."""
    taken: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        taken.append(inputs[0].to(target.device))

    handle = final_norm(target).register_forward_pre_hook(keep)
    try:
        yield taken
    finally:
        handle.remove()


def with_masks(tree: DraftTree, num_carriers: int, num_masks: int) -> DraftTree:
    """A tree with masks below its first nodes, a chain below each: they see the node, those above it and each other.

    Args:
        tree: of N + 1 nodes, which stay as they are.
        num_carriers: so many of them, the root first, carry masks.
        num_masks: k, behind each.

    Returns:
        N + 1 + num_carriers x k nodes; masks stand behind all others, node by node, with the token `MASK`.
    """
    first, num_rows = tree.num_nodes, num_carriers * num_masks
    parents = np.arange(first - 1, first + num_rows - 1, dtype=np.int32)
    parents[::num_masks] = np.arange(num_carriers)
    tokens = np.full(num_rows, MASK, np.int32)
    return DraftTree(np.concatenate([tree.tokens, tokens]), np.concatenate([tree.parents, parents]))


def mask_rows(first: int, num_groups: int, num_masks: int, noise: Tensor | None = None) -> MaskRows:
    """The rows of groups of k masks that stand one behind the other, from a row on; ``noise`` is ``[S, G, k]``."""
    rows = torch.arange(first, first + num_groups * num_masks)
    return MaskRows(rows, torch.arange(num_masks).repeat(num_groups), noise if noise is None else noise.flatten(1))


def groups_visible(num_groups: int, size: int, device: torch.device) -> Tensor:
    """bool ``[G k, G k]``: each mask sees those of its own group up to itself."""
    own = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    visible: Tensor = torch.block_diag(*[own] * num_groups)
    return visible


# A target that drafts for itself, as a network that goes on from a drafter's states sees it.


@dataclass(frozen=True, slots=True)
class OwnConfig:
    """Sizes of a target that drafts for itself, see `simlab.real_runner.drafters.dense.OutputConfig`."""

    hidden_size: int
    num_attention_heads: int
    block_size: int
    vocab_size: int
    draft_vocab_size: int | None = None
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    @property
    def depth(self) -> int:
        """D, a position for each mask."""
        return self.block_size - 1


@dataclass(frozen=True, slots=True, eq=False)
class OwnDrafter:
    """The masks of a target, whose norm, embedding and output head are the target's own.

    Attributes:
        adapter: of the target.
        target: that drafts for itself.
    """

    adapter: GatedAdapter
    target: Target

    @property
    def config(self) -> OwnConfig:
        sizes = self.target.config
        own = self.adapter.config
        multiplier = 1.0 if own.noise is None else 1 / own.noise.temperature
        wide = (sizes.hidden_size, sizes.num_attention_heads, own.block_size, self.target.vocab_size)
        return OwnConfig(*wide, output_multiplier=multiplier)

    @property
    def norm(self) -> nn.Module:
        return final_norm(self.target)

    @property
    def embed_tokens(self) -> None: ...

    @property
    def lm_head(self) -> None: ...

    @property
    def vocabulary(self) -> None: ...

    def states(self, tokens: Tensor, roots: Tensor) -> BlockStates:
        """States ``[S G, k, H]`` of the masks behind the token before each root.

        Args:
            tokens: int64 ``[S, C]``, texts; what stands at a root and behind it is not read.
            roots: int64 ``[S, G]``, absolute positions, at least 1.
        """
        texts, noise = read_texts(self.target, tokens), None
        if self.adapter.config.noise is not None:
            # Of no prompt: draws of the same law as any other.
            both = zip(tokens, roots - 1, strict=True)
            noise = torch.cat([self._noise_behind(text, 0, anchors) for text, anchors in both])
        return mask_block_states(self.target, self.adapter, texts, roots - 1, noise)

    @torch.inference_mode()
    def draft_states(
        self, tokens: Tensor, prompt_length: int, roots: Tensor, per_pass: int
    ) -> Iterator[tuple[Tensor, BlockStates]]:
        """The states at many roots of one text, as `simlab.real_runner.drafters.dense.draft_states` yields them.

        Args:
            tokens: int64 ``[L]``, the whole text.
            prompt_length: P.
            roots: int64 ``[R]``, rising, at least one.
            per_pass: bounds the memory of a pass.
        """
        texts = read_texts(self.target, tokens[None, : int(roots[-1])])
        is_noise = self.adapter.config.noise is not None
        for part in roots.split(per_pass):
            noise = self._noise_behind(tokens, prompt_length, part - 1) if is_noise else None
            yield part, mask_block_states(self.target, self.adapter, texts, part[None] - 1, noise)

    def _noise_behind(self, tokens: Tensor, prompt_length: int, anchors: Tensor) -> Tensor:
        """The noise int64 ``[1, G, k]`` behind tokens ``[G]`` of one text ``[L]``."""
        config, ids, positions = self.adapter.config, tokens.cpu().numpy(), anchors.cpu().numpy()
        assert config.noise is not None
        drawn = config.noise.behind(ids[:prompt_length]).tokens(ids[positions], positions, config.num_masks)
        return torch.from_numpy(drawn)[None].to(tokens.device)

    def columns(self, features: Tensor, tokens: Tensor, prompt_length: int, kept: KeptCandidates) -> DraftColumns:
        """The target's own rows at every root of one text, each made of the text before its root.

        Args:
            features: not read.
            tokens: int64 ``[P + T]``, prompt and text.
            prompt_length: P, at least 1.
            kept: how many candidates.
        """
        roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
        return columns_of(self._passes(tokens, roots, prompt_length), None, self.config.depth, tokens, kept)

    def _passes(self, tokens: Tensor, roots: Tensor, prompt_length: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The roots of each pass, and float32 logits ``[R, k, V]``."""
        per_pass = blocks_per_pass(self.config.num_attention_heads, self.config.depth, len(tokens))
        for part, states in self.draft_states(tokens, prompt_length, roots, per_pass) if len(roots) else ():
            yield part, logits_of(self, self.target, states.after)

    def live(self, read: CandidatesRead, room: int, graphs: GraphedModels | None = None) -> "LiveMasks":
        return LiveMasks(self, read)


class LiveMasks:
    """The masks behind the last token before the root of one text that is being written.

    A round whose last token carries none leaves the next root without a draft.
    """

    def __init__(self, own: OwnDrafter, read: CandidatesRead) -> None:
        """Begin without a draft.

        Args:
            own: the target that drafts for itself.
            read: what is given at each depth.
        """
        self._own, self._wanted = own, read
        self._states: BlockStates | None = None
        self._is_drafted = False
        self._noise: TextNoise | None = None

    def begin(self, prompt_ids: Ints) -> None:
        """Take in the prompt, int32 ``[P]``, of which noise is drawn."""
        noise = self._own.adapter.config.noise
        self._noise = None if noise is None else noise.behind(prompt_ids)

    def logits(self, states: Tensor) -> Tensor:
        """The drafted logits ``[..., V]`` of states behind the final norm."""
        return logits_of(self._own, self._own.target, states)

    def noise_behind(self, tokens: Ints, positions: Ints) -> Longs | None:
        """What stands behind tokens at absolute positions, int64 ``[N, k]``; None: masks do."""
        num = self._own.config.depth
        return None if self._noise is None else self._noise.tokens(tokens, positions, num)

    def take(self, states: BlockStates | None) -> None:
        """Keep the states ``[1, k, H]`` of the masks behind the last token before the next root; None: it has none."""
        self._is_drafted = states is not None
        self._states = self._states if states is None else states

    @contextmanager
    def during(self, first: int, tokens: Ints, positions: Ints) -> Iterator[list[Tensor]]:
        """Run passes of the target in which groups of rows are masks; collects states as `before_norm` does.

        Args:
            first: row of the first mask.
            tokens: int32 ``[N]``, behind which the groups stand.
            positions: int32 ``[N]``, absolute, of these.
        """
        target, noise = self._own.target, self.noise_behind(tokens, positions)
        drawn = None if noise is None else torch.from_numpy(noise)[None]
        rows = mask_rows(first, len(tokens), self._own.config.depth, drawn)
        with adapted(target, self._own.adapter, rows.to(target.device)), before_norm(target) as before:
            yield before

    def read(self, features: Tensor) -> None:
        """Nothing is read: what the target's own passes say is taken as it comes."""

    def rewind(self, length: int) -> None:
        """The next root has a draft: the last one that was made."""
        self._is_drafted = self._states is not None

    @torch.inference_mode()
    def draft(self, committed: Ints) -> Drafted | None:
        """What masks say below the last of the tokens of prompt and text, int32; None where it has no draft."""
        if self._states is None or not self._is_drafted:
            return None
        logits = self.logits(self._states.after)[0]
        marginals = first_marginals(logits, self._wanted)
        return Drafted(int(committed[-1]), len(committed) - 1, marginals, self._states)


def load_drafter(asked: Asked) -> Callable[[Target], GatedAdapter]:
    """The adapter of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load_drafter`."""
    others = {"--tap-offset": asked.tap_offset is not None, "--device-map": asked.is_mapped}
    others[f"--execution {COMPILED}"] = asked.execution == COMPILED
    if given := [name for name, is_given in others.items() if is_given]:
        raise ModelError(
            "an adapter changes products of the target where they are, and taps no layer; leave "
            f"{' and '.join(given)} out, or give a DFlash drafter"
        )

    config = adapter_from_json(read_fields(config_file(asked.location)))
    assert config is not None
    if not config.target_digest and (asked.block is None or asked.noise is None):
        raise ModelError(
            "an adapter of UNO's does not say how many rows its pass drafts, nor what stands there; give --block N, "
            "the rows of that pass, the committed token's counted, and --noise, such as --noise deterministic,below=N "
            "with the target's mask token or the size of its vocabulary"
        )

    def loaded(target: Target) -> GatedAdapter:
        if len(target.layers) == 0:
            raise ModelError(
                "with an adapter a target drafts in its own passes, and hidden states are of passes that were made "
                "elsewhere; leave --hidden-states out, or give a DFlash drafter"
            )
        adapter = load_adapter(asked.location, target)
        adapter.config = adapter.config if asked.block is None else adapter.config.with_block(asked.block)
        adapter.config = adapter.config.with_noise(asked.noise)
        return adapter

    return loaded


drafts = OwnDrafter
"""What drafts with an adapter; see `simlab.real_runner.networks.loading.NetworkCode.drafts`."""
