"""TensorRT-LLM's words, as `trtllm-serve` 1.3 and 1.4 have them.

Read in the released code: ``tensorrt_llm/metrics/collector.py``, ``tensorrt_llm/serve/openai_protocol.py``. It counts
drafted and accepted tokens and no rounds: these are what is left of the tokens.
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
    first_of,
    inner,
    number,
    text,
)
from simlab.analysis.engines.metrics import Samples


class TensorRtLlm:
    """The server of TensorRT-LLM, `trtllm-serve`."""

    name: ClassVar[str] = "trtllm"
    title: ClassVar[str] = "TensorRT-LLM"
    prefix: ClassVar[str] = "trtllm_"
    metrics_path: ClassVar[str] = "/prometheus/metrics"
    fact_paths: ClassVar[tuple[str, ...]] = ("/version", "/v1/models")
    answer_path: ClassVar[str] = "/v1/completions"
    busy: ClassVar[tuple[str, str]] = ("trtllm_num_requests_running", "trtllm_num_requests_waiting")
    per_round: ClassVar[str] = ""

    def facts(self, responses: Mapping[str, Json], samples: Samples | None) -> ServerFacts:
        """What this server tells of itself, see `Engine`; drafting from what it logs of its settings at its start."""
        version, models = (responses.get(path, {}) for path in self.fact_paths)
        model = first_of(models, "data")
        settings = {} if samples is None else samples.labels("trtllm_speculative_config_info")
        drafted = next((settings[key] for key in ("max_draft_len", "spec_max_draft_len") if key in settings), "")
        config = {} if samples is None else samples.labels("trtllm_model_config_info")
        return ServerFacts(
            version=text(version, "version"),
            model=text(model, "id"),
            root=text(config, "model_path", "model") or text(model, "id"),
            num_speculative=int(drafted) if drafted.isdecimal() else None,
            dtype=text(config, "dtype"),
        )

    def counters(self, samples: Samples) -> ServerCounters:
        """The server's counts since its start, see `Engine`."""
        accepted = samples.counter("trtllm_spec_decode_num_accepted_tokens_total")
        tokens = samples.counter("trtllm_generation_tokens_total")
        requests = samples.counter("trtllm_request_success_total")
        # Each round brings its accepted tokens and one more; each request one token of its prefill.
        rounds = None
        if accepted is not None and tokens is not None and requests is not None:
            rounds = max(0, tokens - requests - accepted)
        return ServerCounters(
            num_rounds=rounds,
            num_drafted=samples.counter("trtllm_spec_decode_num_draft_tokens_total"),
            num_accepted=accepted,
            num_tokens=tokens,
            num_requests=requests,
        )

    def request(self, prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int], model: str) -> Json:
        """The body of a request, see `Engine`; without detokenising, so that it tells token ids."""
        return completions_request(prompt, max_tokens, stop_token_ids, model) | {"detokenize": False}

    def answer(self, response: Json, where: str) -> EngineAnswer:
        """What came back of a request, see `Engine`.

        Newer versions count verifying passes; of older ones the tokens a pass tell them, the prefill's pass counted.
        """
        choice, answer = first_of(response, "choices"), completions_answer(response, where, self.title)
        a_pass, spec = number(choice, "avg_decoded_tokens_per_iter", where), inner(choice, "speculative_decoding")
        num_rounds = count(spec, "num_spec_steps", where)
        if num_rounds is None and a_pass and answer.num_tokens > 1:
            num_rounds = round(answer.num_tokens / a_pass) - 1
        return replace(
            answer,
            token_ids=answer.token_ids or None,
            num_rounds=num_rounds,
            num_drafted=count(spec, "num_draft_tokens", where),
        )
