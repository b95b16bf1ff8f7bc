"""vLLM's words, as its versions 0.30 to 0.33 have them, and llama.cpp's counters, which have vLLM's names.

Read in the released code: ``v1/spec_decode/metrics.py`` (counters), ``v1/metrics/stats.py`` and
``entrypoints/generate/base/protocol.py`` (``--per-request-spec-decode-metrics``), ``entrypoints/openai``. The names
of llama.cpp's counters are those of a scrape of its server, not of its code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from simlab.analysis.engines.answers import (
    EngineAnswer,
    Json,
    ServerCounters,
    ServerFacts,
    completions_answer,
    completions_request,
    count,
    counts,
    first_of,
    inner,
    text,
)
from simlab.analysis.engines.metrics import Samples


def _spec_counters(samples: Samples, prefix: str) -> ServerCounters:
    """The counts of speculation that both engines have."""
    spec = f"{prefix}spec_decode_num_"
    return ServerCounters(
        num_rounds=samples.counter(f"{spec}drafts_total", f"{spec}drafts"),
        num_drafted=samples.counter(f"{spec}draft_tokens_total", f"{spec}draft_tokens"),
        num_accepted=samples.counter(f"{spec}accepted_tokens_total", f"{spec}accepted_tokens"),
        accepted_at=samples.by_position(f"{spec}accepted_tokens_per_pos_total"),
    )


class Vllm:
    """vLLM; it tells each round where it was started with ``--per-request-spec-decode-metrics detailed``."""

    name: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM"
    prefix: ClassVar[str] = "vllm:"
    metrics_path: ClassVar[str] = "/metrics"
    fact_paths: ClassVar[tuple[str, ...]] = ("/version", "/v1/models", "/server_info?config_format=json")
    answer_path: ClassVar[str] = "/v1/completions"
    busy: ClassVar[tuple[str, str]] = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    per_round: ClassVar[str] = "--per-request-spec-decode-metrics detailed"

    def facts(self, responses: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What this server tells of itself, see `Engine`; dtype only in developer's mode."""
        version, models, info = (responses.get(path, {}) for path in self.fact_paths)
        model, config = first_of(models, "data"), inner(info, "vllm_config")
        positions = None if samples is None else _spec_counters(samples, self.prefix).accepted_at
        own = inner(config, "speculative_config")
        return ServerFacts(
            version=text(version, "version"),
            model=text(model, "id"),
            root=text(model, "root", "id"),
            longest=count(model, "max_model_len", "/v1/models"),
            num_speculative=len(positions) if positions else count(own, "num_speculative_tokens", "/server_info"),
            dtype=(text(inner(config, "model_config"), "dtype") or "").removeprefix("torch.") or None,
        )

    def counters(self, samples: Samples) -> ServerCounters:
        """The server's counts since its start, see `Engine`."""
        return replace(
            _spec_counters(samples, self.prefix),
            num_tokens=samples.counter("vllm:generation_tokens_total"),
            num_requests=samples.counter("vllm:request_success_total"),
            num_preempted=samples.counter("vllm:num_preemptions_total"),
        )

    def request(self, prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int], model: str) -> Json:
        """The body of a request, see `Engine`."""
        return completions_request(prompt, max_tokens, stop_token_ids, model) | {"return_token_ids": True}

    def answer(self, response: Json, where: str) -> EngineAnswer:
        """What came back of a request, see `Engine`."""
        spec = inner(response, "metrics", "speculative_decoding")
        return replace(
            completions_answer(response, where, self.title),
            num_rounds=count(spec, "num_spec_steps", where),
            num_drafted=count(spec, "num_draft_tokens", where),
            accepted=counts(spec, "per_step_accepted", where),
            drafted=counts(spec, "per_step_drafted", where),
        )


class LlamaCpp:
    """llama.cpp's server, whose metrics are read; it counts no requests, and is not asked for texts."""

    name: ClassVar[str] = "llamacpp"
    title: ClassVar[str] = "llama.cpp"
    prefix: ClassVar[str] = "llamacpp:"

    def facts(self, responses: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What this server's metrics tell of it: the tokens of a full draft, see `Counted`."""
        positions = None if samples is None else _spec_counters(samples, self.prefix).accepted_at
        return ServerFacts(num_speculative=len(positions) if positions else None)

    def counters(self, samples: Samples) -> ServerCounters:
        """The server's counts since its start, see `Counted`."""
        return replace(
            _spec_counters(samples, self.prefix), num_tokens=samples.counter("llamacpp:tokens_predicted_total")
        )
