"""The figures of docs/explanation/published: `make published`. First `simlab study reproduce`; then figures.

What each study printed is kept in docs/measurements/published, since the files that it reads do not come with simlab;
with --again they are fetched and read once more. To add a study: a line in FIGURES.

    python docs/make_published.py [--again] [--data FOLDER] [--figures docs/figures/published]
"""

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import (
    BLUE,
    GREEN,
    GREY,
    INDIGO,
    LIGHT,
    MARKERS,
    PURPLE,
    VERMILLION,
    colour,
    line,
    on_white,
    svg_of,
)
from simlab.cli.main import main
from simlab.studies.reproduce.published import DATA_STUDIES

RESULTS = Path("docs/measurements/published")

Value = Mapping[str, Any]
"""Of the JSON that ``simlab study reproduce NAME --json`` printed; figures are made of nothing else."""


_SIZES = (1, 16, 32, 64)
"""Sizes of a pass that are drawn; all are in the table."""


def pass_prices_figure(found: Mapping[str, Any]) -> go.Figure:
    """What a pass takes by its context, beside both prices of it; and what serving at the corrected price gains.

    Args:
        found: what ``simlab study reproduce adixg-cost --json`` prints.
    """
    titles = ("passes that replay a CUDA graph", "20 rounds of serving, in their order")
    figure = make_subplots(1, 2, subplot_titles=titles, column_widths=[0.62, 0.38], horizontal_spacing=0.11)
    for place, size in enumerate(_SIZES):
        rows = [row for row in found["passes"] if row["tokens"] == size]
        _add_passes(figure, rows, found["k_us_of_graphs"] / 1000, place)
    _add_rounds(figure, found)
    figure.update_xaxes(title_text="context of each request, tokens", row=1, col=1)
    figure.update_yaxes(title_text="ms", row=1, col=1, rangemode="tozero")
    figure.update_xaxes(title_text="round", row=1, col=2)
    figure.update_yaxes(title_text="% faster with the corrected price", row=1, col=2)
    figure.update_layout(
        margin={"l": 55, "r": 20, "t": 84, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.1, "x": 0, "font": {"size": 12}},
    )
    return on_white(figure, 400)


def _add_passes(figure: go.Figure, rows: list[Mapping[str, Any]], k_ms: float, place: int) -> None:
    """Medians, the price with the context as a line, and the one price for the size as a dashed one."""
    contexts, size = [row["context"] for row in rows], rows[0]["tokens"]
    floor = next(row["median_ms"] for row in rows if row["context"] == 0)
    prices = {
        "solid": [floor + k_ms * size * context for context in contexts],
        "dash": [row["profiled_ms"] for row in rows],
    }
    for dash, values in prices.items():
        figure.add_scatter(
            x=contexts,
            y=values,
            mode="lines",
            line={"color": LIGHT[place], "dash": dash, "width": 1.5},
            name={"solid": "price with the context", "dash": "one price for each size"}[dash],
            legendgroup=dash,
            showlegend=place == 0,
            row=1,
            col=1,
        )
    figure.add_scatter(
        x=contexts,
        y=[row["median_ms"] for row in rows],
        mode="markers",
        marker={"color": LIGHT[place], "symbol": MARKERS[place], "size": 8},
        name=f"{size} token{'' if size == 1 else 's'}",
        row=1,
        col=1,
    )


def _add_rounds(figure: go.Figure, found: Mapping[str, Any]) -> None:
    percents = found["paired_percent"]
    (mean,) = [one for one in found["figures"] if one["what"].startswith("% faster")]
    figure.add_scatter(
        x=list(range(1, len(percents) + 1)),
        y=percents,
        mode="markers",
        marker={"color": VERMILLION, "symbol": "circle", "size": 7},
        showlegend=False,
        row=1,
        col=2,
    )
    # After the points: an empty panel takes no lines. Plotly's types want names in place of numbers of panels.
    low, high = mean["ours_ci_low"], mean["ours_ci_high"]
    figure.add_hrect(low, high, fillcolor=BLUE, opacity=0.15, line_width=0, row=1, col=2)
    figure.add_hline(y=mean["ours"], line={"color": BLUE, "width": 1.5}, row=1, col=2)
    figure.add_hline(y=0, line={"color": GREY, "width": 1}, row=1, col=2)


def domino_rounds_figure(found: Value) -> go.Figure:
    """Their acceptance lengths beside means of the same rounds, and the graph arm over the eager one.

    Args:
        found: of ``domino-rounds``.
    """
    arms, means = found["arms"], found["means"]
    names = [_setting(row) for row in arms]
    titles = ("acceptance length: theirs, and three means", "graph arm over eager arm, paired")
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    figure.add_scatter(
        x=[row["theirs"] for row in means],
        y=names,
        mode="markers",
        marker={"color": GREY, "symbol": "line-ns-open", "size": 16, "line": {"width": 3}},
        name="theirs",
    )
    for key, label, color, symbol in (
        ("dataset_macro", "macro averages, datasets weighed equally", BLUE, "circle"),
        ("dataset_pooled", "pooled inside datasets, these equally", INDIGO, "star"),
        ("pooled", "pooled", VERMILLION, "square"),
    ):
        figure.add_trace(_points(means, key, names, label, color, symbol), row=1, col=1)
    for key, label, color, symbol in (
        ("length_ratio", "ratio of lengths (pooled)", PURPLE, "triangle-up"),
        ("speed_ratio", "ratio of speeds", GREEN, "diamond"),
    ):
        figure.add_trace(_points(arms, key, names, label, color, symbol), row=1, col=2)
    figure.add_vline(x=1, line={"color": GREY, "width": 1}, row=1, col=2)
    figure.update_xaxes(title_text="tokens per round", row=1, col=1)
    figure.update_xaxes(title_text="ratio", row=1, col=2)
    return _laid_out(figure, names)


def domino_caddtree_figure(found: Value) -> go.Figure:
    """Lengths and speeds of CaDDTree over those of DDTree of 16, paired, with intervals.

    Args:
        found: of ``domino-caddtree``.
    """
    rows = found["settings"]
    names = [f"{_setting(row)} ({row['same']} of {row['turns']} the same)" for row in rows]
    titles = ("length, macro average", "speed, per turn", "speed, pooled")
    figure = make_subplots(1, 3, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, (key, color, symbol) in enumerate(
        (
            ("macro_length_ratio", BLUE, "circle"),
            ("speed_ratio", GREEN, "diamond"),
            ("pooled_speed_ratio", VERMILLION, "square"),
        ),
        1,
    ):
        figure.add_trace(_points(rows, key, names, titles[column - 1], color, symbol), row=1, col=column)
        figure.add_vline(x=1, line={"color": GREY, "width": 1}, row=1, col=column)
    figure.update_xaxes(range=[0.965, 1.04], tickvals=[0.98, 1, 1.02])
    figure.update_xaxes(title_text="CaDDTree over DDTree@16", row=1, col=2)
    _laid_out(figure, names, left=250)
    figure.update_layout(showlegend=False, margin={"t": 40})
    return figure


def domino_lossless_figure(found: Value) -> go.Figure:
    """How many texts have no difference to autoregressive decoding's so far, by position.

    Args:
        found: of ``domino-lossless``.
    """
    shown = (
        ("results/conditioning_ladder/matched_builder", "marg@16", "Qwen3-4B marginals, 16"),
        ("results/conditioning_ladder/matched_builder", "condstatic@16", "Qwen3-4B one correction per depth, 16"),
        ("results/conditioning_ladder/matched_builder", "dominotree@16", "Qwen3-4B DominoTree, 16"),
        ("results/raw/dominotree", "chain", "Qwen3-4B Domino's chain"),
        ("results/raw/8b/dominotree", "dominotree@16", "Qwen3-8B DominoTree, 16"),
    )
    figure = go.Figure()
    for place, (folder, method, label) in enumerate(shown):
        for one in found["curves"]:
            if (one["folder"], one["method"]) == (folder, method):
                shares = [100 * share for share in one["head_equal"]]
                figure.add_scatter(x=one["positions"], y=shares, mode="lines", line=line(place), name=label)
    figure.update_xaxes(title_text="first tokens of the text")
    figure.update_yaxes(title_text="% of texts without a difference", range=[0, 101])
    figure.update_layout(legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}, margin={"t": 60, "r": 20})
    return on_white(figure, 380)


def _setting(row: Value) -> str:
    return f"{row['model']} T={row['temperature']}"


def _points(rows: Sequence[Value], key: str, names: Sequence[str], label: str, color: str, symbol: str) -> go.Scatter:
    """A figure of each row with its interval; rows without the figure are left out."""
    some = [(row, name) for row, name in zip(rows, names, strict=True) if row.get(key) is not None]
    return go.Scatter(
        x=[row[key] for row, _ in some],
        y=[name for _, name in some],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_reach(row, key, "high") for row, _ in some],
            "arrayminus": [_reach(row, key, "low") for row, _ in some],
            "thickness": 1.5,
            "width": 3,
        },
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 8},
        name=label,
    )


def _reach(row: Value, key: str, end: str) -> float:
    """How far the interval reaches from the value; 0 where only sums were released, which have no interval."""
    found = row[f"{key}_ci_{end}"]
    return 0.0 if found is None else abs(float(found) - float(row[key]))


def _laid_out(figure: go.Figure, names: Sequence[str], left: int = 130) -> go.Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])
    figure.update_layout(
        margin={"l": left, "r": 20, "t": 80, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.13, "x": 0},
    )
    return on_white(figure, 400)


_DRAFTERS = {"eagle": "EAGLE", "ngram": "n-grams"}


def specdecode_survival_figure(values: Mapping[str, Any]) -> go.Figure:
    """How many tokens of a drafted chain are accepted, by dataset, a panel for each drafter.

    Args:
        values: what ``simlab study reproduce specdecode-bench --json`` prints.
    """
    rows: Sequence[Mapping[str, Any]] = values["survival"]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    titles = list(_DRAFTERS.values())
    figure = make_subplots(1, 2, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.04)
    for row in rows:
        place = datasets.index(row["dataset"])
        figure.add_scatter(
            x=list(range(1, len(row["shares"]) + 1)),
            y=row["shares"],
            mode="lines",
            line=line(place),
            name=row["dataset"],
            legendgroup=row["dataset"],
            showlegend=row["drafter"] == "eagle",
            row=1,
            col=1 + list(_DRAFTERS).index(row["drafter"]),
        )
    figure.update_xaxes(title_text="depth d", range=[0.5, 20.5])
    figure.update_yaxes(type="log", tickvals=[1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001], range=[-3.2, 0])
    figure.update_yaxes(title_text="share accepting d or more", row=1, col=1)
    figure.update_layout(
        margin={"l": 70, "r": 16, "t": 70, "b": 52},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.1, "x": 0},
    )
    return on_white(figure, 380)


def specdecode_speedup_figure(values: Mapping[str, Any]) -> go.Figure:
    """Speedup by the length of a fixed chain and by batch size, with the oracle, a panel for each drafter and dataset.

    The panels of a row share their y axis.

    Args:
        values: what ``simlab study reproduce specdecode-bench --json`` prints.
    """
    rows: Sequence[Mapping[str, Any]] = values["curves"]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    titles = [f"{label}, {dataset}" for label in _DRAFTERS.values() for dataset in datasets]
    figure = make_subplots(
        2,
        len(datasets),
        subplot_titles=titles,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=0.12,
    )
    _add_legend(figure, batches)
    for row in rows:
        at = {"row": 1 + list(_DRAFTERS).index(row["drafter"]), "col": 1 + datasets.index(row["dataset"])}
        _add_curves(figure, row, colour(batches.index(row["batch"])), at)
    figure.add_hline(y=1, line={"color": GREY, "width": 1}, row="all", col="all")
    figure.update_xaxes(title_text="length k of the chain", row=2)
    figure.update_yaxes(title_text="speedup", col=1)
    figure.update_layout(
        margin={"l": 60, "r": 16, "t": 80, "b": 52},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.08, "x": 0},
    )
    figure.update_annotations(font={"size": 13})
    return on_white(figure, 560)


def _add_legend(figure: go.Figure, batches: Sequence[int]) -> None:
    """Name the colours and the dots by lines without points, since they are the same in every panel."""
    named = [(f"batch {batch}", {"color": colour(place), "width": 2}) for place, batch in enumerate(batches)]
    named.append(("oracle, in the colour of its batch", {"color": "black", "width": 1.5, "dash": "dot"}))
    for name, style in named:
        figure.add_scatter(x=[None], y=[None], mode="lines", line=style, name=name, row=1, col=1)


def _add_curves(figure: go.Figure, row: Mapping[str, Any], shade: str, at: Mapping[str, int]) -> None:
    """The fixed lengths of one batch size, and its oracle."""
    lengths = list(range(1, len(row["fixed"]) + 1))
    solid, dotted = {"color": shade, "width": 2}, {"color": shade, "width": 1.5, "dash": "dot"}
    for x, y, style in ((lengths, row["fixed"], solid), ([lengths[0], lengths[-1]], [row["oracle"]] * 2, dotted)):
        figure.add_scatter(x=x, y=y, mode="lines", line=style, showlegend=False, **at)


FIGURES: dict[str, tuple[str, Callable[[dict[str, Any]], go.Figure]]] = {
    "domino_rounds.svg": ("domino-rounds", domino_rounds_figure),
    "domino_caddtree.svg": ("domino-caddtree", domino_caddtree_figure),
    "domino_lossless.svg": ("domino-lossless", domino_lossless_figure),
    "specdecode_survival.svg": ("specdecode-bench", specdecode_survival_figure),
    "specdecode_speedup.svg": ("specdecode-bench", specdecode_speedup_figure),
    "pass_prices.svg": ("adixg-cost", pass_prices_figure),
}
"""By file name: the study, and what is made of the value that it printed."""


def make_results(data: Path | None) -> None:
    """Run each study that can be run; its value is written beside and renamed.

    Args:
        data: clones, in folders named as the lists of files in analysis/data/releases; None: files are fetched.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    for study in DATA_STUDIES:
        if study.missing:
            continue
        place = [] if data is None else ["--data", str(data / study.release)]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = main(["study", "reproduce", study.name, *place, "--json"])
        if code:
            raise SystemExit(code)
        part = RESULTS / f".{study.name}.json.part"
        part.write_text(printed.getvalue())
        part.replace(RESULTS / f"{study.name}.json")
        print(f"{RESULTS / study.name}.json: {len(printed.getvalue()) / 1000:.0f} kB", flush=True)


def make_figures(folder: Path) -> None:
    """Write each figure as SVG, through kaleido and a Chromium that is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (study, make) in FIGURES.items():
        svg = svg_of(make(json.loads((RESULTS / f"{study}.json").read_text())), Path(name).stem)
        (folder / name).write_text(svg)
        print(f"{folder / name}: {len(svg) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the figures of docs/explanation/published.")
    parser.add_argument("--again", action="store_true", help="run the studies once more")
    parser.add_argument("--data", type=Path, help="clones of the repositories, in a folder")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures/published"), help="where the SVGs go")
    options = parser.parse_args()
    if options.again:
        make_results(options.data)
    make_figures(options.figures)
