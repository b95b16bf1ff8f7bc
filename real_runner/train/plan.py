"""What every training run has: its plan, its loss and its text. Nothing here imports torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simlab.limits import MOST_SEED
from simlab.options import count, limit_option, nested, option
from simlab.real_runner.model_options import parse_template_kwargs
from simlab.sampling.choice import Sampling


@dataclass(frozen=True, slots=True)
class LossWeights:
    """How much each intervention counts."""

    decay: float = option(4.0, "depths over which a position's weight falls by e; 0: none", "X", group="loss")
    focal: float = option(0.3, "extra weight of the first error", "X", group="loss")
    chain: float = option(1.0, "reward per expected accepted token", "X", names="--chain-reward", group="loss")

    def __post_init__(self) -> None:
        for name in ("decay", "focal", "chain"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"the loss weight {name} must not be negative; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Everything that decides what a run computes; the learning rate falls to zero over its steps."""

    steps: int = option(..., "optimiser steps in all", "N")
    seed: int = option(0, "of the order of texts, of the random blocks and of sampling", "N", read=count(0, MOST_SEED))
    num_sequences: int = option(4, "texts in a step", "N", names="--sequences")
    num_roots: int = option(32, "random blocks in each of them", "N", names="--roots")
    learning_rate: float = option(1e-3, "at its highest", "X")
    warmup_steps: int = option(100, "steps of rising learning rate", "N", read=count(0))
    weight_decay: float = option(0.01, "of AdamW", "X")
    head_tokens: int = option(8192, "commonest tokens that the loss is taken over; 0: all", "N", read=count(0))
    loss: LossWeights = nested(LossWeights(), "loss")

    def __post_init__(self) -> None:
        for name in ("steps", "num_sequences", "num_roots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2**63; got {self.seed}")
        for name in ("seed", "warmup_steps", "weight_decay", "head_tokens"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"the learning rate must be above 0; got {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The text that is learnt from: token ids or completions, or what the target answers to prompts."""

    text: Path | None = option(None, "text to learn from: .parquet or .jsonl", "FILE", read=Path, one_of="source!")
    prompts: Path | None = option(None, "prompts that the target answers first", "FILE", read=Path, one_of="source!")
    limit: int | None = limit_option("the first N texts only")
    max_tokens: int = option(640, "longer texts are cut", "N")
    temperature: float = option(0.0, "of generated text", "X")
    max_new_tokens: int = option(256, "of a generated answer", "N")
    chat_template_kwargs: Mapping[str, object] | None = option(
        None, "such as '{\"enable_thinking\": false}'", "JSON", read=parse_template_kwargs
    )

    def __post_init__(self) -> None:
        if (self.text is None) == (self.prompts is None):
            raise ValueError("exactly one of text and prompts must be given")
        check_positive(self, "max_new_tokens", "max_tokens")
        Sampling(self.temperature, 0, 1.0, 0)

    @property
    def template_kwargs(self) -> Mapping[str, object]:
        """Arguments of the chat template; empty without any."""
        return self.chat_template_kwargs or {}

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of it."""
        return tuple(path for path in (self.text, self.prompts) if path is not None)


def check_positive(options: object, *names: str) -> None:
    """Refuse numbers below 1, by name."""
    for name in names:
        if getattr(options, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(options, name)}")
