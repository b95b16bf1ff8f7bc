"""Speculation settings of TensorRT-Edge-LLM, which builds trees on a DFlash drafter: a policy as its own flags."""

import shlex

from simlab.analysis.export.engine_settings import EAGLE3, EngineSource, ExportedPolicy, Settings, flag_words
from simlab.errors import SimlabError

EDGE_LLM = EngineSource(
    "TensorRT-Edge-LLM",
    "https://github.com/NVIDIA/TensorRT-Edge-LLM",
    {
        "user_guide/examples/speculative-decoding.html": "0.11.0",
        "cpp/kernels/speculative/ddtreeKernels.cu": "0.11",
    },
    read_on="2026-11-27",
)

EDGE_TREE = "edge-llm"
"""The policy that is the engine's own tree."""

EDGE_MOST_K, EDGE_MOST_NODES, EDGE_MOST_DEPTH = 8, 128, 32
"""Of TensorRT-Edge-LLM's trees: candidates of a depth, nodes with the root, and nodes of a path."""


def edge_llm_settings(exported: ExportedPolicy, temperature: float) -> Settings:
    """Flags of TensorRT-Edge-LLM's ``llm_inference``, without their dashes; its ``specVerifySize`` counts the root.

    Args:
        exported: a chain, ``edge-llm`` on a DFlash drafter, or a tree of an EAGLE-3 head.
        temperature: at which the trace was recorded.

    Raises:
        SimlabError: it does not draft this policy.
    """
    label = exported.policy.label
    if exported.method == EAGLE3:
        shape = exported.head_shape
        return _edge_flags(shape.topk, shape.steps, shape.drafted + 1)
    if exported.is_chain:
        block = exported.deepest + 1
        return _edge_flags(1, 1, block) | {"dflashBlockSize": block}
    if exported.policy.name != EDGE_TREE:
        raise SimlabError(
            f"TensorRT-Edge-LLM does not draft {label}; take chain:length=K, or its own tree, edge-llm:budget=N,top_k=K"
        )
    top_k, nodes = exported.policy.settings["top_k"], exported.policy.policy.budget + 1
    assert isinstance(top_k, int)
    if temperature > 0:
        raise SimlabError(
            f"TensorRT-Edge-LLM's trees are greedy, and the trace was recorded at temperature {temperature:g}; give "
            "one of temperature 0"
        )
    if not (2 <= top_k <= EDGE_MOST_K and top_k < nodes <= EDGE_MOST_NODES):
        raise SimlabError(
            f"TensorRT-Edge-LLM builds trees of 2 to {EDGE_MOST_K} candidates a depth, with more nodes than that and "
            f"at most {EDGE_MOST_NODES}, the root counted; {label} has top_k {top_k} and {nodes} nodes"
        )
    if exported.depth > EDGE_MOST_DEPTH:
        raise SimlabError(
            f"TensorRT-Edge-LLM's paths have at most {EDGE_MOST_DEPTH} tokens, and the drafter looks {exported.depth} "
            "ahead; record a smaller --block"
        )
    return _edge_flags(top_k, 1, nodes) | {"dflashBlockSize": exported.depth + 1}


def _edge_flags(top_k: int, steps: int, nodes: int) -> Settings:
    return {"specDraftTopK": top_k, "specDraftStep": steps, "specVerifySize": nodes}


def edge_llm_commands(exported: ExportedPolicy, settings: Settings) -> dict[str, str]:
    """Lines that export and build both engines of TensorRT-Edge-LLM for these flags, and run them."""
    nodes, is_tree = settings["specVerifySize"], settings["specDraftTopK"] != 1
    folders = ("ONNX/base", "ONNX/draft") if exported.method == EAGLE3 else ("ONNX/base/llm", "ONNX/draft/dflash_draft")
    base, draft = ({"onnxDir": folder, "engineDir": "ENGINES"} for folder in folders)
    most = settings.get("dflashBlockSize", nodes)
    files = flag_words({"engineDir": "ENGINES", "inputFile": "INPUT.json", "outputFile": "OUTPUT.json"})
    lines = {
        "build_base": shlex.join(["llm_build", *flag_words(base | {"maxVerifyTreeSize": nodes}), "--specBase"]),
        "build_draft": shlex.join(["llm_build", *flag_words(draft | {"maxDraftTreeSize": most}), "--specDraft"]),
        "serve": shlex.join(["llm_inference", *files, "--specDecode", *flag_words(settings)]),
    }
    if exported.method == EAGLE3:
        return lines
    parts = {"base": "--dflash-tree-base" if is_tree else "--dflash-base", "draft": "--dflash-draft"}
    exports = {
        f"export_{part}": shlex.join(
            ["tensorrt-edgellm-export", exported.target, f"ONNX/{part}", flag, "--dflash-draft-dir", exported.drafter]
        )
        for part, flag in parts.items()
    }
    return exports | lines
