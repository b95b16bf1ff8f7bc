"""The figures of docs/explanation/published: `make published`. Results first, by `simlab study reproduce`; then figures.

What each study printed is kept in docs/measurements/published, since the files that it reads do not come with simlab;
with --again they are fetched and read once more. To add a study: a line in FIGURES.

    python docs/make_published.py [--again] [--data FOLDER] [--figures docs/figures/published]
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
from simlab.analysis.released.adixg.figures import pass_prices_figure
from simlab.analysis.released.domino.figures import domino_caddtree_figure, domino_lossless_figure, domino_rounds_figure
from simlab.analysis.released.specdecode.figures import specdecode_speedup_figure, specdecode_survival_figure
from simlab.analysis.reproduce.published import DATA_STUDIES
from simlab.cli.main import main

RESULTS = Path("docs/measurements/published")

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
