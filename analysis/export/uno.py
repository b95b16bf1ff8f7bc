"""Speculation settings of SGLang with an adapter of UNO's: what it drafts as its own flags, within its own limits."""

from simlab.analysis.export.engine_settings import UNO, EngineSource, ExportedPolicy, Settings
from simlab.errors import SimlabError

SGLANG_UNO = EngineSource(
    "SGLang",
    "https://github.com/sgl-project/sglang",
    {"python/sglang/srt/arg_groups/speculative_hook.py": "0.5.23"},
    read_on="2026-11-27",
)

_LINEAR = "self"
_MOST_NODES, _MOST_SLOTS = 128, 2048
"""Of SGLang's trees of UNO: nodes with the root, and these times candidates of a node."""


def uno_settings(exported: ExportedPolicy, temperature: float) -> Settings:
    """Flags of SGLang's server, without their dashes; its draft tokens count the root.

    Args:
        exported: ``uno``, or a chain of `self` without masks behind nodes, which is UNO's linear sampler.
        temperature: at which the trace was recorded.

    Raises:
        SimlabError: it does not draft this policy.
    """
    label, settings, width = exported.policy.label, exported.policy.settings, exported.depth + 1
    own: Settings = {
        "model-path": exported.target,
        "speculative-algorithm": UNO.upper(),
        "uno-lora-path": exported.drafter,
        "attention-backend": "fa3",
    }
    if exported.policy.name == _LINEAR and settings["order"] == "chain":
        if settings["masked"] not in (-2, -1) or exported.policy.policy.budget != exported.depth:
            raise SimlabError(
                f"UNO's linear sampler drafts the whole block by passes that take turns, and {label} does not; take "
                f"{linear_sampler(exported.depth)}"
            )
        if temperature > 0:
            raise SimlabError(
                f"above temperature 0 UNO's linear sampler accepts by ratios of probabilities, which simlab does not "
                f"replay, and the trace was recorded at {temperature:g}; give a tree, uno:budget=N,top_k=K"
            )
        return own | {"speculative-num-draft-tokens": width}
    if exported.policy.name != UNO:
        raise SimlabError(
            f"SGLang does not draft {label} with an adapter of UNO's; take uno:budget=N,top_k=K, or "
            f"{linear_sampler(exported.depth)}"
        )
    top_k, nodes = settings["top_k"], exported.policy.policy.budget + 1
    assert isinstance(top_k, int)
    fewest, most = uno_nodes(exported.depth, top_k)
    if top_k < 2 or not fewest <= nodes <= most:
        raise SimlabError(
            f"with a block of {width} rows and {top_k} candidates SGLang builds trees of {fewest} to {most} nodes, the "
            f"root counted, and of 2 candidates or more; {label} has {nodes} nodes"
        )
    return own | {
        "speculative-num-steps": exported.depth,
        "speculative-eagle-topk": top_k,
        "speculative-num-draft-tokens": nodes,
    }


def linear_sampler(depth: int) -> str:
    """UNO's linear sampler, as it is typed."""
    return f"self:budget={depth},masked=-2,order=chain"


def uno_nodes(depth: int, top_k: int) -> tuple[int, int]:
    """The fewest and the most nodes of SGLang's trees with so many candidates a node, the root counted."""
    most = min(_MOST_NODES, _MOST_SLOTS // top_k, _capacity(top_k, depth), top_k * (depth - 1) + 2)
    return depth + 1, most


def _capacity(top_k: int, depth: int) -> int:
    """Nodes of the tree that has all of them, the root counted."""
    return sum(top_k**level for level in range(depth + 1))
