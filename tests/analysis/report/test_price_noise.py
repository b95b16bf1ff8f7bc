"""A report beside the noise of the latency profile: the verdict, the table, and what pointing at a mark shows."""

import numpy as np
import polars as pl
from confirm_results import results
from summary_rows import with_draws

from simlab.analysis.report.results import ReportResults
from simlab.analysis.report.speed import policy_table, speed_chart
from simlab.analysis.report.verdict import ReportVerdict, VerdictChoice, verdict_of
from simlab.analysis.table.text import NO_PRICES, PRICES, ends
from simlab.policies.costs.cell_prices import NUM_DRAWS

HELD_OUT = VerdictChoice("ddtree:budget=8", "on 40 prompts of dev", True)
SPEEDS = {"autoregressive": 10.0, "chain": 14.0, "ddtree:budget=8": 20.0}


def predicted(noise: float | None) -> ReportResults:
    """Made-up predictions whose seconds have noise of this size for each policy; None: it is not known."""
    rows = results(SPEEDS).filter(pl.col("kind") == "predicted")
    own = pl.Series(np.random.default_rng(1).lognormal(0, 0.05, len(rows)))
    rows = rows.with_columns(pl.col("verify_s") * own)
    if noise is not None:
        rng = np.random.default_rng(3)
        factors = {label: rng.lognormal(0, noise, NUM_DRAWS) for label in rows["policy"].unique(maintain_order=True)}
        pairs = zip(rows["policy"], rows["verify_s"], strict=True)
        rows = with_draws(rows, [(seconds * factors[policy]).tolist() for policy, seconds in pairs])
    return ReportResults(rows, rows.clear())


def verdict(noise: float | None) -> ReportVerdict:
    return verdict_of(predicted(noise), HELD_OUT)


def test_the_verdict_has_both_intervals() -> None:
    found = verdict(0.02)
    assert found.sentence.startswith("ddtree:budget=8: 2.00 × autoregressive decoding [")
    over_chain = next(one for one in found.more if " × the chain [" in one)
    for said in (found.sentence, over_chain):
        assert "] (prices [1." in said
        assert said.endswith(") on 30 held-out prompts; predicted, not measured.")
    assert "prices" not in verdict(None).sentence


def test_a_difference_within_the_noise_of_prices_is_no_win() -> None:
    found = verdict(0.5)
    assert found.sentence.startswith("No winner. ddtree:budget=8: ")
    assert any("within the noise of the latency profile" in one for one in found.more)


def test_the_table_and_the_marks_show_both_intervals() -> None:
    found = predicted(0.02)
    grid = policy_table(found, None)
    assert grid.heads[1:3] == ["predicted speedup [95 %]", "prices [95 %]"]
    assert PRICES in grid.caption
    (tree,) = (one for one in found.found if one.policy == "ddtree:budget=8")
    (row,) = (row for row in grid.rows if row[0] == "ddtree:budget=8")
    assert row[2] == ends(tree.speed.price_interval) != "-"
    drawn = speed_chart(found).figure.to_dict()["data"]
    hover = [text for trace in drawn for text in trace.get("hovertemplate", ())]
    assert any(text.endswith(f"<br>prices {row[2]}") and "<br>prompts [" in text for text in hover)
    assert NO_PRICES["predicted"] in policy_table(predicted(None), None).caption
