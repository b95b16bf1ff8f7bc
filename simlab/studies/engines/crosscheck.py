"""Does a live server do what a trace predicts? Its texts, its rounds and its counters, compared with both."""

import json
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar

from simlab.analysis.crosscheck.diagnosis import Finding, findings_of_rounds, rounds_of_engine
from simlab.analysis.crosscheck.predicted import PredictedText, predicted_counts
from simlab.analysis.crosscheck.rounds import ComparedLengths, ComparedText, compared_lengths, compared_text
from simlab.analysis.crosscheck.summary import FORMAT, RESULT, crosscheck_json
from simlab.analysis.crosscheck.text import (
    counters_text,
    crosscheck_notes,
    differences_text,
    lengths_text,
    verdict_text,
)
from simlab.analysis.crosscheck.verdict import ROUNDS, Verdict, verdict_of
from simlab.analysis.engines.answers import EngineError, Json, ServerCounters
from simlab.analysis.table.text import within_width
from simlab.errors import UsageError
from simlab.options import draft_set_option, limit_option, option, path_or_none, progress_option, study
from simlab.studies.engines.collect import (
    AnswerLog,
    Collected,
    Endpoint,
    Server,
    collect,
    reach,
    read_answers,
    warmed_up,
)
from simlab.studies.engines.predictions import asked_tokens, check_greedy, checked_k, predicted_texts
from simlab.studies.inputs.progress import progress_bar, step
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.studies.result import StudyResult
from simlab.traces.format.files import write_beside
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.reader import Trace

ANSWERS = "answers.jsonl"

FLOAT32_TIE, OTHER_TIE = 1e-3, 0.5
"""Logits and nats within which a choice may go either way: in float32, and in dtypes of 16 bits.

The second is assumed; `simlab confirm` measures how far logits of one's own models are off in a dtype.
"""


@dataclass(frozen=True)
class CrosscheckOptions:
    """Which server is asked, how, and with which recording it is compared."""

    DETAILS: ClassVar = """\
Sends the prompts of a trace, as token ids and decoded greedily, to a server that runs the trace's
target and drafter, and compares texts, rounds and counters with what the trace predicts of a chain.
vLLM tells every round where it is started with --per-request-spec-decode-metrics detailed; SGLang and
TensorRT-LLM tell the rounds of each request. The finest level that the engine tells is compared, and named.
Verdicts: confirmed; confirmed up to ties (texts or rounds part at close calls alone); lengths agree; and, with exit
code 1, rounds differ, texts differ, lengths differ.
The trace must be of the engine's own block: a drafter that is asked for fewer tokens drafts a smaller block, whose
tokens are other ones. `simlab record --block N` records one.
Nothing is sent to any other address, redirects are not followed, and no torch is needed.

  simlab crosscheck --endpoint http://127.0.0.1:8000 --trace runs/mine
  simlab crosscheck --endpoint http://gpu7:8000 --trace runs/mine --concurrency 8 --exact-counters --out runs/vllm
  simlab crosscheck --answers runs/vllm/answers.jsonl --trace runs/mine --json"""

    endpoint: str | None = option(None, "the server's address, such as http://127.0.0.1:8000", "URL", one_of="source!")
    trace: TraceSource | None = option(None, "of the server's target and drafter, greedy", "DIR")
    answers: str | Path | None = option(
        None, "answers that an earlier crosscheck kept", "FILE", read=Path, one_of="source!", kw_only=True
    )
    _: KW_ONLY
    draft_set: str | None = draft_set_option()
    engine: str = option(
        "auto",
        "what serves there; auto: by the names of its metrics",
        choices=("auto", "vllm", "sglang", "trtllm"),
    )
    model: str | None = option(None, "the name under which the target is served", "NAME")
    limit: int | None = limit_option()
    concurrency: int = option(1, "requests at a time", "N")
    max_new_tokens: int | None = option(None, "ask for at most so many (default: as recorded)", "N")
    exact_counters: bool = option(
        False, "ask for a round less than was recorded, so that every counter is predicted to the unit"
    )
    first_of_block: bool = option(False, "the engine drafts the recorded block and keeps its first tokens")
    shared_server: bool = option(False, "others use the server meanwhile; leave its counters out")
    tie: float | None = option(
        None,
        "logits or nats within which a choice is a close call (default 0.001 where all is float32, else 0.5)",
        "X",
    )
    time_limit: float = option(600.0, "seconds for one answer", "S")
    key_variable: str | None = option(None, "the environment variable with the server's key", "NAME")
    out: str | Path | None = option(None, "keep the result and the answers there", "DIR", read=Path)
    progress: bool | None = progress_option()

    def __post_init__(self) -> None:
        if self.trace is None:
            raise UsageError("name the trace of the server's target and drafter with --trace DIR")
        if self.tie is not None and not self.tie >= 0:
            raise UsageError(f"expected --tie to be at least 0 logits; got {self.tie:g}")
        if not self.time_limit > 0:
            raise UsageError(f"expected --time-limit to be above 0 seconds; got {self.time_limit:g}")


@dataclass(frozen=True, eq=False, repr=False)
class CrosscheckTable(StudyResult):
    """An engine beside a trace.

    Attributes:
        trace: what was recorded.
        draft: the draft set.
        address: of the server, or where its answers were kept.
        collected: what it answered.
        texts: each answer beside its text.
        lengths: None where the engine told no rounds of single requests.
        predicted: the counts that the trace predicts.
        ties: logits of the target, or nats of the drafter, that were taken for a close call.
        verdict: what it came to.
        remarks: what else was noticed, a sentence each.
    """

    trace: Trace
    draft: str
    address: str
    collected: Collected
    texts: tuple[ComparedText, ...]
    lengths: ComparedLengths | None
    predicted: ServerCounters
    ties: float
    verdict: Verdict
    remarks: tuple[str, ...]

    ROWS = "texts"

    @property
    def findings(self) -> list[Finding]:
        """Known faults that the engine's rounds look like, where they are not as predicted."""
        return [] if self.verdict.is_good else findings_of_rounds(rounds_of_engine(self.texts))

    @property
    def has_failed(self) -> bool:
        """Whether the engine does something else than was predicted."""
        return not self.verdict.is_good

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab crosscheck --json``."""
        facts, manifest = self.collected.facts, self.trace.manifest
        about: dict[str, object] = {
            "format": FORMAT,
            "format_version": 1,
            "text_id": self.trace.text_id,
            "draft_ids": {self.draft: self.trace.draft_ids[self.draft]},
            "target": manifest.target.name,
            "drafter": manifest.draft_sets[self.draft].model.name,
            "trace_dtype": manifest.dtype,
            "address": self.address,
            "engine": self.collected.engine.title,
            "engine_version": facts.version,
            "engine_dtype": facts.dtype,
            "served_model": facts.root or facts.model,
            "num_speculative_tokens": self.texts[0].recorded.k if self.predicted.num_rounds else None,
            "ties": {"logits": self.ties, "nats": self.ties},
            "seconds": round(self.collected.seconds, 3),
            "remarks": list(self.remarks),
        }
        compared = crosscheck_json(self.verdict, self.texts, self.lengths, self.collected.counters, self.predicted)
        looks = [asdict(finding) for finding in self.findings]
        return about | compared | {"why_no_counters": self.collected.why_no_counters or None, "looks_like": looks}

    def text(self) -> str:
        """The verdict and the tables as ``simlab crosscheck`` prints them."""
        facts, draft_set = self.collected.facts, self.trace.manifest.draft_sets[self.draft]
        version = f" {facts.version}" if facts.version else ""
        heading = (
            f"engine   {self.collected.engine.title}{version} at {self.address}, {facts.dtype or 'dtype not reported'}",
            f"trace    {self.trace.label} (text {self.trace.text_id}), {self.trace.manifest.dtype}",
            f"drafter  {draft_set.model.name}, block {draft_set.block_size} ({self.texts[0].recorded.k} drafted ahead)",
            f"texts    {len(self.texts):,}, {sum(text.num_tokens for text in self.texts):,} tokens",
        )
        collected = self.collected
        notes = crosscheck_notes(self.verdict.level, collected.engine.per_round, self.texts)
        close = f"A close call: within {self.ties:g} logits of the target, or {self.ties:g} nats of the drafter."
        parts = [
            "\n".join([verdict_text(self.verdict), *self._looks()]),
            within_width("\n".join(heading)),
            lengths_text(self.lengths),
            differences_text(self.texts),
            counters_text(collected.counters, self.predicted, collected.why_no_counters),
            within_width("\n".join([*self.remarks, *notes, close])),
        ]
        return "\n\n".join(part for part in parts if part)

    def _looks(self) -> list[str]:
        if self.verdict.is_good or self.verdict.level != ROUNDS:
            return []
        lines = [f"Looks like {finding.fault}: {finding.evidence}." for finding in self.findings]
        return lines or ["Looks like none of the known faults, or too few rounds were compared to say."]


@study(CrosscheckOptions)
def crosscheck(options: CrosscheckOptions) -> CrosscheckTable:
    """Ask a live server for the texts of a trace, and compare what it did with what the trace predicts.

    Raises:
        SimlabError: the server cannot be asked, or serves something else than was recorded.
    """
    folder = path_or_none(options.out)
    with exclusive_lock(None if folder is None else folder / ANSWERS):
        trace = opened(options.trace)
        check_greedy(trace)
        if options.endpoint is not None and options.answers is None:
            table = _asked(trace, options.endpoint, options, folder)
        elif options.answers is not None and options.endpoint is None:
            table = _kept(trace, Path(options.answers), options)
        else:
            raise UsageError("expected an address (--endpoint) or kept answers (--answers), one of the two")
        if folder is not None:
            text = json.dumps(table.to_json(), indent=1, allow_nan=False) + "\n"
            write_beside(folder / RESULT, lambda file: file.write(text.encode()))
    return table


def _kept(trace: Trace, path: Path, options: CrosscheckOptions) -> CrosscheckTable:
    collected = read_answers(path, trace.text_id)
    k = collected.facts.num_speculative
    if k is None:
        raise EngineError(f"{path} does not say how many tokens were drafted; ask the server again")
    draft = checked_k(trace, options.draft_set, k, options.first_of_block, "the server")
    texts = [text for text in predicted_texts(trace, draft, k, options.limit) if text.index in collected.bodies]
    missing = len(trace.texts) - len(collected.bodies)
    remarks = (f"{missing:,} texts of the trace have no answer there.",) if missing > 0 else ()
    if not texts:
        raise EngineError(f"{path} holds no answer to these texts")
    return _compared(trace, draft, str(path), collected, texts, options, remarks)


def _asked(trace: Trace, address: str, options: CrosscheckOptions, folder: Path | None) -> CrosscheckTable:
    manifest, endpoint = trace.manifest, Endpoint(address, options.time_limit, _key(options.key_variable))
    server = reach(endpoint, options.engine, manifest.stop_token_ids, options.model)
    _check_idle(server, options.shared_server)
    # Until the block is known any draft set does; a round of the first request tells k where nothing else does.
    sample = predicted_texts(trace, trace.draft_name(options.draft_set), 1, 1)[0]
    with step("crosscheck", "a first short request"):
        first = warmed_up(server, sample)
    k = server.facts.num_speculative
    if k is None and first.num_drafted and first.num_rounds:
        k = -(-first.num_drafted // first.num_rounds)
    if k is None:
        k = manifest.draft_sets[trace.draft_name(options.draft_set)].depth
    hint = f", and with `{server.engine.per_round}` to have every round" if server.engine.per_round else ""
    if k == 0 or (not server.has_counters and first.num_rounds is None and first.accepted is None):
        raise EngineError(
            f"the server at {server.endpoint.address} tells nothing of speculative decoding: it serves without a "
            f"drafter, or hides its metrics; serve with one{hint}"
        )
    draft = checked_k(trace, options.draft_set, k, options.first_of_block, server.engine.title)
    texts, asked = asked_tokens(
        predicted_texts(trace, draft, k, options.limit), manifest.max_new_tokens, options.max_new_tokens,
        options.exact_counters,
    )  # fmt: skip
    _check_length(server, texts, asked, k)
    log = None if folder is None else AnswerLog(folder / ANSWERS, server, k, trace.text_id)
    with progress_bar(options.progress, "crosscheck", "text", len(texts)) as bar:

        def came(index: int, body: Json) -> None:
            if log is not None:
                log.add({"sequence": index, "asked": asked[index], "body": body})
            bar.update()

        collected = collect(server, texts, asked, options.concurrency, options.shared_server, came)
    if log is not None and collected.counters is not None:
        log.add({"counters": collected.counters.to_json()})
    return _compared(trace, draft, address, collected, texts, options, _remarks(server, trace))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"the environment variable {variable} is not set; put the server's key into it")
    return key


def _check_idle(server: Server, shared: bool) -> None:
    samples = server.samples()
    if shared or samples is None:
        return
    running, waiting = (samples.largest(gauge) or 0 for gauge in server.engine.busy)
    if running or waiting:
        raise EngineError(
            f"the server at {server.endpoint.address} is busy ({running} requests running, {waiting} waiting), so its "
            "counters would be of others too; wait until it is idle, or leave them out with --shared-server"
        )


def _check_length(server: Server, texts: Sequence[PredictedText], asked: dict[int, int], k: int) -> None:
    longest = server.facts.longest
    if longest is None:
        return
    for text in texts:
        needed = len(text.prompt_tokens) + asked[text.index] + k + 1
        if needed > longest:
            raise EngineError(
                f"the server takes texts of at most {longest:,} tokens, and {text.name} with its prompt and a last "
                f"draft needs {needed:,}; serve longer ones, or ask for fewer tokens with --max-new-tokens"
            )


def _remarks(server: Server, trace: Trace) -> tuple[str, ...]:
    facts, manifest, remarks = server.facts, trace.manifest, list[str]()
    names = (facts.root or facts.model or "", manifest.target.name)
    served, recorded = (PurePosixPath(name.rstrip("/")).name.lower() for name in names)
    if served and recorded and served != recorded:
        remarks.append(
            f"The server calls its target {facts.root or facts.model}, the trace {manifest.target.name}; of other "
            "weights texts would part."
        )
    if facts.dtype is not None and facts.dtype != manifest.dtype:
        remarks.append(
            f"The server computes in {facts.dtype}, the trace was recorded in {manifest.dtype}: texts and rounds may "
            "part at close calls."
        )
    return tuple(remarks)


def _ties(options: CrosscheckOptions, collected: Collected, trace: Trace) -> float:
    if options.tie is not None:
        return options.tie
    in_float32 = trace.manifest.dtype == "float32" and collected.facts.dtype in (None, "float32")
    return FLOAT32_TIE if in_float32 else OTHER_TIE


def _compared(
    trace: Trace,
    draft: str,
    address: str,
    collected: Collected,
    texts: Sequence[PredictedText],
    options: CrosscheckOptions,
    remarks: tuple[str, ...],
) -> CrosscheckTable:
    ties = _ties(options, collected, trace)
    compared = tuple(compared_text(text, collected.answer(text), collected.asked[text.index], ties) for text in texts)
    lengths = compared_lengths(compared)
    predicted = predicted_counts(texts, [min(len(text), collected.asked[text.index]) for text in texts])
    verdict = verdict_of(compared, lengths, collected.counters, predicted)
    return CrosscheckTable(trace, draft, address, collected, compared, lengths, predicted, ties, verdict, remarks)
