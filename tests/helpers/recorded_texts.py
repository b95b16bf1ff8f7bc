"""Records of given prompts: the target's text under some sampling, and the drafter's rows along it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simlab.draft import Prompt
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import Models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.sources import AnsweredTurn
from simlab.real_runner.record.texts import record_text
from simlab.sampling.choice import Sampling, sequence_key
from simlab.traces.format.frames import SequenceRecord


def record_texts(
    models: Models, prompts: Sequence[Prompt], sampling: Sampling, max_new_tokens: int, first_index: int = 0
) -> list[SequenceRecord]:
    """As ``simlab record`` does it: one batch of plain decoding, then one dense pass for each text."""
    keys = [sequence_key(sampling, prompt) for prompt in prompts]
    texts = generate(models.target, [prompt.token_ids.tolist() for prompt in prompts], keys, sampling, max_new_tokens)
    options = record_options(sampling, max_new_tokens)
    return [
        record_text(
            options,
            models,
            first_index + number,
            AnsweredTurn(prompt, np.array(token_ids, np.int32), stop_reason),
        )
        for number, (prompt, (token_ids, stop_reason)) in enumerate(zip(prompts, texts, strict=True))
    ]


def record_options(sampling: Sampling, max_new_tokens: int) -> RecordOptions:
    """Only what shapes a record; models and prompts are handed over, not named."""
    return RecordOptions(
        "given",
        "given",
        out=Path(),
        prompts=Path(),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        max_new_tokens=max_new_tokens,
    )
