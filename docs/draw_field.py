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
from make_field import ALL, BASELINE, FASTEST, REPOSITORY, Field, Row, Rows, all_prices, rows_of, system
from plotly.subplots import make_subplots

from simlab.analysis.figure_style import BLUE, GREY, OCHRE, VERMILLION, on_white, svg_of

DATA = REPOSITORY / "docs" / "measurements" / "field.json"
FIGURES = REPOSITORY / "docs" / "figures"

_ROW_HEIGHT, _MARGINS = 24, 150


def tokens_figure(rows: Rows, baseline: str) -> go.Figure:
    """Tokens a round against drafted tokens, a panel for each system, its curve and the baseline's, intervals as bands.

    Args:
        rows: on all prompts, of every size; the more names, the more panels.
        baseline: the system that stands in every panel.
    """
    curves = {name: sorted(own, key=_drafted) for name in _names(rows) if len(own := _own(rows, name)) > 1}
    names = [name for name in curves if name != baseline]
    titles = [_name(curves[name][0]) for name in names]
    lines = -(-len(names) // _PANELS)
    figure = make_subplots(
        lines, _PANELS, subplot_titles=titles, shared_xaxes="all", shared_yaxes="all", vertical_spacing=0.3 / lines,
        horizontal_spacing=0.012,
    )  # fmt: skip
    for place, name in enumerate(names):
        at = {"row": place // _PANELS + 1, "col": place % _PANELS + 1}
        for own, color in ((curves[baseline], GREY), (curves[name], BLUE)):
            figure.add_scatter(**_band(own, color), **at)
            figure.add_scatter(**_curve(own, color), **at)
    drafted = [8, 16, 32, 64]
    figure.update_xaxes(type="log", tickvals=drafted, ticktext=[str(number) for number in drafted])
    figure.update_xaxes(title_text="drafted tokens a round", row=lines, col=1)
    figure.update_yaxes(title_text="tokens a round", row=1, col=1)
    figure.update_annotations(font_size=11)
    figure.update_layout(showlegend=False, margin={"l": 55, "r": 10, "t": 40, "b": 45})
    return on_white(figure, 150 * lines + 60)


_PANELS = 5
"""Beside each other."""


def _own(rows: Rows, name: str) -> list[Row]:
    return [row for row in rows if row["system"] == name]


def _drafted(row: Row) -> float:
    return float(row["nodes_per_round"])


def _band(rows: Rows, color: str) -> dict[str, Any]:
    """The area between the ends of the intervals."""
    low, high = ([row[f"acceptance_length_{end}"] for row in rows] for end in ("low", "high"))
    across = [_drafted(row) for row in rows]
    line = {"width": 0}
    return {
        "x": across + across[::-1], "y": high + low[::-1], "fill": "toself", "fillcolor": color, "opacity": 0.2,
        "line": line, "mode": "lines",
    }  # fmt: skip


def _curve(rows: Rows, color: str) -> dict[str, Any]:
    across, up = [_drafted(row) for row in rows], [row["acceptance_length"] for row in rows]
    return {"x": across, "y": up, "mode": "lines+markers", "line": {"color": color, "width": 2}, "marker": {"size": 5}}


def speeds_figure(kinds: Mapping[str, tuple[Rows, str]]) -> go.Figure:
    """Speedups over autoregressive decoding of each system: predicted, measured, and by other prices.

    Args:
        kinds: rows on all prompts and the name of their figure, by what they are called.
    """
    figure = go.Figure()
    marks = ((BLUE, "circle"), (VERMILLION, "square"), (OCHRE, "diamond"), (GREY, "cross"))
    for (label, (rows, name)), (color, symbol) in zip(kinds.items(), marks, strict=False):
        known = [row for row in rows if row[name] is not None]
        figure.add_scatter(**_marks(known, name, 1, color, symbol, label))
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(title_text="speedup over autoregressive decoding")
    names = list(dict.fromkeys(_name(row) for rows, _ in kinds.values() for row in rows))
    return _laid_out(figure, names)


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["system"] for row in rows))


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


def _starred(field: Field, rows: Rows) -> list[Row]:
    """What is not as published counts as a reconstruction, which pictures mark."""
    return [{**row, "reconstruction": "*" in system(field, row)} for row in rows]


def _tokens(field: Field) -> go.Figure:
    own = [row for row in field["rows"] if row["slice"] == ALL and row["size"].isdigit()]
    return tokens_figure(_starred(field, own), BASELINE)


def _speeds(field: Field) -> go.Figure:
    kinds = {}
    for place, prices in enumerate(all_prices(field)):
        rows = _starred(field, [row for row in rows_of(field, FASTEST, prices=prices) if not row["untimed"]])
        kinds[f"predicted, {prices}"] = rows, "predicted_speedup"
        if place == 0:
            kinds[f"measured, {prices}"] = rows, "measured_speedup"
    return speeds_figure(kinds)


PICTURES: Mapping[str, Callable[[Field], go.Figure]] = {"field_tokens.svg": _tokens, "field_speeds.svg": _speeds}


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
