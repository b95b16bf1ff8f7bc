"""Policies and results written for other programs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simlab.analysis.export.tables import export_tables, latex, markdown
from simlab.errors import UsageError
from simlab.studies.export.batches import ExportedTexts, own_blocks
from simlab.studies.export.conformance import conformance_text
from simlab.studies.export.engine_costs import COST_TABLES, TEMPERATURES, cost_table_text, temperatures_text
from simlab.studies.export.engines import ENGINES, TABLED, EngineOptions, engine_file
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened
from simlab.traces.reader import Trace
from simlab.traces.results.files import read_results

CONFORMANCE = "conformance"
TABLES = ("latex", "markdown")
FORMATS = (CONFORMANCE, *ENGINES, *COST_TABLES, TEMPERATURES, *TABLES)

_READ_BY = {
    "trace": (CONFORMANCE, *ENGINES, TEMPERATURES),
    "policy": (CONFORMANCE, *ENGINES),
    "draft": (CONFORMANCE, *ENGINES, TEMPERATURES),
    "cost": (CONFORMANCE, *ENGINES, *COST_TABLES),
    "limit": (CONFORMANCE, *ENGINES, TEMPERATURES),
    "rounds": (CONFORMANCE,),
    "made_up": (CONFORMANCE,),
    "batches": TABLED,
    "block_trace": TABLED,
    "draft_tokens": ("vllm",),
    "progress": (*ENGINES, TEMPERATURES),
    "results": TABLES,
    "by": TABLES,
}
"""Which formats read an option; with the others it is refused."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file for another program.

    Attributes:
        text: its content.
        summary: what is in it, in a sentence.
        notes: what else to know, a sentence or more each; an engine's end with the line that serves the policy, or say
            why it cannot.
    """

    text: str
    summary: str
    notes: tuple[str, ...] = ()


def export(
    file_format: str,
    policy: str | None = None,
    *,
    trace: TraceSource | None = None,
    draft: str | None = None,
    cost: Sequence[str | Path] = (),
    limit: int | None = None,
    rounds: int | None = None,
    made_up: int | None = None,
    batches: Sequence[int] | None = None,
    draft_tokens: int | None = None,
    block_traces: Sequence[TraceSource] = (),
    progress: bool | None = None,
    results: str | Path | None = None,
    by: str | None = None,
    out: str | Path | None = None,
) -> ExportedFile:
    """Write a policy on a trace, or the table of a result file, in the format of another program.

    Args:
        file_format: one of `FORMATS`.
        policy: as it is typed behind ``-p``; one.
        trace: a trace, or where one is; None: the sample that comes with simlab.
        draft: the draft set; None: the only one.
        cost: cost files, or names of shipped ones; for engines one of each batch size.
        limit: the first so many prompts only.
        rounds: of conformance the first so many rounds of each text.
        made_up: of conformance also rounds of so many synthetic texts.
        batches: batch sizes of an engine's table.
        draft_tokens: tokens that a round drafts in vLLM's load test.
        block_traces: traces of the same texts, each recorded with another block: the lengths of the table are then
            those of these blocks alone, as an engine would draft them.
        progress: whether a bar is shown; None: on a terminal.
        results: a result file, for tables.
        by: cut tables by ``dataset``, ``context`` or ``turn``.
        out: where the text will be put, for a command that reads it; nothing is written.

    Raises:
        UsageError: an option is given that the format does not read, or one is missing.
        SimlabError: trace, prices or results do not hold what is asked for.
    """
    given = {
        "trace": trace,
        "policy": policy,
        "draft": draft,
        "cost": cost or None,
        "limit": limit,
        "rounds": rounds,
        "made_up": made_up,
        "batches": batches,
        "draft_tokens": draft_tokens,
        "block_trace": block_traces or None,
        "progress": progress,
        "results": results,
        "by": by,
    }
    for name, formats in _READ_BY.items():
        if given[name] is not None and file_format not in formats:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is read with --format {', '.join(formats)}, not with {file_format}")
    if file_format in TABLES:
        if results is None:
            raise UsageError(f"--format {file_format} needs --results, such as --results results.parquet")
        tables = export_tables(read_results(results), by)
        text = latex(tables) if file_format == "latex" else markdown(tables)
        return ExportedFile(text, f"{len(tables)} table{'' if len(tables) == 1 else 's'} of {results}")
    if file_format in COST_TABLES:
        return ExportedFile(*cost_table_text(file_format, [Path(one) for one in cost]))
    if file_format == TEMPERATURES:
        return ExportedFile(*temperatures_text(_texts(opened(trace), draft, limit, progress)))
    if policy is None:
        raise UsageError(f"--format {file_format} needs --policy, such as -p ddtree:budget=16")
    costs, recording = [Path(one) for one in cost], opened(trace)
    if file_format == CONFORMANCE:
        return ExportedFile(*conformance_text(policy, recording, costs, draft, limit, rounds, made_up or 0))
    own = own_blocks(recording, recording.draft_name(draft), [opened(one) for one in block_traces])
    texts = replace(_texts(recording, draft, limit, progress), own_blocks=own)
    options = EngineOptions(costs, batches, draft_tokens, limit, None if out is None else Path(out))
    made = engine_file(file_format, policy, texts, options)
    return ExportedFile(made.text, made.summary, made.notes)


def _texts(trace: Trace, draft: str | None, limit: int | None, progress: bool | None) -> ExportedTexts:

    return ExportedTexts(trace, trace.draft_name(draft), first_prompts(trace, limit), progress)
