"""Figures that hold one thing against another: paired differences, predictions beside measurements, batch sizes."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from simlab.analysis.advise import CHAIN, NOTHING, TREE, BatchAdvice
from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.compare.verdicts import measure_name
from simlab.analysis.confirm.table import ConfirmedPolicy
from simlab.analysis.figure_style import GREY, colour, figure, height_of_rows, line, marker
from simlab.analysis.report.page import Chart, error_bars
from simlab.analysis.statistics.intervals import Interval

_BARS = {"thickness": 1.4, "width": 4}


def difference_chart(comparisons: Sequence[Comparison]) -> Chart:
    """Each comparison as a percentage with its interval over prompts; full marks differ significantly.

    Args:
        comparisons: of one measure, at least one.
    """
    measure = measure_name(comparisons[0].measure)
    seconds = {comparison.second for comparison in comparisons}
    against = f" against {comparisons[0].second}" if len(seconds) == 1 else ""
    drawn = figure(f"{measure}{against}, difference in %", "")
    for index, (name, differs) in enumerate((("significant", True), ("not significant", False))):
        chosen = [comparison for comparison in comparisons if comparison.differs is differs]
        if not chosen:
            continue
        drawn.add_trace(
            go.Scatter(
                x=[_percent(comparison.ratio) for comparison in chosen],
                y=[_pair_name(comparison, len(seconds) == 1) for comparison in chosen],
                mode="markers",
                name=name,
                marker={
                    **marker(0, 10),
                    "symbol": "circle" if differs else "circle-open",
                    "line": {"width": 2, "color": colour(0)},
                },
                error_x=error_bars(
                    [_percent(comparison.ratio) for comparison in chosen],
                    [
                        Interval(_percent(comparison.ratio_interval.low), _percent(comparison.ratio_interval.high))
                        for comparison in chosen
                    ],
                    **_BARS,
                    color=colour(0),
                ),
                hovertemplate=[
                    f"{comparison.first} against {comparison.second}<br>%{{x:+.1f}} %, {name} ({comparison.prompts} "
                    "prompts)"
                    for comparison in chosen
                ],
                legendrank=index,
            )
        )
    drawn.add_vline(x=0, line={"color": GREY, "width": 1})
    drawn.update_xaxes(ticksuffix=" %")
    names = [_pair_name(comparison, len(seconds) == 1) for comparison in comparisons]
    _lines(drawn, names)
    caption = (
        "Of the same prompts, pair by pair; bars are 95 % intervals over prompts. Open marks: not significant, after "
        "adjusting for the number of comparisons, or within the noise of the latency profile."
    )
    return Chart("differences", drawn, f"Paired differences in {measure}", caption, height_of_rows(names))


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _pair_name(comparison: Comparison, is_against_one: bool) -> str:
    name = comparison.first if is_against_one else f"{comparison.first} against {comparison.second}"
    return name if comparison.slice is None else f"{name}, {comparison.slice}"


def _lines(drawn: go.Figure, names: Sequence[str]) -> None:
    """Give each name a line, the first on top."""
    order = list(dict.fromkeys(names))
    drawn.update_yaxes(categoryorder="array", categoryarray=order[::-1], range=[-0.6, len(order) - 0.4], dtick=1)


def advice_chart(batches: Sequence[BatchAdvice]) -> Chart:
    """The speedup of the best chain and of the best tree by batch size."""
    drawn = figure("texts at a time", "speedup over baseline")
    sides = {
        "best chain": [(batch, batch.chain, batch.gains.get((CHAIN, NOTHING))) for batch in batches],
        "best tree": [(batch, batch.tree, batch.gains.get((TREE, NOTHING))) for batch in batches],
    }
    for index, (name, entries) in enumerate(sides.items()):
        known = [(batch, policy, gain) for batch, policy, gain in entries if policy is not None and gain is not None]
        y = [gain.ratio for _, _, gain in known]
        shape = marker(index, 9)
        symbols = [f"{shape['symbol']}-open" if batch.of.what_if else shape["symbol"] for batch, _, _ in known]
        drawn.add_trace(
            go.Scatter(
                x=[batch.of.batch for batch, _, _ in known],
                y=y,
                name=name,
                mode="lines+markers",
                line=line(index),
                marker={**shape, "symbol": symbols, "line": {"width": 2, "color": colour(index)}},
                error_y=error_bars(y, [gain.ratio_interval for _, _, gain in known], **_BARS, color=colour(index)),
                hovertemplate=[
                    f"{policy.policy}, {batch.of.batch} at a time<br>%{{y:.2f}} ({gain.prompts} prompts)"
                    for batch, policy, gain in known
                ],
            )
        )
    drawn.add_hline(y=1, line={"color": GREY, "width": 1})
    sizes = [batch.of.batch for batch in batches]
    drawn.update_xaxes(type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
    caption = (
        "On the grey line autoregressive decoding is as fast. Bars are 95 % intervals over prompts. Open marks: the "
        "latencies of that batch size are modelled, not measured."
    )
    return Chart("advice", drawn, "Speedup by batch size", caption)


def agreement_chart(policies: Sequence[ConfirmedPolicy]) -> Chart:
    """The predicted and the measured speedup of each policy that ran."""
    ran = [(policy.predicted, policy.measured) for policy in policies if policy.measured is not None]
    names = [predicted.policy for predicted, _ in ran]
    sides = {
        "predicted": [predicted.speed for predicted, _ in ran],
        "measured": [measured.speed for _, measured in ran],
    }
    drawn = figure("speedup over baseline", "")
    for index, (name, speeds) in enumerate(sides.items()):
        known = [(label, speed) for label, speed in zip(names, speeds, strict=True) if not math.isnan(speed.speedup)]
        x = [speed.speedup for _, speed in known]
        drawn.add_trace(
            go.Scatter(
                x=x,
                y=[label for label, _ in known],
                mode="markers",
                name=name,
                marker=marker(index, 10),
                error_x=error_bars(x, [speed.interval for _, speed in known], **_BARS, color=colour(index)),
                hovertemplate=[f"{label}<br>{name} %{{x:.2f}}" for label, _ in known],
            )
        )
    drawn.add_vline(x=1, line={"color": GREY, "width": 1})
    _lines(drawn, names)
    caption = "Bars are 95 % intervals over prompts. Predicted by replay; measured end to end on the real models."
    return Chart("agreement", drawn, "Predicted and measured speedup", caption, height_of_rows(names))
