"""Tables and figures of docs/explanation/field.md, out of the field.json of `simlab study field`: `make field`.

The page keeps its sentences; what stands between `<!-- table NAME -->` and `<!-- end -->` is written anew.

    python docs/make_field.py runs/field/field.json
"""

import argparse
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, OCHRE, VERMILLION, on_white, svg_of
from simlab.studies.field.rows import with_ends as field_figure

PAGE = Path("docs/explanation/field.md")
DATA = Path("docs/measurements/field.json")
FIGURES = Path("docs/figures")

ALL, FASTEST, BASELINE = "all", "fastest", "ddtree"
SHOWN = 10
"""Systems of some tables: those with the largest predicted speedups, and the baseline."""

Field = Mapping[str, Any]
Row = Mapping[str, Any]
Rows = Sequence[Row]

MISSED = 0.25
"""Share by which a latency profile misses a verification, above which the page shows it."""

_ROW_HEIGHT, _MARGINS = 24, 150


def rows_of(field: Field, size: str, part: str = ALL) -> list[Row]:
    """The rows of a size on one data set, or on all prompts."""
    return [row for row in field["rows"] if row["size"] == size and row["slice"] == part]


def datasets(field: Field) -> list[str]:
    """The data sets, in the order of the prompts."""
    return list(field["prompts"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of Markdown; all columns but the first end at the right."""
    marks = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def with_ends(row: Row, name: str, digits: int, scale: float = 1) -> str:
    """As the command prints it, with the sign of a minus."""
    return field_figure(row, name, digits, scale).replace("-", "\u2212")


def system(row: Row) -> str:
    """The name of a row, marked where the policy is a reconstruction."""
    return f"`{row['system']}`{' *' if row['reconstruction'] else ''}"


def equal_nodes(field: Field) -> str:
    """Tokens a round at equal nodes, and the gain over DDTree, on all prompts."""
    head = ["", "at most 16: tokens a round", "over DDTree, %", "at most 64", "over DDTree, %"]
    larger = {row["system"]: row for row in rows_of(field, "64")}
    rows = []
    for row in rows_of(field, "16"):
        pair = (row, larger[row["system"]])
        cells = [(with_ends(one, "acceptance_length", 2), with_ends(one, "gain_tokens", 1, 100)) for one in pair]
        rows.append([system(row), *(cell for both in cells for cell in both)])
    return table(head, rows)


def fastest(field: Field) -> str:
    """Each system at its fastest setting on dev: seconds, predicted and measured."""
    head = [
        "",
        "setting",
        "tokens a round",
        "predicted",
        "by prices",
        "over DDTree, %",
        "measured",
        "over DDTree, %",
        "error, %",
    ]
    return table(
        head,
        [
            [
                system(row),
                f"`{row['policy']}`".replace("|", "\\|"),
                f"{row['acceptance_length']:.2f}",
                with_ends(row, "predicted_speedup", 2),
                _prices(row),
                with_ends(row, "gain_speed", 1, 100),
                with_ends(row, "measured_speedup", 2),
                with_ends(row, "gain_measured", 1, 100),
                _error(row),
            ]
            for row in rows_of(field, FASTEST)
        ],
    )


def _prices(row: Row) -> str:
    ends = (row["predicted_speedup_price_low"], row["predicted_speedup_price_high"])
    return "" if None in ends else f"[{ends[0]:.2f}, {ends[1]:.2f}]"


def _error(row: Row) -> str:
    if row["measured_speedup"] is None or row["predicted_on_measured"] is None:
        return ""
    return f"{100 * (row['predicted_on_measured'] / row['measured_speedup'] - 1):+.1f}".replace("-", "−")


def by_dataset(field: Field) -> str:
    """Predicted speedups of the fastest systems, by data set, and the bounds."""
    names = datasets(field)
    fastest = sorted(rows_of(field, FASTEST), key=lambda row: row["predicted_speedup"], reverse=True)[:SHOWN]
    rows = []
    for row in rows_of(field, FASTEST):
        if row not in fastest and row["system"] != BASELINE:
            continue
        parts = [
            with_ends(one, "predicted_speedup", 2)
            for name in names
            for one in rows_of(field, FASTEST, name)
            if one["system"] == row["system"]
        ]
        rows.append([system(row), *parts])
    bounds = {(bound["drafter"], bound["bound"]): bound for bound in field["bounds"] if bound["slice"] == ALL}
    for drafter, name in bounds:
        parts = [
            with_ends(one, "predicted_speedup", 2)
            for part in names
            for one in field["bounds"]
            if (one["drafter"], one["bound"], one["slice"]) == (drafter, name, part)
        ]
        shown = name.replace("|", "\\|")
        rows.append([f"`{shown}`, {drafter}", *parts])
    return table(["", *names], rows)


def stages(size: str) -> Callable[[Field], str]:
    """Milliseconds of each stage a round, predicted, of the baseline and of systems with a pass of their own."""

    def made(field: Field) -> str:
        names = ("draft", "channel", "select", "verify")
        head = ["", "drafted tokens", *(f"{name}, ms" for name in names)]
        return table(
            head,
            [
                [
                    system(row),
                    f"{row['nodes_per_round']:.1f}",
                    *("" if row[f"{name}_ms"] is None else f"{row[f'{name}_ms']:.1f}" for name in names),
                ]
                for row in rows_of(field, size)
                if row["channel_ms"] or row["system"] == BASELINE
            ],
        )

    return made


def verification(field: Field) -> str:
    """What verification took in the runs of the real models, where the profile missed it by most."""
    rows = [
        [
            system(row),
            f"{row['nodes_per_round']:.1f}",
            f"{row['predicted_verify_ms_on_measured']:.1f}",
            f"{row['measured_verify_ms']:.1f}",
        ]
        for row in rows_of(field, FASTEST)
        if row["measured_verify_ms"] is not None
        and abs(row["predicted_verify_ms_on_measured"] / row["measured_verify_ms"] - 1) > MISSED
    ]
    return table(["", "drafted tokens", "predicted, ms", "measured, ms"], rows)


def gpu_like(size: str) -> Callable[[Field], str]:
    """Speedups of the fastest systems where a pass of up to 64 tokens takes as long as one of 64."""

    def made(field: Field) -> str:
        head = ["", "speedup, WHAT IF", "over DDTree, %"]
        found = rows_of(field, size)
        fastest = sorted(found, key=lambda row: row["gpu_like_speedup"] or 0.0, reverse=True)[:SHOWN]
        return table(
            head,
            [
                [system(row), with_ends(row, "gpu_like_speedup", 2), with_ends(row, "gain_gpu_like", 1, 100)]
                for row in found
                if row in fastest or row["system"] == BASELINE
            ],
        )

    return made


def gains_figure(rows: Rows, sizes: Sequence[str], baseline: str) -> go.Figure:
    """Tokens a round over the baseline's, a panel for each number of drafted tokens, with intervals.

    Args:
        rows: on all prompts.
        sizes: of which the panels are.
        baseline: the system that gains are over; it has no mark of its own.
    """
    names = _names(rows, sizes)
    titles = [f"at most {size} drafted tokens" for size in sizes]
    figure = make_subplots(1, len(sizes), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, size in enumerate(sizes, 1):
        own = [row for row in rows if row["size"] == size and row["gain_tokens"] is not None]
        figure.add_scatter(**_marks(own, "gain_tokens", 100, BLUE, "circle", size), showlegend=False, row=1, col=column)
        figure.update_xaxes(title_text=f"tokens a round, % over {baseline}", row=1, col=column)
    figure.add_vline(x=0, line={"color": GREY, "width": 1}, row="all", col="all")
    return _laid_out(figure, names)


def speeds_figure(rows: Rows, size: str) -> go.Figure:
    """Speedups over autoregressive decoding of each system at one size: predicted, measured and GPU-like.

    Args:
        rows: on all prompts.
        size: of which systems are shown.
    """
    own = [row for row in rows if row["size"] == size and row["predicted_speedup"] is not None]
    figure = go.Figure()
    for name, label, color, symbol in (
        ("predicted_speedup", "predicted", BLUE, "circle"),
        ("measured_speedup", "measured", VERMILLION, "square"),
        ("gpu_like_speedup", "GPU-like prices, not measured", OCHRE, "diamond"),
    ):
        known = [row for row in own if row[name] is not None]
        figure.add_scatter(**_marks(known, name, 1, color, symbol, label))
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(title_text="speedup over autoregressive decoding")
    return _laid_out(figure, _names(own, [size]))


def _names(rows: Rows, sizes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(_name(row) for row in rows if row["size"] in sizes))


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['system']}{'*' if row['reconstruction'] else ''}"


def _marks(rows: Rows, name: str, scale: float, color: str, symbol: str, label: str) -> dict[str, Any]:
    """Points and the ends of their intervals, as far as these are known."""
    ends = [(row[name], row[f"{name}_low"], row[f"{name}_high"]) for row in rows]
    return {
        "x": [scale * value for value, _, _ in ends],
        "y": [_name(row) for row in rows],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [0 if high is None else scale * (high - value) for value, _, high in ends],
            "arrayminus": [0 if low is None else scale * (value - low) for value, low, _ in ends],
            "thickness": 1.2,
            "width": 3,
        },
        "mode": "markers",
        "marker": {"color": color, "symbol": symbol, "size": 8},
        "name": label,
    }


def _laid_out(figure: go.Figure, names: Sequence[str]) -> go.Figure:
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])
    figure.update_layout(
        margin={"l": 150, "r": 20, "t": 70, "b": 55},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
    )
    return on_white(figure, _MARGINS + _ROW_HEIGHT * max(len(names), 4))


TABLES: Mapping[str, Callable[[Field], str]] = {
    "tokens": equal_nodes,
    "fastest": fastest,
    "by-dataset": by_dataset,
    "stages-16": stages("16"),
    "verification": verification,
    "gpu-like-64": gpu_like("64"),
}
"""Every table that the page may ask for."""

PICTURES: Mapping[str, Callable[[Field], go.Figure]] = {
    "field_gains.svg": lambda field: gains_figure(
        [row for row in field["rows"] if row["slice"] == ALL], ("16", "64"), BASELINE
    ),
    "field_speeds.svg": lambda field: speeds_figure([row for row in field["rows"] if row["slice"] == ALL], FASTEST),
}

_BLOCK = re.compile(r"(<!-- table ([a-z0-9-]+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def page_with_tables(page: str, field: Field) -> str:
    """The page with its tables made anew.

    Raises:
        KeyError: it asks for a table that there is not.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]](field)}{found[3]}", page)


def draw(field: Field) -> None:
    """Write the figures as SVG, through kaleido and a Chromium that is installed."""
    for name, make in PICTURES.items():
        (FIGURES / name).write_text(svg_of(make(field), Path(name).stem))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the tables and figures of docs/explanation/field.md.")
    parser.add_argument("field", type=Path, help="field.json of `simlab study field`")
    options = parser.parse_args()
    if options.field != DATA:
        shutil.copyfile(options.field, DATA)
    found = json.loads(DATA.read_text())
    PAGE.write_text(page_with_tables(PAGE.read_text(), found))
    draw(found)
