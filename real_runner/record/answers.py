"""The texts of some prompts: given ones as they are, the others written by the target."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import numpy as np
from tqdm import tqdm

from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import Models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import AnsweredTurn, Source, given_turns, num_turns, render_turn
from simlab.sampling.choice import sequence_key

# What a person sees while a recording runs: a bar over texts, with positions a second and the time left.


_SECONDS_BETWEEN_DRAWINGS = 0.5
_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"


class ProgressReporter(Protocol):
    """What is told while a recording runs."""

    def decoded(self, num_tokens: int) -> None:
        """The target wrote so many tokens."""

    def recorded(self, num_positions: int) -> None:
        """A text of so many positions is recorded."""


class RecordingProgress:
    """A bar on stderr, drawn as texts are finished and tokens decoded; a context manager."""

    def __init__(self, title: str, num_texts: int, num_done: int = 0, token_worth: float = 0.0) -> None:
        """Draw the bar for the first time.

        Args:
            title: stands before the bar.
            num_texts: how many there are.
            num_done: of these, how many were done before.
            token_worth: the share of its text that a decoded token is, before the text is recorded.
        """
        self._bar = tqdm(
            total=num_texts,
            initial=num_done,
            desc=title,
            bar_format=_LAYOUT,
            smoothing=0,
            mininterval=_SECONDS_BETWEEN_DRAWINGS,
            disable=None,
        )
        self._started = time.perf_counter()
        self._num_texts, self._num_done, self._token_worth = num_texts, num_done, token_worth
        self._decoded = self._waiting = 0
        self.positions = 0

    def decoded(self, num_tokens: int) -> None:
        self._decoded += num_tokens
        self._waiting += num_tokens
        self._move(f"{self._decoded} tokens decoded")

    def recorded(self, num_positions: int) -> None:
        self.positions += num_positions
        self._num_done += 1
        self._waiting = max(self._waiting - num_positions, 0)
        self._move(f"{self.positions / max(self.seconds, 1e-9):.0f} positions/s")

    @property
    def done(self) -> float:
        """Texts that are done; one that is decoded but not recorded counts in part."""
        return self._num_done + self._waiting * self._token_worth

    @property
    def seconds(self) -> float:
        """Since the bar began."""
        return time.perf_counter() - self._started

    def _move(self, doing: str) -> None:
        self._bar.set_postfix_str(f"{self._num_done}/{self._num_texts} texts, {doing}", refresh=False)
        self._bar.update(self.done - self._bar.n)

    def __enter__(self) -> "RecordingProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()


def answers_of(
    options: RecordOptions, models: Models, sources: Sequence[Source], progress: ProgressReporter
) -> list[list[AnsweredTurn]]:
    """The turns of each prompt. One turn of all open prompts is decoded as one batch."""
    kwargs = options.template_kwargs
    answers: list[list[AnsweredTurn]] = [
        [] if isinstance(source, PromptRecord) else given_turns(source, models.target, kwargs) for source in sources
    ]
    for turn in range(max(map(num_turns, sources))):
        open_ones = [
            (source, earlier)
            for source, earlier in zip(sources, answers, strict=True)
            if isinstance(source, PromptRecord) and num_turns(source) > turn
        ]
        prompts = [render_turn(source, earlier, models.target, kwargs) for source, earlier in open_ones]
        for (_, earlier), answered in zip(open_ones, _decoded(options, models, prompts, progress), strict=True):
            earlier.append(answered)
    return answers


def _decoded(
    options: RecordOptions, models: Models, prompts: Sequence[Prompt], progress: ProgressReporter
) -> list[AnsweredTurn]:
    if not prompts:
        return []
    for prompt in prompts:
        _check_prompt(models, prompt, options.longest)
    keys = [sequence_key(options.sampling, prompt) for prompt in prompts]
    ids = [prompt.token_ids.tolist() for prompt in prompts]
    texts = generate(models.target, ids, keys, options.sampling, options.longest, progress.decoded, models.texts)
    return [
        AnsweredTurn(prompt, np.array(token_ids, np.int32), stop_reason)
        for prompt, (token_ids, stop_reason) in zip(prompts, texts, strict=True)
    ]


def check_positions(options: RecordOptions, models: Models, sources: Sequence[Source]) -> None:
    """Refuse what may run past the target's positions, before anything is recorded.

    Answers that a later turn contains are taken to be as long as they may become.
    """
    kwargs = options.template_kwargs
    for source in sources:
        if isinstance(source, PromptRecord):
            unanswered: list[AnsweredTurn] = []
            for turn in range(1, num_turns(source) + 1):
                prompt = render_turn(source, unanswered, models.target, kwargs)
                _check_prompt(models, prompt, turn * options.longest)
                unanswered.append(AnsweredTurn(prompt, np.empty(0, np.int32), "length"))
        else:
            for given in given_turns(source, models.target, kwargs):
                _check_prompt(models, given.prompt, len(given.text))


def _check_prompt(models: Models, prompt: Prompt, num_answer: int) -> None:
    positions, depth = models.target.longest_context, models.drafter.config.depth
    needed = len(prompt.token_ids) + num_answer + depth
    if needed > positions:
        turns = f" in {prompt.turn + 1} turns" if prompt.turn else ""
        raise ModelError(
            f"prompt {prompt.prompt_id!r} has {len(prompt.token_ids)} tokens{turns}; with {num_answer} for the "
            f"target's own words and a draft of {depth} it needs {needed} positions, and "
            f"{models.target.reach}; shorten the prompt or lower --max-new-tokens"
        )
