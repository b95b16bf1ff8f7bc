"""The drawings of the documentation, as SVG text: `make reference`. No font and no picture is fetched.

Every drawing has a light background of its own, so that it can be read on light and dark pages. The curve over budgets
is drawn from a replay of the packaged trace; the others hold no measured figure.

    python docs/make_diagrams.py [--folder docs/figures] [NAME ...]
"""

import argparse
import contextlib
import io
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from simlab.cli.main import main

FIGURES = Path(__file__).resolve().parent / "figures"

INK, QUIET, LINE, PAPER = "#1c2330", "#5b6472", "#9aa3b2", "#ffffff"
BLUE, GREEN, ORANGE, GREY = "#dbe7ff", "#d9f2e0", "#ffe6cc", "#eef1f5"
BLUE_INK, GREEN_INK, ORANGE_INK = "#2458c6", "#1d7a3e", "#b35900"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

COST = "smollm2-135m-epyc-bfloat16"
BUDGETS = 128


@dataclass
class Drawing:
    """An SVG of a fixed size, in pixels, that grows element by element."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, fill: str = GREY, stroke: str = LINE) -> None:
        """Add a rectangle with round corners."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {place} rx="6" fill="{fill}" stroke="{stroke}"/>')

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str) -> None:
        """Add a circle around a point."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 14,
        fill: str = INK,
        anchor: str = "middle",
        weight: str = "normal",
        font: str = "",
    ) -> None:
        """Add one line of text; ``anchor`` is start, middle or end."""
        family = f' font-family="{font}"' if font else ""
        style = f'font-size="{size:g}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}"{family}'
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>')

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = LINE, width: float = 1.5, dash: str = ""
    ) -> None:
        """Add a straight line, dashed on request."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        place = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
        self.parts.append(f'<line {place} stroke="{stroke}" stroke-width="{width:g}"{dashes}/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, stroke: str = QUIET) -> None:
        """A line with a head at its end."""
        length = math.hypot(x2 - x1, y2 - y1)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        self.line(x1, y1, x2 - 6 * ux, y2 - 6 * uy, stroke, 1.8)
        corners = ((x2, y2), (x2 - 9 * ux - 5 * uy, y2 - 9 * uy + 5 * ux), (x2 - 9 * ux + 5 * uy, y2 - 9 * uy - 5 * ux))
        self.parts.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{stroke}"/>')

    def path(self, points: Iterable[tuple[float, float]], stroke: str, fill: str = "none", width: float = 2) -> None:
        """Straight lines from point to point; with a fill, the area that they enclose."""
        said = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        kind = "polyline" if fill == "none" else "polygon"
        self.parts.append(f'<{kind} points="{said}" fill="{fill}" stroke="{stroke}" stroke-width="{width:g}"/>')

    def svg(self) -> str:
        """Give the text of the SVG file."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONT}" role="img">'
        paper = f'<rect width="{self.width}" height="{self.height}" rx="10" fill="{PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", paper, *self.parts, "</svg>", ""])


def pipeline() -> Drawing:
    """Record, profile, replay, choose, confirm: what goes in and what comes out."""
    drawing = Drawing(960, 300, "The pipeline: record and profile once, replay many policies, choose one, confirm it")
    steps = (
        (30, 40, "record", "both models, once", BLUE, BLUE_INK),
        (30, 190, "profile", "seconds of each stage", BLUE, BLUE_INK),
        (370, 115, "replay", "any policy, any budget", GREEN, GREEN_INK),
        (580, 115, "optimize", "choose on dev prompts", GREEN, GREEN_INK),
        (790, 115, "confirm", "the real models again", BLUE, BLUE_INK),
    )
    for x, y, name, what, fill, stroke in steps:
        drawing.box(x, y, 140 if x < 400 else 150, 70, fill, stroke)
        middle = x + (70 if x < 400 else 75)
        drawing.text(middle, y + 30, name, 17, stroke, weight="600", font=MONO)
        drawing.text(middle, y + 52, what, 11, QUIET)
    for y, name, what in (
        (40, "trace", "all positions of a text"),
        (190, "cost file", "seconds of rounds"),
    ):
        drawing.box(205, y + 8, 130, 54, GREY, LINE)
        drawing.text(270, y + 31, name, 14, weight="600")
        drawing.text(270, y + 49, what, 10, QUIET)
        drawing.arrow(170, y + 35, 204, y + 35)
    drawing.arrow(335, 75, 369, 132)
    drawing.arrow(335, 225, 369, 168)
    drawing.arrow(510, 150, 579, 150)
    drawing.arrow(730, 150, 789, 150)
    drawing.text(545, 140, "rows", 11, QUIET)
    drawing.text(759, 140, "policy", 11, QUIET)
    drawing.text(440, 215, "predicted tokens/s", 12, GREEN_INK)
    drawing.text(865, 215, "measured tokens/s,", 12, BLUE_INK)
    drawing.text(865, 232, "and the same text", 12, BLUE_INK)
    drawing.box(30, 276, 14, 14, BLUE, BLUE_INK)
    drawing.text(52, 288, "runs the models (GPU or CPU)", 12, QUIET, "start")
    drawing.box(265, 276, 14, 14, GREEN, GREEN_INK)
    drawing.text(287, 288, "reads files only (CPU, seconds)", 12, QUIET, "start")
    return drawing


def one_round() -> Drawing:
    """A root, the tree below it, the accepted path and the bonus token."""
    drawing = Drawing(960, 400, "One round: root, block, draft tree, accepted path, bonus token")
    xs = (330, 470, 610, 750)
    for depth, x in enumerate(xs[1:], 1):
        drawing.box(x - 58, 55, 116, 245, "#f7f9fc", "#d5dbe5")
        drawing.text(x, 45, f"depth {depth}", 13, QUIET)
    drawing.text(610, 22, "the drafter's block: one pass, candidates at each depth", 14, weight="600")
    for place, word in enumerate(("The", "cat")):
        drawing.box(30 + 100 * place, 155, 84, 40)
        drawing.text(72 + 100 * place, 180, word, 15)
    drawing.text(120, 140, "text so far", 13, QUIET)
    drawing.arrow(216, 175, 285, 175)
    nodes = {
        "root": (xs[0], 175, "sat", None, True),
        "on": (xs[1], 115, "on", "root", True),
        "in": (xs[1], 235, "in", "root", False),
        "the": (xs[2], 90, "the", "on", True),
        "a": (xs[2], 160, "a", "on", False),
        "its": (xs[2], 235, "its", "in", False),
        "mat": (xs[3], 90, "mat", "the", False),
    }
    for x, y, _, parent, accepted in nodes.values():
        if parent:
            px, py = nodes[parent][:2]
            drawing.line(px + 38, py, x - 38, y, GREEN_INK if accepted else LINE, 3 if accepted else 1.5)
    for name, (x, y, word, _, accepted) in nodes.items():
        fill, stroke = (ORANGE, ORANGE_INK) if name == "root" else (GREEN, GREEN_INK) if accepted else (GREY, LINE)
        drawing.box(x - 38, y - 19, 76, 38, fill, stroke)
        drawing.text(x, y + 5, word, 15)
    drawing.text(xs[0], 215, "root", 13, ORANGE_INK, weight="600")
    drawing.text(xs[0], 232, "last committed token", 11, QUIET)
    drawing.box(868, 71, 76, 38, BLUE, BLUE_INK)
    drawing.text(906, 95, "rug", 15)
    drawing.text(906, 130, "bonus token", 13, BLUE_INK, weight="600")
    drawing.text(906, 147, "the target's own", 11, QUIET)
    drawing.text(906, 163, "token: next root", 11, QUIET)
    drawing.text(750, 130, "not the target's token", 10, QUIET)
    drawing.path([(648, 80), (700, 64), (820, 60), (868, 80)], BLUE_INK, width=1.8)
    drawing.text(480, 330, "The target reads root and tree in one pass and says its next token at each node.", 13, INK)
    legend = (
        (GREEN, GREEN_INK, "accepted: 2 tokens"),
        (GREY, LINE, "drafted, not accepted: 4"),
        (BLUE, BLUE_INK, "bonus: 1"),
    )
    for place, (fill, stroke, words) in enumerate(legend):
        drawing.box(60 + 210 * place, 358, 16, 16, fill, stroke)
        drawing.text(84 + 210 * place, 371, words, 13, QUIET, "start")
    drawing.text(930, 371, "committed: 3 tokens in this round", 13, INK, "end", "600")
    return drawing


def trace_row() -> Drawing:
    """The rows of a dense trace, one for each position, and one of them opened."""
    drawing = Drawing(
        960, 350, "A trace row: one root, the drafter's candidates at each depth, the rank of the true token"
    )
    words = ("The", "cat", "sat", "on", "the", "rug", ".")
    drawing.text(30, 32, "the recorded text: one row for every position", 14, INK, "start", "600")
    for place, word in enumerate(words):
        chosen = place == 2
        drawing.box(30 + 128 * place, 48, 112, 38, ORANGE if chosen else GREY, ORANGE_INK if chosen else LINE)
        drawing.text(86 + 128 * place, 72, word, 15)
        drawing.text(86 + 128 * place, 104, f"position {place}", 11, QUIET)
    drawing.path([(286, 112), (60, 140), (900, 140), (398, 112)], "none", "#fdf1e4", 0)
    drawing.box(30, 140, 900, 186, "#fffaf4", ORANGE_INK)
    drawing.text(50, 166, "the row of position 2 (root: sat)", 14, ORANGE_INK, "start", "600")
    columns = (
        (1, "on", ("on  −0.4", "in  −1.6", "at  −2.9"), 0),
        (2, "the", ("the −0.5", "a   −1.3", "his −2.8"), 0),
        (3, "rug", ("mat −0.7", "bed −1.9", "rug −2.4"), 2),
    )
    for place, (depth, true, candidates, rank) in enumerate(columns):
        x = 60 + 215 * place
        drawing.text(x, 192, f"depth {depth}", 12, QUIET, "start")
        for line, words_of in enumerate(candidates):
            if line == rank:
                drawing.box(x - 6, 200 + 24 * line, 110, 22, GREEN, GREEN_INK)
            drawing.text(x, 216 + 24 * line, words_of, 14, INK, "start", font=MONO)
        drawing.text(x, 288, "... at least 64", 11, QUIET, "start")
        drawing.text(x, 310, f"true token: {true}, rank {rank}", 12, GREEN_INK, "start")
    notes = (
        "candidates: token id and",
        "log-probability, by rank",
        "",
        "green: what the target's",
        "text goes on with",
        "(for analysis; no policy",
        "may read it)",
    )
    for line, note in enumerate(notes):
        drawing.text(715, 192 + 19 * line, note, 12, QUIET, "start")
    return drawing


def memory() -> Drawing:
    """What lies on the GPU while recording and while decoding."""
    drawing = Drawing(960, 330, "What is stored on the GPU while recording, and while decoding")
    shared = (
        ("target: weights", "its parameters", BLUE, BLUE_INK),
        ("drafter: weights", "its parameters", BLUE, BLUE_INK),
        ("target: keys and values", "tokens × texts at a time", GREEN, GREEN_INK),
    )
    parts = {
        "while recording": (
            *shared,
            ("drafter: keys and values", "tokens of one text", GREEN, GREEN_INK),
            ("candidates of 64 roots", "roots × depth × vocabulary", ORANGE, ORANGE_INK),
        ),
        "while decoding": (
            *shared,
            ("drafter: keys and values", "tokens × texts at a time", GREEN, GREEN_INK),
            ("rows of the tree, its mask and logits", "drafted tokens + 1", ORANGE, ORANGE_INK),
        ),
    }
    for side, (title, boxes) in enumerate(parts.items()):
        x = 30 + 465 * side
        drawing.text(x + 217, 32, title, 16, INK, weight="600")
        for place, (name, grows, fill, stroke) in enumerate(boxes):
            drawing.box(x, 48 + 46 * place, 435, 40, fill, stroke)
            drawing.text(x + 14, 73 + 46 * place, name, 14, INK, "start")
            drawing.text(x + 421, 73 + 46 * place, grows, 12, QUIET, "end")
    for place, (fill, stroke, words) in enumerate(
        (
            (BLUE, BLUE_INK, "fixed"),
            (GREEN, GREEN_INK, "grows with the text"),
            (ORANGE, ORANGE_INK, "of one pass, freed or reused"),
        )
    ):
        drawing.box(30 + 220 * place, 292, 16, 16, fill, stroke)
        drawing.text(54 + 220 * place, 305, words, 13, QUIET, "start")
    drawing.text(930, 305, "right in each box: what it grows with", 12, QUIET, "end")
    return drawing


def budget() -> Drawing:
    """Predicted speedup of ddtree over its budget, on the packaged trace, with intervals and the chain."""
    rows = _replayed()
    trees = [rows[f"ddtree:budget={size}"] for size in range(1, BUDGETS + 1)]
    drawing = Drawing(960, 440, "Predicted speedup of ddtree over its budget, on the packaged trace")
    left, right, top, bottom = 80, 920, 66, 370
    highest = 2.0

    def x_of(size: float) -> float:
        return left + (right - left) * math.log2(size) / math.log2(BUDGETS)

    def y_of(speedup: float) -> float:
        return bottom - (bottom - top) * speedup / highest

    drawing.text(left, 28, "Predicted speedup over the autoregressive baseline", 16, INK, "start", "600")
    drawing.text(
        left,
        48,
        "packaged trace, 41 prompts; latency profile of two CPU cores, bfloat16; band: 95 % over prompts",
        12,
        QUIET,
        "start",
    )
    for value in (0.0, 0.5, 1.0, 1.5, 2.0):
        drawing.line(left, y_of(value), right, y_of(value), INK if value == 0 else "#d5dbe5", 1)
        drawing.text(left - 10, y_of(value) + 5, f"{value:.1f}", 13, QUIET, "end")
    for power in range(8):
        drawing.text(x_of(2**power), bottom + 22, str(2**power), 13, QUIET)
    drawing.text((left + right) / 2, bottom + 48, "budget: drafted tokens in a round (logarithmic)", 14, QUIET)
    upper = [(x_of(size), y_of(row["speedup_ci_high"])) for size, row in enumerate(trees, 1)]
    lower = [(x_of(size), y_of(row["speedup_ci_low"])) for size, row in enumerate(trees, 1)]
    drawing.path([*upper, *reversed(lower)], "none", BLUE, 0)
    drawing.line(left, y_of(1), right, y_of(1), QUIET, 1.5, "5 4")
    drawing.text(left + 8, y_of(1) + 18, "autoregressive baseline", 12, QUIET, "start")
    drawing.path([(x_of(size), y_of(row["speedup"])) for size, row in enumerate(trees, 1)], BLUE_INK, width=2.5)
    drawing.text(x_of(24), y_of(trees[23]["speedup_ci_high"]) - 12, "ddtree", 14, BLUE_INK, "start", "600")
    chain = rows["chain"]
    drawing.circle(x_of(chain["nodes_per_round"]), y_of(chain["speedup"]), 6, ORANGE, ORANGE_INK)
    drawing.text(
        x_of(chain["nodes_per_round"]) + 12,
        y_of(chain["speedup"]) + 18,
        f"chain {chain['speedup']:.2f}",
        13,
        ORANGE_INK,
        "start",
    )
    best = max(range(BUDGETS), key=lambda place: trees[place]["speedup"])
    x, y = x_of(best + 1), y_of(trees[best]["speedup"])
    drawing.circle(x, y, 6, GREEN, GREEN_INK)
    drawing.text(x - 12, y - 14, f"best: budget {best + 1}, {trees[best]['speedup']:.2f}", 13, GREEN_INK, "end", "600")
    return drawing


def _replayed() -> dict[str, dict[str, float]]:
    """The rows of one replay of the packaged trace, by policy."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(["replay", "--json", "-p", f"ddtree:budget=1..{BUDGETS}", "--cost", COST])
    if code:
        raise SystemExit(code)
    return {row["policy"]: row for row in json.loads(printed.getvalue())["rows"]}


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "pipeline": pipeline,
    "round": one_round,
    "trace_row": trace_row,
    "memory": memory,
    "budget": budget,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the diagrams of the documentation.")
    parser.add_argument("names", nargs="*", choices=[[], *DRAWINGS], help="which (default: all)")
    parser.add_argument("--folder", type=Path, default=FIGURES, help="where the SVGs go")
    options = parser.parse_args()
    for name in options.names or DRAWINGS:
        (options.folder / f"{name}.svg").write_text(DRAWINGS[name]().svg(), encoding="utf-8")
        print(options.folder / f"{name}.svg")
