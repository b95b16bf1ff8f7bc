"""Speculative decoding of several texts at a time, a round of all of them in one pass of each model.

Each text has its own tree, context, memory and noise, so its rounds are those that it has alone: a choice
at a position depends on nothing but the text before it, up to the last bits of the arithmetic. A policy of
the whole batch, of a `simlab.policies.rules.budgets.SharedRule`, sees all drafts of a round.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import read_only
from simlab.cost import StageSeconds
from simlab.draft import Draft, Marginals, Prompt
from simlab.policies.composition import check_batch, check_runs_together, select_together, shared_composition
from simlab.policy import AnyPolicy, Outcome, is_plain_decoding, modelled_s
from simlab.real_runner.attention.packed import PackedPart, PackedPass, packed_pass
from simlab.real_runner.decoding.decode import check_runs
from simlab.real_runner.decoding.decoded import DecodedRound, DecodedText, RunningText, chooser
from simlab.real_runner.decoding.drafting import candidates_read, check_passes
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.speculation import VerifiedTree, check_drafted
from simlab.real_runner.decoding.tree_pass import follow
from simlab.real_runner.drafters.dense import block_logits
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.execution.batched_buffers import (
    BatchedCache,
    SequenceRows,
    packed_states,
    prompt_pass,
    trees_pass,
)
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import features_of, tapped
from simlab.sampling.choice import Sampling, sequence_key
from simlab.sequence_replay import Round
from simlab.tree import DraftTree

# The drafter for several sequences at once: contexts of their own lengths, one pass for all blocks.


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
        roots, places = torch.tensor(root_tokens, device=device), torch.tensor(positions, device=device)
        logits = block_logits(models.block_drafter, models.target, roots, places, context)
        rows, own = [first_marginals(one, self._wanted) for one in logits], models.block_drafter.vocabulary
        return rows if own is None else [own.in_target(one) for one in rows]

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
        features = torch.cat([one for row in range(num) for one in self._waiting[row]])
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


class BatchedSpeculation:
    """Up to ``batch`` texts at a time, round by round; texts come and go between rounds."""

    def __init__(
        self,
        models: Models,
        policy: AnyPolicy,
        sampling: Sampling,
        max_new_tokens: int,
        clock: Clock,
        batch: int,
        longest_prompt: int,
    ) -> None:
        """Begin with no text in the batch.

        Args:
            models: a target and a drafter that fits it.
            policy: of every text, or of the batch.
            sampling: of every text.
            max_new_tokens: of every text.
            clock: of the models' device.
            batch: texts at a time, at most.
            longest_prompt: tokens of it; longer ones may come, and cost a copy of everything.
        """
        self._models, self._policy, self._sampling, self._clock = models, policy, sampling, clock
        self._max_new_tokens, self._batch, self._num_came = max_new_tokens, batch, 0
        slots = longest_prompt + max_new_tokens
        self._cache = BatchedCache(models.target, batch, slots + min(policy.budget, 1 << 10))
        self._drafter = BatchedDrafter(models, candidates_read(policy), batch, slots) if policy.needs.draft else None
        self.running: list[RunningText] = []
        """Texts that have not ended; the place in this list is the row in both stores."""

    @property
    def has_place(self) -> bool:
        """Whether another text may come."""
        return len(self.running) < self._batch

    @torch.inference_mode()
    def add(self, prompt: Prompt) -> RunningText:
        """Read a prompt and choose token 0; a text that this ends stays until `take_ended`."""
        if not self.has_place:
            raise ValueError(f"{self._batch} texts are running already")
        row, start = len(self.running), len(prompt.token_ids)
        key = sequence_key(self._sampling, prompt)
        tokens = np.zeros(start + self._max_new_tokens, np.int32)
        tokens[:start] = prompt.token_ids
        text = RunningText(
            number=self._num_came,
            prompt=prompt,
            key=key,
            tokens=tokens,
            length=start,
            state=self._policy.start(prompt),
        )
        packed, positions = prompt_pass(row, start, self._models.target.device)
        ids = torch.from_numpy(prompt.token_ids.astype(np.int64))[None].to(positions.device)
        states, features = self._pass(ids, positions, packed)
        if self._drafter is not None and features is not None:
            self._drafter.read(row, features)
        logits = self._models.target.logits(states[0, -1:])
        text.append((chooser(self._models.target, logits, self._sampling, key)(0, start),))
        self._num_came += 1
        self.running.append(text)
        return text

    def ended(self, text: RunningText) -> bool:
        """Whether its last token is a stop token or the last allowed one."""
        return text.root in self._models.target.stop_token_ids or text.num_left == 0

    @torch.inference_mode()
    def take_ended(self) -> list[RunningText]:
        """Remove the texts that have ended from the batch, and hand them over."""
        # From the last row on: a text that moves to a freed row was looked at already.
        rows = reversed(range(len(self.running)))
        return [self._drop(row) for row in rows if self.ended(self.running[row])]

    @torch.inference_mode()
    def round(self) -> list[DecodedRound]:
        """One draft and one verification of every running text, none of which has ended.

        Returns:
            In the order of the rows. Each has the seconds of the whole batch: all texts wait for all.

        Raises:
            PolicyError: a tree above the policy's own budget, below another root, or of unknown tokens.
            ModelError: logits of a model are no law.
        """
        times = [self._clock()]
        marginals = self._marginals()
        times.append(self._clock())
        trees = self._select(marginals)
        times.append(self._clock())
        for text, tree in zip(self.running, trees, strict=True):
            check_drafted(self._policy, tree, text.root, self._models.target.vocab_size)
        verified_trees = self._verify(trees)
        times.append(self._clock())
        positions = [text.position for text in self.running]
        for row, (tree, verified) in enumerate(zip(trees, verified_trees, strict=True)):
            self._commit(row, tree, verified)
        times.append(self._clock())
        draft_s, *others = np.diff(times).tolist()
        seconds = StageSeconds(draft_s, 0.0, *others)
        rounds = []
        for text, position, tree, drafted, verified in zip(
            self.running, positions, trees, marginals, verified_trees, strict=True
        ):
            path, num = verified.path, len(verified.committed)
            ran = Round(position - len(text.prompt.token_ids), tree, path, num, clipped=len(path) == num)
            text.rounds.append(DecodedRound(ran, drafted, seconds))
            rounds.append(text.rounds[-1])
        return rounds

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Take every text back to its first ``context_length`` tokens, below another root: to time rounds again.

        The last few of the drafter's hidden states stay what they were.
        """
        for row, text in enumerate(self.running):
            self._cache.rows.lengths[row] = context_length
            if self._drafter is not None:
                self._drafter.rewind(row, context_length)
            text.tokens[context_length] = root_token
            text.length, text.state = context_length + 1, self._policy.start(text.prompt)

    def _pass(self, ids: Tensor, positions: Tensor, packed: PackedPass) -> tuple[Tensor, Tensor | None]:
        """States ``[1, N, H]`` of the target, and tapped ones ``[N, taps x H]`` where they are wanted."""
        target = self._models.target
        if self._drafter is None:
            return packed_states(target, ids, positions, self._cache, packed), None
        layer_ids = self._models.drafter.config.target_layer_ids
        with tapped(target, layer_ids) as taken:
            states = packed_states(target, ids, positions, self._cache, packed)
        return states, features_of(taken, layer_ids)[0]

    def _marginals(self) -> Sequence[Marginals | None]:
        if self._drafter is None:
            return [None] * len(self.running)
        roots, positions = [one.root for one in self.running], [one.position for one in self.running]
        return self._drafter.marginals(roots, positions)

    def _select(self, marginals: Sequence[Marginals | None]) -> list[DraftTree]:
        drafts = [
            Draft(drafted, one.root, read_only(one.tokens[: one.length]), one.position)
            for one, drafted in zip(self.running, marginals, strict=True)
        ]
        shared = shared_composition(self._policy)
        if shared is None:
            return [self._policy.select(draft, one.state) for draft, one in zip(drafts, self.running, strict=True)]
        came = sorted(range(len(drafts)), key=lambda row: self.running[row].number)
        trees = select_together(shared, [drafts[row] for row in came])
        return [trees[came.index(row)] for row in range(len(drafts))]

    def _verify(self, trees: Sequence[DraftTree]) -> list[VerifiedTree]:
        target, positions = self._models.target, [text.position for text in self.running]
        packed, ids, places = trees_pass(trees, range(len(trees)), positions, target.device)
        states, features = self._pass(ids, places, packed)
        logits = target.logits(states[0])
        verified = []
        for text, tree, part in zip(self.running, trees, packed.parts, strict=True):
            ours = slice(part.start, part.start + part.num)
            choose = chooser(target, logits[ours], self._sampling, text.key)
            path, committed = follow(tree, choose, text.position, text.num_left, target.stop_token_ids)
            ended = committed[-1] in target.stop_token_ids or len(committed) == text.num_left
            verified.append(VerifiedTree(path, committed, ended, None if features is None else features[ours]))
        return verified

    def _commit(self, row: int, tree: DraftTree, verified: VerifiedTree) -> None:
        text, kept = self.running[row], torch.tensor((0, *verified.path))
        position = text.position
        self._cache.rows.compact(row, position, kept)
        if self._drafter is not None and verified.features is not None:
            self._drafter.read(row, verified.features.index_select(0, kept.to(verified.features.device)))
        text.append(verified.committed)
        seconds = modelled_s(self._policy, position, tree.num_drafted)
        text.state = self._policy.update(
            text.state, Outcome(verified.path, verified.committed, verified.ended, seconds)
        )

    def _drop(self, row: int) -> RunningText:
        gone, last = self.running[row], len(self.running) - 1
        self._cache.rows.drop(row, last)
        if self._drafter is not None:
            self._drafter.drop(row, last)
        self.running[row] = self.running[last]
        self.running.pop()
        return gone


# Several texts at a time under one policy, from prompts to ends.


def decode_batch(
    models: Models,
    policy: AnyPolicy,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    max_new_tokens: int,
    batch: int,
    clock: Clock = time.perf_counter,
) -> list[DecodedText]:
    """Decode texts, ``batch`` of them at a time; when one ends, the next prompt takes its place.

    Each text, and each of its rounds, is as `simlab.real_runner.decoding.decode.decode` has it, up to ties of the
    target within the precision of its dtype; under a policy of the batch the text is, and rounds depend on the texts
    beside it. A round's seconds are those of the whole batch; plain decoding has them all in ``verify_s``.

    Args:
        models: a target and a drafter that fits it.
        policy: any that `decode` takes, or one of the batch.
        prompts: rendered; each names its text's noise.
        sampling: how the target chooses.
        max_new_tokens: of each text, at least 1.
        batch: texts at a time, at least 1.
        clock: see `simlab.real_runner.decoding.plain`.

    Returns:
        In the order of the prompts.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1; got {batch}")
    check_batch(policy, batch)
    check_runs_together(policy, batch)
    check_passes(policy, models.execution, batch)
    for prompt in prompts:
        check_runs(models, policy, prompt, max_new_tokens)
    longest = max((len(prompt.token_ids) for prompt in prompts), default=0)
    served = BatchedSpeculation(models, policy, sampling, max_new_tokens, clock, batch, longest)
    waiting, decoded = deque(prompts), dict[int, DecodedText]()
    while waiting or served.running:
        while waiting and served.has_place:
            served.add(waiting.popleft())
        for one in served.take_ended():
            decoded[one.number] = decoded_of(models, policy, one)
        if served.running and not (waiting and served.has_place):
            served.round()
    return [decoded[number] for number in sorted(decoded)]


def decoded_of(models: Models, policy: AnyPolicy, text: RunningText) -> DecodedText:
    """A text that was served, as far as it came; plain decoding's seconds are all those of verifying."""
    stop_reason = "stop" if text.root in models.target.stop_token_ids else "length"
    rounds = [_plain(ran) for ran in text.rounds] if is_plain_decoding(policy) else text.rounds
    return DecodedText(text.prompt, text.text, stop_reason, tuple(rounds))


def _plain(ran: DecodedRound) -> DecodedRound:
    return replace(ran, seconds=StageSeconds(verify_s=ran.seconds.total_s))
