"""What serving engines draft with a trace's drafter: the trees that are compared for them, and the lines to paste."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from simlab.analysis.advise.verdicts import NOTHING, TREE, BatchAdvice, drafted
from simlab.analysis.export.edge_llm import EDGE_MOST_K, EDGE_MOST_NODES, EDGE_TREE
from simlab.analysis.export.engine_settings import (
    DFLASH,
    EAGLE3,
    HEAD_TREE,
    HeadShape,
    engine_lines,
    head_shape,
    short_name,
)
from simlab.channels import POOL
from simlab.channels.rows import num_beam_nodes
from simlab.errors import SimlabError
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.prices import Prices
from simlab.traces.artefacts.cost import gap_around
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.reader import Trace, packaged_trace

VLLM, SGLANG, TENSORRT_LLM, TENSORRT_EDGE_LLM = "vllm", "sglang", "tensorrt-llm", "tensorrt-edge-llm"
ENGINES = {VLLM: "vLLM", SGLANG: "SGLang", TENSORRT_LLM: "TensorRT-LLM", TENSORRT_EDGE_LLM: "TensorRT-Edge-LLM"}
"""Engines by the names of their exports."""

_BUDGETS = (2, 4, 8, 16, 32, 64, 128)
_HEAD_STEPS = (1, 2, 4, 7)
"""Steps of a head's trees that are tried, beside all that were recorded."""
_EDGE_K = (2, 4, EDGE_MOST_K)


def drafts_trees(engine: str | None, kept: DraftSet) -> bool:
    """Whether an engine drafts trees with the drafter of a draft set; None: some engine."""
    if kept.is_chain:
        return engine != VLLM
    return engine in (None, TENSORRT_EDGE_LLM)


def default_trees(trace: Trace, kept: DraftSet, prices: Prices, engine: str | None) -> list[str]:
    """Trees of several sizes, as they are typed: those that an engine drafts; of no engine in particular ddtree's.

    Of an EAGLE-3 head they are those of its channel, since engines draft no others with it. Where nobody timed a size,
    the nearest that somebody timed stand in its place.
    """
    assert prices.cost is not None
    if not drafts_trees(engine, kept):
        return []
    if kept.is_chain:
        return _trees_of_head(trace, prices.cost.most_drafted, engine)
    timed = () if prices.file is None else prices.file.node_counts
    near = sorted({size for budget in _BUDGETS for size in gap_around(timed, budget) or (budget,)})
    most = min(kept.exact_budget, prices.cost.most_drafted)
    if engine is None:
        budgets = [str(size) for size in near if 1 < size <= most]
        return [f"ddtree:budget={'/'.join(budgets)}"] if budgets else []
    found = []
    for top_k in _EDGE_K:
        budgets = [str(size) for size in near if top_k <= size <= min(most, EDGE_MOST_NODES - 1)]
        found += [f"{EDGE_TREE}:budget={'/'.join(budgets)},top_k={top_k}"] if budgets else []
    return found


def _trees_of_head(trace: Trace, most: int, engine: str | None) -> list[str]:
    found = []
    for name, one in trace.manifest.channels.items():
        beam, top_k, steps = one.setting("beam"), one.setting("top_k"), one.setting("steps")
        if one.kind != POOL or not one.is_read or not beam or beam != top_k or not steps:
            continue
        for some in sorted({*(few for few in _HEAD_STEPS if few < steps), steps}):
            low, nodes = 1, min(num_beam_nodes(beam, top_k, some), most)
            if engine == TENSORRT_LLM:
                low, nodes = some + 1, min(nodes, top_k * (some + 1))
            sizes = "/".join(str(budget) for budget in _BUDGETS if low <= budget <= nodes)
            if sizes:
                typed = f"{HEAD_TREE}:budget={sizes},beam={beam},top_k={top_k},steps={some}"
                found.append(typed if name == HEAD_TREE else f"{typed},channel={name}")
    return found


def length_of(batch: BatchAdvice, kept: DraftSet) -> int:
    """Drafted tokens of the chain of a batch size; 0: there is none."""
    if batch.without_tree == NOTHING or batch.chain is None:
        return 0
    return min(drafted(batch.chain) or kept.depth, kept.depth)


def without_trees(engine: str | None, kept: DraftSet) -> str:
    """Who drafts no trees, with the verb; empty: this engine does."""
    if engine is not None:
        return "" if drafts_trees(engine, kept) else f"{ENGINES[engine]} drafts"
    return "vLLM drafts" if kept.is_chain else "vLLM and SGLang draft"


def lines_to_paste(engine: str | None, trace: Trace, draft: str, batches: Sequence[BatchAdvice]) -> list[str]:
    """What an engine is to draft, with the lines to paste; of no engine in particular vLLM and SGLang."""
    kept = trace.manifest.draft_sets[draft]
    compared = [batch for batch in batches if len(batch.compared) > 1]
    if not kept.root_seen or not compared:
        return []
    if engine in (TENSORRT_LLM, TENSORRT_EDGE_LLM):
        return _line_of_export(engine, trace, kept, compared)
    method = EAGLE3 if kept.is_chain else DFLASH
    lengths = {batch.of.batch: length_of(batch, kept) for batch in compared}
    try:
        sglang = next(((one.of.batch, _shape(one, kept)) for one in compared if _sglang(one, kept) != NOTHING), None)
    except SimlabError as error:
        return [f"No settings of engines: {error}."]
    lines = engine_lines(method, short_name(kept.model.name), lengths, sglang)
    if engine is None or len(lines) == 1:
        return lines
    is_own = [line.startswith(ENGINES[engine]) for line in lines]
    # A sentence, and behind it the line to paste, if there is one.
    return [line for place, line in enumerate(lines) if is_own[place] or (line.startswith("--") and is_own[place - 1])]


def _line_of_export(engine: str, trace: Trace, kept: DraftSet, compared: Sequence[BatchAdvice]) -> list[str]:
    """The export of what is best at the smallest batch size at which drafting pays."""
    name = ENGINES[engine]
    for batch in compared:
        taken = batch.tree if batch.choice == TREE and drafts_trees(engine, kept) else batch.chain
        if _choice(engine, batch, kept) != NOTHING and taken is not None:
            alone = "" if len(compared) == 1 else f" at batch {batch.of.batch}, with one setting for all"
            words = ["simlab", "export", "--format", engine, "-p", taken.policy]
            words += [] if Path(trace.place) == packaged_trace() else ["--trace", trace.place]
            said = f"{name}: {taken.policy}{alone}. This writes its settings and the line that runs it:"
            return [said, shlex.join(words)]
    return [f"{name}: nothing that it drafts is significantly faster here; start it without a drafter."]


def _choice(engine: str, batch: BatchAdvice, kept: DraftSet) -> str:
    return batch.choice if drafts_trees(engine, kept) else batch.without_tree


def _sglang(batch: BatchAdvice, kept: DraftSet) -> str:
    """What SGLang does at a batch size: it draws trees of an EAGLE-3 head alone."""
    return _choice(SGLANG, batch, kept)


def _shape(batch: BatchAdvice, kept: DraftSet) -> HeadShape:
    length = length_of(batch, kept)
    if _sglang(batch, kept) != TREE or batch.tree is None:
        return HeadShape(length, 1, length)
    (policy,) = parse_policies([batch.tree.policy])
    return head_shape(policy, kept.depth)
