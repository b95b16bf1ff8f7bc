"""What engines and benchmarks left in files, beside what a trace predicts: of the same prompts, or of any traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.crosscheck.drift import DriftFigure, drift_figures, suspicion
from simlab.analysis.crosscheck.predicted import predicted_counts
from simlab.analysis.crosscheck.text import counters_text, drift_sentence, drift_text, verdict_text
from simlab.analysis.crosscheck.verdict import Verdict, verdict_of
from simlab.analysis.engines.answers import EngineError, ServerCounters, total
from simlab.analysis.engines.files import PROMETHEUS, VLLM_LOG, MetricsFile, read_metrics_file
from simlab.analysis.table.text import within_width
from simlab.errors import UsageError
from simlab.options import study
from simlab.studies.engines.import_options import OF_TIMINGS, ImportOptions
from simlab.studies.engines.predictions import asked_tokens, check_greedy, checked_k, predicted_texts
from simlab.studies.inputs.trace import draft_set_named, opened
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace


@dataclass(frozen=True, eq=False, repr=False)
class EngineMetricsTable(StudyResult):
    """Files of one server beside a trace.

    Attributes:
        trace: what was recorded.
        draft: the draft set.
        files: what was read.
        counters: over all of them.
        predicted, verdict: of the same requests; None where the requests were others.
        figures: of the drift; empty where the requests were the trace's own.
        k: tokens that the server drafts in a round.
    """

    trace: Trace
    draft: str
    files: tuple[MetricsFile, ...]
    counters: ServerCounters
    predicted: ServerCounters | None
    verdict: Verdict | None
    figures: tuple[DriftFigure, ...]
    k: int

    ROWS = "figures"

    @property
    def has_failed(self) -> bool:
        """Whether the counts are not those of this trace."""
        return any(figure.differs for figure in self.figures) if self.verdict is None else not self.verdict.is_good

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab import --json``."""
        return {
            "text_id": self.trace.text_id,
            "draft_ids": {self.draft: self.trace.draft_ids[self.draft]},
            "files": [
                {"path": str(file.path), "kind": file.kind, "engine": file.engine or None} for file in self.files
            ],
            "counters": self.counters.to_json(),
            "acceptance_length": self.counters.acceptance_length,
            "counters_foretold": None if self.predicted is None else self.predicted.to_json(),
            "verdict": None if self.verdict is None else self.verdict.name,
            "reason": None if self.verdict is None else self.verdict.reason,
            "drift": None if self.verdict is not None else self.has_failed,
            "suspicion": suspicion(self.figures, self.k) or None,
            "figures": [figure.row() for figure in self.figures],
        }

    def text(self) -> str:
        """The tables as ``simlab import`` prints them."""
        files = [
            f"file     {file.path} ({file.kind}{f', {file.engine}' if file.engine else ''})" for file in self.files
        ]
        heading = within_width(
            "\n".join([*files, f"trace    {self.trace.label} (text {self.trace.text_id}), draft set {self.draft}"])
        )
        if self.verdict is not None and self.predicted is not None:
            return "\n\n".join([verdict_text(self.verdict), heading, counters_text(self.counters, self.predicted, "")])
        requests = self.counters.num_requests
        many = f"{requests:,} requests" if requests is not None else "requests that are not counted"
        notes = (
            f"The server's {self.counters.num_rounds:,} rounds of {many} are taken to differ among themselves as the "
            "trace's prompts do, unless the file tells single requests. Its rates count what was kept behind the ends "
            "of texts too; the trace's leave out what lies there."
        )
        if self.counters.num_tokens is None or self.counters.num_requests is None:
            notes += (
                " The server does not count requests, so its acceptance length is 1 + accepted / rounds, which counts "
                "what was kept behind the ends of texts."
            )
        parts = [drift_sentence(self.figures, self.k), heading]
        return "\n\n".join([*parts, *([drift_text(self.figures)] if self.figures else []), within_width(notes)])


@study(ImportOptions)
def import_metrics(options: ImportOptions) -> EngineMetricsTable:
    """Compare the counts in files with a trace.

    Raises:
        SimlabError: a file cannot be read, or does not fit the trace.
    """
    options.check_unread(OF_TIMINGS, options.files[0], "counts of an engine or a benchmark")
    trace = opened(options.trace)
    read = [file for path in options.files for file in read_metrics_file(Path(path))]
    _check_alike(read)
    if any(file.is_rounded for file in read) and (options.same_prompts or options.before is not None):
        raise EngineError(
            f"{read[0].path}: llama.cpp writes counts from a million on with six digits, and these are needed to the "
            "unit; start the server anew, and read it before it counts a million"
        )
    if options.same_prompts and any(file.kind == VLLM_LOG for file in read):
        raise EngineError("a log may lack the last seconds of a run, so --same-prompts needs the server's /metrics")
    counters = _since(total([file.counters for file in read]), read, options.before)
    if not counters.num_rounds:
        raise EngineError(f"{read[0].path} counts no rounds of speculative decoding; read it after some requests")
    name = draft_set_named(trace, options.draft_set)
    ks = {file.k for file in read if file.k is not None}
    if len(ks) > 1:
        raise EngineError(
            f"the files are of servers that draft {' and '.join(map(str, sorted(ks)))} tokens; give one's"
        )
    k = ks.pop() if ks else trace.manifest.draft_sets[name].depth
    name = checked_k(trace, options.draft_set, k, options.first_of_block, read[0].engine or "the server")
    texts = predicted_texts(trace, name, k, options.limit)
    requests = [request for file in read for request in file.requests]
    if not options.same_prompts:
        figures = tuple(drift_figures(texts, counters, requests))
        return EngineMetricsTable(trace, name, tuple(read), counters, None, None, figures, k)
    check_greedy(trace)
    long_enough, asked = asked_tokens(
        texts, trace.manifest.max_new_tokens, options.max_new_tokens, exact_counters=False
    )
    predicted = predicted_counts(long_enough, [min(len(text), asked[text.index]) for text in long_enough])
    if counters.num_requests is not None and counters.num_requests != predicted.num_requests:
        raise UsageError(
            f"the files count {counters.num_requests:,} requests and the trace has {predicted.num_requests:,} texts; "
            "choose as many with --limit, or leave out --same-prompts"
        )
    verdict = verdict_of((), None, counters, predicted)
    return EngineMetricsTable(trace, name, tuple(read), counters, predicted, verdict, (), k)


def _check_alike(files: Sequence[MetricsFile]) -> None:
    """Refuse files of several engines or served models, whose sum is of none of them."""
    names = {"engines": {file.engine for file in files if file.engine}}
    for kind in {file.kind for file in files}:  # other kinds may name the same model differently
        names[f"models ({kind})"] = {file.model for file in files if file.kind == kind and file.model}
    for what, several in names.items():
        if len(several) > 1:
            raise EngineError(
                f"the files are of {len(several)} {what}: {', '.join(sorted(several))}; their sum is of none of them, "
                "so give those of one"
            )


def _since(counters: ServerCounters, files: Sequence[MetricsFile], before: str | Path | None) -> ServerCounters:
    if before is None:
        return counters
    if len(files) != 1 or files[0].kind != PROMETHEUS:
        raise UsageError("--before takes off an earlier reading of the same server; give one file of Prometheus text")
    (earlier,) = read_metrics_file(Path(before))
    if earlier.kind != PROMETHEUS or (earlier.engine, earlier.model) != (files[0].engine, files[0].model):
        raise UsageError(f"{before} is no earlier reading of the same server; give its Prometheus text")
    return counters.since(earlier.counters)
