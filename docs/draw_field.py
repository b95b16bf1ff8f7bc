"""Figures of docs/explanation/field.md: takes over the field.json of `simlab study field`, and draws (`make field`).

python docs/draw_field.py runs/field/field.json && python docs/make_claims.py
"""

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from make_field import BASELINE, FASTEST, REPOSITORY, Field, Row, Rows, has_equal_nodes, rows_of, system, untimed
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, OCHRE, VERMILLION, on_white, svg_of

DATA = REPOSITORY / "docs" / "measurements" / "field.json"
FIGURES = REPOSITORY / "docs" / "figures"

_ROW_HEIGHT, _MARGINS = 24, 150


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


def _starred(field: Field, size: str) -> list[Row]:
    """Rows of a size; what is not as published counts as a reconstruction, which pictures mark."""
    return [{**row, "reconstruction": "*" in system(field, row)} for row in rows_of(field, size)]


PICTURES: Mapping[str, Callable[[Field], go.Figure]] = {
    "field_gains.svg": lambda field: gains_figure(
        [row for size in ("16", "64") for row in _starred(field, size) if has_equal_nodes(field, row)],
        ("16", "64"),
        BASELINE,
    ),
    "field_speeds.svg": lambda field: speeds_figure(
        [row for row in _starred(field, FASTEST) if not untimed(field, row)], FASTEST
    ),
}


def draw(field: Field) -> None:
    """Write the figures as SVG, through kaleido and a Chromium that is installed."""
    for name, make in PICTURES.items():
        (FIGURES / name).write_text(svg_of(make(field), Path(name).stem))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Take a field.json, and draw the figures of docs/explanation/field.md."
    )
    parser.add_argument("field", type=Path, help="field.json of `simlab study field`")
    options = parser.parse_args()
    if options.field.resolve() != DATA:
        shutil.copyfile(options.field, DATA)
    draw(json.loads(DATA.read_text()))
