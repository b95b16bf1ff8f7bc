"""Real rounds and real steps of several texts at a time, timed at one context length.

As `simlab.real_runner.profile.rounds` has it for one text, and by the loop that decodes batches.
"""

from dataclasses import replace

import numpy as np
import torch

from simlab.arrays import Ints
from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.batched_speculation import BatchedSpeculation
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.models import Models
from simlab.real_runner.profile.rounds import (
    MEASURED_ROUNDS,
    MEASURED_STEPS,
    UNMEASURED,
    TreesOfSize,
    first_position,
    window_of,
)
from simlab.sampling.choice import Sampling

_TOKENS_APART = 97
"""Each text begins so many tokens further on in what is read, so that no two are alike."""


class BatchRoundTimer:
    """Rounds of several texts with contexts of about one length; see `simlab.real_runner.profile.rounds.RoundTimer`."""

    def __init__(
        self,
        models: Models,
        most_drafted: int,
        token_ids: Ints,
        context: int,
        sampling: Sampling,
        clock: Clock,
        batch: int,
    ) -> None:
        """Read the texts before the rounds.

        Args:
            models: a target and a drafter that fits it.
            most_drafted: the largest number of drafted tokens of a text.
            token_ids: int32, at least ``context`` of them.
            context: tokens before the root, give or take a few.
            sampling: how the target chooses.
            clock: of the models' device.
            batch: texts at a time.
        """
        self._trees = TreesOfSize(0, most_drafted)
        self._window = window_of(context)
        self._start, max_new_tokens = first_position(models, context)
        self._running = _begun(models, self._trees, token_ids, self._start, max_new_tokens, sampling, clock, batch)
        self._first_token = self._running.running[0].root

    @torch.inference_mode()
    def visit(self, num_drafted: int, num_unmeasured: int) -> list[StageSeconds]:
        """Seconds of ``MEASURED_ROUNDS`` rounds of one tree size in every text, after some that are not measured."""
        if max(len(one.text) for one in self._running.running) - 1 > self._window:
            self._running.rewind(self._start, self._first_token)
        self._trees.num_drafted = num_drafted
        rounds = [self._running.round() for _ in range(num_unmeasured + MEASURED_ROUNDS)]
        fewest = min(ran.round.num_drafted for each in rounds for ran in each)
        if fewest < num_drafted:
            raise ModelError(
                f"a tree of {num_drafted} drafted tokens was asked for, and the drafter's candidates fill {fewest}; "
                "give smaller --node-counts"
            )
        return [each[0].seconds for each in rounds[num_unmeasured:]]


class BatchPlainStepTimer:
    """Steps of plain decoding of several texts at any of some contexts: a token of each in one pass, no drafter."""

    def __init__(
        self, models: Models, token_ids: Ints, longest: int, sampling: Sampling, clock: Clock, batch: int
    ) -> None:
        """Read the texts before the longest context; shorter ones are returned to."""
        most_steps = UNMEASURED + MEASURED_STEPS
        self._highest = models.target.longest_context - most_steps - 1
        policy = Autoregressive()
        self._running = _begun(models, policy, token_ids, longest, most_steps + 1, sampling, clock, batch)
        self._first_token = self._running.running[0].root

    def visit(self, context: int, num_unmeasured: int) -> list[float]:
        """Seconds of ``MEASURED_STEPS`` steps about one context, after some that are not measured."""
        num_steps = num_unmeasured + MEASURED_STEPS
        start = max(1, min(context - num_steps // 2, self._highest))
        self._running.rewind(start, self._first_token)
        seconds = [self._running.round()[0].seconds.total_s for _ in range(num_steps)]
        return seconds[num_unmeasured:]


def _begun(
    models: Models,
    policy: AnyPolicy,
    token_ids: Ints,
    length: int,
    max_new_tokens: int,
    sampling: Sampling,
    clock: Clock,
    batch: int,
) -> BatchedSpeculation:
    """So many texts of one length, read; none of them ends at a stop token."""
    endless = replace(models, target=replace(models.target, stop_token_ids=()))
    running = BatchedSpeculation(endless, policy, sampling, max_new_tokens, clock, batch, length)
    for number in range(batch):
        ids = np.roll(token_ids, -number * _TOKENS_APART)[:length]
        running.add(Prompt(f"profile-{number}", "profile", 0, 0, np.ascontiguousarray(ids)))
    return running
