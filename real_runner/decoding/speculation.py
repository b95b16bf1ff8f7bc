"""Speculative decoding under any policy, round by round: draft, select, verify, commit; of one text or of several.

The target reads a whole tree in one pass: each node sees the text before the root, its ancestors
and itself, and stands at the root's position plus its depth (Miao et al. 2024, "SpecInfer",
arXiv 2305.09781). The target's own choice is followed down the tree as long as it was drafted, and its
choice after the last such node is the bonus token. So the text is that of plain decoding under every
policy, at any temperature, because the choice at a position does not depend on how it was reached.

Each text has its own tree, context, memory and noise, so its rounds are those that it has alone: a choice
at a position depends on nothing but the text before it, up to the last bits of the arithmetic. A policy of
the whole batch, of a `simlab.policies.rules.budgets.SharedRule`, sees all drafts of a round.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from simlab.cost import StageSeconds
from simlab.draft import Draft, Prompt
from simlab.errors import PolicyError
from simlab.policies.composition import select_together, shared_composition
from simlab.policy import AnyPolicy, Outcome, is_plain_decoding, modelled_s
from simlab.real_runner.decoding.captured_passes import CapturedPasses
from simlab.real_runner.decoding.decoded import DecodedRound, RunningText, begun_text
from simlab.real_runner.decoding.eager_passes import EagerPasses
from simlab.real_runner.decoding.packed_passes import PackedPasses
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.decoding.tree_pass import Walked
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling
from simlab.sequence_replay import Round, check_tree
from simlab.tree import DraftTree


class Passes(Protocol):
    """What both models do in the rounds of some texts, each of which has a row of its own."""

    def add(self, row: int, text: RunningText) -> None:
        """Read the prompt of a text and choose its token 0."""

    def drafts(self, texts: Sequence[RunningText], times: list[float]) -> list[Draft]:
        """What the policy may know below the root of each text.

        Args:
            texts: all that run, in the order of the rows.
            times: receives when what is known before the draft was made, the draft, and the channels behind it.
        """
        ...

    def verify(self, texts: Sequence[RunningText], trees: Sequence[DraftTree]) -> list[Walked]:
        """How far the target goes down the tree of each text."""
        ...

    def keep(self, texts: Sequence[RunningText], walks: Sequence[Walked]) -> None:
        """Keep what was accepted of the trees that were verified, the root first."""

    def stage_seconds(self, times: Sequence[float]) -> StageSeconds:
        """Seconds of a round, from when it began and when each of its stages was done."""
        ...

    def rewind(self, row: int, text: RunningText) -> None:
        """Forget what lies behind the root of a text that was set back.

        The last few states that the drafter read stay what they were.
        """

    def drop(self, row: int, last: int) -> None:
        """Free a row: the text in the last used row moves there."""


class Speculation:
    """Up to ``batch`` texts at a time, round by round; texts come and go between rounds.

    Attributes:
        running: texts that have not been taken; the place in this list is the text's row.
    """

    def __init__(
        self,
        models: Models,
        policy: AnyPolicy,
        sampling: Sampling,
        max_new_tokens: int,
        clock: Clock,
        batch: int = 1,
        longest_prompt: int = 0,
    ) -> None:
        """Begin with no text.

        Args:
            models: where they hold captured passes, these are used, and another text's are lost.
            policy: of every text, or of the batch.
            sampling: how the target chooses.
            max_new_tokens: of every text, at least 1.
            clock: of the models' device; captured passes are timed by the device itself.
            batch: texts at a time, at most.
            longest_prompt: tokens of it, of several texts; longer ones may come, and cost a copy of everything.
        """
        self._models, self._policy, self._sampling, self._clock = models, policy, sampling, clock
        self._max_new_tokens, self._batch, self._num_came = max_new_tokens, batch, 0
        self._shared = shared_composition(policy) if batch > 1 else None
        self._is_plain = is_plain_decoding(policy)
        self._passes: Passes
        if batch > 1:
            self._passes = PackedPasses(models, policy, sampling, clock, batch, longest_prompt + max_new_tokens)
        elif models.graphs is not None:
            self._passes = captured = CapturedPasses(models, models.graphs, policy, sampling)
            self._clock = captured.clock
        else:
            self._passes = EagerPasses(models, policy, sampling, clock)
        self.running: list[RunningText] = []

    @property
    def has_place(self) -> bool:
        """Whether another text may come."""
        return len(self.running) < self._batch

    @torch.inference_mode()
    def add(self, prompt: Prompt) -> RunningText:
        """Read a prompt and choose token 0; a text that this ends stays until `take_ended`."""
        if not self.has_place:
            raise ValueError(f"{self._batch} texts are running already")
        target, state = self._models.target, self._policy.start(prompt)
        text = begun_text(target, prompt, self._sampling, self._max_new_tokens, state, self._num_came)
        self._passes.add(len(self.running), text)
        self._num_came += 1
        self.running.append(text)
        return text

    @torch.inference_mode()
    def take_ended(self) -> list[RunningText]:
        """Remove the texts that have ended, and hand them over."""
        # From the last row on: a text that moves to a freed row was looked at already.
        rows = reversed(range(len(self.running)))
        return [self._drop(row) for row in rows if self.running[row].ended]

    @torch.inference_mode()
    def round(self) -> list[DecodedRound]:
        """One draft and one verification of every running text, none of which has ended.

        Returns:
            In the order of the rows. Each has the seconds of all: every text waits for all of them.

        Raises:
            PolicyError: a tree above the policy's own budget, below another root, or of unknown tokens.
            ModelError: logits of a model are no law.
        """
        policy, texts, times = self._policy, self.running, [self._clock()]
        drafts = self._passes.drafts(texts, times)
        trees = self._select(drafts)
        times.append(self._clock())
        for text, tree in zip(texts, trees, strict=True):
            check_drafted(policy, tree, text.root, self._models.target.vocab_size)
        walks = self._passes.verify(texts, trees)
        times.append(self._clock())
        self._passes.keep(texts, walks)
        rounds = []
        for text, draft, tree, (path, committed) in zip(texts, drafts, trees, walks, strict=True):
            text.append(committed)
            outcome = Outcome(path, committed, text.ended, modelled_s(policy, draft.context_length, tree.num_drafted))
            text.state = policy.update(text.state, outcome)
            position, num = draft.context_length - len(text.prompt.token_ids), len(committed)
            rounds.append(Round(position, tree, path, num, clipped=len(path) == num, route=text.route))
        times.append(self._clock())
        seconds = self._passes.stage_seconds(times)
        if self._is_plain:
            seconds = StageSeconds(verify_s=seconds.total_s)
        for text, draft, ran in zip(texts, drafts, rounds, strict=True):
            text.rounds.append(DecodedRound(ran, draft.marginals, seconds, draft.channels))
        return [text.rounds[-1] for text in texts]

    @torch.inference_mode()
    def rewind(self, context_length: int, root_token: int) -> None:
        """Take every text back to its first ``context_length`` tokens, below another root: to time rounds again."""
        for row, text in enumerate(self.running):
            text.rewind(context_length, root_token)
            text.state = self._policy.start(text.prompt)
            self._passes.rewind(row, text)

    def _select(self, drafts: Sequence[Draft]) -> list[DraftTree]:
        if self._shared is None:
            return [self._policy.select(draft, text.state) for draft, text in zip(drafts, self.running, strict=True)]
        came = sorted(range(len(drafts)), key=lambda row: self.running[row].number)
        trees = select_together(self._shared, [drafts[row] for row in came])
        return [trees[came.index(row)] for row in range(len(drafts))]

    def _drop(self, row: int) -> RunningText:
        gone, last = self.running[row], len(self.running) - 1
        self._passes.drop(row, last)
        self.running[row] = self.running[last]
        self.running.pop()
        return gone


def check_drafted(policy: AnyPolicy, tree: DraftTree, root_token: int, vocab_size: int) -> None:
    """Refuse a tree that the target cannot or may not verify."""
    check_tree(policy, tree, root_token)
    low, high = tree.tokens.min(), tree.tokens.max()
    if low < 0 or high >= vocab_size:
        raise PolicyError(f"{policy!r} drafted token {low if low < 0 else high}; ids go from 0 to {vocab_size - 1}")
