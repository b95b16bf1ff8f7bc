"""What serving engines accept, written down from their sources; shares no code with what writes it.

vLLM: `--speculative-config`. SGLang: flags, which its file of `--config` has as keys. TensorRT-LLM:
`speculative_config`. Model-Optimizer: speculation_profile.json. docs/how_to/export.md says where all this was read.
"""

import json
import math
from typing import Any

VLLM_READS = {
    *("num_speculative_tokens", "model", "method", "rejection_sample_method", "synthetic_acceptance_rates"),
    *("synthetic_acceptance_length", "num_speculative_tokens_per_batch_size", "revision", "attention_backend"),
}
"""Fields of SpeculativeConfig: vllm/config/speculative.py at 002e77c1f0ef. Another one is refused."""

SGLANG_READS = {
    *("model-path", "speculative-algorithm", "speculative-draft-model-path", "speculative-num-draft-tokens"),
    *("speculative-draft-model-revision", "speculative-dflash-block-size"),
}
"""Flags that count for DFLASH: python/sglang/srt/arg_groups/fields/spec.py at 7e997c672532, and of them those that
speculative_hook.py at 004c82e07d87 does not overwrite (steps and top-k become 1); model-path of server_args.py."""

SGLANG_READS_OF_HEADS = (SGLANG_READS - {"speculative-dflash-block-size"}) | {
    *("speculative-num-steps", "speculative-eagle-topk"),
}
"""Flags that count for EAGLE3, of the same files."""

TENSORRT_LLM_READS = {
    *("decoding_type", "max_draft_len", "speculative_model", "draft_len_schedule", "max_concurrency"),
    *("mask_token_id", "target_layer_ids", "attention_backend"),
}
"""Fields of DFlashDecodingConfig: tensorrt_llm/llmapi/llm_args.py at 000439672005. Another one is refused."""

TENSORRT_LLM_READS_OF_HEADS = {
    *("decoding_type", "max_draft_len", "speculative_model", "use_dynamic_tree", "dynamic_tree_max_topK"),
    "max_total_draft_tokens",
}
"""Fields of Eagle3DecodingConfig, as docs/source/features/speculative-decoding.md tells them in August 2026."""

EDGE_LLM_READS = {"specDraftTopK", "specDraftStep", "specVerifySize", "dflashBlockSize"}
"""Flags of llm_inference of TensorRT-Edge-LLM 0.11 that say what is drafted."""


def check_vllm_load_test(config: dict[str, Any]) -> None:
    """``rejection_sample_method: synthetic`` and a rate for each drafted token."""
    assert set(config) <= VLLM_READS
    assert config["method"] == "dflash"
    assert config["model"]
    assert config["rejection_sample_method"] == "synthetic"
    number, rates = config["num_speculative_tokens"], config["synthetic_acceptance_rates"]
    assert type(number) is int
    assert number > 0
    assert len(rates) == number
    for index, rate in enumerate(rates):
        assert type(rate) is float
        assert 0.0 <= rate <= 1.0
        assert index == 0 or rate <= rates[index - 1]


def vllm_lookup(config: dict[str, Any], batch: int) -> int:
    """The tokens that vLLM drafts at a batch size, after the checks that it makes at its start."""
    assert set(config) <= VLLM_READS
    number, table = config["num_speculative_tokens"], config["num_speculative_tokens_per_batch_size"]
    assert type(number) is int
    assert number > 0
    assert table
    assert table[0][0] == 1
    end = 0
    for entry in table:
        assert len(entry) == 3
        assert all(type(value) is int for value in entry)
        low, high, length = entry
        assert end < low <= high
        assert 0 <= length <= number
        end = high
    found = [length for low, _, length in table if low <= batch]
    return int(found[-1])


def check_sglang(config: dict[str, Any], block_size: int) -> int:
    """Flags of a DFLASH server; the tokens that it drafts, since its number counts the root."""
    assert set(config) <= SGLANG_READS
    assert config["speculative-algorithm"] == "DFLASH"
    assert config["model-path"]
    assert config["speculative-draft-model-path"]
    number = config["speculative-num-draft-tokens"]
    assert type(number) is int
    assert 2 <= number <= block_size
    return number - 1


def check_sglang_head(config: dict[str, Any]) -> tuple[int, int, int]:
    """Flags of an EAGLE3 server: steps, top-k, and drafted tokens, since its number counts the root."""
    assert set(config) <= SGLANG_READS_OF_HEADS
    assert config["speculative-algorithm"] == "EAGLE3"
    assert config["speculative-draft-model-path"]
    steps, topk = config["speculative-num-steps"], config["speculative-eagle-topk"]
    drafted = config["speculative-num-draft-tokens"] - 1
    assert all(type(value) is int and value >= 1 for value in (steps, topk, drafted))
    assert drafted == steps if topk == 1 else drafted <= topk + (steps - 1) * topk**2
    return steps, topk, drafted


def check_sglang_environment(found: dict[str, str]) -> float:
    """The simulated acceptance length, bonus token included."""
    assert all(type(value) is str for value in found.values())
    assert found["SGLANG_SIMULATE_ACC_METHOD"] in ("match-expected", "multinomial")
    assert found.get("SGLANG_SIMULATE_ACC_TOKEN_MODE", "fixed") in ("fixed", "real-draft-token")
    length = float(found["SGLANG_SIMULATE_ACC_LEN"])
    assert length >= 1
    return length


def tensorrt_llm_lookup(config: dict[str, Any], batch: int) -> int:
    """The draft length at a batch size: that of the first key not below it, and 0 above them all."""
    check_tensorrt_llm(config)
    schedule = config["draft_len_schedule"]
    return next((schedule[key] for key in sorted(schedule) if batch <= key), 0)


def check_tensorrt_llm(config: dict[str, Any]) -> None:
    """What its configuration classes refuse."""
    assert set(config) <= TENSORRT_LLM_READS
    assert config["decoding_type"] == "DFlash"
    assert config["speculative_model"]
    longest = config["max_draft_len"]
    assert type(longest) is int
    assert longest > 0
    schedule = config.get("draft_len_schedule")
    if schedule is not None:
        assert all(type(key) is int and key >= 1 for key in schedule)
        assert all(type(value) is int and 0 <= value <= longest for value in schedule.values())
        assert schedule[min(schedule)] == longest


def check_tensorrt_llm_head(config: dict[str, Any]) -> tuple[int, int, int]:
    """A dynamic tree or a chain of an EAGLE-3 head: depth, tokens of a layer, and drafted tokens, without the root."""
    assert set(config) <= TENSORRT_LLM_READS_OF_HEADS
    assert config["decoding_type"] == "Eagle3"
    assert config["speculative_model"]
    depth = config["max_draft_len"]
    if not config.get("use_dynamic_tree", False):
        assert set(config) == {"decoding_type", "speculative_model", "max_draft_len"}
        return depth, 1, depth
    topk, drafted = config["dynamic_tree_max_topK"], config["max_total_draft_tokens"]
    assert depth <= drafted <= topk * depth
    return depth, topk, drafted


def check_edge_llm(flags: dict[str, Any]) -> tuple[int, int, int]:
    """Candidates, passes of the drafter, and nodes with the root, as the engine's own checks want them."""
    assert set(flags) <= EDGE_LLM_READS
    topk, steps, nodes = flags["specDraftTopK"], flags["specDraftStep"], flags["specVerifySize"]
    if "dflashBlockSize" in flags:
        assert steps == 1
        assert nodes == flags["dflashBlockSize"] if topk == 1 else topk <= 8 and topk < nodes <= 128
    return topk, steps, nodes


def yaml_mapping(text: str) -> dict[str, Any]:
    """The nested mappings of whole numbers and texts in double quotes that this project writes as YAML."""
    root: dict[Any, Any] = {}
    stack = [(-1, root)]
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        key, colon, value = line.strip().partition(":")
        assert colon, line
        while stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1]
        name: Any = int(key) if key.isdigit() else key
        if value:
            parent[name] = json.loads(value)
        else:
            parent[name] = {}
            stack.append((indent, parent[name]))
    return root


PROFILE = {
    "schema_version": str,
    "measured": bool,
    "method": str,
    "draft_checkpoint": dict,
    "target_model": dict,
    "num_speculative_tokens": int,
    "block_size": int,
    "max_supported_k": int,
    "verification_method": str,
    "conditional_accept_rates": list,
    "marginal_accept_rates": list,
    "mean_accept_length": float,
    "mean_accept_length_per_request": float,
    "accept_length_model": str,
    "accept_length_by_k": dict,
    "acceptance_length_histogram": dict,
    "per_category": dict,
    "measurement_conditions": dict,
    "validation": dict,
}


def check_speculation_profile(profile: dict[str, Any]) -> None:
    """The keys and types of schema 1.0, and its rates worked out again from its histogram."""
    for key, kind in PROFILE.items():
        assert type(profile[key]) is kind, key
    assert profile["schema_version"] == "1.0"
    assert profile["verification_method"] in ("longest_prefix", "block")
    assert profile["accept_length_model"] in ("chain_analytic", "measured_per_k")
    assert profile["method"] == "dflash"
    number = profile["num_speculative_tokens"]
    assert 0 < number <= profile["max_supported_k"] < profile["block_size"] + 1
    lengths = [int(key) for key, count in profile["acceptance_length_histogram"].items() for _ in range(count)]
    assert min(lengths) >= 1
    before = 1.0
    for index in range(number):
        # The entry of a drafted position is that of the acceptance length two above it.
        marginal = sum(length >= index + 2 for length in lengths) / len(lengths)
        assert math.isclose(profile["marginal_accept_rates"][index], marginal, abs_tol=1e-12)
        conditional = marginal / before if before else 0.0
        assert math.isclose(profile["conditional_accept_rates"][index], conditional, abs_tol=1e-12)
        before = marginal
    assert len(profile["marginal_accept_rates"]) == len(profile["conditional_accept_rates"]) == number
    assert math.isclose(profile["mean_accept_length"], sum(lengths) / len(lengths), rel_tol=1e-12)
    assert profile["accept_length_by_k"] == {str(number): profile["mean_accept_length"]}
    mean = profile["validation"]["mean_consistency"]
    assert mean["passed"] is True
    assert mean["abs_delta"] < 1e-12
    assert math.isclose(mean["implied_mean_accept_length"], mean["reported_mean_accept_length"], rel_tol=1e-12)
    assert profile["validation"]["marginal_monotonicity"] == {"passed": True, "violations": []}
