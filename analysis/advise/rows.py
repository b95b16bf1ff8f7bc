"""Advice as a script reads it."""

import math

from simlab.analysis.advise.advice import BatchAdvice, Option
from simlab.analysis.compare.comparisons import Comparison


def advice_row(one: BatchAdvice) -> dict[str, object]:
    """One batch size; null: not known."""
    needs = one.needs
    return {
        "batch": one.prices.batch,
        "what_if": one.prices.what_if,
        "cost_id": one.prices.cost_id,
        "run": one.run,
        "plain_tokens_per_s_of_each_text": one.plain_tokens_per_s,
        "chain": _option(one.chain),
        "tree": _option(one.tree),
        "chain_over_plain": _comparison(one.chain_over_plain),
        "tree_over_plain": _comparison(one.tree_over_plain),
        "tree_over_chain": _comparison(one.tree_over_chain),
        "tree_needs": None
        if needs is None
        else {
            "rival": needs.rival,
            "round_s": needs.round_s,
            "acceptance_length": needs.acceptance_length,
        },
    }


def _option(option: Option | None) -> dict[str, object] | None:
    if option is None:
        return None
    return {
        "policy": option.label,
        "tokens_per_s_of_each_text": option.tokens_per_s,
        "speedup": option.speedup,
        "speedup_ci_low": _known(option.interval.low),
        "speedup_ci_high": _known(option.interval.high),
        "speedup_price_low": _known(option.price_interval.low),
        "speedup_price_high": _known(option.price_interval.high),
        "acceptance_length": option.acceptance_length,
        "round_s": option.round_s,
    }


def _comparison(one: Comparison | None) -> dict[str, object] | None:
    return None if one is None else dict(one.row())


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
