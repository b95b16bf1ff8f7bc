"""Small releases of adixg-cost and specdecode-bench, made up."""

import json
import random
import statistics
from functools import cache

import numpy as np
from chain_oracles import Request, copied, lengths_of

from simlab.studies.reproduce.adixg_cost import CAPTURED, EAGER, LOG, README
from simlab.studies.reproduce.domino.gsm8k import MODEL, PROMPTS, SUMS
from simlab.studies.reproduce.domino.records import METHODS
from simlab.studies.reproduce.specdecode.bench import DATASETS
from simlab.studies.reproduce.wrong_prices import SERVED

CONTEXTS = (0, 256, 1024, 2048, 4096, 8192)
HELD_OUT = (1024, 4096)

PAGE = """`x` reduces RMSE from `5.5 ms` to `0.5 ms` an **11.6× reduction**
`0.0400 us/KV-token` for Qwen3-1.7B and `0.0200 us/KV-token` for MiniCPM5-2B
stock median throughput       1,000.5 tokens/s
corrected median throughput     990.5 tokens/s
paired mean delta             -0.9000%
decode ceiling selection fell from `97.50%` to `90.25%`.
additional decode batches      7
"""


LOG_END = (
    "mean -0.36%   median -0.38%",
    "standard error 0.11%; mean is -3.3 SE from zero",
    "      stock: n=100, ceiling=98.6%, budget median=392",
    "  corrected: n=107, ceiling=92.2%, budget median=392",
)


def sweep(seed: int, sizes: tuple[int, ...], limit: int, requests: int | None) -> dict[str, object]:
    """Passes of sizes at contexts, of so many requests; None: each token of a request of its own."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    floors = {size: 2 + size / 100 for size in sizes}
    profile = {size: floors[size] + 4e-5 * (requests or size) * 8192 for size in sizes}
    for context in CONTEXTS:
        for size in sizes:
            base = floors[size] + 4e-5 * (requests or size) * context * (1 if size <= limit else 0.1)
            times = [base * (1 + draw.gauss(0, 0.002)) for _ in range(5)]
            rows.append(
                {
                    "num_tokens": size,
                    "context_len": context,
                    "num_reqs": requests or size,
                    "forward_ms": times,
                    "median_ms": statistics.median(times),
                    "predicted_ms": profile[size],
                }
            )
    return {"cudagraph_limit": limit, "rows": rows}


def served(seed: int) -> dict[str, object]:
    """Passes that the serving engine timed."""
    draw = random.Random(seed)
    rows = []
    for tokens in (64, 128, 256, 384, 512):
        for context in (0, 1024, 2048, 3072, 4096):
            effective = min(context, 4096 - tokens // 64)
            base = 3 + tokens / 300 + 2e-5 * 64 * effective
            times = [base * (1 + draw.gauss(0, 0.002)) for _ in range(5)]
            rows.append({"num_tokens": tokens, "num_reqs": 64, "effective_context_len": effective, "forward_ms": times})
    return {"rows": rows}


def log(seed: int, shift: float = -0.006, rounds: int = 12) -> str:
    """Rounds of serving, the corrected price faster by a share."""
    draw = random.Random(seed)
    lines = ["=== GPU ===", " round       mode   seconds  out toks     tok/s"]
    for number in range(1, rounds + 1):
        order = ["stock", "corrected"] if number % 2 else ["corrected", "stock"]
        for mode in order:
            speed = 1000 * (1 + draw.gauss(0, 0.002) + shift * (mode == "corrected"))
            lines.append(f"{number:6d} {mode:>10s}     0.747      8192   {speed:.1f}")
    return "\n".join([*lines, *LOG_END])


def adixg_contents(**changes: str) -> dict[str, str]:
    """A release of adixg-cost."""
    return {
        README: PAGE,
        EAGER: json.dumps(sweep(1, (16, 32, 64, 128), 8, 8)),
        CAPTURED: json.dumps(sweep(2, (1, 4, 8, 16, 32), 32, None)),
        SERVED: json.dumps(served(3)),
        LOG: log(4),
        **changes,
    }


SEED, MATCH = 7, {"gsm8k": 0.25, "cnn": 0.5, "instructcoder": 0.75, "sharegpt": 0.1}
COSTS = {
    "kv": 3e-6,
    "token": 2e-4,
    "pass": 6e-3,
    "round": 1e-3,
    "draft_kv": 2e-7,
    "draft_token": 5e-5,
    "draft": 2e-3,
    "ngram": 0.03,
}
IN_FILE = {
    "kv": "target_c_kv",
    "token": "target_c_compute",
    "pass": "target_c_fixed",
    "round": "overhead_constant_per_step",
    "draft_kv": "draft_c_kv",
    "draft_token": "draft_c_num_spec_tokens",
    "draft": "draft_c_fixed",
    "ngram": "ngram_draft_percentage",
}
LONGEST = 6


def path_of(dataset: str) -> str:
    """The file of a dataset."""
    return f"data/llama3.1-8B/combined_{dataset}.jsonl"


def made_up_requests(dataset: str) -> list[Request]:
    """Texts that repeat themselves; n-gram lengths are of prompt lookup, those of EAGLE by chance."""
    rng = random.Random(f"{dataset} {SEED}")
    found = []
    for number in range(14):
        prompt = [rng.randrange(3) for _ in range(rng.randrange(6, 15))]
        text = [rng.randrange(2) for _ in range(rng.randrange(8, 30))]
        request: Request = {"id": str(number), "prompt_token_ids": prompt, "generated_token_ids": text}
        ngram = [copied(request, at, LONGEST)[1] + 1 for at in range(len(text))]
        length = len(text) + rng.choice([0, 0, 3, -2])
        eagle = [1, *(rng.choice([1, 1, 2, 3, LONGEST + 1]) for _ in range(length - 1))]
        found.append(request | {"acc_ngram": {"acc_len": ngram}, "acc_eagle": {"acc_len": eagle}})
    for request in found:
        if copied(request, len(request["generated_token_ids"]) - 1, LONGEST)[1] == 1:
            lengths_of(request, "ngram")[-1] = LONGEST + 1  # reaches past the end, as some of theirs do
    return found


def specdecode_contents(requests: dict[str, list[Request]]) -> dict[str, str]:
    """A release of specdecode-bench."""
    costs = "\n".join(f"    {name} = {COSTS[key]!r}" for key, name in IN_FILE.items())
    probs = "\n".join(f'    "{dataset}": {prob},' for dataset, prob in MATCH.items())
    texts = {path_of(name): "\n".join(map(json.dumps, some)) + "\n" for name, some in requests.items()}
    return {"predictor.py": costs, "simulator.py": f"{probs}\nSEED = {SEED}\nsample(data, k=300)\n", **texts}


@cache
def made_up() -> dict[str, list[Request]]:
    """Requests of each dataset."""
    return {dataset: made_up_requests(dataset) for dataset in DATASETS}


GSM8K_METHODS = {key: name for key, name in METHODS.items() if key != "baseline"}


def gsm8k_records(num: int = 12) -> list[dict[str, object]]:
    """Records of Qwen3-8B on GSM8K."""
    random = np.random.default_rng(7)
    means = {"baseline": 1.0, "dflash": 6.0, "ddtree_tb16": 7.0, "caddtree": 7.0}
    return [
        {
            "method": method,
            "sample_idx": index,
            "tps": float(15 * mean * random.uniform(0.5, 1.0)),
            "mean_accept": 1.0 if mean == 1 else float(mean * random.uniform(0.8, 1.2)),
        }
        for index in range(num)
        for method, mean in means.items()
    ]


def gsm8k_sums(name: str) -> dict[str, object]:
    """Sums of a method."""
    return {
        "method": name,
        "samples": 12,
        "output_tokens": 660,
        "decode_seconds": 9.5,
        "decode_rounds_mean": 10.0,
        "accept_len_round_weighted": 5.5,
    }


def gsm8k_contents(rows: list[dict[str, object]]) -> dict[str, str]:
    """A release for domino-gsm8k."""
    macro = {
        name: np.mean([float(str(one["mean_accept"])) for one in rows if one["method"] == name])
        for name in GSM8K_METHODS
    }
    speed = {
        name: np.mean([float(str(one["tps"])) for one in rows if one["method"] == name])
        for name in ("baseline", *GSM8K_METHODS)
    }
    lines = ["temp,dataset,method,speedup,tau"]
    lines += [
        f"0.0,gsm8k,{GSM8K_METHODS[name]},{speed[name] / speed['baseline']},{macro[name]}" for name in GSM8K_METHODS
    ]
    return {
        PROMPTS: "".join(json.dumps(row) + "\n" for row in rows),
        MODEL.table("table1_cells"): "\n".join(lines) + "\n",
        SUMS: json.dumps({"args": {}, "rows": [gsm8k_sums(name) for name in GSM8K_METHODS]}),
    }
