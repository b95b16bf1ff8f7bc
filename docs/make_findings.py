"""The figures of docs/explanation/findings.md: `make findings`. Results first, by its commands; then figures.

A figure is a function that reads results and nothing else. To add one: a line in RESULTS for the command that makes
what it reads, unless that is there, and a line in FIGURES.

    python docs/make_findings.py [--results runs/findings] [--figures docs/figures] [--keep]
"""

import argparse
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from simlab.analysis.figure_style import svg_of
from simlab.analysis.scoring.text import (
    coverage_figure,
    first_candidates_figure,
    gap_figure,
    reliability_figure,
    waste_figure,
)
from simlab.cli.main import main

RESULTS: dict[str, tuple[str, ...]] = {
    "scoring.json": ("scoring", "--json"),
}
"""What each result is made by; what the command prints is kept."""

Results = dict[str, Any]
"""What was printed, parsed, by file name."""

MARGINALS, CALIBRATED, RENORMALISED = "ddtree", "calibrated", "presto:renormalised=true"

FIGURES: dict[str, Callable[[Results], go.Figure]] = {
    "reliability.svg": lambda found: reliability_figure(
        found["scoring.json"]["reliability"], (MARGINALS, CALIBRATED, RENORMALISED)
    ),
    "first_candidates.svg": lambda found: first_candidates_figure(
        found["scoring.json"]["calibration"], (MARGINALS, CALIBRATED, RENORMALISED)
    ),
    "true_path.svg": lambda found: coverage_figure(found["scoring.json"]["coverage"], 64),
    "gap.svg": lambda found: gap_figure(found["scoring.json"]["policies"]),
    "waste.svg": lambda found: waste_figure(found["scoring.json"]["policies"]),
}


def make_results(folder: Path, keep: bool) -> Results:
    """Run the commands; with ``keep`` a result that is there is taken as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, arguments in RESULTS.items():
        path = folder / name
        if not (keep and path.exists()):
            print(f"simlab {' '.join(arguments)}", flush=True)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = main(arguments)
            if code:
                raise SystemExit(code)
            path.write_text(printed.getvalue())
        found[name] = json.loads(path.read_text())
    return found


def make_figures(found: Results, folder: Path) -> None:
    """Write each figure as SVG, through kaleido and a Chromium that is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURES.items():
        svg = svg_of(make(found), Path(name).stem)
        (folder / name).write_text(svg)
        print(f"{folder / name}: {len(svg) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the figures of docs/explanation/findings.md.")
    parser.add_argument("--results", type=Path, default=Path("runs/findings"), help="where results are kept")
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"), help="where the SVGs go")
    parser.add_argument("--keep", action="store_true", help="take results that are there as they are")
    options = parser.parse_args()
    make_figures(make_results(options.results, options.keep), options.figures)
