"""Where the fields of each engine's settings were read, and when: engines change them without notice."""

from collections.abc import Mapping
from dataclasses import dataclass

READ_ON = "2026-11-22"
"""The day on which all of them were read."""


@dataclass(frozen=True, slots=True)
class EngineSource:
    """What was read of one engine.

    Attributes:
        engine: its name.
        repository: where its source is.
        files: path and commit of each file that was read.
        also: documentation and discussions.
    """

    engine: str
    repository: str
    files: Mapping[str, str]
    also: tuple[str, ...] = ()

    def stamp(self) -> dict[str, object]:
        """As it stands in a file."""
        return {
            "name": self.engine,
            "repository": self.repository,
            "files": dict(self.files),
            "also": list(self.also),
            "read_on": READ_ON,
        }


VLLM = EngineSource(
    "vLLM",
    "https://github.com/vllm-project/vllm",
    {
        "vllm/config/speculative.py": "002e77c1f0ef9b19cff8b9e21cfbd6feb3d6b443",
        "vllm/v1/spec_decode/dynamic/utils.py": "14b450ca590cbff96e7004bdb147a5d3acf5a4f6",
        "docs/features/speculative_decoding/dynamic_speculative_decoding.md": (
            "015a47e1282c9ef40d706ee3463cb699e04e93c0"
        ),
        "vllm/v1/spec_decode/dflash.py": "01046b9a33846d0561525a552c3c540ef9f56db0",
    },
    ("pull requests 32374 and 40662",),
)
SGLANG = EngineSource(
    "SGLang",
    "https://github.com/sgl-project/sglang",
    {
        "python/sglang/srt/arg_groups/fields/spec.py": "7e997c672532a8677cb03a2f5cf588419c4b4d25",
        "python/sglang/srt/arg_groups/speculative_hook.py": "004c82e07d876f6e4a0ad6e15325706b0f478f1a",
        "python/sglang/srt/server_args.py": "001067fffe33427bee0ed2f007fb7551a1d76b44",
        "python/sglang/srt/server_args_config_parser.py": "03bd2f167a3bc5a040d9cbb8343ac77adb3db53f",
        "python/sglang/srt/speculative/adaptive_spec_params.py": "015c872628e328b530880bcf95ae91222604b225",
        "python/sglang/srt/speculative/spec_utils.py": "00731f0bc9fa81c39802754fb4b62e9cce967582",
    },
    ("pull request 32595",),
)
TENSORRT_LLM = EngineSource(
    "TensorRT-LLM",
    "https://github.com/NVIDIA/TensorRT-LLM",
    {
        "tensorrt_llm/llmapi/llm_args.py": "0004396720054fd8e205cbf616f21f0b57c6b412",
        "tensorrt_llm/_torch/speculative/dflash.py": "00679c66c3e38f6d2651ad0a5bef0f94d862e36c",
        "tensorrt_llm/_torch/speculative/interface.py": "00b6d5a25c30b4382d24fbdf52956d601b3ffd24",
        "tensorrt_llm/commands/serve.py": "00209af149e7774406881a37283dce303571eb11",
        "docs/source/features/speculative-decoding.md": "04c8822cc42ffd1f5b6270874e5b9a64a20e7a58",
    },
    ("DFlashDecodingConfig in the documentation of 1.4.0rc1", "pull request 10860"),
)
MODELOPT = EngineSource(
    "Model-Optimizer",
    "https://github.com/NVIDIA/Model-Optimizer",
    {
        "examples/specdec_bench/specdec_bench/speculation_profile.py": "edf879d3daf7879acdeb2dab9f54a591837da7b0",
    },
    ("pull requests 2247, 2313, 2315 and 2316, open on that day",),
)
