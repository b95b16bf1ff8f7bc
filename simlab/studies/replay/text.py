"""What a replay prints: whose prices, a table for each machine, and whether the fastest policy differs between them."""

from collections.abc import Sequence

from simlab.analysis.table.summaries import Summary, summarise
from simlab.analysis.table.text import ends, is_known, summary_blocks, summary_notes, summary_table, within_width
from simlab.studies.inputs.prices import Prices
from simlab.traces.reader import Trace
from simlab.traces.results.rows import BEST_BUDGET, BEST_ROUTES, BOUNDS, HINDSIGHT, Results, results_at

_BOUNDS = (
    f"{HINDSIGHT.capitalize()} rows know the target's text, which no policy does: the fewest rounds of any tree, and "
    "(best) ddtree's trees with the best budget in each round."
)

_ILLUSTRATION = "they show that the policy runs, and say little about how good it is."

_ROUTES = "Hindsight routes are those of a router, the best in each round: no rule among them is faster."


def heading(trace: Trace, draft: str, rows: Results, *prices: Prices) -> str:
    """What was replayed: trace, target, drafter, how much, and with which latency profile."""
    manifest = trace.manifest
    sampling, draft_set = manifest.sampling, manifest.draft_sets[draft]
    sequences = set(rows["sequence"].unique())
    texts = [record for record in trace.sequences() if record.index in sequences]
    prompts = {(record.prompt.dataset, record.prompt.prompt_id) for record in texts}
    size = f"{len(prompts)} prompts, {len(texts)} sequences, {sum(len(record.text) for record in texts):,} tokens"
    lines = [
        ("trace", f"{trace.label} (text {trace.text_id})"),
        ("target", f"{manifest.target.label}, {manifest.dtype}, temperature {sampling.temperature:g}"),
        ("drafter", f"{draft}, block {draft_set.block_size} ({draft_set.depth} drafted ahead)"),
        ("text", f"{size}, {manifest.text_origin}"),
        *([("", trace.left_out)] if trace.left_out else []),
        *([("", f"{len(prompts)} short prompts: {_ILLUSTRATION}")] if trace.is_illustration else []),
        *(("latency", price.heading) for price in prices),
    ]
    return "\n".join(f"{name.ljust(8)} {value}" for name, value in lines)


def json_value(
    trace: Trace, draft: str, rows: Results, by: str | None, *prices: Prices, in_sample: Sequence[str] = ()
) -> dict[str, object]:
    """The summaries for scripts; with ``by`` only those of the slices, which add up to the whole.

    Rows name their prices, by id and in words, where there are those of several machines, and say whether their
    policy, one of ``in_sample`` or not, was fitted on the very texts.
    """
    summaries: list[dict[str, object]] = []
    for price in prices:
        first: dict[str, object] = {"cost_id": price.cost_id, "prices": price.heading} if len(prices) > 1 else {}
        rows_of_one = [summary.row() for summary in summarise(results_at(rows, price.cost_id), by)]
        summaries += [{**first, **row, "in_sample": row["policy"] in in_sample} for row in rows_of_one]
    cost = prices[0].cost_id if len(prices) == 1 else [price.cost_id for price in prices]
    return {"text_id": trace.text_id, "draft_ids": {draft: trace.draft_ids[draft]}, "cost": cost, "rows": summaries}


def tables_text(rows: Results, prices: Sequence[Prices], by: str | None = None) -> str:
    """A table for each machine, and whether the fastest policy changes between them."""
    if len(prices) == 1:
        return table_text(rows, prices[0], by)
    blocks, fastest = [], []
    for price in prices:
        part = results_at(rows, price.cost_id)
        blocks.append(f"{within_width(price.heading)}\n\n{table_text(part, price, by)}")
        fastest.append((_fastest(summarise(part)), price))
    return "\n\n".join([*blocks, fastest_text(fastest)])


def table_text(rows: Results, prices: Prices, by: str | None = None) -> str:
    """The summaries of one machine for people, and what to know beside them."""
    whole = summarise(rows)
    if by is None:
        notes = summary_notes(whole, prices.no_latency_reason, prices.speedup_note)
        return f"{summary_table(whole)}\n\n{notes}{_bounds(whole)}"
    slices = summarise(rows, by)
    notes = summary_notes(slices, prices.no_latency_reason, prices.speedup_note)
    return f"{summary_blocks(slices, whole, by)}\n\n{notes}{_bounds(whole)}"


def _bounds(summaries: Sequence[Summary]) -> str:
    names = {summary.name for summary in summaries}
    notes = [note for name, note in ((BEST_BUDGET, _BOUNDS), (BEST_ROUTES, _ROUTES)) if name in names]
    return "".join(f"\n{within_width(note)}" for note in notes)


def _fastest(summaries: Sequence[Summary]) -> Summary:
    """The policy with the most predicted tokens per second; a bound is none."""
    policies = [summary for summary in summaries if summary.name not in BOUNDS]
    return max(policies, key=lambda summary: summary.speed.tokens_per_s)


def fastest_text(fastest: Sequence[tuple[Summary, Prices]]) -> str:
    """Whether machines agree on the fastest policy."""
    labels = {summary.policy for summary, _ in fastest}
    if len(labels) == 1:
        (label,) = labels
        return f"Fastest by prediction with all {len(fastest)} latency profiles: {label}."
    lines = [f"  {summary.policy} ({_speedup(summary)}): {prices.heading}" for summary, prices in fastest]
    change = "The fastest policy by prediction, and its speedup, change with the latency profile:"
    return within_width("\n".join([change, *lines]))


def _speedup(summary: Summary) -> str:
    """With its price interval, where that is known."""
    interval = summary.speed.price_interval
    return f"{summary.speed.speedup:.2f}{f', prices {ends(interval)}' if is_known(interval) and ends(interval) else ''}"
