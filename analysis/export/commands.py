"""Lines that start a serving engine with exported settings, to be pasted into a shell; or why there is none."""

import json
import shlex
from collections.abc import Mapping

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
    shorter = [str(length) for length in exported.lengths if length + 1 < exported.block_size]
    if not (exported.is_chain and shorter):
        return []
    said = (
        f"A chain of {', '.join(shorter)} was replayed as the first tokens of a block of {exported.block_size}, but "
        f"{engine} drafts a block of k + 1 for k tokens, whose drafts differ: its acceptance will not be the one here "
        "until the trace is recorded with that block_size."
    )
    return [said]
