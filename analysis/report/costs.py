"""Figures of a report about prices, and about expected tokens per second by the size of the tree."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from simlab.analysis.curves.rows import CurveSetting
from simlab.analysis.curves.summaries import CurveSummary
from simlab.analysis.curves.tallies import FIRST, FIXED, PRICE, SCAN
from simlab.analysis.figure_style import colour, figure, line, marker
from simlab.analysis.report.page import Chart, error_bars
from simlab.analysis.table.estimates import Figures
from simlab.cost import PLAIN, CostTable

_RULES = (FIRST, SCAN, FIXED, PRICE)


def cost_chart(measured: CostTable, convex: CostTable, context: int, most: int, has_plain: bool = True) -> Chart:
    """Milliseconds of drafting and of verifying by drafted tokens, at three contexts and by the convex view.

    Args:
        measured: the latency profile; of one context it says nothing of others, and none is named.
        convex: its convex view.
        context: tokens before the root in the middle of a text.
        most: drafted tokens up to which is drawn.
        has_plain: whether autoregressive decoding was timed.
    """
    drawn = figure("drafted tokens per round", "milliseconds")
    shortest, longest = int(measured.contexts[0]), measured.longest_context
    several = sorted({context, longest, *((shortest,) if context > 2 * shortest else ())})
    contexts = [context] if shortest == longest else several

    def at(length: int) -> str:
        return "" if shortest == longest else f", context {length:,}"

    sizes = np.arange(min(most, measured.most_drafted) + 1)
    for index, length in enumerate(contexts):
        seconds = 1e3 * measured.curve("verify", length)[: len(sizes)]
        drawn.add_trace(_curve(sizes, seconds, f"verifying{at(length)}", index))
    convex_s = 1e3 * convex.curve("verify", context)[: len(sizes)]
    drawn.add_trace(_curve(sizes, convex_s, f"the same, convex view{at(context)}", len(contexts), 1.5))
    draft_s = 1e3 * measured.curve("draft", context)[: len(sizes)]
    drawn.add_trace(_curve(sizes, draft_s, f"drafting{at(context)}", len(contexts) + 1))
    if has_plain:
        plain = 1e3 * float(measured.curve(PLAIN, context)[0])
        drawn.add_trace(_curve(sizes[[0, -1]], np.array([plain] * 2), "one token of autoregressive decoding", 5, 1.5))
    drawn.update_yaxes(rangemode="tozero")
    caption = (
        "Measured seconds of a pass over one root and so many drafted tokens; between the sizes that were timed a "
        "straight line. Latency-aware rules assume a convex curve; the convex view is the closest one."
    )
    return Chart("costs", drawn, "Latency of a pass", caption)


def _curve(x: np.ndarray, y: np.ndarray, name: str, index: int, width: float = 2.0) -> go.Scatter:
    hover = f"{name}<br>%{{y:.2f}} ms for %{{x}} drafted"
    return go.Scatter(x=x.tolist(), y=y.tolist(), name=name, mode="lines", line=line(index, width), hovertemplate=hover)


def maxima_chart(summaries: Sequence[CurveSummary], names: Sequence[str]) -> Chart:
    """How many roots have one local maximum, two, and so on."""
    drawn = figure("local maxima of the curve at a root", "share of roots")
    for index, (summary, name) in enumerate(zip(summaries, names, strict=True)):
        shares = np.array(summary.maxima) / max(summary.roots, 1)
        drawn.add_trace(
            go.Bar(
                x=list(range(1, len(shares) + 1)),
                y=shares.tolist(),
                name=name,
                marker={"color": colour(index)},
                hovertemplate=f"{name}<br>%{{y:.1%}} of roots have %{{x}}",
            )
        )
    drawn.update_layout(barmode="group")
    drawn.update_xaxes(dtick=1)
    drawn.update_yaxes(tickformat=".0%")
    caption = (
        "Of the curve of expected tokens per second over the size of the tree. Where latencies are convex there is "
        "one, and stopping at the first size that brings no more is best; with several it may stop too early."
    )
    valleys = [
        f"{summary.kept.value:.0%} ({name})"
        for summary, name in zip(summaries, names, strict=True)
        if summary.kept is not None
    ]
    if valleys:
        caption += (
            f" Prices are noisy, and noise makes maxima; roots with a valley that survives it: {', '.join(valleys)}."
        )
    return Chart("maxima", drawn, "Unimodality: local maxima per root", caption)


def regret_chart(summaries: Sequence[CurveSummary], names: Sequence[str]) -> Chart:
    """How far each rule is behind one rate for all rounds."""
    drawn = figure("expected tokens/s behind the price rule", "")
    for index, (summary, name) in enumerate(zip(summaries, names, strict=True)):
        rules = [rule for rule in summary.rules if rule["rule"] != PRICE]
        behind = [rule["behind_price_share"] for rule in rules]
        values = [estimate.value for estimate in behind]
        drawn.add_trace(
            go.Bar(
                y=[rule["rule"] for rule in rules],
                x=values,
                name=name,
                orientation="h",
                marker={"color": colour(index)},
                error_x=error_bars(values, [estimate.interval for estimate in behind]),
                hovertemplate=f"{name}<br>%{{y}}: %{{x:.2%}} behind",
            )
        )
    drawn.update_layout(barmode="group")
    drawn.update_xaxes(tickformat=".1%")
    drawn.update_yaxes(autorange="reversed")
    caption = (
        "What a rule for the size of the tree loses at the same roots, by its own probabilities: the first size that "
        "brings no more (caddtree), also on the convex view of the latencies; the best size of each round by itself; "
        "and one size for all rounds."
    )
    return Chart("regret", drawn, "What early-stopping rules lose", caption, 160 + 60 * len(_RULES))


def example_chart(example: Figures) -> Chart:
    """The curve at the root where the first stop lost most."""
    curve = example["tokens_per_s"]
    drawn = figure("drafted tokens", "expected tokens/s")
    drawn.add_trace(
        go.Scatter(
            x=list(range(len(curve))),
            y=curve,
            mode="lines",
            name=f"sequence {example['sequence']}, token {example['position']}",
            line=line(0),
            hovertemplate="%{y:.1f} tokens/s with %{x} drafted",
        )
    )
    for index, rule in enumerate(_RULES):
        size = example["num_drafted"].get(rule)
        if size is not None:
            name, mark = f"{rule}: {size}", marker(index + 1, 12)
            drawn.add_trace(go.Scatter(x=[size], y=[curve[size]], mode="markers", name=name, marker=mark))
    where = f"{example['edges']} probabilities, context {example['context']:,}"
    caption = f"Of all roots the one where the first stop loses most ({where})."
    return Chart("worst", drawn, "The worst case of the first stop", caption)


def budget_chart(settings: Sequence[CurveSetting], names: Sequence[str]) -> Chart:
    """Expected tokens per second of the whole under each fixed budget."""
    drawn = figure("budget of every round", "expected tokens/s")
    for index, (setting, name) in enumerate(zip(settings, names, strict=True)):
        drawn.add_trace(
            go.Scatter(
                x=list(range(len(setting.budget_curve))),
                y=setting.budget_curve.tolist(),
                mode="lines",
                name=f"{name}, best {setting.budget}",
                line=line(index),
                hovertemplate=f"{name}<br>%{{y:.1f}} tokens/s with budget %{{x}}",
            )
        )
    drawn.update_xaxes(type="log", tickvals=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], tickformat="d")
    caption = "By the drafter's own probabilities: an overconfident drafter predicts more than a replay shows."
    return Chart("budgets", drawn, "Expected speed of fixed budgets", caption)
