"""A server on this machine that speaks an engine's words and does what a trace predicts, or one thing otherwise."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from http_servers import answering

from simlab.analysis.crosscheck.predicted import PredictedText

Rounds = list[tuple[int, int, int]]
"""Root, accepted and drafted tokens of each round."""


@dataclass
class FakeEngine:
    """What is served, and how it goes wrong.

    Attributes:
        texts: that it writes, by their prompts.
        engine: whose words it speaks: ``vllm``, ``sglang`` or ``trtllm``.
        k: that it says it drafts.
        faults: what it does otherwise; see `_Handler`.
        detailed: whether vLLM tells each round.
    """

    texts: Sequence[PredictedText]
    engine: str = "vllm"
    k: int = 7
    faults: frozenset[str] = frozenset()
    detailed: bool = True
    address: str = ""
    version: str = "0.32.0"
    asked: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("drafts", "drafted", "tokens", "requests"), 0)
    )
    at: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def rounds_of(self, text: PredictedText, num_tokens: int) -> Rounds:
        """The rounds in which it writes so many tokens of a text."""
        found, root, wrong = Rounds(), 0, None
        while root < num_tokens - 1:
            accepted, drafted = int(text.accepted[root]), text.k
            if "wrong round" in self.faults and text is self.texts[-1] and accepted and wrong is None and root > 5:
                wrong = root
                accepted -= 1
            if "no head" in self.faults:
                accepted = 0
            if "clipped" in self.faults:
                drafted = max(1, min(drafted, num_tokens - 1 - root))
                accepted = min(accepted, drafted)
            found.append((root, accepted, drafted))
            root += accepted + 1
        return found

    def count(self, rounds: Rounds, num_tokens: int) -> None:
        """Count a request."""
        with self.lock:
            self.counts["drafts"] += len(rounds)
            self.counts["drafted"] += sum(drafted for _, _, drafted in rounds)
            self.counts["tokens"] += num_tokens
            self.counts["requests"] += 1
            self.at = self.at or [0] * self.k
            for _, accepted, _ in rounds:
                for index in range(min(accepted, len(self.at))):
                    self.at[index] += 1
            if "foreign" in self.faults and self.counts["requests"] == 2:
                self.counts["requests"] += 1
                self.counts["tokens"] += 40
            if "restart" in self.faults and self.counts["requests"] == 2:
                self.counts = dict.fromkeys(self.counts, 0)

    def metrics(self) -> str:
        """Its Prometheus text."""
        with self.lock:
            counts, at = dict(self.counts), list(self.at or [0] * self.k)
        busy = 2 if "busy" in self.faults else 0
        if self.engine == "vllm":
            label = '{engine="0",model_name="served"}'
            lines = [f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {busy}"]
            named = {"generation_tokens": counts["tokens"], "request_success": counts["requests"], "num_preemptions": 0}
            if "no counters" not in self.faults:
                named |= {
                    "spec_decode_num_drafts": counts["drafts"],
                    "spec_decode_num_draft_tokens": counts["drafted"],
                    "spec_decode_num_accepted_tokens": sum(at),
                }
                lines.append("# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter")
                lines += [
                    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{index}"}} {times}.0'
                    for index, times in enumerate(at)
                ]
            for name, value in named.items():
                lines += [f"# TYPE vllm:{name} counter", f"vllm:{name}_total{label} {value}.0"]
        elif self.engine == "sglang":
            lines = [f"# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs {busy}"]
            named = {
                "generation_tokens": counts["tokens"],
                "num_requests": counts["requests"],
                "spec_verify_calls": counts["drafts"],
            }
            for name, value in named.items():
                lines += [f"# TYPE sglang:{name} counter", f"sglang:{name}_total {value}.0"]
        else:
            lines = [f"# TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running {busy}"]
            named = {
                "generation_tokens": counts["tokens"],
                "request_success": counts["requests"],
                "spec_decode_num_draft_tokens": counts["drafted"],
                "spec_decode_num_accepted_tokens": counts["tokens"] - counts["requests"] - counts["drafts"],
            }
            for name, value in named.items():
                lines += [f"# TYPE trtllm_{name} counter", f"trtllm_{name}_total {value}.0"]
            settings = f'trtllm_speculative_config_info{{max_draft_len="{self.k}"}} 1.0'
            lines += ["# TYPE trtllm_speculative_config_info gauge", settings]
        return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    served: FakeEngine

    def do_GET(self) -> None:
        served, path = self.served, self.path.split("?")[0]
        served.asked.append(path)
        metrics = "/prometheus/metrics" if served.engine == "trtllm" else "/metrics"
        if path == metrics:
            self._send(served.metrics().encode())
        elif path == "/version" and served.engine != "sglang":
            self._send(json.dumps({"version": served.version}).encode())
        elif path == "/v1/models":
            model = {"id": "served", "root": "models/smollm2-135m", "max_model_len": 1024}
            if "short" in served.faults:
                model["max_model_len"] = 100
            self._send(json.dumps({"object": "list", "data": [model]}).encode())
        elif path == "/server_info" and served.engine == "sglang":
            info = {"version": "0.5.23", "model_path": "models/smollm2-135m", "dtype": "float32"}
            self._send(json.dumps(info | {"speculative_num_draft_tokens": served.k + 1}).encode())
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        served = self.served
        served.asked.append(self.path)
        served.keys.append(self.headers.get("Authorization"))
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["input_ids"] if served.engine == "sglang" else body["prompt"]
        sampling = body["sampling_params"] if served.engine == "sglang" else body
        most = sampling["max_new_tokens"] if served.engine == "sglang" else sampling["max_tokens"]
        text = next(one for one in served.texts if one.prompt_tokens.tolist() == prompt)
        is_first = served.counts["requests"] == 0
        if "500" in served.faults and not is_first:
            self.send_error(500, "the engine died")
            return
        if "redirect" in served.faults:
            self.send_response(307)
            self.send_header("Location", "http://elsewhere.invalid/")
            self.end_headers()
            return
        num = min(len(text), most)
        rounds = served.rounds_of(text, num)
        answer = self._answer(text, num, rounds)
        served.count(rounds, num)
        whole = json.dumps(answer).encode()
        if "hang" in served.faults and not is_first:
            self._begin(len(whole))
            for byte in whole[:200]:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.2)
            return
        if "cut" in served.faults and not is_first:
            self._begin(len(whole))
            self.wfile.write(whole[: len(whole) // 2])
            return
        self._send(whole)

    def _answer(self, text: PredictedText, num: int, rounds: Rounds) -> dict[str, object]:
        served = self.served
        ids = text.text[:num].tolist()
        if "other text" in served.faults and text is served.texts[-1] and num > 10:
            ids[num // 2] += 1
        if "not whole" in served.faults:
            ids = ids[:-1]
        prompt_tokens = len(text.prompt_tokens) + (9 if "template" in served.faults else 0)
        reason = "stop" if text.ended_by_stop and num == len(text) else "length"
        accepted, drafted = [one[1] for one in rounds], [one[2] for one in rounds]
        if served.engine == "sglang":
            meta: dict[str, object] = {"completion_tokens": num, "prompt_tokens": prompt_tokens}
            meta |= {"finish_reason": {"type": reason}, "spec_verify_ct": len(rounds)}
            meta |= {"spec_num_correct_drafts": sum(accepted), "spec_num_proposed_drafts": sum(drafted)}
            return {"text": "", "output_ids": ids, "meta_info": meta}
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": num, "total_tokens": prompt_tokens + num}
        choice: dict[str, object] = {"index": 0, "text": "", "token_ids": ids, "finish_reason": reason}
        if served.engine == "trtllm":
            choice["avg_decoded_tokens_per_iter"] = num / (len(rounds) + 1)
            return {"choices": [choice], "usage": usage}
        told: dict[str, object] = {
            "num_spec_steps": len(rounds),
            "num_accepted_draft_tokens": sum(accepted),
            "num_draft_tokens": sum(drafted),
            "num_spec_tokens": served.k,
        }
        if served.detailed:
            told |= {"per_step_accepted": accepted, "per_step_drafted": drafted}
        return {"choices": [choice], "usage": usage, "metrics": {"speculative_decoding": told}}

    def _begin(self, num_bytes: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(num_bytes))
        self.end_headers()

    def _send(self, content: bytes) -> None:
        self._begin(len(content))
        self.wfile.write(content)


@contextlib.contextmanager
def serving(engine: FakeEngine) -> Iterator[FakeEngine]:
    """Serve until the block ends; the address is in it."""
    with answering(_Handler, served=engine) as engine.address:
        yield engine
