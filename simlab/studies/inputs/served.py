"""What serving engines draft with a trace's drafter: the trees that are compared for them, and the lines to paste."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from simlab.analysis.advise import CHAIN, NOTHING, TREE, BatchAdvice, drafted
from simlab.analysis.export.edge_llm import EDGE_MOST_K, EDGE_MOST_NODES, EDGE_TREE
from simlab.analysis.export.engine_settings import (
    DRAFTERS,
    HEAD_TREE,
    UNO,
    WRITTEN,
    HeadShape,
    head_shape,
    method_of,
    sglang_lines,
    short_name,
    vllm_lines,
)
from simlab.analysis.export.uno import uno_nodes
from simlab.analysis.table.text import within_width
from simlab.channels import POOL
from simlab.channels.rows import num_beam_nodes
from simlab.errors import SimlabError, UsageError
from simlab.options import option
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import GivenPolicies
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.reader import Trace, packaged_trace

VLLM, SGLANG, TENSORRT_LLM, TENSORRT_EDGE_LLM = "vllm", "sglang", "tensorrt-llm", "tensorrt-edge-llm"
ENGINES = {VLLM: "vLLM", SGLANG: "SGLang", TENSORRT_LLM: "TensorRT-LLM", TENSORRT_EDGE_LLM: "TensorRT-Edge-LLM"}
"""Engines by the names of their exports."""

_HEAD_STEPS = (1, 2, 4, 7)
"""Steps of a head's trees that are tried, beside all that were recorded."""
_TREE_K = (2, 4, EDGE_MOST_K)


def engine_option(help_text: str) -> str | None:
    """``--engine``: the engine whose chains and trees are looked at."""
    return option(None, help_text, choices=ENGINES)


def check_engine(
    engine: str | None, name: str, draft_set: DraftSet, policies: GivenPolicies, takes_uno: bool = False
) -> None:
    """Refuse an engine beside policies, or for a draft set that none drafts.

    Raises:
        UsageError: with the reason.
    """
    if engine is None:
        return
    if policies:
        raise UsageError("--engine says what is compared, and so does -p; leave one of them out")
    is_uno = drafts_trees(engine, draft_set)
    if not draft_set.root_seen and not (is_uno and takes_uno):
        other = f"`simlab optimize --engine {engine}` searches it" if is_uno else "leave out --engine"
        raise UsageError(
            f"--engine {engine} is for a drafter that {ENGINES[engine]} runs, and draft set {name} is of a target that "
            f"drafts for itself; {other}, or name another draft set"
        )
    if draft_set.root_seen and not method_of(draft_set):
        raise UsageError(
            f"simlab writes no engine's settings of an imported chain, since nobody says what drafted it, and draft "
            f"set {name} is such; leave out --engine, or name another draft set"
        )
    if method_of(draft_set) not in WRITTEN[engine]:
        raise UsageError(
            f"simlab writes no settings of {DRAFTERS[method_of(draft_set)]} for {ENGINES[engine]}, and draft set "
            f"{name} is of one; give another --engine"
        )


def drafts_trees(engine: str | None, draft_set: DraftSet) -> bool:
    """Whether an engine drafts trees with the drafter of a draft set; None: some engine."""
    if not draft_set.root_seen:
        return engine == SGLANG and bool(draft_set.noise)
    if draft_set.is_head:
        return engine != VLLM
    return engine is None or (engine == TENSORRT_EDGE_LLM and not draft_set.is_chain)


def trees_of(trace: Trace, draft_set: DraftSet, sizes: Sequence[int], engine: str | None) -> list[str]:
    """Trees that an engine drafts, as they are typed; of no engine in particular ddtree's.

    Args:
        trace: which has the draft set.
        draft_set: of an EAGLE-3 head trees are those of its channel, since engines draft no others with it.
        sizes: drafted tokens that are wanted, in ascending order; those that do not fit the trees are left out.
        engine: of `ENGINES`.
    """
    if not drafts_trees(engine, draft_set):
        return []
    if draft_set.is_head:
        return _trees_of_head(trace, sizes, engine)
    if not draft_set.root_seen:
        nodes = {top_k: uno_nodes(draft_set.depth, top_k) for top_k in _TREE_K}
        return _by_width(UNO, sizes, {top_k: (fewest - 1, most - 1) for top_k, (fewest, most) in nodes.items()})
    if engine is None:
        budgets = [str(size) for size in sizes if 1 < size <= draft_set.exact_budget]
        return [f"ddtree:budget={'/'.join(budgets)}"] if budgets else []
    most = min(draft_set.exact_budget, EDGE_MOST_NODES - 1)
    return _by_width(EDGE_TREE, sizes, {top_k: (top_k, most) for top_k in _TREE_K})


def _by_width(name: str, sizes: Sequence[int], limits: Mapping[int, tuple[int, int]]) -> list[str]:
    """Trees of each number of candidates a node, with the fewest and the most tokens that such trees may have."""
    by_width = {top_k: [str(size) for size in sizes if low <= size <= high] for top_k, (low, high) in limits.items()}
    return [f"{name}:budget={'/'.join(budgets)},top_k={top_k}" for top_k, budgets in by_width.items() if budgets]


def _trees_of_head(trace: Trace, sizes: Sequence[int], engine: str | None) -> list[str]:
    trees = []
    for name, channel in trace.manifest.channels.items():
        beam, top_k, steps = channel.setting("beam"), channel.setting("top_k"), channel.setting("steps")
        if channel.kind != POOL or not channel.is_read or not beam or beam != top_k or not steps:
            continue
        for num_steps in sorted({*(few for few in _HEAD_STEPS if few < steps), steps}):
            low, nodes = 1, num_beam_nodes(beam, top_k, num_steps)
            if engine == TENSORRT_LLM:
                low, nodes = num_steps + 1, min(nodes, top_k * (num_steps + 1))
            budgets = "/".join(str(budget) for budget in sizes if low <= budget <= nodes)
            if budgets:
                typed = f"{HEAD_TREE}:budget={budgets},beam={beam},top_k={top_k},steps={num_steps}"
                trees.append(typed if name == HEAD_TREE else f"{typed},channel={name}")
    return trees


def length_of(batch: BatchAdvice, draft_set: DraftSet) -> int:
    """Drafted tokens of the chain of a batch size; 0: there is none."""
    if batch.without_tree == NOTHING or batch.chain is None:
        return 0
    return min(drafted(batch.chain) or draft_set.depth, draft_set.depth)


def without_trees(engine: str | None, draft_set: DraftSet) -> str:
    """Who drafts no trees, with the verb; empty: this engine does."""
    if engine is not None:
        return "" if drafts_trees(engine, draft_set) else f"{ENGINES[engine]} drafts"
    return "vLLM drafts" if draft_set.is_head else "vLLM and SGLang draft"


def lines_to_paste(engine: str | None, trace: Trace, draft: str, batches: Sequence[BatchAdvice]) -> list[str]:
    """What an engine is to draft, with the lines to paste; of no engine in particular vLLM and SGLang."""
    draft_set = trace.manifest.draft_sets[draft]
    compared = [batch for batch in batches if len(batch.compared) > 1]
    method, drafter = method_of(draft_set), short_name(draft_set.model.name)
    if not draft_set.root_seen or not method or not compared:
        return []
    if engine in (TENSORRT_LLM, TENSORRT_EDGE_LLM):
        return _line_of_export(engine, trace, draft_set, compared)
    # Of an EAGLE-3 head SGLang draws trees; else both draft chains, and where one drafts nothing so does the other.
    drafting = next((batch for batch in compared if _choice(SGLANG, batch, draft_set) != NOTHING), None)
    if drafting is None:
        return ["vLLM and SGLang: nothing that they draft is significantly faster here; start them without a drafter."]
    length = length_of(drafting, draft_set)
    shape = HeadShape(length, 1, length)
    if _choice(SGLANG, drafting, draft_set) == TREE and drafting.tree is not None:
        try:
            shape = head_shape(parse_policies([drafting.tree.policy])[0], draft_set.depth)
        except SimlabError as error:
            return [f"No settings of engines: {error}."]
    lines = {
        VLLM: vllm_lines(method, drafter, {batch.of.batch: length_of(batch, draft_set) for batch in compared}),
        SGLANG: sglang_lines(method, drafter, shape, None if len(compared) == 1 else drafting.of.batch),
    }
    return lines[engine] if engine is not None else [*lines[VLLM], *lines[SGLANG]]


def _line_of_export(engine: str, trace: Trace, draft_set: DraftSet, compared: Sequence[BatchAdvice]) -> list[str]:
    """The export of what is best at the smallest batch size at which drafting pays."""
    name = ENGINES[engine]
    for batch in compared:
        best = batch.tree if batch.choice == TREE and drafts_trees(engine, draft_set) else batch.chain
        if _choice(engine, batch, draft_set) != NOTHING and best is not None:
            alone = "" if len(compared) == 1 else f" at batch {batch.of.batch}, with one setting for all"
            sentence = f"{name}: {best.policy}{alone}. This writes its settings and the line that runs it:"
            return [sentence, export_line(engine, trace, best.policy)]
    return [f"{name}: nothing that it drafts is significantly faster here; start it without a drafter."]


def export_line(engine: str, trace: Trace, policy: str) -> str:
    """The command that writes an engine's settings for a policy."""
    words = ["simlab", "export", "--format", engine, "-p", policy]
    return shlex.join(words + ([] if Path(trace.location) == packaged_trace() else ["--trace", trace.location]))


def lines_of_choice(engine: str, trace: Trace, draft: str, policy: str) -> str:
    """The export of a policy that was chosen for an engine, and what differs there."""
    name, draft_set = ENGINES[engine], trace.manifest.draft_sets[draft]
    lines = [f"{name}'s settings and line:", export_line(engine, trace, policy)]
    (chosen,) = parse_policies([policy])
    if chosen.name == CHAIN and not draft_set.is_head and (chosen.policy.budget or draft_set.depth) < draft_set.depth:
        sentence = (
            f"This chain is the beginning of a recorded block of {draft_set.block_size}; {name} drafts a shorter "
            "block, whose acceptance differs. `simlab advise --block-trace` compares what was recorded at that block."
        )
        lines.append(within_width(sentence))
    return "\n".join(lines)


def _choice(engine: str, batch: BatchAdvice, draft_set: DraftSet) -> str:
    """What an engine does at a batch size."""
    return batch.choice if drafts_trees(engine, draft_set) else batch.without_tree
