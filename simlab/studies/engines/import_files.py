"""Files from elsewhere: timings become a cost file, counts of engines are compared with a trace."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from simlab.analysis.table.text import aligned, number, within_width
from simlab.arrays import Doubles, Longs
from simlab.channels import POOL
from simlab.cost import GRID_STAGES, PLAIN, channel_stage
from simlab.errors import CostError, UsageError
from simlab.options import study
from simlab.studies.engines.import_options import AUTO, OF_METRICS, OF_TIMINGS, TIMINGS, ImportOptions
from simlab.studies.engines.read_metrics import EngineMetricsTable, import_metrics
from simlab.studies.inputs.trace import longest_context, opened
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.candidates import (
    OVER_VOCABULARY,
    CandidateDump,
    DumpHeader,
    is_candidate_dump,
    read_candidates,
)
from simlab.traces.artefacts.cost import CostChannel, CostFile, bounds_of, write_cost_file
from simlab.traces.artefacts.cost_import import (
    ANY_CONTEXT,
    ImportedFor,
    batches_of,
    counts_of,
    engine_timings,
    imported_cost_file,
    models_not_stated,
    shape_checks,
)
from simlab.traces.artefacts.engine_tables import BenchCell, EngineTable, StepCurves, read_engine_table, table_of
from simlab.traces.artefacts.timings import DRAFTED_ONLY, PassTimings, read_timings
from simlab.traces.imported import DRAFT, LACKS, why_no_trace, write_imported_trace
from simlab.traces.reader import Trace
from simlab.untrusted.json_text import open_file, parse_json
from simlab.untrusted.visible import visible

# Candidates that another engine wrote: a trace where a replay may claim its figures, else counts by depth and rank.

_SHOWN_RANKS = 4


@dataclass(frozen=True, eq=False, repr=False)
class CandidateCounts(StudyResult):
    """What a file of candidates says by itself, at the roots that it has.

    Attributes:
        path: of the file.
        header: its first line.
        num_texts, num_rounds: in it; no texts where it has none.
        num_reached: int64 ``[D]``, roots behind which the text has a token of that depth.
        right: int64 ``[D, K]``, those at which the candidate of that rank is that token.
        claimed: float64 ``[D, K]``, the mean probability that the drafter gave the candidate of that rank there.
        num_told: rounds that say how many tokens the engine accepted.
        accepted: int64 ``[D]``, those of them that accepted so many or more.
        why_no_trace: why no trace can be made of it, in a sentence; empty where one can.
    """

    path: Path
    header: DumpHeader
    num_texts: int
    num_rounds: int
    num_reached: Longs
    right: Longs
    claimed: Doubles
    num_told: int
    accepted: Longs
    why_no_trace: str

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        rows = [
            {
                "depth": depth + 1,
                "roots": int(self.num_reached[depth]),
                "right_by_rank": self.right[depth].tolist(),
                "claimed_by_rank": [float(value) for value in self.claimed[depth]] if self.num_reached[depth] else None,
                "engine_accepted": int(self.accepted[depth]),
            }
            for depth in range(self.header.depth)
        ]
        about = {"path": str(self.path), "engine": self.header.engine, "texts": self.num_texts}
        counts = {"rounds": self.num_rounds, "engine_rounds": self.num_told}
        return {**about, **counts, "why_no_trace": self.why_no_trace or None, "rows": rows}

    def text(self) -> str:
        """What ``simlab import`` prints."""
        header, ranks = self.header, min(_SHOWN_RANKS, self.header.top_k)
        size = f"{self.num_rounds:,} roots ({header.roots}) of {self.num_texts:,} texts"
        first = f"candidates {self.path}, written by {header.engine}: {header.drafter} for {header.target}, {size}"
        cells = [
            ("depth", "roots", *(f"rank {rank}" for rank in range(ranks)), "claimed", "any rank", "engine accepted")
        ]
        for depth in range(header.depth):
            reached = int(self.num_reached[depth])
            shares = self.right[depth] / reached if reached else np.full(header.top_k, np.nan)
            claimed = self.claimed[depth][0] if reached else np.nan
            engine = self.accepted[depth] / self.num_told if self.num_told else np.nan
            shown = [number(100 * float(share), 1) for share in (*shares[:ranks], claimed, shares.sum(), engine)]
            cells.append((str(depth + 1), f"{reached:,}", *shown))
        mean = self.accepted.sum() / max(self.num_told, 1)
        many = f" ({self.num_told:,} rounds, {mean:.2f} tokens each)" if self.num_told else ""
        notes = (
            "rank r: how often the candidate of that rank is the text's own token at this depth, in %, whatever stands "
            "before it. claimed: the mean probability of the first, in %"
            f"{'' if header.normalised == OVER_VOCABULARY else ', over the listed candidates alone'}. engine accepted: "
            "of the rounds that say it, those that accepted so many tokens or more, in %"
            f"{many}."
        )
        last = (
            f"No trace can be made of it: {self.why_no_trace}."
            if self.why_no_trace
            else "With --out DIR it becomes a trace."
        )
        table = aligned(cells, [True] + [False] * (len(cells[0]) - 1))
        return "\n\n".join([within_width(first), table, within_width(notes), within_width(last)])


@dataclass(frozen=True, eq=False, repr=False)
class ImportedTrace(StudyResult):
    """A trace that was made of a file of candidates."""

    path: Path
    trace: Trace

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        trace = self.trace
        row = {
            "trace": trace.location,
            "from": str(self.path),
            "text_id": trace.text_id,
            "draft_ids": dict(trace.draft_ids),
            "channel_ids": dict(trace.channel_ids),
            "lacks": list(LACKS),
        }
        return {"rows": [row]}

    def text(self) -> str:
        """What ``simlab import`` prints: the trace, what it lacks, and a command that goes on with it."""
        manifest, folder = self.trace.manifest, shlex.quote(self.trace.location)
        draft_set, channels = manifest.draft_sets[DRAFT], list(manifest.channels)
        first = (
            f"Trace: {self.trace.location} (text {self.trace.text_id}), {len(self.trace.texts):,} texts, "
            f"{manifest.text_origin}."
        )
        exact = (
            f"Exact for the first {draft_set.min_width} candidates of {draft_set.depth} depths, and trees of up to "
            f"{draft_set.exact_budget} tokens{f'; channel {channels[0]}' if channels else ''}. The names of the models "
            "are the file's; simlab cannot verify them."
        )
        policies = "-p chain" if draft_set.is_chain else f"-p chain -p ddtree:budget={draft_set.exact_budget}"
        return "\n".join([within_width(first), within_width(exact), f"Next: simlab replay --trace {folder} {policies}"])


@study(ImportOptions)
def import_candidates(options: ImportOptions) -> CandidateCounts | ImportedTrace:
    """Make a trace of candidates that another engine wrote, or without ``out`` count what they say.

    Raises:
        SimlabError: the file is not as the format asks for it, or no trace can be made of it; the folder is taken.
    """
    path = Path(options.one_file("candidates"))
    unread = [name for name in (*OF_TIMINGS, *OF_METRICS, "trace", "draft_set") if name != "out"]
    options.check_unread(unread, path, "candidates of an engine")
    dump = read_candidates(path)
    reason = why_no_trace(dump)
    if options.out is None:
        return _counted(dump, reason or "")
    if reason is not None:
        raise UsageError(f"{path} becomes no trace: {reason}; without --out its counts are printed")
    return ImportedTrace(path, write_imported_trace(Path(options.out), dump))


def _counted(dump: CandidateDump, reason: str) -> CandidateCounts:
    header = dump.header
    reached, accepted, num_told = np.zeros(header.depth, np.int64), np.zeros(header.depth, np.int64), 0
    right, claimed = np.zeros((header.depth, header.top_k), np.int64), np.zeros((header.depth, header.top_k))
    for text in dump.texts:
        for round_ in text.rounds:
            if round_.accepted is not None:
                num_told += 1
                accepted[: round_.accepted] += 1
            if text.token_ids is None or round_.root is None:
                continue
            truth = text.token_ids[round_.root + 1 : round_.root + 1 + header.depth]
            reached[: len(truth)] += 1
            start = 0
            for depth, count in enumerate(round_.counts[: len(truth)]):
                part = slice(start, start + int(count))
                right[depth, :count] += round_.ids[part] == truth[depth]
                claimed[depth, :count] += np.exp(round_.log_probs[part].astype(np.float64))
                start = part.stop
    return CandidateCounts(
        path=dump.path,
        header=header,
        num_texts=len(dump.texts) if dump.has_texts else 0,
        num_rounds=sum(len(text.rounds) for text in dump.texts),
        num_reached=reached,
        right=right,
        claimed=claimed / np.maximum(reached, 1)[:, None],
        num_told=num_told,
        accepted=accepted,
        why_no_trace=reason,
    )


_UNLIKELY = 20.0
"""No stage beside the target's pass takes so many times as long."""

_BEGIN = 1 << 16
"""So many characters of a file tell of which kind it is; JSON is read whole."""

_COUNTED = re.compile(
    r"^# (HELP|TYPE) |^[A-Za-z_:][\w:]*(\{.*\})? ([0-9.]|[+-]?Inf|NaN)|SpecDecoding metrics:|accept len: ", re.MULTILINE
)
"""What stands in Prometheus text and in logs of engines, and never in timings."""


@dataclass(frozen=True, eq=False, repr=False)
class ImportedCosts(StudyResult):
    """Cost files that were made of timings, one of each batch size.

    Attributes:
        costs: where each is, what is in it, and the shapes of its timings that cannot occur, a sentence each; in
            ascending order of their batch sizes.
        trace: of which they are, as it was typed; empty: of none.
    """

    costs: tuple[tuple[Path, CostFile, tuple[str, ...]], ...]
    trace: str = ""

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        return {
            "rows": [
                {
                    "path": str(path),
                    "cost_id": file.cost_id,
                    "batch": file.batch,
                    "notes": list(file.notes),
                    "checks": list(checks),
                }
                for path, file, checks in self.costs
            ]
        }

    def text(self) -> str:
        """What ``simlab import`` prints: the files, and each note once."""
        lines, noted = [], set[str]()
        for path, file, checks in self.costs:
            many = "any context" if file.contexts == (ANY_CONTEXT,) else f"contexts up to {file.contexts[-1]:,}"
            texts = "" if file.batch == 1 else f"{file.batch} texts at a time, "
            size = f"{texts}{many}, {file.node_counts[-1]:,} drafted tokens"
            lines.append(f"Cost file: {path} ({file.cost_id}), {file.device}, {size}")
            new = [note for note in (*file.notes, *checks) if note not in noted]
            lines += [within_width(f"  {visible(note)}") for note in new]
            noted |= set(new)
        costs = " ".join(f"--cost {shlex.quote(str(path))}" for path, _, _ in self.costs)
        trace = f"--trace {shlex.quote(self.trace)} " if self.trace else ""
        return "\n".join([*lines, f"Next: simlab {'replay' if len(self.costs) == 1 else 'advise'} {trace}{costs}"])


@study(ImportOptions)
def import_files(options: ImportOptions) -> ImportedCosts | EngineMetricsTable | CandidateCounts | ImportedTrace:
    """Read files from elsewhere: `import_timings`, `import_candidates`, or `import_metrics` of counts.

    Raises:
        SimlabError: a file cannot be read, does not fit the trace, or the options are about files of another kind.
    """
    first, *others = options.files
    if options.format == AUTO and any(map(_holds_candidates, options.files)):
        return import_candidates.run(options)
    # Several files are of counts, unless one says that it is not.
    existing = [path for path in options.files if Path(path).is_file()] if others else [first]
    is_timings = any(_holds_timings(path, options) for path in existing)
    return import_timings.run(options) if is_timings else import_metrics.run(options)


def _holds_candidates(path: str | Path) -> bool:
    """Whether the first line of a file says that it holds candidates."""
    if not Path(path).is_file():
        return False
    with open_file(path) as file:
        return is_candidate_dump(file.read(_BEGIN).decode(errors="replace"))


def _holds_timings(path: str | Path, options: ImportOptions) -> bool:
    """Whether a file holds timings; a run of ``vllm bench serve`` does where a cost file is wanted of it."""
    if not Path(path).is_file() or options.format != AUTO:
        return True  # what is no file is the name of packaged timings, or refused as such
    with TextIOWrapper(open_file(path), "utf-8-sig", errors="replace") as file:
        text = file.read(_BEGIN)
        first = text.lstrip()[:1]
        if first == "{":
            text += file.read()
    if first == "[":
        return re.match(r"\s*\[\d{4}-\d\d", text) is None  # else a log, whose lines begin with a date
    if first != "{":
        # The first line that is no remark: of CSV names with commas, of Prometheus text a name with labels or a value.
        names = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
        if "," in names and not set("{}[]:") & set(names):
            return True
        return options.out is not None and _COUNTED.search(text) is None
    try:
        table = table_of(parse_json(text))  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        return options.out is not None
    return not isinstance(table, BenchCell) or options.out is not None


@study(ImportOptions)
def import_timings(options: ImportOptions) -> ImportedCosts:
    """Make a cost file of timings that were measured elsewhere.

    Raises:
        SimlabError: the timings cannot be read, or say too little; the cost file is there already.
    """
    timings_path = options.one_file("timings")
    options.check_unread(OF_METRICS, timings_path, "timings")
    if not Path(timings_path).is_file():
        read_timings(timings_path)  # refuses what is no name of packaged timings either
    if options.out is None:
        raise UsageError(f"{timings_path} holds timings, which become a cost file; name it with --out FILE")
    if options.plain_s == 0:
        raise UsageError("--plain-s must be above 0: speedups are over autoregressive decoding")
    given = {stage: getattr(options, f"{stage}_s") for stage in (*GRID_STAGES, PLAIN) if stage != "verify"}
    constants = {stage: seconds for stage, seconds in given.items() if seconds is not None}
    about, longest = _about(options)
    table = None if options.format == TIMINGS else read_engine_table(str(timings_path))
    form = TIMINGS if table is None else table.form
    if options.format not in (AUTO, form):
        raise UsageError(f"{timings_path} is no file of --format {options.format}; it looks like {form}")
    if table is not None:
        return _of_table(options, table, about, longest, constants)
    timings = read_timings(timings_path, options.unit)
    _check_constants(constants, timings)
    counts = counts_of(timings, options.counts)
    batches = batches_of(timings) if options.batch is None else (options.batch,)
    files = [imported_cost_file(timings, counts, about, constants, batch, longest) for batch in batches]
    return _written(options, files, [()] * len(files))


def _of_table(
    options: ImportOptions, table: EngineTable, about: ImportedFor, longest: int, constants: dict[str, float]
) -> ImportedCosts:
    """The cost file of an engine's table at one batch size."""
    if options.counts is not None or options.unit is not None:
        option = "--unit" if options.counts is None else "--counts"
        raise UsageError(f"{option} is for CSV and lists; an engine's table counts the roots and has units of its own")
    path = Path(options.files[0])
    batch = options.batch or (table.concurrency if isinstance(table, BenchCell) else 1)
    timings = engine_timings(table, path.name, batch, longest)
    if isinstance(table, StepCurves):
        constants = {"draft": table.draft_s(batch), **constants}
    _check_constants(constants, timings)
    file = imported_cost_file(timings, DRAFTED_ONLY, about, constants, batch)
    return _written(options, [file], [shape_checks(table, batch, None if options.trace is None else about.block_size)])


def _check_constants(constants: Mapping[str, float], timings: PassTimings) -> None:
    """Refuse a stage beside which the target's slowest pass is nothing: that is milliseconds given as seconds."""
    slowest = max(row.seconds for row in timings.rows)
    for stage, seconds in constants.items():
        if seconds > _UNLIKELY * slowest:
            raise UsageError(
                f"--{stage}-s {seconds:g} is {seconds / slowest:,.0f} times the slowest pass of {timings.name}, "
                f"{slowest:g} s; it is in seconds: did you mean {seconds / 1000:g}?"
            )


def _written(options: ImportOptions, files: Sequence[CostFile], checks: Sequence[tuple[str, ...]]) -> ImportedCosts:
    """Write the cost files: one as it was named, several with the batch size behind the name."""
    assert options.out is not None
    out = Path(options.out)
    outs = [out] if len(files) == 1 else [out.with_stem(f"{out.stem}-batch{file.batch}") for file in files]
    for path in outs:
        if path.exists():
            raise UsageError(f"{path} is there already; name another file, or delete it")
    files = [_with_head(options, file) for file in files]
    for path, file in zip(outs, files, strict=True):
        write_cost_file(path, file)
    trace = str(options.trace) if isinstance(options.trace, str | Path) else ""
    return ImportedCosts(tuple(zip(outs, files, checks, strict=True)), trace)


def _with_head(options: ImportOptions, file: CostFile) -> CostFile:
    """The file, with --draft-s as one pass of a head, such as EAGLE-3's, where the draft set is the chain of one.

    A chain of n tokens takes n passes, up to the depth that was recorded; a tree 1 pass for the root's children and one
    for each of its steps. A pass over all nodes of a beam is taken to last as long as one over a single node.
    """
    if options.trace is None or options.draft_s is None:
        return file
    trace = opened(options.trace)
    manifest, draft_set = trace.manifest, trace.manifest.draft_sets[trace.draft_name(options.draft_set)]
    if not draft_set.is_head:
        return file
    depth, pass_s = draft_set.depth, options.draft_s
    if depth not in file.node_counts and file.node_counts[-1] > depth:
        raise CostError(
            f"the trace's head drafts chains of up to {depth} tokens, one pass each, and the timings have no pass of "
            f"{depth} drafted tokens; add a row of it: {depth + 1} nodes where the root is counted"
        )
    channels = {
        name: CostChannel(
            channel.kind, channel.producer, bounds_of(channel.kind, channel.settings), tuple(range(1, steps + 1))
        )
        for name, channel in manifest.channels.items()
        if channel.kind == POOL and channel.producer.is_same(draft_set.model) and (steps := channel.setting("steps"))
    }
    samples = dict(file.samples)
    samples |= {("draft", n, c): (pass_s * min(n, depth),) for n in file.node_counts for c in file.contexts}
    samples |= {
        (channel_stage(name), steps, c): (pass_s * (1 + steps),)
        for name, channel in channels.items()
        for steps in channel.units
        for c in file.contexts
    }
    note = f"a pass of the head takes {pass_s:g} s, as given: a chain of k tokens takes k passes"
    note += f", a tree of the channel {', '.join(channels)} one and as many as its steps" if channels else ""
    notes = tuple(note for note in file.notes if not note.startswith("draft takes "))
    return replace(file, samples=samples, channels=channels, notes=(*notes, note))


def _about(options: ImportOptions) -> tuple[ImportedFor, int]:
    """The models of the trace, for the file, and the longest context of its texts; without a trace what was stated."""
    if options.trace is None:
        if options.draft_set is not None:
            raise UsageError("--draft-set is of a trace; name the trace with --trace, or leave it out")
        return models_not_stated(options.machine, options.dtype, options.target), ANY_CONTEXT
    if options.target is not None:
        raise UsageError("the models of the timings are those of --trace or that of --target; give one")
    trace = opened(options.trace)
    manifest = trace.manifest
    draft_set = manifest.draft_sets[trace.draft_name(options.draft_set)]
    sampling = manifest.sampling
    about = ImportedFor(
        target=manifest.target,
        drafter=draft_set.model,
        block_size=draft_set.block_size,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        machine=options.machine,
        dtype=options.dtype,
    )
    return about, max(longest_context(trace, None), 1)
