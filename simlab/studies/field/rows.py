"""The table of the field: each policy's tokens, seconds and gains, predicted and measured, in all and by data set."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.summaries import BASELINE as PLAIN
from simlab.analysis.table.summaries import STAGE_COLUMNS, Summary, summarise
from simlab.analysis.table.text import aligned, within_width
from simlab.policies import POLICIES
from simlab.policies.parsing.describe import describe_policies
from simlab.policies.parsing.parse import LABELS
from simlab.studies.field.systems import BASELINE, CLOSE, FASTEST, NODES, PUBLISHED, VARIANTS
from simlab.studies.result import StudyResult
from simlab.traces.format.files import write_beside
from simlab.traces.results.rows import SECONDS

DATASET, ALL = "dataset", "all"
COUNTS = ("rounds", "drafted", "verified", "accepted", "committed", "clipped")
"""Columns of result rows that are whole numbers and add up."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy of the field.

    Attributes:
        system: the row.
        size: drafted tokens a round as text, `PUBLISHED` or `FASTEST`.
        drafter: the draft set.
        policy: as it is typed, one point.
        chosen_from: how many settings it was chosen from, on dev.
        prices: the name of those by which it was chosen, or which its rounds follow from.
        optimism: by how much its speed on dev is above that of nested choices there, a share; None: not chosen.
    """

    system: str
    size: str
    drafter: str
    policy: str
    chosen_from: int
    prices: str
    optimism: float | None = None

    @property
    def label(self) -> str:
        """How result rows call the policy."""
        return LABELS.get(self.policy, self.policy)

    @property
    def parts(self) -> list[str]:
        """Whose ideas it is made of: its own policy, those of its routes, and those that a ``tree`` takes parts of."""
        parts = [word for word in re.split(r'[:=,|"]', self.policy) if word in POLICIES]
        parts += ["presto"] if re.search(r"ngram_weight=(?!0(?:\.0*)?(?:,|$))", self.policy) else []
        parts += ["self"] if "masked=" in self.policy else []
        return list(dict.fromkeys(parts))


@dataclass(frozen=True)
class FieldRuns:
    """Result rows of the field on the prompts that are reported.

    Attributes:
        predicted: by draft set and the name of the prices.
        baseline: of the baseline around the drafted tokens of every policy, by the name of the prices.
        measured: of the real models, by draft set; a draft set that did not run is not there.
        again: of what ran, predicted by a profile that was made after the runs, by draft set.
    """

    predicted: Mapping[tuple[str, str], pl.DataFrame]
    baseline: Mapping[str, pl.DataFrame]
    measured: Mapping[str, pl.DataFrame]
    again: Mapping[str, pl.DataFrame]


def baselines_around(drafted: float) -> list[str]:
    """The baselines of the whole numbers of drafted tokens around a mean; of none it is autoregressive decoding.

    >>> baselines_around(0.6), baselines_around(8.0)
    (['autoregressive', 'ddtree:budget=1'], ['ddtree:budget=8'])
    """
    sizes = sorted({math.floor(drafted), math.ceil(drafted)})
    return [f"{BASELINE}:budget={size}" if size else LABELS[PLAIN] for size in sizes]


_SHARES = 10_000
"""Counts of two baselines are added up in so many parts."""


def baseline_of(drafted: float, rows: pl.DataFrame) -> PolicyRun:
    """The baseline that drafts as many tokens a round as a policy, over all prompts.

    Where the mean lies between two sizes, each has the share of all rounds that leads to it: sums of both, weighed.

    Args:
        drafted: tokens a round of the policy.
        rows: of the baseline of both sizes around it, and of autoregressive decoding.
    """
    labels, plain = baselines_around(drafted), rows.filter(pl.col("name") == PLAIN)
    small, *others = (rows.filter(pl.col("policy") == label).sort("sequence") for label in labels)
    if not others:
        return PolicyRun(labels[0], small, plain)
    (large,) = others
    below, above = (float(side["drafted"].sum()) - drafted * float(side["rounds"].sum()) for side in (small, large))
    share = below / (below - above)
    columns = [*COUNTS, *SECONDS]
    sums = {
        name: (1 - share) * small[name].fill_null(np.nan) + share * large[name].fill_null(np.nan) for name in columns
    }
    mixed = {name: (_SHARES * values).round().cast(pl.Int64) for name, values in sums.items() if name in COUNTS}
    mixed |= {name: _SHARES * values.fill_nan(None) for name, values in sums.items() if name in SECONDS}
    draws = [
        None if first is None or second is None else _SHARES * ((1 - share) * first + share * second).cast(pl.Float32)
        for first, second in zip(small["draws_s"], large["draws_s"], strict=True)
    ]
    made = small.with_columns(**mixed, draws_s=pl.Series(draws, dtype=small.schema["draws_s"]))
    return PolicyRun(f"{BASELINE} of {drafted:.6g}", made, plain)


def field_rows(entries: Sequence[Entry], runs: FieldRuns, is_untimed: Callable[[Entry, float], bool]) -> list[Row]:
    """A row for each policy on all prompts and on each data set, the baseline's among them.

    Args:
        entries: the policies; the first names the machine's own prices.
        runs: their rounds.
        is_untimed: whether nobody timed rounds of the size of a policy, given its drafted tokens a round.
    """
    own = entries[0].prices if entries else ""
    tables = {key: _summaries(rows) for key, rows in runs.predicted.items()}
    about, gains = sources(entries), _gains(entries, runs, tables)
    ran = {drafter: _Ran.of(drafter, own, runs) for drafter in runs.measured}
    rows: list[Row] = []
    for entry in entries:
        table = tables[entry.drafter, entry.prices]
        runs_too = ran.get(entry.drafter) if (entry.size, entry.prices) == (FASTEST, own) else None
        exact = [row["exactness"] for row in about[entry.system].values()]
        untimed = is_untimed(entry, table[ALL, entry.label].totals.nodes_per_round)
        for part in dict.fromkeys(part for part, _ in table):
            summary = table[part, entry.label]
            rows.append(
                {
                    **asdict(entry),
                    "slice": part,
                    "reconstruction": entry.system in VARIANTS or any("reconstruction" in row for row in exact),
                    "untimed": untimed,
                    **_counts(summary),
                    **_stages(summary),
                    **_speed("predicted", summary),
                    **_ends("predicted_speedup_price", summary.speed.price_interval),
                    **(_Ran.none() if runs_too is None else runs_too.row((part, entry.label))),
                    **_gains_row(gains, entry, part),
                }
            )
    return rows


_Table = Mapping[tuple[str, str], Summary]


@dataclass(frozen=True, slots=True)
class _Ran:
    """What ran on the real models, and what was predicted for the same texts: before, and by a profile made after."""

    measured: _Table
    before: _Table
    after: _Table

    @classmethod
    def of(cls, drafter: str, prices: str, runs: FieldRuns) -> "_Ran":
        ran = runs.measured[drafter]
        texts = pl.col("sequence").is_in(ran["sequence"].unique().to_list())
        after = runs.again.get(drafter)
        return cls(
            _summaries(ran),
            _summaries(runs.predicted[drafter, prices].filter(texts)),
            {} if after is None else _summaries(after.filter(texts)),
        )

    @staticmethod
    def none() -> Row:
        """The columns of a policy that did not run."""
        return _Ran({}, {}, {}).row(("", ""))

    def row(self, key: tuple[str, str]) -> Row:
        measured = self.measured.get(key)
        before, after = (None if measured is None else table.get(key) for table in (self.before, self.after))
        if before is not None and after is not None and before.totals.rounds != after.totals.rounds:
            # Its rounds follow from the prices: with others it drafts other trees.
            after = None
        speeds = {
            f"predicted{name}": None if summary is None else _rounded(summary.speed.speedup)
            for name, summary in (("_on_measured", before), ("_after", after))
        }
        verify = {
            f"{name}_verify_ms": None if summary is None else _stages(summary)["verify_ms"]
            for name, summary in (("predicted", before), ("predicted_after", after), ("measured", measured))
        }
        prompts = 0 if measured is None else measured.prompts
        return {**_speed("measured", measured), **speeds, **verify, "measured_prompts": prompts}


def sources(entries: Sequence[Entry]) -> dict[str, dict[str, dict[str, str]]]:
    """How exact the policies are that each system is made of, and where they come from, by system and policy."""
    names = sorted({name for entry in entries for name in entry.parts})
    about = {
        policy.name: {"exactness": policy.exactness, "source": policy.source} for policy in describe_policies(names)
    }
    by_system: dict[str, dict[str, dict[str, str]]] = {}
    for entry in entries:
        by_system.setdefault(entry.system, {}).update({name: about[name] for name in entry.parts})
    return by_system


def bound_rows(drafter: str, predicted: pl.DataFrame) -> list[Row]:
    """The replay's bounds in hindsight on a draft set: of all its trees, and of routers; in all and by data set."""
    is_bound = pl.col("policy").str.starts_with("hindsight")
    return [
        {"bound": policy, "drafter": drafter, "slice": part, **_counts(summary), **_speed("predicted", summary)}
        for (part, policy), summary in _summaries(predicted.filter(is_bound | (pl.col("name") == PLAIN))).items()
        if summary.name != PLAIN
    ]


def _summaries(rows: pl.DataFrame) -> dict[tuple[str, str], Summary]:
    """By slice and policy."""
    if not rows.height:
        return {}
    whole = {(ALL, summary.policy): summary for summary in summarise(rows)}
    return whole | {(str(summary.slice), summary.policy): summary for summary in summarise(rows, DATASET)}


_Gains = Mapping[tuple[str, str, str, str, str], Comparison]
"""By kind, prices, size, system and slice."""


def _gains(
    entries: Sequence[Entry], runs: FieldRuns, tables: Mapping[tuple[str, str], _Table]
) -> dict[tuple[str, str, str, str, str], Comparison]:
    """Each policy over the baseline, on the same prompts, paired; policies of one size are one family.

    By tokens it is the baseline that drafts as many. By seconds it is that one too, and of the fastest settings the
    baseline's own fastest. Speeds are over autoregressive decoding. Latency profiles and runs of two draft sets were
    measured one after the other, and differ by more than policies do: speeds are compared within the baseline's draft
    set alone.
    """
    gains: dict[tuple[str, str, str, str, str], Comparison] = {}
    for size, prices in dict.fromkeys((entry.size, entry.prices) for entry in entries):
        family = [entry for entry in entries if (entry.size, entry.prices) == (size, prices)]
        base = next((entry for entry in entries if entry.system == BASELINE and entry.prices == prices), None)
        if base is None:
            continue
        as_many = _over_as_many(family, prices, runs, tables)
        seconds, measured = [pair for pair in as_many if pair[0].drafter == base.drafter], list[_Pair]()
        fastest = next((entry for entry in family if entry.system == BASELINE), None)
        if size == FASTEST and fastest is not None:
            seconds = _over(fastest, family, runs.predicted[base.drafter, prices])
            if prices == entries[0].prices and base.drafter in runs.measured:
                measured = _over(fastest, family, runs.measured[base.drafter])
        for kind, pairs, measure in (
            ("tokens", as_many, "acceptance_length"),
            ("speed", seconds, "speedup"),
            ("measured", measured, "speedup"),
        ):
            for entry, comparison in _compared(pairs):
                if comparison.measure == measure:
                    part = ALL if comparison.slice is None else str(comparison.slice)
                    gains[kind, prices, size, entry.system, part] = comparison
    return gains


def _over_as_many(
    family: Sequence[Entry], prices: str, runs: FieldRuns, tables: Mapping[tuple[str, str], _Table]
) -> list["_Pair"]:
    """Each policy and the baseline that drafts as many tokens."""
    pairs = []
    for entry in family:
        if entry.system != BASELINE:
            drafted = tables[entry.drafter, prices][ALL, entry.label].totals.nodes_per_round
            own = _run(entry.system, runs.predicted[entry.drafter, prices], entry.label)
            pairs.append((entry, own, baseline_of(drafted, runs.baseline[prices])))
    return pairs


def _over(base: Entry, family: Sequence[Entry], rows: pl.DataFrame) -> list["_Pair"]:
    """Each policy of the baseline's draft set and the baseline, as far as rows are of both."""
    baseline = _run(BASELINE, rows, base.label)
    others = [entry for entry in family if entry.drafter == base.drafter and entry is not base]
    pairs = [(entry, _run(entry.system, rows, entry.label), baseline) for entry in others]
    return [pair for pair in pairs if pair[1].rows.height and baseline.rows.height]


_Pair = tuple[Entry, PolicyRun, PolicyRun]


def _run(name: str, rows: pl.DataFrame, label: str) -> PolicyRun:
    return PolicyRun(name, rows.filter(pl.col("policy") == label), rows.filter(pl.col("name") == PLAIN))


def _compared(pairs: Sequence[_Pair]) -> Iterator[tuple[Entry, Comparison]]:
    """Comparisons of the first run of each pair with the second, one family."""
    runs = {run.name: run for _, *both in pairs for run in both}
    indices = {name: index for index, name in enumerate(runs)}
    entries = {entry.system: entry for entry, *_ in pairs}
    if pairs:
        shared, _ = shared_runs(list(runs.values()))
        for comparison in compare_runs(
            shared, [(indices[first.name], indices[second.name]) for _, first, second in pairs], DATASET
        ):
            yield entries[comparison.first], comparison


def _gains_row(gains: _Gains, entry: Entry, part: str) -> Row:
    """The gains of a policy on a slice, as ratios less 1."""
    row: Row = {}
    for kind in ("tokens", "speed", "measured"):
        comparison, name = gains.get((kind, entry.prices, entry.size, entry.system, part)), f"gain_{kind}"
        row[name] = None if comparison is None else _rounded(comparison.ratio - 1)
        row |= _ends(name, UNKNOWN if comparison is None else comparison.ratio_interval, 1.0)
        row[f"{name}_differs"] = None if comparison is None else comparison.differs
    return row


def _counts(summary: Summary) -> Row:
    return {
        "prompts": summary.prompts,
        "acceptance_length": _rounded(summary.totals.acceptance_length),
        **_ends("acceptance_length", summary.interval),
        "nodes_per_round": _rounded(summary.totals.nodes_per_round),
    }


def _stages(summary: Summary) -> Row:
    """Milliseconds of each stage a round."""
    seconds, rounds = summary.speed.seconds, max(summary.totals.rounds, 1)
    return {
        f"{name.removesuffix('_s')}_ms": None if seconds is None else _rounded(1000 * getattr(seconds, name) / rounds)
        for name in STAGE_COLUMNS
    }


def _speed(kind: str, summary: Summary | None) -> Row:
    value, ends = (math.nan, UNKNOWN) if summary is None else (summary.speed.speedup, summary.speed.interval)
    return {f"{kind}_speedup": _rounded(value), **_ends(f"{kind}_speedup", ends)}


def _ends(name: str, interval: Interval, less: float = 0.0) -> Row:
    return {f"{name}_low": _rounded(interval.low - less), f"{name}_high": _rounded(interval.high - less)}


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


@dataclass(frozen=True, eq=False, repr=False)
class FieldResult(StudyResult):
    """Every system of the field on the same prompts.

    Attributes:
        facts: of the machine, the models, the prompts and the size of the field; JSON values.
        rows: of each policy, on all prompts and on each data set.
        bounds: what no policy can exceed, by draft set.
        left_out: systems that could not run, and why.
        seconds: of each step.
        has_failed: whether a text of the runs is not the target's, or rounds are not those of their replay.
    """

    facts: Row
    rows: Sequence[Row]
    bounds: Sequence[Row]
    left_out: Mapping[str, str]
    seconds: Mapping[str, float]
    has_failed: bool

    def to_json(self) -> Row:
        """What ``field.json`` holds and ``--json`` prints."""
        values = {name: getattr(self, name) for name in ("rows", "bounds", "left_out", "seconds", "has_failed")}
        return {"format": "simlab-field", "format_version": 2, **self.facts, **values}

    def text(self) -> str:
        """A table of each size, on all prompts."""
        sizes = [*map(str, NODES), PUBLISHED, FASTEST]
        titles = {(row["size"], row["prices"]): _title(row) for row in self.rows}
        parts = [self._of_size(titles[key], *key) for key in sorted(titles, key=lambda key: sizes.index(key[0]))]
        if self.left_out:
            parts.append("Left out: " + "; ".join(f"{name}: {why}" for name, why in self.left_out.items()) + ".")
        parts.append(
            f"Tokens are compared with {BASELINE} of as many drafted tokens; speeds too, and at the fastest setting "
            f"with {BASELINE}'s own fastest; on the same prompts, 95 %. * marks a reconstruction or a variant, "
            f"{UNTIMED} a size that nobody timed, whose seconds are a straight line between two that were. Speeds are "
            "compared within a draft set alone, since profiles and runs were measured one after the other. Speedups "
            "are over autoregressive decoding."
        )
        return "\n\n".join(part if "\n" in part else within_width(part) for part in parts)

    def write(self, path: Path) -> None:
        """Write all figures as JSON, a row a line."""
        blocks = []
        for key, value in self.to_json().items():
            block = json.dumps(value, allow_nan=False)
            if isinstance(value, list) and value and isinstance(value[0], dict):
                block = "[\n" + ",\n".join("  " + json.dumps(row, allow_nan=False) for row in value) + "\n ]"
            blocks.append(f" {json.dumps(key)}: {block}")
        text = "{\n" + ",\n".join(blocks) + "\n}\n"
        write_beside(path, lambda file: file.write(text.encode()))

    def _of_size(self, title: str, size: str, prices: str) -> str:
        shown = [("acceptance_length", 2, 1), ("gain_tokens", 1, 100), ("predicted_speedup", 2, 1)]
        shown += [("gain_speed", 1, 100), ("measured_speedup", 2, 1)]
        cells = [["system", "policy", "drafted", "tokens", "gain %", "predicted", "gain %", "measured"]]
        for row in self.rows:
            if (row["size"], row["prices"], row["slice"]) == (size, prices, ALL):
                system = f"{row['system']}{'*' if row['reconstruction'] else ''}{UNTIMED if row['untimed'] else ''}"
                figures = (with_ends(row, *column) for column in shown)
                cells.append([system, str(row["policy"])[:60], f"{row['nodes_per_round']:.1f}", *figures])
        return f"{title}\n{aligned(cells, [True, True, *[False] * 6])}"


def _title(row: Row) -> str:
    if row["size"] == FASTEST:
        return f"Each at its fastest setting on dev, by the prices {row['prices']}"
    if row["size"] == PUBLISHED:
        return "Each as published"
    return f"Each at {row['size']} drafted tokens a round on dev, within {100 * CLOSE:.0f} %"


UNTIMED = "†"
"""Marks a row at whose size no round was timed."""


def with_ends(row: Mapping[str, Any], name: str, digits: int, scale: float = 1) -> str:
    """A figure of a row and its 95 % interval, with so many decimals; empty where it is not known."""
    value, *ends = (row[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return ""
    text = f"{scale * value:.{digits}f}"
    if None in ends:
        return text
    return f"{text} [{scale * ends[0]:.{digits}f}, {scale * ends[1]:.{digits}f}]"
