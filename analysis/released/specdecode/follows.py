"""What follows from chains on SpecDecode-Bench, in sentences that are worked out from the figures of a run."""

from collections.abc import Mapping, Sequence

from simlab.analysis.released.compared import ComparedFigure
from simlab.analysis.released.specdecode.chain_replay import ADAPTIVE
from simlab.analysis.released.specdecode.reach import FASTER, SLOWER
from simlab.analysis.released.specdecode.tables import value_of

Row = Mapping[str, object]

_LABELS = {"eagle": "EAGLE", "ngram": "n-grams"}
_NEAR = 0.75
"""So much of the oracle's gain is called most of it."""


def follows_text(
    steps: Sequence[Row], combined: Sequence[Row], reached: Sequence[Row], matches: Sequence[ComparedFigure]
) -> str:
    """What follows, in numbers of this run.

    Args:
        steps: rows of speedups.
        combined: rows of both drafters combined.
        reached: rows of shares of the oracle's gain, with verdicts.
        matches: how often prompt lookup has a match where nothing is accepted, as assumed and as found.
    """
    batches = sorted({int(value_of(row["batch"])) for row in reached})
    parts = [_reach_sentence(reached, drafter, batches[0], batches[-1]) for drafter in _LABELS]
    parts += [adaptive_sentence(reached), oracle_sentence(steps), charge_sentence(combined), match_sentence(matches)]
    return " ".join(part for part in parts if part)


def adaptive_sentence(reached: Sequence[Row]) -> str:
    """Whether adaptive chains are faster than the fixed length, after the correction for all cells and before it."""
    found = {name: _verdict_numbers(reached, name, "_corrected") for name in ADAPTIVE}
    better = [name for name, (faster, slower) in found.items() if faster > slower]
    if not better:
        lead = "No adaptive rule is faster than the fixed length in more cells than it is slower"
    else:
        verb = "is" if len(better) == 1 else "are"
        lead = f"{' and '.join(better)} {verb} faster than the fixed length in more cells than slower"
    numbers = []
    for name, (faster, slower) in found.items():
        before = _verdict_numbers(reached, name, "")
        numbers.append(f"{name} faster in {faster} and slower in {slower} (uncorrected: {before[0]} and {before[1]})")
    return (
        f"{lead}: of {len(reached)} cells of dataset, drafter and batch size, by p-values corrected over all "
        f"{len(reached) * len(ADAPTIVE)} (Holm), {'; '.join(numbers)}."
    )


def oracle_sentence(steps: Sequence[Row]) -> str:
    """What our definition of EAGLE's oracle adds, and whether ours is nearer to theirs without it."""
    rows = [row for row in steps if row["batch"] == 1 and "ours_always_drafting" in row]
    if not rows:
        return ""
    added = _extremes([value_of(row["ours"]) - value_of(row["ours_always_drafting"]) for row in rows])
    nearer = sum(_distance(row, "ours_always_drafting") < _distance(row, "ours") for row in rows)
    return (
        f"Our oracle drafts nothing where nothing will be accepted, which adds {_range(*added, digits=2)} to EAGLE's "
        f"oracle at a batch of 1; without that, ours is nearer to theirs in {nearer} of {len(rows)} datasets."
    )


def charge_sentence(combined: Sequence[Row]) -> str:
    """By how much their combined figure changes with EAGLE's cost; nothing where there is none."""
    changes = [
        100 * (value_of(row["theirs_charged"]) / value_of(row["theirs"]) - 1) for row in combined if row["batch"] == 1
    ]
    if not changes:
        return ""
    low, high = min(changes), max(changes)
    if high <= -0.5:
        change = f"{_range(-high, -low)} % lower"
    elif low >= 0.5:
        change = f"{_range(low, high)} % higher"
    elif max(-low, high) < 0.5:
        change = "the same to less than 0.5 %"
    else:
        change = f"changed by {low:+.0f} to {high:+.0f} %"
    return f"Their combined figure charges EAGLE's drafts as n-grams'; at EAGLE's cost it is {change} at a batch of 1."


def match_sentence(matches: Sequence[ComparedFigure]) -> str:
    """Whether prompt lookup has a match, where nothing is accepted, as often as they assume."""
    pairs = [(one.theirs.value, one) for one in matches if one.theirs is not None]
    if not pairs:
        return ""
    above = sum(assumed > one.interval.high for assumed, one in pairs)
    below = sum(assumed < one.interval.low for assumed, one in pairs)
    found = _range(*_extremes([100 * one.ours for _, one in pairs]))
    assumed = _range(*_extremes([100 * value for value, _ in pairs]))
    return (
        f"Where nothing is accepted, prompt lookup had a match at {found} % of places; their simulator assumes "
        f"{assumed} %, more than our interval holds in {above} of {len(pairs)} datasets and less in {below}."
    )


def _reach_sentence(reached: Sequence[Row], drafter: str, small: int, large: int) -> str:
    found = [[row for row in reached if (row["drafter"], row["batch"]) == (drafter, one)] for one in (small, large)]
    shares = [[value_of(row["fixed_reached"]) for row in some if row["fixed_reached"] is not None] for some in found]
    if not all(shares):
        return ""
    first = "most" if min(shares[0]) >= _NEAR else "a part"
    change = (
        "less" if max(shares[1]) < min(shares[0]) else "more" if min(shares[1]) > max(shares[0]) else "about as much"
    )
    return (
        f"{_LABELS[drafter]}: a fixed length chosen on other requests reaches {first} of the oracle's gain at a batch "
        f"of {small}, {_share_range(found[0])}, and {change} at {large}, {_share_range(found[1])}."
    )


def _share_range(rows: Sequence[Row]) -> str:
    """The range of some shares over datasets, and how far their intervals reach."""
    shares = _extremes([value_of(row["fixed_reached"]) for row in rows if row["fixed_reached"] is not None])
    lows, highs = (
        [value_of(row[f"fixed_reached_ci_{end}"]) for row in rows if row[f"fixed_reached_ci_{end}"] is not None]
        for end in ("low", "high")
    )
    outer = f" (intervals from {100 * min(lows):.0f} to {100 * max(highs):.0f} %)" if lows and highs else ""
    return f"{_range(100 * shares[0], 100 * shares[1])} %{outer}"


def _verdict_numbers(reached: Sequence[Row], name: str, kind: str) -> tuple[int, int]:
    verdicts = [row[f"{name}_verdict{kind}"] for row in reached]
    return verdicts.count(FASTER), verdicts.count(SLOWER)


def _extremes(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _distance(row: Row, name: str) -> float:
    return abs(value_of(row[name]) - value_of(row["theirs"]))


def _range(low: float, high: float, digits: int = 0) -> str:
    """Two numbers, or one where they are printed alike."""
    ends = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)
