"""Files in which engines and benchmarks leave what they counted: metrics, benchmark results, records of requests."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from simlab.analysis.engines.answers import (
    EngineError,
    Json,
    ServerCounters,
    check_counts,
    count,
    counts,
    inner,
    number,
    parsed_object,
    text,
    total,
)
from simlab.analysis.engines.known import COUNTED, engine_of
from simlab.analysis.engines.metrics import MOST_BYTES, read_samples
from simlab.untrusted.json_text import file_text

PROMETHEUS, VLLM_BENCH, SGLANG_BENCH, AIPERF = "Prometheus text", "vllm bench serve", "SGLang bench_serving", "AIPerf"
VLLM_LOG = "log of vLLM"

_LOG_LINE = "SpecDecoding metrics:"
_SGLANG_LOG = re.compile(r"\baccept len: [0-9.]+")
_LOG_FIELDS = {
    "length": re.compile(r"Mean acceptance length: ([0-9.]+)"),
    "accepted": re.compile(r"\bAccepted: ([0-9]+) tokens"),
    "drafted": re.compile(r"\bDrafted: ([0-9]+) tokens"),
    "rates": re.compile(r"Per-position acceptance rate: ((?:[0-9.]+(?:, )?)+)"),
}
_LENGTH_DIGIT, _RATE_DIGIT = 0.005, 0.0005
"""Half of the last digit that vLLM writes of an acceptance length and of a rate."""

_MOST_PLACES = 10_000
"""Tokens of a round, far above any."""

_ROUNDED = re.compile(r"^llamacpp:\S+_total\S* [0-9.]+e\+", re.MULTILINE)
"""A count as a C++ stream writes it from a million on, with six digits."""


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """What one file tells.

    Attributes:
        path: of the file.
        kind: one of the kinds above.
        engine: the title of the engine; empty where the file does not tell.
        counters: over all its requests.
        requests: the counts of each request; none where the file does not tell.
        k: tokens that are drafted in a round; None where it does not tell.
        model: the name that is served; None where it does not tell.
        is_rounded: whether large counts were written with few digits.
    """

    path: Path
    kind: str
    engine: str
    counters: ServerCounters
    requests: tuple[ServerCounters, ...] = ()
    k: int | None = None
    model: str | None = None
    is_rounded: bool = False


def read_metrics_file(path: Path) -> tuple[MetricsFile, ...]:
    """What a file tells, by its content; of a file with a line for each benchmark, one for each.

    Raises:
        EngineError: it is of no kind that is known, or damaged.
    """
    content = _content(path)
    begin = content.lstrip()
    if not begin:
        raise EngineError(f"{path} is empty")
    if _LOG_LINE in content:
        return (_vllm_log(path, content),)
    if _SGLANG_LOG.search(content) and not begin.startswith("{"):
        raise EngineError(
            f"{path} is a log of SGLang, whose lines have means of some seconds and not of how many rounds; read the "
            "server's /metrics instead"
        )
    if not begin.startswith("{"):
        return (_prometheus(path, content),)
    lines = [line for line in content.splitlines() if line.strip()]
    # A line each, or one object over many lines.
    objects = [content] if len(lines) > 1 and not lines[0].rstrip().endswith("}") else lines
    values = [parsed_object(line, f"{path}, line {number}") for number, line in enumerate(objects, 1)]
    records = [list(_records(value)) for value in values]
    if any(records):
        for number, (value, of_line) in enumerate(zip(values, records, strict=True), 1):
            # A request that failed has an error in place of a record.
            if not of_line and not value.get("error"):
                raise EngineError(
                    f"{path}, line {number} has no record of speculative decoding, and others have; it is damaged, or "
                    "of another run: give the file as AIPerf wrote it"
                )
        files: tuple[MetricsFile, ...] = (_aiperf(path, [record for of_line in records for record in of_line]),)
    else:
        files = tuple(_benchmark(path, value) for value in values)
    for file in files:
        check_counts(file.counters, str(path))
    return files


def _content(path: Path) -> str:
    if not path.is_file():
        raise EngineError(f"expected a file of metrics at {path}; there is none. Check the path.")
    if path.stat().st_size > MOST_BYTES:
        raise EngineError(f"{path} is larger than {MOST_BYTES >> 20} MiB; give the file of one run")
    try:
        return file_text(path)
    except UnicodeDecodeError as error:
        raise EngineError(f"{path} is no text ({error.reason}); give Prometheus text, JSON or JSON lines") from error


def _prometheus(path: Path, content: str) -> MetricsFile:
    samples = read_samples(content, str(path))
    engine = engine_of(samples)
    if engine is None:
        known = ", ".join(f"{engine.prefix}... ({engine.title})" for engine in COUNTED)
        raise EngineError(f"{path} holds metrics of no engine that is known; expected names such as {known}")
    facts = engine.facts({}, samples)
    counters = engine.counters(samples)
    if counters.num_rounds is None:
        raise EngineError(
            f"{path} holds metrics of {engine.title}, and no counts of its speculative decoding; serve with a drafter, "
            "and read the metrics after a request"
        )
    check_counts(counters, str(path))
    return MetricsFile(
        path,
        PROMETHEUS,
        engine.title,
        counters,
        k=facts.num_speculative,
        model=samples.model(engine.prefix),
        is_rounded=_ROUNDED.search(content) is not None,
    )


def _vllm_log(path: Path, content: str) -> MetricsFile:
    """The counts of a log, over all its lines of speculative decoding, each of which is of some seconds.

    A line has no number of rounds. A round drafts as many tokens as there are rates by position, so there are as many
    rounds as the drafted tokens make, and the acceptance length of the line must agree with that.
    """
    rounds = drafted = accepted = 0
    at: list[float] = []
    slack = 0.0
    for row, line in enumerate(content.splitlines(), 1):
        if _LOG_LINE not in line:
            continue
        fields = {name: match[1] for name, field in _LOG_FIELDS.items() if (match := field.search(line))}
        if len(fields) < len(_LOG_FIELDS):
            raise EngineError(
                f"{path}, line {row} lacks {', '.join(name for name in _LOG_FIELDS if name not in fields)} of its "
                "speculative decoding; expected a line as vLLM's versions from 0.10 on write it"
            )
        rates = [float(rate) for rate in fields["rates"].strip(", ").split(", ")]
        own, kept = int(fields["drafted"]), int(fields["accepted"])
        if own == 0:
            continue
        own_rounds = own // len(rates)
        if own % len(rates) or abs(1 + kept / own_rounds - float(fields["length"])) > _LENGTH_DIGIT + 1e-9:
            raise EngineError(
                f"{path}, line {row}: {own:,} drafted tokens are no rounds of {len(rates)} with an acceptance "
                f"length of {fields['length']}, as where rounds draft different numbers; read the server's "
                "/metrics instead"
            )
        if at and len(rates) != len(at):
            raise EngineError(
                f"{path} has lines of {len(at)} and of {len(rates)} drafted tokens; give those of one run"
            )
        at = [sum(pair) for pair in zip(at or [0.0] * len(rates), (rate * own_rounds for rate in rates), strict=True)]
        rounds, drafted, accepted, slack = rounds + own_rounds, drafted + own, accepted + kept, slack + own_rounds
    if not rounds:
        raise EngineError(
            f"{path} is a log in which no round drafted a token; give one of a server that served requests"
        )
    positions = tuple(map(round, at))
    is_exact = slack * _RATE_DIGIT < 0.5 and sum(positions) == accepted
    counters = ServerCounters(num_rounds=rounds, num_drafted=drafted, num_accepted=accepted)
    counters = replace(counters, accepted_at=positions) if is_exact else counters
    return MetricsFile(path, VLLM_LOG, "vLLM", counters, k=len(at))


def _benchmark(path: Path, value: Json) -> MetricsFile:
    where = str(path)
    if "spec_decode_num_drafts" in value:
        return _vllm_bench(path, value)
    if "accept_length" in value and "completed" in value:
        length = number(value, "accept_length", where)
        info = inner(value, "server_info")
        if not length or (count(info, "dp_size", where) or 1) > 1:
            raise EngineError(_why_no_length(path, length, info))
        if not 1 <= length <= _MOST_PLACES:
            raise EngineError(f"expected accept_length of {where} to be from 1, tokens a round; got {length:g}")
        # Tokens of a round, the prefills' tokens among them.
        tokens, requests = count(value, "total_output_tokens", where), count(value, "completed", where)
        drafted = count(info, "speculative_num_draft_tokens", where)
        return MetricsFile(
            path,
            SGLANG_BENCH,
            "SGLang",
            ServerCounters(num_rounds=tokens and round(tokens / length), num_tokens=tokens, num_requests=requests),
            k=None if drafted is None else drafted - 1,
            model=text(info, "served_model_name", "model_path"),
        )
    if "completed" in value and "output_throughput" in value:
        raise EngineError(
            f"{path} is a benchmark without counts of speculative decoding: the server drafted nothing, or its metrics "
            "could not be read; serve with a drafter"
        )
    if str(value.get("format")).startswith("simlab-"):
        raise EngineError(f"{path} is of simlab's own already; `simlab inspect` shows it, and --cost takes a cost file")
    raise EngineError(
        f"{path} is of no kind that is known; expected Prometheus text, a log of vLLM, the JSON of `vllm bench serve "
        "--save-result`, the JSON lines of SGLang's bench_serving, or AIPerf's profile_export.jsonl"
    )


def _why_no_length(path: Path, length: float | None, info: Json) -> str:
    """Why SGLang's benchmark has no acceptance length of the whole server, and what has."""
    schedulers, algorithm = count(info, "dp_size", str(path)) or 1, text(info, "speculative_algorithm")
    begin = f"{path} is of SGLang's bench_serving with accept_length {'null' if length is None else f'{length:g}'}"
    counters = "read the server's /metrics before and after instead (`simlab import AFTER --before BEFORE`)"
    if schedulers > 1:
        return (
            f"{begin} and dp_size {schedulers}: the benchmark asks one of the {schedulers} schedulers, whose length is "
            f"not the server's; {counters}"
        )
    if algorithm is not None:
        return f"{begin}, although its server drafts ({algorithm}); {counters}"
    return f"{begin}: the server drafted nothing, or is none of SGLang's; serve with a drafter"


def _vllm_bench(path: Path, value: Json) -> MetricsFile:
    where = str(path)
    rounds = count(value, "spec_decode_num_drafts", where)
    rates = value.get("spec_decode_per_position_acceptance_rates")
    at: tuple[int, ...] | None = None
    if rounds and isinstance(rates, list):
        if not all(isinstance(rate, int | float) and 0 <= rate <= 1 for rate in rates):
            raise EngineError(
                f"expected the acceptance rates of {where} to be shares from 0 to 1; got {str(rates)[:60]}"
            )
        at = tuple(round(rate * rounds) for rate in rates)
    counters = ServerCounters(
        num_rounds=rounds,
        num_drafted=count(value, "spec_decode_draft_tokens", where),
        num_accepted=count(value, "spec_decode_accepted_tokens", where),
        accepted_at=at,
        num_tokens=count(value, "total_output_tokens", where),
        num_requests=count(value, "completed", where),
    )
    return MetricsFile(path, VLLM_BENCH, "vLLM", counters, k=len(at) if at else None, model=text(value, "model_id"))


def _records(value: object, deep: int = 4) -> Iterator[Json]:
    """The acceptance records inside a line of AIPerf's."""
    if isinstance(value, Mapping):
        if "num_spec_steps" in value and "num_accepted_draft_tokens" in value:
            yield value
        elif deep:
            for part in value.values():
                yield from _records(part, deep - 1)


def _aiperf(path: Path, records: list[Json]) -> MetricsFile:
    where = str(path)
    requests = tuple(_aiperf_request(record, where) for record in records)
    ks = {num for record in records if (num := count(record, "num_spec_tokens", where)) is not None}
    engine = text(records[0], "engine") or ""
    title = next((counted.title for counted in COUNTED if counted.name == engine), engine)
    return MetricsFile(path, AIPERF, title, total(requests), requests, k=ks.pop() if len(ks) == 1 else None)


def _aiperf_request(record: Json, where: str) -> ServerCounters:
    """The counts of one request; its rounds by position are of a histogram of their accepted tokens, where it has one.

    A request without one has no rounds by position, and then all of the file together have none.
    """
    histogram, at = _histogram(record, where), None
    if histogram is not None:
        deepest = max((accepted for accepted, times in histogram.items() if times), default=0)
        at = tuple(
            sum(times for accepted, times in histogram.items() if accepted > position) for position in range(deepest)
        )
    return ServerCounters(
        num_rounds=count(record, "num_spec_steps", where),
        num_drafted=count(record, "num_draft_tokens", where),
        num_accepted=count(record, "num_accepted_draft_tokens", where),
        accepted_at=at,
        num_tokens=count(record, "completion_tokens", where) or None,
        num_requests=1,
    )


def _histogram(record: Json, where: str) -> dict[int, int] | None:
    """Rounds by their number of accepted tokens, of a list or of an object with what is not 0; None: not told."""
    histogram = record.get("acceptance_histogram")
    if isinstance(histogram, Mapping):
        for key in histogram:
            if re.fullmatch(r"[0-9]{1,5}", str(key)) is None:
                raise EngineError(
                    f"expected acceptance_histogram of {where} by numbers of accepted tokens; got {str(key)[:60]!r}"
                )
        return {int(key): count(histogram, key, where) or 0 for key in histogram}
    listed = counts(record, "acceptance_histogram", where)
    return None if listed is None else dict(enumerate(listed))
