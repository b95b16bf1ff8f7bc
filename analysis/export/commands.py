"""Lines that start a serving engine with exported settings, to be pasted into a shell; or why there is none."""

import json
import shlex
from collections.abc import Mapping, Sequence

from simlab.analysis.export.engine_settings import ExportedPolicy, Settings

Environment = Mapping[str, str]


def vllm_command(target: str, config: Settings) -> str:
    """Start vLLM with a value of ``--speculative-config``."""
    text = json.dumps(config, ensure_ascii=False, allow_nan=False)
    return shlex.join(["vllm", "serve", target, "--speculative-config", text])


def sglang_command(settings: Settings, environment: Environment | None = None) -> str:
    """Start SGLang with flags, under environment variables."""
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return _under(environment, ["python", "-m", "sglang.launch_server", *flags])


def tensorrt_llm_command(target: str, file: str, environment: Environment | None = None) -> str:
    """Start TensorRT-LLM with the settings in a YAML file, under environment variables."""
    return _under(environment, ["trtllm-serve", target, "--extra_llm_api_options", file])


def _under(environment: Environment | None, words: list[str]) -> str:
    set_before = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    return " ".join([*set_before, shlex.join(words)])


def cannot_run(engine: str, label: str) -> str:
    """Why an engine has no line that serves a policy."""
    return (
        f"{engine} cannot run {label}: with a DFlash drafter it drafts chains only, of one length for all texts of a "
        "batch, so these settings are for load tests."
    )


def block_note(engine: str, exported: ExportedPolicy) -> list[str]:
    """What a chain shorter than the recorded block is not: engines draft a block of its length and the root.

    The drafter fills all positions of a block at once, so those of a shorter one are other drafts.
    """
    root = exported.block_size - exported.depth
    if exported.own_blocks:
        tried = {*exported.own_blocks, exported.depth}
        missing = [str(length + root) for length in range(1, exported.depth) if length not in tried]
        if not (exported.choices and missing):
            return []
        return [_not_tried(sorted(tried), missing)]
    shorter = [length for length in exported.lengths if length < exported.depth]
    if not (exported.is_chain and shorter):
        return []
    return [_other_drafts(engine, exported, shorter, [str(length + root) for length in shorter])]


def _not_tried(tried: Sequence[int], missing: Sequence[str]) -> str:
    return (
        f"Chains of {', '.join(map(str, tried))} were tried, each on a trace of its own block; there is no trace of "
        f"block {', '.join(missing)}, which `simlab record --text-from TRACE --block N` records."
    )


def _other_drafts(engine: str, exported: ExportedPolicy, shorter: Sequence[int], blocks: Sequence[str]) -> str:
    return (
        f"A chain of {', '.join(map(str, shorter))} was replayed as the first tokens of a block of "
        f"{exported.block_size}, but {engine} drafts a block of k + 1 for k tokens, whose drafts differ: its "
        f"acceptance will not be the one here. Record traces of block {', '.join(blocks)} with `simlab record "
        "--text-from TRACE --block N`, and give them with --block-trace."
    )
