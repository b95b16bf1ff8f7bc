"""Where the text of a recording comes from: prompts to answer, or answers made elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from simlab.arrays import Ints
from simlab.draft import Prompt
from simlab.errors import PromptError, TraceError
from simlab.real_runner.record.completions import Completion, completion_ids, read_completions
from simlab.real_runner.record.prompts import PromptRecord, next_turn, read_prompts, render
from simlab.real_runner.targets.model import Target
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.records import SequenceRecord, TokenRows
from simlab.traces.reader import open_trace


@dataclass(frozen=True, slots=True, eq=False)
class AnsweredTurn:
    """One turn: what was asked, what was answered, why the answer ended.

    ``tokens`` are the target's rows, and ``seed`` that of their noise, where they are already known.
    """

    prompt: Prompt
    text: Ints
    stop_reason: str
    tokens: TokenRows | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTurns:
    """The turns of one prompt of another trace."""

    turns: tuple[SequenceRecord, ...]


Source: TypeAlias = PromptRecord | Completion | RecordedTurns


@dataclass(frozen=True, slots=True)
class Sources:
    """All that is to be recorded, prompt by prompt.

    Attributes:
        retold_from: the manifest of the trace whose texts are used again, or None.
    """

    items: tuple[Source, ...]
    retold_from: Manifest | None = None


def read_sources(prompts: Path | None, completions: Path | None, text_from: str | None, limit: int | None) -> Sources:
    """Read the one source that is named.

    Raises:
        PromptError: the file cannot be used.
        TraceError: the trace cannot be read.
    """
    if prompts is not None:
        return Sources(tuple(read_prompts(prompts, limit)))
    if completions is not None:
        return Sources(tuple(read_completions(completions, limit)))
    if text_from is None:
        raise ValueError("one of prompts, completions and text_from must be given")
    trace = open_trace(text_from)
    grouped: dict[tuple[str, str, int], list[SequenceRecord]] = {}
    for record in trace.records():
        place = (record.prompt.dataset, record.prompt.prompt_id, record.prompt.sample)
        grouped.setdefault(place, []).append(record)
    retold = [RecordedTurns(tuple(turns)) for turns in grouped.values()]
    return Sources(tuple(retold[:limit]), trace.manifest)


def num_turns(source: Source) -> int:
    """How many texts a source gives."""
    if isinstance(source, PromptRecord):
        return 1 + len(source.later_turns)
    return len(source.turns) if isinstance(source, RecordedTurns) else 1


def given_turns(
    source: Completion | RecordedTurns, target: Target, template_kwargs: Mapping[str, object]
) -> list[AnsweredTurn]:
    """The turns of a source whose text is made already. Given text ends with its first stop token."""
    if isinstance(source, RecordedTurns):
        return [AnsweredTurn(r.prompt, r.text, r.stop_reason, r.tokens, r.seed) for r in source.turns]
    prompt_ids, text_ids = completion_ids(target.tokenizer, source, template_kwargs, target.end_of_turn_id)
    for token in (*prompt_ids, *text_ids):
        if not 0 <= token < target.vocab_size:
            raise PromptError(
                f"completion {source.prompt_id!r} holds token {token}; {target.name} has ids 0 to "
                f"{target.vocab_size - 1}; the ids must come from the target's own tokenizer"
            )
    prompt = Prompt(source.prompt_id, source.dataset, 0, 0, np.array(prompt_ids, np.int32))
    text = np.array(text_ids, np.int32)
    stops = np.flatnonzero(np.isin(text, target.stop_token_ids))
    if len(stops):
        return [AnsweredTurn(prompt, text[: stops[0] + 1], "stop")]
    return [AnsweredTurn(prompt, text, "length")]


def render_turn(
    source: PromptRecord, earlier: Sequence[AnsweredTurn], target: Target, template_kwargs: Mapping[str, object]
) -> Prompt:
    """The prompt of the next turn; it contains the target's own earlier answers."""
    conversation = source.conversation
    for answer, user_text in zip(earlier, source.later_turns, strict=False):
        text = target.tokenizer.decode(answer.text.tolist(), skip_special_tokens=True)
        conversation = next_turn(conversation, str(text), user_text)
    ids = render(target.tokenizer, conversation, template_kwargs)
    return Prompt(source.prompt_id, source.dataset, len(earlier), 0, np.array(ids, np.int32))


def check_same_target(sources: Sources, target: Target, dtype: str) -> None:
    """Refuse to tell a text again under another target: its rows would not be the text's."""
    earlier = sources.retold_from
    if earlier is None:
        return
    if earlier.dtype != dtype:
        raise TraceError(
            f"the text and the target's rows along it were recorded in {earlier.dtype}, this recording would be in "
            f"{dtype}; give --dtype {earlier.dtype}"
        )
    if earlier.hidden_states is not None:
        raise TraceError(
            "the target's rows along this text are from hidden states that an engine dumped; record another drafter "
            "with --completions and --hidden-states again"
        )
    if earlier.target.digest != target.digest:
        raise TraceError(
            f"the text was recorded with target {earlier.target.name} (digest {earlier.target.digest[:12]}); "
            f"{target.name} has digest {target.digest[:12]}; use the same target, or --completions for given text"
        )
