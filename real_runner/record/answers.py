"""The texts of some prompts: given ones as they are, the others written by the target."""

from collections.abc import Sequence

import numpy as np

from simlab.draft import Prompt
from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import Models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.progress import ProgressReporter
from simlab.real_runner.record.prompts import PromptRecord
from simlab.real_runner.record.sources import AnsweredTurn, Source, given_turns, num_turns, render_turn
from simlab.sampling.choice import sequence_key


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
    texts = generate(models.target, ids, keys, options.sampling, options.longest, progress.decoded)
    return [
        AnsweredTurn(prompt, np.array(text.token_ids, np.int32), text.stop_reason)
        for prompt, text in zip(prompts, texts, strict=True)
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
