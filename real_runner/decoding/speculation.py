"""Speculative decoding of one text under any policy: draft, select, verify, commit.

The target reads the whole tree in one pass: each node sees the text before the root, its ancestors
and itself, and stands at the root's position plus its depth (Miao et al. 2024, "SpecInfer",
arXiv 2305.09781). The target's own choice is followed down the tree as long as it was drafted, and its
choice after the last such node is the bonus token. So the text is that of plain decoding under every
policy, at any temperature, because the choice at a position does not depend on how it was reached.

Where the target drafts for itself, masks stand behind nodes of the tree as its last leaves, and no node sees one.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints, read_only
from simlab.channels import TARGET, Channel, TargetLaw
from simlab.cost import StageSeconds
from simlab.draft import Draft, Prompt
from simlab.errors import PolicyError
from simlab.policy import (
    TARGET_LAW,
    AnyPolicy,
    Outcome,
    branches_asked,
    modelled_s,
    num_masked,
    route_taken,
    routes_of,
)
from simlab.real_runner.attention.batch_invariant import FixedPass, fixed_shape
from simlab.real_runner.attention.packed import PackedPass
from simlab.real_runner.decoding.decoded import Choose, DecodedRound, chooser
from simlab.real_runner.decoding.drafting import Drafting, is_drafting
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.tree_pass import TreeMask, follow, pass_of
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.execution.batched_buffers import trees_pass
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import Models
from simlab.real_runner.networks.adapter.masked import LiveMasks, mask_rows, with_masks
from simlab.real_runner.targets.model import entropies_of, features_of, tapped
from simlab.sampling.choice import Sampling, sequence_key
from simlab.sequence_replay import Round, check_tree
from simlab.tree import DraftTree

LONG_CONTEXT = 4096
"""From so many tokens before the root on, text and tree are attended to apart: a mask over both grows with the text,
and below it one call is faster than two."""


@dataclass(frozen=True, slots=True)
class VerifiedTree:
    """What the target said about a tree: accepted nodes, the tokens they and the bonus token add, and its law there.

    ``said`` is the state ``[H]`` at the last of these nodes and its logits ``[V]``, where a network goes on from them.
    """

    path: tuple[int, ...]
    committed: tuple[int, ...]
    ended: bool
    features: Tensor | None
    law: TargetLaw | None = None
    said: tuple[Tensor, Tensor] | None = None


class Speculation:
    """One text, round by round; begins with the prefill and token 0."""

    @torch.inference_mode()
    def __init__(
        self,
        models: Models,
        policy: AnyPolicy,
        prompt: Prompt,
        sampling: Sampling,
        max_new_tokens: int,
        clock: Clock,
    ) -> None:
        """Read the prompt and choose token 0."""
        self._models, self._policy, self._prompt = models, policy, prompt
        self._sampling, self._clock = sampling, clock
        self._key = sequence_key(sampling, prompt)
        self._start, self._max_new_tokens = len(prompt.token_ids), max_new_tokens
        self._tokens = np.zeros(self._start + max_new_tokens, np.int32)
        self._tokens[: self._start] = prompt.token_ids
        self._length = self._start
        rows = models.fixed_rows
        self._shape = fixed_shape(rows, self._start, max_new_tokens) if rows else None
        self._drafter = Drafting(models, policy, len(self._tokens)) if is_drafting(policy) else None
        self._num_masks = 0 if self._masks is None else models.drafter.config.depth
        most = rows or policy.budget + (policy.budget + 1) * self._num_masks
        self._cache = BufferCache(models.target, len(self._tokens) + most if rows or policy.budget < 1 << 15 else 0)
        self._mask = TreeMask(models.target)
        self._reads_law = TARGET_LAW in policy.needs.channels
        self._state = policy.start(prompt)
        self._said = list[BlockStates]()
        self._read_prompt()

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return self._tokens[self._start : self._length].copy()

    @property
    def ended(self) -> bool:
        """Whether the last token is a stop token or the last allowed one."""
        return self._stops(int(self._tokens[self._length - 1])) or self._left == 0

    @torch.inference_mode()
    def round(self) -> DecodedRound:
        """One draft and one verification.

        Raises:
            PolicyError: a tree above the policy's own budget, below another root, or of unknown tokens.
            ModelError: logits of a model are no law.
        """
        position = self._length - 1
        times = [self._clock()]
        committed = read_only(self._tokens[: self._length])
        before = Draft(None, int(committed[-1]), committed, position, self._known(position))
        # A round of which nothing is foreseen has no such stage, either.
        times.append(times[-1] if self._before_root is None else self._clock())
        route = route_taken(self._policy, before, self._state)
        served = self._policy if route is None else routes_of(self._policy)[route]
        if self._drafter is not None:
            self._drafter.draft(committed, served.needs)
        times.append(self._clock())
        draft = self._seen(before)
        # A round without channels has no such stage.
        times.append(self._clock() if served.needs.scored else times[-1])
        tree = self._policy.select(draft, self._state)
        times.append(self._clock())
        check_drafted(self._policy, tree, draft.root_token, self._models.target.vocab_size)
        verified = self._verify(tree, position)
        times.append(self._clock())
        self._commit(verified, position, tree.num_drafted)
        times.append(self._clock())
        clipped = len(verified.path) == len(verified.committed)
        ran = Round(position - self._start, tree, verified.path, len(verified.committed), clipped, route=route)
        foreseen_s, draft_s, channel_s, *rest_s = np.diff(times).tolist()
        return DecodedRound(
            ran, draft.marginals, StageSeconds(draft_s, foreseen_s + channel_s, *rest_s), draft.channels
        )

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Go back to the first ``context_length`` tokens, below another root: to time a round again.

        The last few of the drafter's hidden states stay what they were.
        """
        self._cache.shorten(context_length)
        if self._drafter is not None:
            self._drafter.rewind(context_length)
        self._tokens[context_length] = root_token
        self._length = context_length + 1
        self._state = self._policy.start(self._prompt)

    @property
    def _masks(self) -> LiveMasks | None:
        return None if self._drafter is None else self._drafter.masks

    @property
    def _left(self) -> int:
        return self._start + self._max_new_tokens - self._length

    def _stops(self, token: int) -> bool:
        return token in self._models.target.stop_token_ids

    def _read_prompt(self) -> None:
        ids = torch.from_numpy(self._prompt.token_ids.astype(np.int64))[None]
        states, features = self._pass(ids, None, None)
        if self._drafter is not None and features is not None:
            self._drafter.read(features)
        if self._masks is not None:
            self._masks.take(self._behind_prompt(self._masks))
        logits = self._models.target.logits(states[:, -1])
        self._law, self._before_root = self._law_of(logits[0]), self._kept(states[0, -1], logits[0])
        self._append((self._chooser(logits)(0, self._start),))

    def _behind_prompt(self, masks: LiveMasks) -> BlockStates:
        """States of the masks behind the prompt, in a pass of their own: reading it is as without masks."""
        ids = torch.zeros(1, self._num_masks, dtype=torch.int64)
        with masks.during(mask_rows(0, 1, self._num_masks)) as before:
            after = self._models.target.states(ids, self._cache)
        self._cache.shorten(self._start)
        return BlockStates(before[-1], after)

    def _pass(
        self,
        ids: Tensor,
        visible: Tensor | None,
        positions: Tensor | None,
        packed: PackedPass | None = None,
        fixed: FixedPass | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """States ``[1, L, H]`` of the target, and tapped ones ``[1, L, taps x H]`` where they are wanted."""
        target = self._models.target
        if self._drafter is None or not self._drafter.layer_ids:
            return target.states(ids, self._cache, visible, positions, packed, fixed), None
        layer_ids = self._drafter.layer_ids
        with tapped(target, layer_ids) as taken:
            states = target.states(ids, self._cache, visible, positions, packed, fixed)
        return states, features_of(taken, layer_ids)

    def _chooser(self, logits: Tensor) -> Choose:
        return chooser(self._models.target, logits, self._sampling, self._key)

    def _law_of(self, logits: Tensor) -> TargetLaw | None:
        """The law ``[V]`` of the next root, where the policy reads it."""
        return TargetLaw(float(entropies_of(logits.log_softmax(-1)))) if self._reads_law else None

    def _kept(self, state: Tensor, logits: Tensor) -> tuple[Tensor, Tensor] | None:
        """What was said at the token before the next root, where something is foreseen from it."""
        return (state, logits) if self._drafter is not None and self._drafter.foresees else None

    def _known(self, position: int) -> dict[str, Channel]:
        """What is known before anything is drafted."""
        law: dict[str, Channel] = {} if self._law is None else {TARGET: self._law}
        if self._drafter is None or self._before_root is None:
            return law
        return law | self._drafter.foreseen(*self._before_root, position)

    def _seen(self, before: Draft) -> Draft:
        """What the policy may know of the draft that was made."""
        if self._drafter is None:
            return before
        first = replace(before, marginals=self._drafter.marginals())
        made = self._drafter.channels(branches_asked(self._policy, first, self._state))
        return replace(first, channels={**first.channels, **made})

    def _read_tree(self, tree: DraftTree, position: int) -> tuple[Tensor, Tensor | None]:
        target = self._models.target
        device = target.device
        if self._shape is not None:
            heads, dtype = target.heads_per_group, target.dtype
            ids, positions, fixed = self._shape.tree_pass(tree, position, heads, dtype, device)
            return self._pass(ids, None, positions, None, fixed)
        if position < LONG_CONTEXT:
            return self._pass(*pass_of(tree, position, self._mask))
        packed, ids, positions = trees_pass([tree], [0], [position], device)
        return self._pass(ids, None, positions, packed)

    def _verify(self, tree: DraftTree, position: int) -> VerifiedTree:
        states, features = self._read_with_masks(tree, position)
        logits = self._models.target.logits(states[0])
        choose = self._chooser(logits)
        path, committed = follow(tree, choose, position, self._left, self._models.target.stop_token_ids)
        ended = self._stops(committed[-1]) or len(committed) == self._left
        last = path[-1] if path else 0
        law, said = self._law_of(logits[last]), self._kept(states[0, last], logits[last])
        return VerifiedTree(path, committed, ended, features, law, said)

    def _read_with_masks(self, tree: DraftTree, position: int) -> tuple[Tensor, Tensor | None]:
        """States of the nodes of a tree, and tapped ones; what its masks say is kept until one of them is the last."""
        masks, k, self._said = self._masks, self._num_masks, []
        num = 0 if masks is None else num_masked(self._policy, self._state, tree.num_nodes)
        if masks is None or num == 0:
            return self._read_tree(tree, position)
        with masks.during(mask_rows(tree.num_nodes, num, k)) as before:
            states, features = self._read_tree(with_masks(tree, num, k), position)
        of_masks = (one[:, tree.num_nodes :].split(k, dim=1) for one in (before[-1], states))
        self._said = [BlockStates(*pair) for pair in zip(*of_masks, strict=True)]
        return states[:, : tree.num_nodes], None if features is None else features[:, : tree.num_nodes]

    def _take_draft(self, last_node: int) -> None:
        """The next root's draft is what the masks behind the last accepted node say, where it carries some."""
        if self._masks is not None:
            self._masks.take(self._said[last_node] if last_node < len(self._said) else None)

    def _commit(self, verified: VerifiedTree, position: int, num_drafted: int) -> None:
        kept = torch.tensor((0, *verified.path))
        self._law, self._before_root = verified.law, verified.said
        self._cache.compact(position, kept)
        self._take_draft(int(kept[-1]))
        if self._drafter is not None and verified.features is not None:
            self._drafter.read(verified.features.index_select(1, kept.to(verified.features.device)))
        self._append(verified.committed)
        seconds = modelled_s(self._policy, position, num_drafted)
        outcome = Outcome(verified.path, verified.committed, verified.ended, seconds)
        self._state = self._policy.update(self._state, outcome)

    def _append(self, tokens: tuple[int, ...]) -> None:
        self._tokens[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)


def check_drafted(policy: AnyPolicy, tree: DraftTree, root_token: int, vocab_size: int) -> None:
    """Refuse a tree that the target cannot or may not verify."""
    check_tree(policy, tree, root_token)
    low, high = tree.tokens.min(), tree.tokens.max()
    if low < 0 or high >= vocab_size:
        raise PolicyError(f"{policy!r} drafted token {low if low < 0 else high}; ids go from 0 to {vocab_size - 1}")
