"""The page of ``simlab advise``: a table over batch sizes, verdicts, break-even, and what would have to change."""

import math
from collections.abc import Sequence

from simlab.analysis.advise.verdicts import UNDECIDED, WINNER, BatchAdvice, stops_from, verdict_of
from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.table.text import aligned, within_width

_HEADS = (
    "batch",
    "prices",
    "best chain",
    "speedup [95 %]",
    "best tree",
    "speedup [95 %]",
    "tree / chain [95 %]",
    "tree",
)


def advice_table(found: Sequence[BatchAdvice]) -> str:
    """A line for each batch size."""
    return aligned([_HEADS, *map(_cells, found)], [True] * len(_HEADS))


def _cells(one: BatchAdvice) -> tuple[str, ...]:
    return (
        str(one.of.batch),
        "modelled" if one.of.modelled else "measured",
        "-" if one.chain is None else one.chain.policy,
        ratio_text(one.chain_gain),
        "-" if one.tree is None else one.tree.policy,
        ratio_text(one.tree_gain),
        ratio_text(one.tree_over_chain),
        one.verdict + (" (prices)" if within_prices(one.tree_over_chain) else ""),
    )


def within_prices(one: Comparison | None) -> bool:
    """Whether prompts tell the two apart, and the noise of the prices does not let them."""
    return one is not None and one.differs_by_prompts and one.is_within_price_noise


def ratio_text(one: Comparison | None) -> str:
    """A ratio and its interval."""
    if one is None:
        return "-"
    interval = one.ratio_interval
    ends = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    return f"{one.ratio:.3f}{ends}"


def advice_sentences(found: Sequence[BatchAdvice]) -> list[str]:
    """What to do, from where on it stops paying, and what would have to change."""
    return [*_to_do(found), *_break_evens(found), *(sentence for one in found if (sentence := needs_sentence(one)))]


def _to_do(found: Sequence[BatchAdvice]) -> list[str]:
    lines = []
    for one in found:
        gain = one.best_gain
        if gain is None:
            lines.append(f"Batch {one.of.batch}: no policy could be priced.")
            continue
        undecided = "no winner, within the noise of the prices" if within_prices(gain) else "no winner"
        told = {WINNER: "go", UNDECIDED: undecided}.get(verdict_of(gain), "no-go")
        fastest = "plain decoding" if gain.ratio <= 1 else gain.first
        lines.append(f"Batch {one.of.batch}: fastest is {fastest}; {gain.first} over plain {ratio_text(gain)}: {told}.")
    return lines


def _break_evens(found: Sequence[BatchAdvice]) -> list[str]:
    batches = [one.of.batch for one in found]
    kinds = {
        "Speculation over plain decoding": [one.best_gain for one in found],
        "The tree over the best chain": [one.tree_over_chain for one in found],
    }
    return [
        break_even_sentence(name, batches, [math.nan if one is None else one.ratio for one in ratios])
        for name, ratios in kinds.items()
    ]


def break_even_sentence(name: str, batches: Sequence[int], ratios: Sequence[float]) -> str:
    """From which batch size on something stops paying, by its estimates, not their intervals."""
    stop = stops_from(batches, ratios)
    if stop is None:
        return f"{name}: still ahead at the largest batch size here, {batches[-1]}."
    if stop == batches[0]:
        return f"{name}: ahead at no batch size here."
    last = batches[batches.index(stop) - 1]
    return f"{name}: ahead up to a batch of {last}, behind from {stop} on; break-even lies between, by estimates."


def needs_sentence(one: BatchAdvice) -> str:
    """What would make a tree pay that is not the winner; empty where it is, or there is none."""
    needs = one.needs
    if needs is None or one.tree is None or one.verdict == WINNER:
        return ""
    start = f"Batch {one.of.batch}: {one.tree.policy} breaks even with the chain at an acceptance length of "
    length = f"{start}{needs.needed_length:.3f} (here {needs.length:.3f})"
    if needs.token_s is None or needs.needed_token_s is None:
        return f"{length}; it drafts no more tokens than the chain, so no price of a token decides."
    now = f"here {1e3 * needs.token_s:.4f} ms"
    if needs.needed_token_s <= 0:
        return f"{length}; no price of a drafted token makes it pay ({now}), since its rounds commit no more tokens."
    wanted = f"{1e3 * needs.needed_token_s:.4f} ms"
    return f"{length}, or where each drafted token that it has more adds {wanted} to a round ({now})."


def notes_text(notes: Sequence[str]) -> str:
    """Sentences, each within the width of a page."""
    return "\n".join(within_width(note) for note in notes)
