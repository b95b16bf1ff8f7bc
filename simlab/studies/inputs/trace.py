"""The trace that a study reads: as it was opened, by its place, or the sample that comes with simlab."""

from pathlib import Path

from simlab.errors import UsageError
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.workers.parts import Part

TraceSource = Trace | str | Path
"""A trace, or where one is: a folder, or an address such as ``hf://...``."""


def sample_trace() -> Trace:
    """Open the small trace that comes with simlab.

    41 evaluation prompts of GSM8K, MBPP, HumanEval and MT-bench, answered by SmolLM2-135M-Instruct, with the
    candidates of the packaged DFlash drafter at every position.
    """
    return open_trace(packaged_trace())


def opened(source: TraceSource | None) -> Trace:
    """Open a trace; None: the sample that comes with simlab.

    Raises:
        TraceError: there is no trace, or it is damaged.
    """
    if isinstance(source, Trace):
        return source
    return sample_trace() if source is None else open_trace(source)


def draft_set_named(trace: Trace, name: str | None) -> str:
    """The draft set of that name; None: the only one.

    Raises:
        UsageError: no name was given, and the trace holds several.
        TraceError: the trace holds none of that name.
    """
    names = list(trace.manifest.draft_sets)
    if name is None and len(names) > 1:
        raise UsageError(f"{trace.place} holds the draft sets {', '.join(names)}; choose one with --draft NAME")
    return trace.draft_name(name)


def first_prompts(trace: Trace, limit: int | None, part: Part | None = None) -> list[int]:
    """Indices of the sequences of the first prompts; turns and samples of a prompt stay together.

    Args:
        trace: the recording.
        limit: so many prompts; None: all.
        part: of these prompts, neighbours; None: all.
    """
    prompts: dict[tuple[str, str], int] = {}
    wanted = []
    for record in trace.sequences():
        key = (record.prompt.dataset, record.prompt.prompt_id)
        if limit is None or key in prompts or len(prompts) < limit:
            wanted.append((record.index, prompts.setdefault(key, len(prompts))))
    own = range(len(prompts)) if part is None else part.neighbours(len(prompts))
    return [index for index, place in wanted if place in own]


def longest_context(trace: Trace, limit: int | None) -> int:
    """Tokens before the last root of any text of the first prompts; 0 where no text has a round."""
    wanted = set(first_prompts(trace, limit))
    texts = [record for record in trace.sequences() if record.index in wanted and len(record.text) > 1]
    return max((len(record.prompt.token_ids) + len(record.text) - 2 for record in texts), default=0)
