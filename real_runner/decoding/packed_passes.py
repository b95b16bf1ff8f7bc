"""Passes of several texts at a time: the tokens of all of them in one pass of each model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from simlab.arrays import read_only
from simlab.cost import StageSeconds
from simlab.draft import Draft, Marginals
from simlab.policy import AnyPolicy
from simlab.real_runner.attention.packed import PackedPart, PackedPass, packed_pass
from simlab.real_runner.decoding.decoded import RunningText, chooser, stage_seconds
from simlab.real_runner.decoding.drafting import candidates_read
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.tree_pass import Walked, walk
from simlab.real_runner.drafters.dense import block_logits
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.execution.kv_buffers import BatchedCache, SequenceRows, trees_pass
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import features_of, tapped
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree


class BatchedDrafter:
    """Drafts below a root of each sequence. What the target has read since then is projected first."""

    def __init__(self, models: Models, read: CandidatesRead, num_rows: int, num_slots: int) -> None:
        """Begin with nothing read of any sequence.

        Args:
            models: both of them; the drafter borrows the target's embedding and head.
            read: what is given at each depth.
            num_rows: sequences at a time.
            num_slots: tokens that a context is expected to hold.
        """
        self._models, self._wanted = models, read
        self._rows = SequenceRows(2 * models.block_drafter.config.num_hidden_layers, num_rows, num_slots)
        self._waiting: list[list[Tensor]] = [[] for _ in range(num_rows)]
        self._last: list[Tensor] = [torch.empty(0)] * num_rows

    def read(self, row: int, features: Tensor) -> None:
        """Take in the tapped states ``[L, taps x H]`` of further tokens of a sequence."""
        self._waiting[row].append(features)

    def marginals(self, root_tokens: Sequence[int], positions: Sequence[int]) -> list[Marginals]:
        """The first candidates below the root of each of the first rows, all before it read.

        Args:
            root_tokens: one of each sequence, in the order of the rows.
            positions: absolute, of the roots.
        """
        models, num = self._models, len(root_tokens)
        self._project(num)
        context, device = self._context(num), models.target.device
        roots, position_ids = torch.tensor(root_tokens, device=device), torch.tensor(positions, device=device)
        logits = block_logits(models.block_drafter, models.target, roots, position_ids, context)
        rows, own = [first_marginals(logit, self._wanted) for logit in logits], models.block_drafter.vocabulary
        return rows if own is None else [own.in_target(row) for row in rows]

    def rewind(self, row: int, length: int) -> None:
        """Forget all but the first tokens of a row; the last few are left to be projected again."""
        if self._waiting[row]:
            self._last[row] = torch.cat(self._waiting[row])[-3:]
        num_again = min(len(self._last[row]), length)
        self._rows.lengths[row] = length - num_again
        self._waiting[row] = [self._last[row][:num_again]]

    def drop(self, row: int, last: int) -> None:
        """Free a row: the sequence in the last used row moves there."""
        self._rows.drop(row, last)
        self._waiting[row], self._waiting[last] = self._waiting[last], []
        self._last[row] = self._last[last]

    def _project(self, num: int) -> None:
        parts, start = [], 0
        for row in range(num):
            features = torch.cat(self._waiting[row])
            parts.append(PackedPart(row, self._rows.lengths[row], start, len(features), _NOTHING_HIDDEN))
            start += len(features)
            self._last[row] = features[-3:]
        packed = packed_pass(parts, self._models.target.device)
        features = torch.cat([part for row in range(num) for part in self._waiting[row]])
        new = self._models.block_drafter.context_at(features[None], packed.slots)
        for layer, (keys, values) in enumerate(zip(new.keys, new.values, strict=True)):
            self._rows.write(2 * layer, keys[0], packed)
            self._rows.write(2 * layer + 1, values[0], packed)
        self._rows.extend(packed)
        self._waiting[:num] = [[] for _ in range(num)]

    def _context(self, num: int) -> DrafterContext:
        """The first rows, as views; what lies behind the end of the shorter ones no block sees."""
        held, longest = self._rows.tensor, max(self._rows.lengths[:num])
        assert held is not None
        pairs = [held[2 * layer : 2 * layer + 2, :num, :, :longest] for layer in range(len(held) // 2)]
        return DrafterContext(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


_NOTHING_HIDDEN = torch.empty(0, 0, dtype=torch.bool)
"""A context is projected token by token: nothing attends."""


class PackedPasses:
    """Passes of several texts at a time, see `simlab.real_runner.decoding.speculation.Passes`."""

    def __init__(
        self, models: Models, policy: AnyPolicy, sampling: Sampling, clock: Clock, num_rows: int, num_slots: int
    ) -> None:
        """Begin with no text.

        Args:
            models: a target and a drafter that fits it.
            policy: reads no channels, and is no router.
            sampling: of every text.
            clock: of the models' device.
            num_rows: texts at a time, at most.
            num_slots: tokens that a text is expected to have.
        """
        self._models, self._sampling, self._clock = models, sampling, clock
        self._cache = BatchedCache(models.target, num_rows, num_slots + min(policy.budget, 1 << 10))
        self._drafter = (
            BatchedDrafter(models, candidates_read(policy), num_rows, num_slots) if policy.needs.draft else None
        )
        self._features = list[Tensor]()

    def add(self, row: int, text: RunningText) -> None:
        target = self._models.target
        packed = packed_pass([PackedPart(row, 0, 0, text.length, None)], target.device)
        positions = torch.arange(text.length, device=target.device)[None]
        states, features = self._pass(text.prompt_ids, positions, packed)
        if self._drafter is not None:
            self._drafter.read(row, features)
        logits = target.logits(states[0, -1:])
        text.append((chooser(target, logits, self._sampling, text.key)(0, text.length),))

    def drafts(self, texts: Sequence[RunningText], times: list[float]) -> list[Draft]:
        marginals: Sequence[Marginals | None] = [None] * len(texts)
        if self._drafter is not None:
            marginals = self._drafter.marginals([text.root for text in texts], [text.position for text in texts])
        drafted = self._clock()
        times += [times[-1], drafted, drafted]
        return [
            Draft(marginal, text.root, read_only(text.tokens[: text.length]), text.position)
            for text, marginal in zip(texts, marginals, strict=True)
        ]

    def verify(self, texts: Sequence[RunningText], trees: Sequence[DraftTree]) -> list[Walked]:
        target, positions = self._models.target, [text.position for text in texts]
        packed, ids, position_ids = trees_pass(trees, range(len(trees)), positions, target.device)
        states, features = self._pass(ids, position_ids, packed)
        logits, sizes = target.logits(states[0]), [tree.num_nodes for tree in trees]
        self._features = list(features.split(sizes))
        return [
            walk(target, own, self._sampling, text, tree)
            for text, tree, own in zip(texts, trees, logits.split(sizes), strict=True)
        ]

    def keep(self, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
        for row, (text, (path, _)) in enumerate(zip(texts, walks, strict=True)):
            kept = torch.tensor((0, *path))
            self._cache.rows.compact(row, text.position, kept)
            if self._drafter is not None:
                features = self._features[row]
                self._drafter.read(row, features.index_select(0, kept.to(features.device)))

    def stage_seconds(self, times: Sequence[float]) -> StageSeconds:
        return stage_seconds(times)

    def rewind(self, row: int, text: RunningText) -> None:
        self._cache.rows.lengths[row] = text.position
        if self._drafter is not None:
            self._drafter.rewind(row, text.position)

    def drop(self, row: int, last: int) -> None:
        self._cache.rows.drop(row, last)
        if self._drafter is not None:
            self._drafter.drop(row, last)

    def _pass(self, ids: Tensor, positions: Tensor, packed: PackedPass) -> tuple[Tensor, Tensor]:
        """States ``[1, N, H]`` of the target, and tapped ones ``[N, taps x H]``, of no layer without a drafter."""
        target = self._models.target
        layer_ids = () if self._drafter is None else self._models.drafter.config.target_layer_ids
        self._cache.packed = packed
        with tapped(target, layer_ids) as taken:
            states = target.states(ids, self._cache, None, positions, packed)
        self._cache.rows.extend(packed)
        return states, features_of(taken, layer_ids)[0] if layer_ids else states[0, :, :0]
