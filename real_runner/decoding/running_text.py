"""A text while it is written: its tokens so far, and what its policy remembers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.real_runner.decoding.decoded import DecodedRound


@dataclass(slots=True, eq=False)
class RunningText:
    """A text that is being written.

    Attributes:
        number: texts are numbered as they come.
        key: of its noise.
        tokens: int32 ``[P + T_most]``, prompt and text.
        length: so many of them are there.
        state: the policy's memory.
        rounds: so far.
    """

    number: int
    prompt: Prompt
    key: int
    tokens: Ints
    length: int
    state: Any
    rounds: list[DecodedRound] = field(default_factory=list)

    @property
    def text(self) -> Ints:
        """int32 ``[T]``, what was written so far."""
        return self.tokens[len(self.prompt.token_ids) : self.length].copy()

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

    def append(self, tokens: Sequence[int]) -> None:
        """Add the tokens that a round committed."""
        self.tokens[self.length : self.length + len(tokens)] = tokens
        self.length += len(tokens)
