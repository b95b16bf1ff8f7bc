"""SGLang's words, as its version 0.5.23 has them.

Read in the released code: ``srt/managers/tokenizer_manager.py`` (``meta_info`` of an answer),
``srt/observability/metrics_collector.py``, ``srt/entrypoints/http_server.py``. Its gauges of acceptance are those of
the latest batch and are not averaged; nothing that is released tells single rounds.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from simlab.analysis.engines.answers import (
    EngineAnswer,
    EngineError,
    Json,
    ServerCounters,
    ServerFacts,
    count,
    counts,
    first_of,
    inner,
    text,
)
from simlab.analysis.engines.metrics import Samples

_DTYPES = {"auto": None, "half": "float16", "float": "float32"}
"""What its names stand for; auto: as the checkpoint has it, which it does not tell."""


class Sglang:
    """SGLang, by its native requests; counters only where it was started with ``--enable-metrics``."""

    name: ClassVar[str] = "sglang"
    title: ClassVar[str] = "SGLang"
    prefix: ClassVar[str] = "sglang:"
    metrics_path: ClassVar[str] = "/metrics"
    fact_paths: ClassVar[tuple[str, ...]] = ("/server_info", "/get_server_info", "/v1/models")
    answer_path: ClassVar[str] = "/generate"
    busy: ClassVar[tuple[str, str]] = ("sglang:num_running_reqs", "sglang:num_queue_reqs")
    per_round: ClassVar[str] = ""

    def facts(self, responses: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What this server tells of itself, see `Engine`; its draft tokens count the root."""
        info = responses.get("/server_info") or responses.get("/get_server_info", {})
        model = first_of(responses.get("/v1/models", {}), "data")
        dtype = text(info, "dtype") or "auto"
        drafted = count(info, "speculative_num_draft_tokens", "/server_info")
        if drafted is None and samples is not None:
            drafted = samples.gauge("sglang:spec_num_draft_tokens")
        return ServerFacts(
            version=text(info, "version"),
            model=text(model, "id") or text(info, "served_model_name", "model_path"),
            root=text(info, "model_path") or text(model, "root"),
            longest=count(model, "max_model_len", "/v1/models") or count(info, "context_length", "/server_info"),
            num_speculative=None if drafted is None else drafted - 1,
            dtype=_DTYPES.get(dtype, dtype),
        )

    def counters(self, samples: Samples) -> ServerCounters:
        """The server's counts since its start, see `Engine`; it counts rounds, tokens and requests."""
        return ServerCounters(
            num_rounds=samples.counter("sglang:spec_verify_calls_total"),
            num_tokens=samples.counter("sglang:generation_tokens_total"),
            num_requests=samples.counter("sglang:num_requests_total"),
        )

    def request(self, prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int], model: str) -> Json:
        """The body of a request, see `Engine`."""
        sampling = {"temperature": 0, "max_new_tokens": max_tokens, "stop_token_ids": list(stop_token_ids)}
        return {"input_ids": list(prompt), "sampling_params": sampling}

    def answer(self, response: Json, where: str) -> EngineAnswer:
        """What came back of a request, see `Engine`."""
        meta = inner(response, "meta_info")
        num_tokens = count(meta, "completion_tokens", where)
        if num_tokens is None:
            raise EngineError(f"{where} is no answer of SGLang: its meta_info has no completion_tokens")
        return EngineAnswer(
            num_tokens=num_tokens,
            token_ids=counts(response, "output_ids", where),
            num_prompt_tokens=count(meta, "prompt_tokens", where),
            num_rounds=count(meta, "spec_verify_ct", where),
            num_drafted=count(meta, "spec_num_proposed_drafts", where),
        )
