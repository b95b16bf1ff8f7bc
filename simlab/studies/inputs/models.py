"""What studies that run models take: the names of models that come with simlab, and how a target writes its answers.

Nothing here imports torch, so that wrong values are refused before it is loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from simlab.errors import UsageError, at_the_door
from simlab.sampling.choice import Sampling

TARGET, DRAFTER = "smollm2-135m", "dflash-smollm2-135m"
"""The models that come with simlab."""

Value = TypeVar("Value")


def value_or(value: Value | None, default: Value) -> Value:
    """A value that was given, else the default; 0 and empty values were given."""
    return default if value is None else value


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How a target is to write its answers; None: not given, so that the default holds.

    Attributes:
        temperature: 0, the default, takes the likeliest token.
        top_p: the share of the mass that is kept; 1, the default, keeps all.
        top_k: tokens that are kept; 0, the default, keeps all.
        seed: of the sampling noise; default 0.
        max_new_tokens: of an answer; default 256.
        chat_template_kwargs: arguments of the tokenizer's chat template; default none.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    max_new_tokens: int | None = None
    chat_template_kwargs: Mapping[str, object] | None = None

    @property
    def typed(self) -> str:
        """The options that were given, as they are typed: ``--top-p, --seed``; empty without any."""
        names = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        return ", ".join(f"--{name.replace('_', '-')}" for name in names)

    @property
    def sampling(self) -> Sampling:
        """How the target's law becomes a token.

        Raises:
            UsageError: a value is out of its range.
        """
        with at_the_door():
            return Sampling(
                temperature=value_or(self.temperature, 0.0),
                top_k=value_or(self.top_k, 0),
                top_p=value_or(self.top_p, 1.0),
                seed=value_or(self.seed, 0),
            )

    @property
    def longest(self) -> int:
        """The most tokens of an answer."""
        return value_or(self.max_new_tokens, 256)

    @property
    def template_kwargs(self) -> Mapping[str, object]:
        """Arguments of the chat template; empty without any."""
        return value_or(self.chat_template_kwargs, {})

    def check_text_from(self, text_from: object) -> None:
        """Refuse what is out of its range, and everything where texts are taken from a trace.

        Args:
            text_from: the trace; None: the target writes, or the text was made elsewhere.

        Raises:
            UsageError: see above.
        """
        if self.typed and text_from is not None:
            raise UsageError(
                f"--text-from takes texts as they were made, where {self.typed} can change nothing; leave it out"
            )
        _ = self.sampling

    def check_prompts(self, prompts: object) -> None:
        """Refuse what is out of its range, and everything where no prompts are recorded.

        Args:
            prompts: the file of prompts; None: a trace is read.

        Raises:
            UsageError: see above.
        """
        if self.typed and prompts is None:
            raise UsageError(
                f"{self.typed} can change nothing about a trace; leave it out, or record anew with --prompts FILE"
            )
        _ = self.sampling
