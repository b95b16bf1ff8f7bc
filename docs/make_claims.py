"""What pages of results claim, computed from JSON in docs/measurements; a claim that no file holds does not stand.

What a page says by figures stands between `<!-- made NAME -->` and `<!-- end -->` and is written anew by this script.
Outside, a page of `PAGES` has no figure and no verdict, see `unclaimed`; where a page has `<!-- results -->` and
`<!-- end results -->`, this is asked of what lies between them alone.

    python docs/make_claims.py
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import make_field
import numpy as np
from scipy.stats import norm

from simlab.analysis.statistics.significance import holm

REPOSITORY = Path(__file__).resolve().parents[1]
MEASUREMENTS = REPOSITORY / "docs" / "measurements"

LEVEL, WITHIN = 0.05, 5.0
"""Of verdicts; and what predictions are asked to be within, per cent."""

Table = Mapping[str, Any]
Parts = Mapping[str, Callable[[], str]]
"""What is written between the marks, by its name."""


@cache
def measured(name: str) -> Mapping[str, Any]:
    """What a file of docs/measurements holds."""
    value: Mapping[str, Any] = json.loads((MEASUREMENTS / f"{name}.json").read_text(encoding="utf-8"))
    return value


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval, as a cell shows it."""

    value: float
    low: float
    high: float

    @property
    def p_value(self) -> float:
        """Two-sided, of a difference from 0, from the width of the interval."""
        error = (self.high - self.low) / (2 * norm.ppf(0.975))
        return float(2 * norm.sf(abs(self.value) / error))


_NUMBER = r"([−+-]?\d+(?:\.\d+)?)"


def figure_of(cell: str) -> Figure | None:
    """The figure of a cell; None where it has none, or no interval."""
    found = re.match(rf"{_NUMBER} \[{_NUMBER}, {_NUMBER}\]", cell)
    return None if found is None else Figure(*(float(one.replace("−", "-")) for one in found.groups()))


def number_of(cell: str) -> float:
    """The number that a cell begins with; NaN where it begins with none."""
    found = re.match(_NUMBER, cell)
    return math.nan if found is None else float(found[1].replace("−", "-"))


Place = tuple[int, int]


def standing(table: Table, columns: Sequence[int]) -> dict[Place, bool]:
    """Which figures of these columns differ from 0, all of them taken together (Holm), by row and column."""
    places = [(row, column) for row in range(len(table["rows"])) for column in columns]
    figures = {place: figure_of(table["rows"][place[0]][place[1]]) for place in places}
    known = {place: one for place, one in figures.items() if one is not None}
    adjusted = holm(np.array([one.p_value for one in known.values()]))
    return {place: bool(p_value <= LEVEL) for place, p_value in zip(known, adjusted, strict=True)}


def shown(table: Table, tested: Sequence[int] = ()) -> str:
    """A table as the page has it; of tested columns what differs from 0 has a star."""
    stars = standing(table, tested) if tested else {}
    rows = [
        [cell + " *" * stars.get((row, column), False) for column, cell in enumerate(cells)]
        for row, cells in enumerate(table["rows"])
    ]
    return make_field.table(table["head"], rows)


def counted(table: Table, columns: Sequence[int], of: str) -> str:
    """How many differences of a table stand, in a sentence."""
    stars = standing(table, columns)
    values = [number_of(table["rows"][row][column]) for (row, column), stands in stars.items() if stands]
    above, below = sum(value > 0 for value in values), sum(value < 0 for value in values)
    untold = len(stars) - len(values)
    return (
        f"Of {len(stars)} {of}, {above} are above 0 and {below} below; {untold} are not significantly different from 0."
    )


def errors_sentence(errors: Sequence[float], of: str) -> str:
    """How far predictions are from measurements: the range of errors in per cent, and how many are within `WITHIN`."""
    within = sum(abs(error) <= WITHIN for error in errors)
    return (
        f"{within} of {len(errors)} {of} are within {WITHIN:g} % of the measurement; errors are from "
        f"{_signed(min(errors))} to {_signed(max(errors))} %."
    )


def _bullets(*lines: str) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _of_column(table: Table, column: int) -> list[float]:
    return [number for row in table["rows"] if not math.isnan(number := number_of(row[column]))]


# docs/explanation/prefix_conditioned.md


def _prefix(name: str) -> Table:
    table: Table = measured("prefix_conditioned")["tables"][name]
    return table


_DIFFERENCES = {
    "gains": (1, 2, 3, 4),
    "jetspec": (1, 2, 3, 4),
    "pairs": (3, 4),
    "packaged": (1, 2),
    "extension": (1, 2, 3),
    "d2sd": (4, 6),
}
"""Columns of differences over another policy, by table."""

_CONFIRMED = ("confirmed-bfloat16", "confirmed-float32")


def _largest_gains() -> Iterator[str]:
    """Of each column of both tables of gains, the row with the largest figure."""
    head = _prefix("gains")["head"]
    rows = [*_prefix("gains")["rows"], *_prefix("jetspec")["rows"]]
    for column in range(1, len(head)):
        best = max(rows, key=lambda row: number_of(row[column]))
        yield f"{head[column]}: {best[0]}, {best[column]} %"


def _prefix_short() -> str:
    speeds = _prefix("speedups")
    fastest = []
    for columns in ((1, 2, 3), (4, 5, 6)):
        cells = [(row[one], row[0], speeds["head"][one]) for row in speeds["rows"] for one in columns if row[one]]
        cell, row, head = max(cells, key=lambda one: number_of(one[0]))
        fastest.append(f"{head}: {row}, {cell}")
    errors = [error for name in _CONFIRMED for column in (3, 6) for error in _of_column(_prefix(name), column)]
    alone = counted(_prefix("gains"), _DIFFERENCES["gains"], "gains over DDTree of as many nodes")
    causal = counted(_prefix("jetspec"), _DIFFERENCES["jetspec"], "gains over the same").lower()
    return _bullets(
        f"**Tokens a round.** {alone} With the causal head: {causal}",
        f"**The largest gains** of both tables, not tested against each other. {'; '.join(_largest_gains())}.",
        f"**The largest predicted speedups**, not tested either. {'; '.join(fastest)}.",
        f"**On the real models** {errors_sentence(errors, 'predicted speedups')}",
    )


def _prefix_parts() -> Parts:
    tables = {name: _prefix_table(name) for name in measured("prefix_conditioned")["tables"]}
    return {"short": _prefix_short, **tables}


def _prefix_table(name: str) -> Callable[[], str]:
    return lambda: shown(_prefix(name), _DIFFERENCES.get(name, ()))


# docs/explanation/findings.md


def _finding(name: str) -> Table:
    table: Table = measured("findings")["tables"][name]
    return table


_GAINS = (3, 6)
"""Columns of what is gained over marginals, at 16 and at 64 nodes."""


def _told(name: str) -> str:
    """What an order gains over marginals, in points of the gap between chain and oracle."""
    table = _finding("gains")
    row = next(index for index, cells in enumerate(table["rows"]) if cells[0] == name)
    stars = standing(table, _GAINS)
    cells = [
        f"{table['rows'][row][column]} points at {size} nodes{'' if stars[row, column] else ' (not significant)'}"
        for column, size in zip(_GAINS, (16, 64), strict=True)
    ]
    return " and ".join(cells)


def _excess(name: str) -> str:
    return next(row[7] for row in _finding("marginals")["rows"] if row[0] == name)


def _depth_2() -> str:
    facts = measured("findings")["facts"]
    return f"predicted {facts['depth_2_off_path_expected']:.3f}, observed {facts['depth_2_off_path_true']:.3f}"


def _findings_short() -> str:
    overstated = {row[0]: row[4] for row in _finding("orders")["rows"]}
    closed = []
    for column, size in ((2, 16), (5, 64)):
        best = max(_finding("gains")["rows"], key=lambda row: number_of(row[column]))
        closed.append(f"at {size} nodes {best[column]} % ({best[0]})")
    return _bullets(
        "**Marginals.** A first candidate comes true less often than it says, by so many a node: along the greedy path "
        f"{_excess('spine')}, off it {_excess('off-spine')}. Off it at depth 2: {_depth_2()}.",
        f"**Calibrated probabilities** gain {_told('calibrated')} of the gap between chain and oracle. They overstate "
        f"accepted tokens at 16 nodes by {overstated['calibrated']} %, marginals by {overstated['marginals']} %.",
        f"**A 3-gram** (PRESTO) gains {_told('3-gram')}; renormalised {_told('3-gram, renormalised')}.",
        f"**The largest share of the gap that is closed**: {', '.join(closed)}.",
    )


def _logs_sentence() -> str:
    rows = _finding("logs")["rows"]
    off = {column: sum(row[column].endswith("*") for row in rows) for column in (2, 3)}
    return (
        f"Of {len(rows)} predictions of each kind {off[2]} by the mean over rows and {off[3]} by the nearest row "
        "differ from the dense one."
    )


_FINDINGS: Parts = {
    "short": _findings_short,
    "marginals": lambda: shown(_finding("marginals")),
    "edges": lambda: shown(_finding("edges"), (5,)),
    "orders": lambda: shown(_finding("orders")),
    "gains": lambda: shown(_finding("gains"), _GAINS),
    "logs": lambda: shown(_finding("logs")),
    "logs-short": _logs_sentence,
}

# docs/explanation/discrepancy.md and README.md


def _confirmed(name: str) -> Table:
    table: Table = measured("confirmed")["tables"][name]
    return table


def _errors(dtype: str) -> list[float]:
    """Errors of the runs in one dtype; a row that names none goes on with that of the row above."""
    found, now = [], ""
    for row in _confirmed("errors")["rows"]:
        now = row[0].split(",")[0] if ", " in row[0] else now
        found += [number_of(row[3])] if now == dtype else []
    return found


def _field_errors() -> str:
    return errors_sentence([100 * error for error in make_field.errors(measured("field"))], "predicted speedups")


def _busy() -> str:
    row = next(row for row in _confirmed("errors")["rows"] if row[0].startswith("busier"))
    return f"On a busier host the largest error of five was {row[3]} %."


def _confirmed_short() -> str:
    high, short = (measured("confirmed")["facts"][name] for name in ("tokens_per_s_too_high_percent", "short_profiles"))
    return _bullets(
        f"In bfloat16 {errors_sentence(_errors('bfloat16'), 'predicted speedups')} {_busy()}",
        f"In float32 {errors_sentence(_errors('float32'), 'predicted speedups')}",
        f"In the runs of [the field](field.md) {_field_errors()}",
        f"Tokens/s in bfloat16 were predicted {high[0]} to {high[1]} % too high, of autoregressive decoding too: the "
        "machine is shared, and all stages were slowed alike.",
        f"The price intervals held {short['within_price_interval']} of the {short['predictions']} predictions of short "
        "profiles: no profile knows another moment of the machine.",
    )


def _readme_confirmed() -> str:
    return f"In bfloat16 {errors_sentence(_errors('bfloat16'), 'predicted speedups')}"


PAGES: Mapping[str, Parts] = {
    "docs/explanation/field.md": {
        name: (lambda make=make: make(measured("field"))) for name, make in make_field.PARTS.items()
    },
    "docs/explanation/prefix_conditioned.md": _prefix_parts(),
    "docs/explanation/findings.md": _FINDINGS,
    "docs/explanation/discrepancy.md": {
        "short": _confirmed_short,
        "speedups": lambda: shown(_confirmed("speedups")),
        "errors": lambda: shown(_confirmed("errors")),
        "profiles": lambda: shown(_confirmed("profiles")),
    },
    "README.md": {
        "field": lambda: make_field.answer(measured("field")),
        "confirmed": _readme_confirmed,
    },
}
"""Every page of claims, and what is written into it."""

_BLOCK = re.compile(r"(<!-- made ([a-z0-9-]+) -->)(\n?).*?(<!-- end -->)", re.DOTALL)


def written(page: str, parts: Parts) -> str:
    """A page with all that is computed made anew.

    Raises:
        KeyError: it asks for something that there is not.
    """

    def made(found: re.Match[str]) -> str:
        around = 2 * found[3]
        return f"{found[1]}{around}{parts[found[2]]()}{around}{found[4]}"

    return _BLOCK.sub(made, page)


VERDICT = re.compile(
    r"\b(best(?!-first)|fastest|faster|slowest|slower|only|none|nothing|nobody|beats?|wins?|won|los(?:es?|t)|largest"
    r"|smallest|highest|higher|lowest|better|worse|worst|gains?|pays?|significant(?:ly)?|within the noise"
    r"|cannot be told|indistinguishable|outperforms?|exceeds?|ahead of|superior|inferior|quicker|leads|leader|winner"
    r"|more tokens|fewer tokens|twice|percent|per cent)\b",
    re.IGNORECASE,
)
"""Words that say how something stands among others."""

CLAIMED = re.compile(r"\d+\.\d+|\d\s?%|\d (?:times|×|points)\b")
"""Figures that were measured: decimals, per cent, and so many times something."""

_QUIET = re.compile(r"```.*?```|`(?:[^`\n]|\n(?!\n))*`|\]\([^)]*\)|\barXiv \d+\.\d+|<!--.*?-->|\b95 %", re.DOTALL)
"""Code, addresses, papers, marks, and the level of all intervals."""

_RESULTS = re.compile(r"<!-- results -->(.*?)<!-- end results -->", re.DOTALL)


def unclaimed(page: str) -> list[str]:
    """Figures and verdicts that nobody computed, each with the words around it."""
    sections = _RESULTS.findall(page) or [page]
    found = []
    for section in sections:
        plain = _QUIET.sub(" ", _BLOCK.sub(" ", section))
        for pattern in (VERDICT, CLAIMED):
            found += [
                re.sub(r"\s+", " ", plain[max(one.start() - 40, 0) : one.end() + 20]) for one in pattern.finditer(plain)
            ]
    return found


def write_pages() -> None:
    """Write all pages anew."""
    for name, parts in PAGES.items():
        path = REPOSITORY / name
        path.write_text(written(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
