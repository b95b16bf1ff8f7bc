"""What each packaged network was trained on, out of the cards beside the weights, as a table of Markdown."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CARDS = Path(__file__).resolve().parents[1] / "real_runner" / "data"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of Markdown; all columns but the first end at the right."""
    marks = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))


def training() -> str:
    """What each packaged network was trained on, and its last steps, out of the cards beside the weights."""
    figures = ["measure", "earlier", "at the end", "change in 1,000 draws there"]
    return table(["", "own parameters", "texts", "tokens", "texts drawn", *figures], training_rows())


def training_rows() -> list[list[str]]:
    """The rows of that table."""
    rows = []
    for folder in sorted(CARDS.iterdir()):
        card = (folder / "README.md").read_text(encoding="utf-8")
        own = re.search(r"own parameters \| ([\d,]+)", card)
        text = re.search(r"^([\d,]+) texts of ([\d,]+) tokens", card, re.MULTILINE)
        seen = re.search(r"Seen in training: ([\d,]+) texts", card)
        if own and text and seen:
            drawn = int(seen[1].replace(",", ""))
            rows.append([f"`{folder.name}`", own[1], text[1], text[2], seen[1], *_last_steps(card, drawn)])
    return rows


def shorter_trained() -> Mapping[str, Any]:
    """The EAGLE-3 head packaged before, of a fifth of the draws, on the prompts that the field reports."""
    path = CARDS.parents[1] / "docs" / "measurements" / "eagle3_draws.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _last_steps(card: str, drawn: int) -> list[str]:
    """Two points of a card's curve, about a quarter of its draws apart, and the slope between them."""
    curve = card.partition("## Curve")[2].strip().partition("\n\n")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in curve.splitlines()]
    head, _, *points = [cells for cells in lines if len(cells) > 2]
    name = next((name for name in head if "chain" in name), "held-out loss")
    column, most = head.index(name), int(points[-1][0])
    known = [(int(cells[0]) * drawn / most, float(cells[column])) for cells in points if cells[column]]
    last = known[-1]
    earlier = min(known[:-1], key=lambda point: abs(point[0] - 0.75 * last[0]))
    slope = (last[1] - earlier[1]) / (last[0] - earlier[0]) * 1000
    shown = [f"{value:.3f} at {draws:,.0f}" for draws, value in (earlier, last)]
    return [name.replace(":", ","), *shown, f"{slope:+.3f}".replace("-", "\u2212")]
