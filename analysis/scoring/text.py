"""A scoring as the tables that a person reads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, INDIGO, OCHRE, VERMILLION, line, marker, on_white
from simlab.analysis.scoring.gap_and_waste import policy_figures
from simlab.analysis.scoring.path_places import TruePlaces, order_figures, path_coverage
from simlab.analysis.scoring.reliability import (
    ANY,
    OFF_SPINE,
    ON_SPINE,
    EdgeSlice,
    ScoredEdges,
    calibration,
)
from simlab.analysis.scoring.score import Scoring, without_budget
from simlab.analysis.statistics.intervals import rough_intervals
from simlab.analysis.table.estimates import NO_FIGURE, Estimate, Figures
from simlab.analysis.table.text import aligned, is_known, number, within_width
from simlab.policies.fits.edge_sums import RANK_CLASSES

# Figures of a scoring, made of the rows that ``simlab study scoring --json`` prints and of nothing else.


Rows = Sequence[Mapping[str, Any]]
"""Rows of one of the lists of the JSON."""

_PLACES = {
    ON_SPINE: (BLUE, "solid", "circle"),
    OFF_SPINE: (VERMILLION, "dash", "square"),
    ANY: (INDIGO, "dot", "x"),
}


def reliability_figure(rows: Rows, edges: Sequence[str]) -> go.Figure:
    """Probabilities against how often they came true, a panel for each edge model.

    Args:
        rows: of the list ``reliability``.
        edges: edge models by their labels.
    """
    figure = make_subplots(1, len(edges), subplot_titles=list(edges), shared_yaxes=True, horizontal_spacing=0.03)
    for column, label in enumerate(edges, 1):
        figure.add_scatter(
            x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "width": 1}, showlegend=False, row=1, col=column
        )
        for place, (color, dash, symbol) in _PLACES.items():
            points = _chosen(rows, edges=label, place=place, depth=None, rank=None)
            if points:
                figure.add_scatter(
                    x=[row["predicted"] for row in points],
                    y=[row["observed"] for row in points],
                    error_y=_bars(points, "observed"),
                    mode="lines+markers",
                    line={"color": color, "dash": dash},
                    marker={"symbol": symbol, "size": 6},
                    name=place,
                    legendgroup=place,
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
        figure.update_xaxes(title_text="probability", range=[0, 1], row=1, col=column)
    figure.update_yaxes(range=[0, 1])
    figure.update_yaxes(title_text="share that came true", row=1, col=1)
    return _plain(figure)


def first_candidates_figure(rows: Rows, edges: Sequence[str]) -> go.Figure:
    """First candidates by depth: what edge models say, and how many are right, on the spine and off it.

    Args:
        rows: of the list ``calibration``.
        edges: edge models by their labels; what came true is the same for all.
    """
    figure = make_subplots(1, 2, subplot_titles=[ON_SPINE, OFF_SPINE], shared_yaxes=True, horizontal_spacing=0.04)
    for column, place in enumerate((ON_SPINE, OFF_SPINE), 1):
        for index, label in enumerate(edges):
            points = [row for row in _chosen(rows, edges=label, place=place, rank="0") if row["depth"] is not None]
            if index == 0:
                figure.add_bar(
                    x=[row["depth"] for row in points],
                    y=[row["true_per_node"] for row in points],
                    marker={"color": "#BBBBBB"},
                    name="came true",
                    showlegend=column == 1,
                    row=1,
                    col=column,
                )
            figure.add_scatter(
                x=[row["depth"] for row in points],
                y=[row["expected_per_node"] for row in points],
                name=label,
                **_style(index),
                legendgroup=label,
                showlegend=column == 1,
                row=1,
                col=column,
            )
        figure.update_xaxes(title_text="depth", dtick=1, row=1, col=column)
    figure.update_yaxes(title_text="first candidate is right", range=[0, 0.9], row=1, col=1)
    figure.update_yaxes(range=[0, 0.9])
    return _plain(figure)


def coverage_figure(rows: Rows, cap: int) -> go.Figure:
    """The share of roots whose first nodes hold the true path, by depth, a line for each order.

    Args:
        rows: of the list ``coverage``.
        cap: nodes.
    """
    figure = go.Figure()
    for index, label in enumerate(dict.fromkeys(row["order"] for row in rows)):
        points = _chosen(rows, order=label)
        figure.add_scatter(
            x=[row["depth"] for row in points],
            y=[row[f"covered_share_{cap}"] for row in points],
            name=label,
            **_style(index),
        )
    figure.update_xaxes(title_text="depth", dtick=1)
    figure.update_yaxes(title_text=f"true path within {cap} nodes, share of roots", rangemode="tozero")
    return _plain(figure)


def gap_figure(rows: Rows) -> go.Figure:
    """How much of the way from the chain to the hindsight bound policies go, with intervals.

    Args:
        rows: of the list ``policies``.
    """
    figure = go.Figure()
    for index, budget in enumerate(sorted({row["budget"] for row in rows})):
        # Where the chain is the bound there is no gap.
        points = [row for row in _chosen(rows, budget=budget) if row["gap_closed_share"] is not None]
        figure.add_scatter(
            x=[100 * row["gap_closed_share"] for row in points],
            y=[without_budget(row["policy"]) for row in points],
            error_x=_bars(points, "gap_closed_share", 100),
            mode="markers",
            marker=marker(index, 9),
            name=f"{budget} nodes",
        )
    figure.update_xaxes(
        title_text="gap from chain to oracle upper bound closed, % of acceptance length", rangemode="tozero"
    )
    figure.update_yaxes(autorange="reversed")
    return _plain(figure)


def waste_figure(rows: Rows) -> go.Figure:
    """What the drafted tokens of policies are: accepted, wrong below a true parent, below a wrong one.

    Args:
        rows: of the list ``policies``.
    """
    figure = go.Figure()
    parts = {
        "accepted": ("accepted", BLUE),
        "sibling": ("wrong, parent true", GREY),
        "below_wrong": ("parent wrong", OCHRE),
    }
    for name, (text, color) in parts.items():
        figure.add_bar(
            x=[100 * row[f"{name}_share"] for row in rows],
            y=[row["policy"] for row in rows],
            orientation="h",
            marker={"color": color, "line": {"color": "white", "width": 1}},
            name=text,
        )
    figure.update_xaxes(title_text="drafted tokens, %", range=[0, 100])
    figure.update_yaxes(autorange="reversed")
    return _plain(figure).update_layout(barmode="stack", legend_traceorder="normal")


def _style(index: int) -> dict[str, Any]:
    """Line and marks of an edge model or an order, different from those of its neighbours."""
    return {"mode": "lines+markers", "line": line(index), "marker": marker(index)}


def _chosen(rows: Rows, **wanted: str | int | None) -> list[Mapping[str, Any]]:
    """Rows of everything, not of one dataset, that have these values."""
    return [
        row for row in rows if row.get("slice") is None and all(row[name] == value for name, value in wanted.items())
    ]


def _bars(rows: Iterable[Mapping[str, Any]], name: str, scale: float = 1.0) -> dict[str, Any]:
    above, below = [], []
    for row in rows:
        low, high = row[f"{name}_ci_low"], row[f"{name}_ci_high"]
        above.append(0.0 if high is None else scale * (high - row[name]))
        below.append(0.0 if low is None else scale * (row[name] - low))
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 2}


def _plain(figure: go.Figure) -> go.Figure:
    """Lay a figure out for a document, its legend above."""
    figure.update_layout(
        margin={"l": 70, "r": 20, "t": 60, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.08, "x": 0},
    )
    return on_white(figure)


_THREE = ("expected", "true", "excess [95 %]")

_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 15)
"""Depths that are printed."""

_NOTES = (
    "Spine: the greedy path, the root and what first candidates alone reach; off-spine: all other nodes of the "
    "target's path. Predicted, observed: mean probability of the first candidates, and how many of them were right. "
    "AUC: how often a node of the target's path is before another one in the order. Excess: how many times as many "
    "nodes as an oracle it takes to reach one. Overstated: by how much summed path probabilities exceed accepted "
    "tokens. Gap closed: (policy - chain) / (oracle upper bound of the same budget - chain), in acceptance length, "
    "bonus token included; against first: less that of the first policy of the same budget, paired. "
    "[95 %]: over prompts."
)
_DETAILED = (
    "Lost: below a true token that is no candidate; any prefix: all. Expected, true: summed probabilities of the "
    "candidates below a node, and how many of them came true; of a channel its own lists, as many candidates as the "
    "policy reads, and no node without a list. ECE: expected calibration error a node, less the part that few prompts "
    "add. Log loss: of whether each candidate comes true, summed a node, in nats; against: less that of the first edge "
    "model, paired, where both have the same nodes. The gap closed in tokens/s has no interval by the noise of the "
    "latency profile; `simlab replay` shows that of each speedup."
)
_MORE = "`--details` prints calibration by depth and rank, the target's path by depth, and what tokens are spent on."


def scoring_text(scored: Scoring, heading: str = "", details: bool = False) -> str:
    """The tables of a trace or a dataset.

    Args:
        scored: what came out.
        heading: stands above them.
        details: all tables, not only those that answer first.
    """
    parts = [f"{heading}: {len(scored.prompts)} prompts" if heading else ""]
    parts += [_first_candidates(scored.edges)] if scored.edges else []
    parts += [_edges(scored.edges), *map(_by_depth_and_rank, scored.edges)] if scored.edges and details else []
    if scored.places is not None:
        parts += [_orders(scored.places, details), *([_coverage(scored.places)] if details else [])]
    policies = policy_figures(scored.rounds)
    parts += [_gaps(policies), *([_speed_gaps(policies), _waste(policies)] if details else [])]
    parts += rough_intervals(len(scored.prompts))
    return "\n\n".join(part for part in parts if part)


def scoring_notes(details: bool = False) -> str:
    """What a reader must know beside the numbers."""
    return within_width(" ".join([_NOTES, _DETAILED if details else _MORE]))


_VERDICTS = {1: "overconfident", -1: "underconfident", 0: "not significant"}


def confidence(excess: Estimate | None) -> str:
    """What the interval of a calibration says: on which side of what came true the probabilities are."""
    if excess is None or not is_known(excess.interval):
        return "not known"
    return _VERDICTS[excess.side_of(0.0)]


def calibration_verdict(models: Sequence[ScoredEdges]) -> str:
    """Whether the first edge model that has probabilities is calibrated, by its first candidates; empty: none has."""
    model = next((model for model in models if model.has_probabilities), None)
    if model is None:
        return ""
    figures = [calibration(model, EdgeSlice(place, rank=RANK_CLASSES[0])) for place in (ON_SPINE, OFF_SPINE)]
    verdicts = [confidence(None if figure is None else figure["excess_per_node"]) for figure in figures]
    lines = [f"Are the drafter's probabilities calibrated? {_answer(*verdicts)} First candidates of {model.label}:"]
    for place, figure, verdict in zip(("on the greedy path", "off it"), figures, verdicts, strict=True):
        if figure is not None:
            expected, true, excess = _three(figure)
            lines.append(f"{place}: predicted {expected}, observed {true}, difference {excess} ({verdict})")
    return within_width("\n".join(lines))


def _answer(on: str, off: str) -> str:
    where = f"{on} on the greedy path and off it" if on == off else f"{on} on the greedy path, {off} off it"
    is_off = {on, off} & {_VERDICTS[1], _VERDICTS[-1]}
    return f"No: {where}." if is_off else f"{where[0].upper()}{where[1:]}."


def _first_candidates(models: Sequence[ScoredEdges]) -> str:
    """First candidates of each edge model, of all depths together."""
    cells = [["edge model", "nodes", "predicted", "observed", "difference [95 %]", "verdict"]]
    for model in models:
        for place in (ON_SPINE, OFF_SPINE):
            figures = calibration(model, EdgeSlice(place, rank=RANK_CLASSES[0]))
            if figures is not None:
                verdict = confidence(figures["excess_per_node"]) if model.has_probabilities else "not probabilities"
                cells.append([model.label, place, *_three(figures), verdict])
    return f"First candidates, all depths together\n\n{aligned(cells, [True, True, False, False, True, True])}"


def _edges(models: Sequence[ScoredEdges]) -> str:
    heads = ["edge model", "below", "nodes", *_THREE, "ECE [95 %]", "log loss", "against [95 %]"]
    cells = [heads]
    for model in models:
        name = model.label if model.has_probabilities else f"{model.label} (no probabilities)"
        for where in map(EdgeSlice, model.places):
            figures = calibration(model, where, None if model is models[0] else models[0])
            if figures is not None:
                losses = [f"{figures['log_loss_per_node']:v3}", _estimate(figures["log_loss_against_first"], "3")]
                ece = f"{figures['ece_per_node']:3}"
                cells.append([name, where.place, f"{figures['num_nodes']:,}", *_three(figures), ece, *losses])
    return "Probabilities of the candidates below a node\n\n" + aligned(cells, [True, True, *[False] * 3, *[True] * 4])


def _estimate(figure: Estimate, form: str) -> str:
    return "" if figure is NO_FIGURE else format(figure, form)


def _by_depth_and_rank(model: ScoredEdges) -> str:
    """Expected and true by depth, of first candidates, and by rank."""
    cells = [["", *(f"{place}: {text}" for place in (ON_SPINE, OFF_SPINE) for text in _THREE)]]
    rows = [(f"rank 0, depth {depth}", depth, RANK_CLASSES[0]) for depth in _DEPTHS]
    for name, depth, rank in [*rows, *((f"rank {class_}", None, class_) for class_ in RANK_CLASSES)]:
        figures = [calibration(model, EdgeSlice(place, depth, rank)) for place in (ON_SPINE, OFF_SPINE)]
        if any(figures):
            cells.append([name, *(text for figure in figures for text in _three(figure))])
    title = f"{model.label}: true tokens a node, expected and true"
    return f"{title}\n\n{aligned(cells, [True, *(False, False, True) * 2])}"


def _three(figures: Figures | None) -> list[str]:
    if figures is None:
        return [""] * 3
    return [
        *(number(figures[name], 3) for name in ("expected_per_node", "true_per_node")),
        f"{figures['excess_per_node']:3}",
    ]


def _orders(places: TruePlaces, details: bool) -> str:
    caps = places.caps if details else places.caps[:1]
    cells = [["order of nodes", "AUC [95 %]", "excess [95 %]", *(f"overstated, {cap} nodes, %" for cap in caps)]]
    for figures in order_figures(places):
        over = (_estimate(figures[f"overstated_share_{cap}"], "1%") for cap in caps)
        cells.append([figures["order"], f"{figures['auc']:3}", f"{figures['excess_nodes']:2}", *over])
    title = f"Where the target's path is among the first {places.most} nodes, at every root"
    return f"{title}\n\n{aligned(cells, [True] * len(cells[0]))}"


def _coverage(places: TruePlaces) -> str:
    heading = [f"in {cap} nodes, %" for cap in places.caps]
    cells = [["order of nodes", "depth", *heading, "nodes, median", "at 90 %"]]
    for figures in path_coverage(places):
        if figures["depth"] in _DEPTHS:
            shares = [f"{figures[f'covered_share_{cap}']:1%}" for cap in places.caps]
            nodes = (figures["nodes_median"], figures["nodes_90_percent"])
            needed = [f"> {places.most}" if num is None else str(num) for num in nodes]
            cells.append([figures["order"], str(figures["depth"]), *shares, *needed])
    title = "Nodes that it takes to hold the target's path down to a depth"
    return f"{title}\n\n{aligned(cells, [True, False, *[True] * len(heading), False, False])}"


def _gaps(figures: Sequence[Figures]) -> str:
    cells = [
        ["policy", "acceptance length", "", "gap closed, %", "against first"],
        ["", "pooled", "macro avg", "[95 %]", "[95 %]"],
    ]
    for row in figures:
        lengths = [number(row[name], 2) for name in ("acceptance_length", "acceptance_length_macro")]
        against = _estimate(row["gap_closed_against_first"], "1%")
        cells.append([row["policy"], *lengths, f"{row['gap_closed_share']:1%}", against])
    table = aligned(cells, [True, False, False, True, True])
    return f"How much of the gap from the chain to the oracle upper bound is closed\n\n{table}"


def _speed_gaps(figures: Sequence[Figures]) -> str:
    """Both ends of the gap in acceptance length, and the gap in tokens/s; empty without speeds."""
    cells = [["policy", "chain", "oracle", "tokens/s", "gap in tokens/s closed, % [95 %]"]]
    for row in figures:
        ends = [number(row[f"{name}_acceptance_length"], 2) for name in ("chain", "hindsight")]
        speed = "" if row["tokens_per_s"] is None else number(row["tokens_per_s"], 1)
        cells.append([row["policy"], *ends, speed, _estimate(row["speed_gap_closed_share"], "1%")])
    table = aligned(cells, [True, False, False, False, True])
    return f"Acceptance length at both ends, and the gap in speed\n\n{table}"


def _waste(figures: Sequence[Figures]) -> str:
    cells = [["policy", "drafted a round", "accepted, % [95 %]", "wrong siblings, %", "below wrong, %"]]
    for row in figures:
        shares = (f"{row[f'{name}_share']:1%}" for name in ("accepted", "sibling", "below_wrong"))
        cells.append([row["policy"], number(row["num_drafted"], 1), *shares])
    return f"What the drafted tokens are\n\n{aligned(cells, [True, False, True, True, True])}"
