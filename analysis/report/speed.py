"""Figures and tables of a report about speed: against drafted tokens, by slice, and by stage."""

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import polars as pl

from simlab.analysis.figure_style import band, colour, figure, height_of_rows, line, marker
from simlab.analysis.report.page import Chart, Grid, error_bars, stacked_bars
from simlab.analysis.report.results import ReportResults, family_label
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.summaries import BASELINE, NO_SPEED, STAGE_COLUMNS, Speed, Summary, summarise
from simlab.analysis.table.text import NO_PRICES, PRICES, SPEEDUP, ends, is_known, number
from simlab.traces.results.rows import BOUNDS

_STAGES = ("drafting", "making channels", "selecting", "verifying", "committing")
"""In the order of ``STAGE_COLUMNS``; channels stand there where a policy reads one."""

_ERRORS = (
    "Prediction over measurement, less one, on the same texts; positive: predicted too high.",
    "A machine slower than when it was profiled slows autoregressive decoding too, so speedups are affected less.",
)


def policy_table(results: ReportResults, best: Summary | None, speedup: str = SPEEDUP) -> Grid:
    """The references and the best of each family; what was predicted beside what was measured.

    Args:
        results: of all policies.
        best: which policy is marked; None: there is none.
        speedup: what speedups are over, in a sentence.
    """
    references = [summary for summary in results.summaries if summary.name == BASELINE]
    chain, bounds = results.chain(), [summary for summary in results.summaries if summary.name in BOUNDS]
    ran = [policy for policy in results.policies if policy.policy_id in results.ran]
    shown = [*references, *([chain] if chain else []), *([best] if best else []), *results.finalists, *ran, *bounds]
    rows = list({(summary.policy, summary.policy_id): summary for summary in shown}.values())
    measured = {policy_id: summary.speed for policy_id, summary in results.ran.items()}
    columns: list[tuple[str, Callable[[Summary], str]]] = [("policy", lambda summary: summary.policy)]
    if results.has_speeds:
        columns.append(("predicted speedup [95 %]", lambda summary: _speedup(summary.speed)))
        columns.append(("prices [95 %]", lambda summary: ends(summary.speed.price_interval)))
    if measured:
        columns.append(("measured speedup [95 %]", lambda summary: _speedup(measured.get(summary.policy_id, NO_SPEED))))
    columns += [
        (
            "acceptance length [95 %]",
            lambda summary: _with_interval(summary.totals.acceptance_length, summary.interval),
        ),
        ("macro avg", lambda summary: number(summary.acceptance_length_macro, 2)),
        ("drafted per round", lambda summary: number(summary.totals.nodes_per_round, 1)),
    ]
    if results.has_seconds:
        columns.append(("predicted tokens/s", lambda summary: number(summary.speed.tokens_per_s, 1)))
    notes = ["Acceptance length: tokens committed per round, bonus token included, pooled over all rounds."]
    if results.has_seconds:
        notes.append(f"{' '.join(speedup.splitlines())} Prefill is not in it.")
    if results.has_speeds:
        notes.append(PRICES if any(is_known(row.speed.price_interval) for row in rows) else NO_PRICES[rows[0].kind])
    if bounds:
        notes.append("Rows named hindsight are oracle upper bounds, which know the target's text: no policies.")
    left_out = len(results.policies) - len({summary.policy_id for summary in (*results.finalists, *ran)})
    if left_out > 0:
        notes.append(f"Of each family the best; {left_out} more policies are in the figure.")
    strong = frozenset(index for index, row in enumerate(rows) if best is not None and row.policy == best.policy)
    cells = [[text(row) for _, text in columns] for row in rows]
    return Grid([head for head, _ in columns], cells, notes, strong)


def _speedup(speed: Speed) -> str:
    return _with_interval(speed.speedup, speed.interval)


def _with_interval(value: float, interval: Interval) -> str:
    if math.isnan(interval.low) or interval.low == interval.high:
        return number(value, 2)
    return f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def speed_chart(results: ReportResults) -> Chart:
    """Speedup against drafted tokens, a line for each family, with intervals; measured points on top."""
    has_speeds, quantity = results.has_speeds, results.what
    drawn = figure("drafted tokens per round", quantity)
    for index, members in enumerate(results.families):
        _add_family(drawn, members, results, index)
    if results.ran and has_speeds:
        for index, members in enumerate(results.families):
            _add_measured(drawn, [member for member in members if member.policy_id in results.ran], results, index)
    sizes = [policy.totals.nodes_per_round for policy in results.policies]
    if sizes and max(sizes) > 4 * max(min(sizes), 1):
        drawn.update_xaxes(type="log", tickvals=[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], tickformat="d")
    caption = "Mean over rounds; of a fixed budget it is the budget. Bands and bars are 95 % intervals over prompts."
    caption += " Pointing at a mark shows that of the latency profile's noise too." if has_speeds else ""
    if results.ran and has_speeds:
        caption += " Open marks were measured, end to end, on the real models; lines and filled marks are predicted."
    elif has_speeds:
        caption += " All of it is predicted from a latency profile."
    return Chart("speed", drawn, f"{quantity[0].upper()}{quantity[1:]}, by size of the tree", caption, 330)


def _add_family(figure: go.Figure, members: Sequence[Summary], results: ReportResults, index: int) -> None:
    name = family_label(members)
    x = [member.totals.nodes_per_round for member in members]
    y, intervals = zip(*map(results.drawn, members), strict=True)
    low, high = [interval.low for interval in intervals], [interval.high for interval in intervals]
    hover = [
        f"{member.policy}<br>%{{y:.2f}} at %{{x:.1f}} drafted{_both_intervals(member, interval)}"
        for member, interval in zip(members, intervals, strict=True)
    ]
    if len(members) > 2:
        if not any(map(math.isnan, low)):
            figure.add_trace(band(x, low, high, index, name))
        style: dict[str, object] = {"mode": "lines" if len(members) > 20 else "lines+markers"}
    else:
        style = {"mode": "markers", "error_y": error_bars(y, intervals)}
    figure.add_trace(
        go.Scatter(
            x=x, y=y, name=name, legendgroup=name, line=line(index), marker=marker(index), hovertemplate=hover, **style
        )
    )


def _both_intervals(summary: Summary, over_prompts: Interval) -> str:
    """The intervals over prompts and by the noise of prices, a line each, of what is drawn."""
    kinds = ("prompts", over_prompts), ("prices", summary.speed.price_interval)
    return "".join(f"<br>{name} {ends(interval)}" for name, interval in kinds if is_known(interval) and ends(interval))


def _add_measured(figure: go.Figure, members: Sequence[Summary], results: ReportResults, index: int) -> None:
    if not members:
        return
    ran = [results.ran[member.policy_id] for member in members]
    y = [summary.speed.speedup for summary in ran]
    figure.add_trace(
        go.Scatter(
            x=[summary.totals.nodes_per_round for summary in ran],
            y=y,
            mode="markers",
            name=f"{family_label(members)}, measured",
            legendgroup=family_label(members),
            marker={**marker(index, 11), "symbol": f"{marker(index)['symbol']}-open", "line": {"width": 2}},
            error_y=error_bars(y, [summary.speed.interval for summary in ran], color=colour(index)),
            hovertemplate=[f"{summary.policy}<br>measured %{{y:.2f}}" for summary in ran],
        )
    )


def slice_chart(results: ReportResults, shown: Sequence[Summary], by: str) -> Chart | None:
    """Speedup, or acceptance length, slice by slice; None where there is one slice alone."""
    rows = results.rows
    policy_ids = {part.policy_id for part in shown}
    wanted = rows.filter(pl.col("policy_id").is_in(policy_ids) | (pl.col("name") == BASELINE))
    labels = {(part.policy, part.policy_id) for part in shown}
    summaries = [part for part in summarise(wanted, by) if (part.policy, part.policy_id) in labels]
    slices = list(dict.fromkeys(str(part.slice) for part in summaries))
    if len(slices) < 2:
        return None
    drawn = figure("", results.what)
    for index, summary in enumerate(shown):
        own = [part for part in summaries if part.policy_id == summary.policy_id]
        values, intervals = zip(*map(results.drawn, own), strict=True)
        drawn.add_trace(
            go.Bar(
                x=[f"{part.slice} ({part.prompts})" for part in own],
                y=values,
                name=summary.policy,
                marker={"color": colour(index)},
                error_y=error_bars(values, intervals),
            )
        )
    drawn.update_layout(barmode="group")
    drawn.update_yaxes(range=[0, 1.5 * max(results.drawn(part)[0] for part in summaries)])
    caption = "In brackets the prompts of the slice; bars are 95 % intervals over them, the widest of them cut off."
    return Chart(f"by-{by}", drawn, f"{results.what[0].upper()}{results.what[1:]}, by {by}", caption)


def stage_chart(results: ReportResults, shown: Sequence[Summary]) -> Chart | None:
    """Milliseconds per round by stage, predicted beside measured where there is both; None without seconds."""
    if not results.has_speeds:
        return None
    labels, seconds = [], []
    for policy in shown:
        for kind, summary in (("predicted", policy), ("measured", results.ran.get(policy.policy_id))):
            if summary is not None and summary.speed.seconds is not None and summary.totals.rounds:
                labels.append(f"{policy.policy}, {summary.kind if results.ran else kind}")
                stages = summary.speed.seconds
                seconds.append([1e3 * getattr(stages, name) / summary.totals.rounds for name in STAGE_COLUMNS])
    parts = {_STAGES[stage]: [row[stage] for row in seconds] for stage in _shown_stages(shown, results)}
    drawn = stacked_bars("milliseconds per round", labels, parts, " %{x:.2f} ms")
    caption = "Latency of a round, on average over the rounds that the policy had."
    return Chart("stages", drawn, "Where a round's time goes", caption, height_of_rows(labels))


def stage_table(results: ReportResults, shown: Sequence[Summary]) -> Grid | None:
    """Predicted against measured, stage by stage, on the texts that were run; None where nothing was."""
    if not (results.ran and results.predicted.height and results.has_speeds):
        return None
    texts = results.measured["sequence"].unique().to_list()
    same_texts = {
        summary.policy_id: summary for summary in summarise(results.predicted.filter(pl.col("sequence").is_in(texts)))
    }
    rows, stages = [], _shown_stages(shown, results)
    plain = [summary for summary in results.summaries if summary.name == BASELINE]
    for summary in (*plain, *shown):
        ran, predicted = results.ran.get(summary.policy_id), same_texts.get(summary.policy_id)
        if ran is not None and predicted is not None:
            rows.append([summary.policy, *_errors(predicted, ran, stages)])
    heads = ["policy", "tokens/s", "speedup", "acceptance length"]
    return Grid([*heads, *(f"{_STAGES[index]}, s per round" for index in stages)], rows, _ERRORS)


def _shown_stages(shown: Sequence[Summary], results: ReportResults) -> list[int]:
    """The places of the stages that are shown: all, but for channels that no policy reads."""
    summaries = [*shown, *(results.ran.get(summary.policy_id) for summary in shown)]
    seconds = [
        summary.speed.seconds for summary in summaries if summary is not None and summary.speed.seconds is not None
    ]
    with_channels = any(spent.channel_s > 0 for spent in seconds)
    return [index for index, name in enumerate(STAGE_COLUMNS) if with_channels or name != "channel_s"]


def _errors(predicted: Summary, ran: Summary, stages: Sequence[int]) -> list[str]:
    pairs = [
        (predicted.speed.tokens_per_s, ran.speed.tokens_per_s),
        (predicted.speed.speedup, ran.speed.speedup),
        (predicted.totals.acceptance_length, ran.totals.acceptance_length),
    ]
    ours, theirs = predicted.speed.seconds, ran.speed.seconds
    for name in (STAGE_COLUMNS[index] for index in stages):
        values = [getattr(side, name) if side is not None else math.nan for side in (ours, theirs)]
        pairs.append((values[0] / max(predicted.totals.rounds, 1), values[1] / max(ran.totals.rounds, 1)))
    return ["-" if not b or math.isnan(a / b) else f"{100 * (a / b - 1):+.1f} %" for a, b in pairs]
