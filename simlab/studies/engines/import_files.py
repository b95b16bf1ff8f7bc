"""Files from elsewhere: timings become a cost file, counts of engines are compared with a trace."""

from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from simlab.cost import GRID_STAGES, PLAIN
from simlab.errors import UsageError, as_usage_error
from simlab.options import study
from simlab.studies.engines.import_options import AUTO, COUNTS, OF_METRICS, TIMINGS, ImportOptions
from simlab.studies.engines.read_metrics import EngineMetricsTable, import_metrics
from simlab.studies.inputs.trace import longest_context, opened
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.artefacts.cost_import import (
    DRAFTED_ONLY,
    ImportedFor,
    PassTimings,
    engine_timings,
    imported_cost_file,
    read_timings,
    shape_checks,
)
from simlab.traces.artefacts.engine_tables import BenchCell, read_engine_table, table_of
from simlab.untrusted.json_text import open_file, parse_json
from simlab.untrusted.visible import visible

_BEGIN = 1 << 16
"""So many characters of a file tell of which kind it is; JSON is read whole."""


@dataclass(frozen=True, slots=True)
class ImportedCost:
    """A cost file that was made of timings.

    Attributes:
        path: where it is.
        file: what is in it.
        checks: shapes of the timings that cannot occur, a sentence each.
    """

    path: Path
    file: CostFile
    checks: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        notes, checks = list(self.file.notes), list(self.checks)
        return {"path": str(self.path), "cost_id": self.file.cost_id, "notes": notes, "checks": checks}

    def text(self) -> str:
        """What ``simlab import`` prints."""
        file = self.file
        many = f"{len(file.contexts)} contexts" if len(file.contexts) > 1 else "1 context"
        size = f"{many} up to {file.contexts[-1]:,}, {file.node_counts[-1]:,} drafted tokens"
        notes = [f"  {visible(note)}" for note in (*file.notes, *self.checks)]
        return "\n".join([f"Cost file: {self.path} ({file.cost_id}), {file.device}, {size}", *notes])


@study(ImportOptions)
def import_files(options: ImportOptions) -> ImportedCost | EngineMetricsTable:
    """Read files from elsewhere: `import_timings` of timings, `import_metrics` of counts.

    Raises:
        SimlabError: a file cannot be read, does not fit the trace, or the options are about files of another kind.
    """
    first = options.files[0]
    if len(options.files) > 1 or not _holds_timings(first, options):
        return import_metrics.run(options)
    return import_timings.run(options)


def _holds_timings(path: str | Path, options: ImportOptions) -> bool:
    """Whether a file holds timings; a run of ``vllm bench serve`` does where a cost file is wanted of it."""
    if not Path(path).is_file() or options.format != AUTO:
        return True  # what is no file is the name of packaged timings, or refused as such
    with TextIOWrapper(open_file(path), "utf-8-sig", errors="replace") as file:
        text = file.read(_BEGIN)
        first = text.lstrip()[:1]
        if first == "{":
            text += file.read()
    if first != "{":
        # The first line that is no remark: of CSV names with commas, of Prometheus text a name with labels or a value.
        names = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
        return first == "[" or ("," in names and "{" not in names)
    try:
        table = table_of(parse_json(text))  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        return options.out is not None
    return not isinstance(table, BenchCell) or options.out is not None


@study(ImportOptions)
def import_timings(options: ImportOptions) -> ImportedCost:
    """Make a cost file of timings that were measured elsewhere.

    Raises:
        SimlabError: the timings cannot be read, or say too little; the cost file is there already.
    """
    (timings_path,) = options.files
    with as_usage_error():
        options.check_unread(OF_METRICS, timings_path, "timings")
    if not Path(timings_path).is_file():
        read_timings(timings_path)  # refuses what is no name of packaged timings either
    if options.out is None:
        raise UsageError(f"{timings_path} holds timings, which become a cost file; name it with --out FILE")
    if Path(options.out).exists():
        raise UsageError(f"{options.out} is there already; name another file, or delete it")
    if options.plain_s == 0:
        raise UsageError("--plain-s must be above 0: speedups are over autoregressive decoding")
    given = {stage: getattr(options, f"{stage}_s") for stage in (*GRID_STAGES, PLAIN) if stage != "verify"}
    constants = {stage: seconds for stage, seconds in given.items() if seconds is not None}
    about, longest = _about(options)
    timings, counts, checks = _timings(options, str(timings_path), about.block_size, longest, constants)
    file = imported_cost_file(timings, counts, about, constants, options.batch)
    write_cost_file(Path(options.out), file)
    return ImportedCost(Path(options.out), file, checks)


def _timings(
    options: ImportOptions, path: str, block_size: int, longest: int, constants: dict[str, float]
) -> tuple[PassTimings, str, tuple[str, ...]]:
    """The timings, what their nodes count, and what to know of shapes; ``constants`` get what an engine's table has."""
    table = None if options.format == TIMINGS else read_engine_table(path)
    form = TIMINGS if table is None else table.form
    if options.format not in (AUTO, form):
        raise UsageError(f"{path} is no file of --format {options.format}; it looks like {form}")
    if table is None:
        if options.counts is None:
            raise UsageError(f"timings need --counts {' or '.join(COUNTS)}: what nodes counts is not in the file")
        return read_timings(path), options.counts, ()
    if options.counts is not None:
        raise UsageError("--counts is for CSV and lists; an engine's table counts the roots, which is known")
    batch = options.batch or (table.concurrency if isinstance(table, BenchCell) else 1)
    timings = engine_timings(table, Path(path).name, batch, longest)
    if not table.whole_steps:
        constants.setdefault("draft", table.draft_s(batch))
    return timings, DRAFTED_ONLY, shape_checks(table, batch, block_size)


def _about(options: ImportOptions) -> tuple[ImportedFor, int]:
    """The models of the trace, for the file, and the longest context of its texts."""
    trace = opened(options.trace)
    manifest = trace.manifest
    kept = manifest.draft_sets[trace.draft_name(options.draft_set)]
    sampling = manifest.sampling
    about = ImportedFor(
        target=manifest.target,
        drafter=kept.model,
        block_size=kept.block_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        machine=options.machine,
        dtype=options.dtype,
    )
    return about, max(longest_context(trace, None), 1)
