"""A decoded text, the rounds in which it was made, and where two texts of one prompt part."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel
from simlab.cost import StageSeconds
from simlab.draft import Marginals, Prompt
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling, choose, sequence_key
from simlab.sequence_replay import Round, Totals, totals_of


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRound:
    """A round that was run.

    Attributes:
        round: in the form in which replay gives it.
        marginals: exactly what the policy saw; None where no drafter was run.
        seconds: measured, by stage. Plain decoding has all of them in ``verify_s``.
        channels: exactly what the policy saw of them, by name.
    """

    round: Round
    marginals: Marginals | None
    seconds: StageSeconds
    channels: Mapping[str, Channel] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedText:
    """One text under one policy.

    Attributes:
        text: int32 ``[T]``; token 0 is the prefill's, the last is a stop token or the last allowed.
        stop_reason: ``stop`` or ``length``.
        rounds: in order. Plain decoding has ``T - 1`` rounds of one token.
    """

    prompt: Prompt
    text: Ints
    stop_reason: str
    rounds: tuple[DecodedRound, ...]

    @property
    def totals(self) -> Totals:
        """Sums over the rounds."""
        return totals_of(ran.round for ran in self.rounds)

    @property
    def seconds(self) -> StageSeconds:
        """Sums over the rounds; prefill and token 0 are not in them."""
        return sum((ran.seconds for ran in self.rounds), start=StageSeconds())


def parting_of(text: Ints, other: Ints) -> int | None:
    """The first place at which two texts differ; None where they are equal.

    Args:
        text: int32 ``[T]``.
        other: int32, any length. Where one is the beginning of the other, they part behind it.
    """
    num = min(len(text), len(other))
    differing = np.flatnonzero(text[:num] != other[:num])
    if len(differing):
        return int(differing[0])
    return None if len(text) == len(other) else num


# A text while it is written: its tokens so far, and what its policy remembers.


@dataclass(slots=True, eq=False)
class RunningText:
    """A text that is being written.

    Attributes:
        number: texts are numbered as they come.
        key: of its noise.
        stop_token_ids: any of them ends it.
        tokens: int32 ``[P + T_most]``, prompt and text.
        length: so many of them are there.
        state: the policy's memory.
        route: which of its routes a router takes in the round that runs; None: the policy is no router.
        rounds: so far.
    """

    number: int
    prompt: Prompt
    key: int
    stop_token_ids: Collection[int]
    tokens: Ints
    length: int
    state: Any
    route: int | None = None
    rounds: list[DecodedRound] = field(default_factory=list)

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return self.tokens[len(self.prompt.token_ids) : self.length].copy()

    @property
    def prompt_ids(self) -> Tensor:
        """int64 ``[1, P]``, the tokens of the prompt."""
        return torch.from_numpy(self.prompt.token_ids.astype(np.int64))[None]

    @property
    def position(self) -> int:
        """The absolute position of the root."""
        return self.length - 1

    @property
    def root(self) -> int:
        """The token of the root."""
        return int(self.tokens[self.length - 1])

    @property
    def num_left(self) -> int:
        """Tokens that may still come."""
        return len(self.tokens) - self.length

    @property
    def ended(self) -> bool:
        """Whether the last token is a stop token or the last allowed one."""
        return self.root in self.stop_token_ids or self.num_left == 0

    def rewind(self, context_length: int, root_token: int) -> None:
        """Go back to the first ``context_length`` tokens, below another root."""
        self.tokens[context_length] = root_token
        self.length = context_length + 1

    def append(self, tokens: Sequence[int]) -> None:
        """Add the tokens that a round committed."""
        self.tokens[self.length : self.length + len(tokens)] = tokens
        self.length += len(tokens)

    def decoded(self) -> DecodedText:
        """The text as far as it came."""
        stop_reason = "stop" if self.root in self.stop_token_ids else "length"
        return DecodedText(self.prompt, self.text, stop_reason, tuple(self.rounds))


def begun_text(
    target: Target, prompt: Prompt, sampling: Sampling, max_new_tokens: int, state: object = None, number: int = 0
) -> RunningText:
    """A text of which only the prompt is there, with room for so many new tokens; the rest as in `RunningText`."""
    tokens = np.concatenate([prompt.token_ids, np.zeros(max_new_tokens, np.int32)])
    key = sequence_key(sampling, prompt)
    return RunningText(number, prompt, key, target.stop_token_ids, tokens, len(prompt.token_ids), state)


def stage_seconds(times: Sequence[float]) -> StageSeconds:
    """Seconds of a round, from when it began and when each stage was done: see `Passes.drafts`, and the three behind.

    What is known before the draft, and the channels behind it, are one stage.
    """
    before_s, draft_s, behind_s, *others_s = np.diff(times).tolist()
    return StageSeconds(draft_s, before_s + behind_s, *others_s)


# The target's choice after some of the tokens of a pass.


Choose = Callable[[int, int], int]
"""From the row of a pass and the absolute position of the next token to that token."""


def chooser(target: Target, logits: Tensor, sampling: Sampling, key: int) -> Choose:
    """The target's choices after the tokens of one pass.

    On a GPU all greedy ones are made at once, for one wait. Else only those asked for: each costs a look at the whole
    vocabulary, above temperature 0 a draw of noise too, and few nodes of a tree are on the path.

    Args:
        target: for messages.
        logits: float32 ``[R, V]``.
        sampling: how a token is chosen.
        key: of the text's noise.
    """
    if sampling.temperature == 0 and logits.device.type == "cpu":

        def largest(row: int, _position: int) -> int:
            # The first of equal values, as `simlab.sampling.choice` has it.
            value, token = logits[row].max(dim=-1)
            if not bool(torch.isfinite(value)):
                target.rows(logits[row : row + 1])
            return int(token)

        return largest
    if sampling.temperature == 0:
        # The first of equal values, as `simlab.sampling.choice` has it.
        values, tokens = logits.max(dim=-1)
        if not bool(torch.isfinite(values).all()):
            target.rows(logits)
        chosen: list[int] = tokens.tolist()
        return lambda row, _position: chosen[row]

    def drawn(row: int, position: int) -> int:
        return choose(np.ascontiguousarray(target.rows(logits[row : row + 1])[0]), sampling, key, position)

    return drawn
