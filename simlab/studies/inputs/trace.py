"""The trace that a study reads: as it was opened, by its place, or the sample that comes with simlab."""

import shlex
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Self, TypeAlias

from simlab.errors import CostError, SimlabError, TraceError, UsageError
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.format.files import local_folder
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.token_texts import text_of_tokens
from simlab.traces.reader import Trace, open_trace, packaged_trace
from simlab.workers.parts import Part
from simlab.workers.threads import Report, Workers

# From token ids to text: by the trace itself, or by the tokenizer of its target where that is on this machine.


Decode = Callable[[list[int]], str]
"""From token ids to the text that they stand for."""


def decoder_of(trace: Trace) -> Decode | None:
    """What turns the trace's tokens into text, if that is at hand; nothing is fetched."""
    texts = trace.token_texts()
    if texts is not None:
        return lambda ids: text_of_tokens(texts, ids)
    try:
        # The extra simlab[models] may be absent; then ids are shown.
        from simlab.real_runner.targets.token_text import decoder_at_hand  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    try:
        return decoder_at_hand(trace.manifest.target.name, trace.manifest.target.revision)
    except SimlabError:
        return None


TraceSource = Trace | str | Path
"""A trace, or where one is: a folder, or an address such as ``hf://...``."""

TraceHandle: TypeAlias = Trace | tuple[str, str]
"""A trace as a job holds it: open where threads do the job; else where workers find it, an absolute path or an address,
and the ``text_id`` of the trace that is meant."""


def sample_trace() -> Trace:
    """Open the small trace that comes with simlab.

    41 evaluation prompts of GSM8K, MBPP, HumanEval and MT-bench, answered by SmolLM2-135M-Instruct, with the
    candidates of the packaged DFlash drafter at every position.
    """
    return open_trace(packaged_trace())


def opened(source: TraceSource | None, costs: Sequence[Path] = ()) -> Trace:
    """Open a trace; None: the sample that comes with simlab.

    Args:
        source: the trace, or where it is.
        costs: cost files that were asked for; prompts whose texts go beyond one of them are left out.

    Raises:
        TraceError: there is no trace, or it is damaged.
        CostError: no prompt is left.
    """
    if not isinstance(source, Trace):
        source = sample_trace() if source is None else open_trace(source)
    return _within_reach(source, costs) if costs else source


def _within_reach(trace: Trace, costs: Sequence[Path]) -> Trace:
    """A trace without the prompts that have a round at a longer context than one of some cost files has."""
    reach, shortest = min((read_cost_file(path).contexts[-1], str(path)) for path in costs)
    beyond = {
        prompt_of(record)
        for record in trace.sequences()
        if len(record.text) > 1 and len(record.prompt.token_ids) + len(record.text) - 2 > reach
    }
    if not beyond:
        return trace
    within = frozenset(record.index for record in trace.sequences() if prompt_of(record) not in beyond)
    number = len({prompt_of(record) for record in trace.sequences()})
    why = f"have more than {reach:,} tokens, where the contexts of {shortest} end"
    if not within:
        raise CostError(
            f"all {number:,} prompts of {trace.label} {why}; give latencies at longer contexts, or a trace of shorter "
            "texts"
        )
    return replace(trace, within=within, left_out=f"Prompts left out: {len(beyond):,} of {number:,}, which {why}.")


def draft_set_named(trace: Trace, name: str | None) -> str:
    """The draft set of that name; None: the only one."""
    names = list(trace.manifest.draft_sets)
    if name is None and len(names) > 1:
        raise UsageError(f"{trace.location} holds the draft sets {', '.join(names)}; choose one with --draft-set NAME")
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
        key = prompt_of(record)
        if limit is None or key in prompts or len(prompts) < limit:
            wanted.append((record.index, prompts.setdefault(key, len(prompts))))
    own = range(len(prompts)) if part is None else part.neighbours(len(prompts))
    return [index for index, number in wanted if number in own]


def prompt_of(record: SequenceRecord) -> tuple[str, str]:
    """Dataset and name of the prompt of a sequence."""
    return record.prompt.dataset, record.prompt.prompt_id


def whole_prompts(trace: Trace, wanted: Sequence[int]) -> list[tuple[int, ...]]:
    """Sequences in parts of whole shards, of which none splits a prompt.

    Args:
        trace: the recording.
        wanted: the sequences.
    """
    runs = list(trace.runs(frozenset(wanted)))
    records = trace.texts
    last = {prompt_of(records[index]): number for number, run in enumerate(runs) for index in run}
    parts: list[tuple[int, ...]] = []
    open_until = -1
    for number, run in enumerate(runs):
        if number <= open_until:
            parts[-1] += run
        else:
            parts.append(run)
        open_until = max(open_until, *(last[prompt_of(records[index])] for index in run))
    return parts


def longest_context(trace: Trace, limit: int | None) -> int:
    """Tokens before the last root of any text of the first prompts; 0 where no text has a round."""
    wanted = set(first_prompts(trace, limit))
    texts = [record for record in trace.sequences() if record.index in wanted and len(record.text) > 1]
    return max((len(record.prompt.token_ids) + len(record.text) - 2 for record in texts), default=0)


def trace_handle(trace: Trace, workers: Workers) -> TraceHandle:
    """What a job of these workers holds of a trace."""
    if workers.shares_memory:
        return trace
    folder = local_folder(trace.location)
    return trace.location if folder is None else str(folder), trace.text_id


def open_handle(trace: TraceHandle) -> Trace:
    """The trace that a job holds, open in the process that does the job; in one process opened once.

    Raises:
        TraceError: it is not there, or is another one by now.
    """
    return trace if isinstance(trace, Trace) else _opened_once(*trace)


@dataclass
class TraceJob:
    """Work on texts of a trace, for any process: opened there, it is a copy that has the trace open.

    Attributes:
        source: the trace as it is open here, or where it is.
        draft: the draft set.
        trace: once it is opened.
        report: told by workers what they are at; once it is opened.
    """

    source: TraceHandle
    draft: str
    trace: Trace = field(init=False, repr=False)
    report: Report = field(init=False, repr=False)

    def open(self, report: Report) -> Self:
        """Open the trace in this process, and make ready what all units need."""
        opened = copy(self)
        opened.trace, opened.report = open_handle(self.source), report
        opened.make_ready()
        return opened

    def make_ready(self) -> None:
        """What all units need beside the trace; nothing, unless a job says so."""


@lru_cache(maxsize=2)
def _opened_once(location: str, text_id: str) -> Trace:
    trace = open_trace(location)
    if trace.text_id != text_id:
        raise TraceError(
            f"{location} holds the text {trace.text_id} on a worker, and {text_id} where the command was "
            "given; all machines must see the same files"
        )
    return trace


def own_blocks(trace: Trace, draft: str, others: Sequence[Trace]) -> dict[int, tuple[Trace, str]]:
    """Recordings of other blocks of a drafter, by the tokens that these draft.

    Args:
        trace: whose other draft sets of this drafter are taken.
        draft: the draft set that they stand beside.
        others: traces of the same texts and drafter.

    Returns:
        the trace and the draft set of each.
    """
    sets = trace.manifest.draft_sets
    base, by_depth = sets[draft], dict[int, tuple[Trace, str]]()
    for name, draft_set in sets.items():
        if draft_set.depth != base.depth and draft_set.model.is_same(base.model) and not draft_set.is_head:
            by_depth.setdefault(draft_set.depth, (trace, name))
    for other in others:
        name = other.draft_name(draft if draft in other.manifest.draft_sets else None)
        draft_set = other.manifest.draft_sets[name]
        if not draft_set.model.is_same(base.model):
            raise UsageError(
                f"--block-trace {other.location} is of the drafter {draft_set.model.name}, and the trace of "
                f"{base.model.name}; give one of the same drafter"
            )
        if other.text_id != trace.text_id:
            raise UsageError(
                f"--block-trace {other.location} has other texts than {trace.location}; record it along the same ones: "
                f"`simlab record --text-from {shlex.quote(trace.location)} --block {draft_set.block_size}`"
            )
        if draft_set.depth == base.depth or draft_set.depth in by_depth:
            raise UsageError(f"two traces are of block {draft_set.block_size}; give one of each block")
        by_depth[draft_set.depth] = other, name
    return by_depth
