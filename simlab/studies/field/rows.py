"""The table of the field: each policy's tokens, seconds and gains, predicted and measured, in all and by data set."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from simlab.studies.field.systems import BASELINE, BESIDE, EQUAL, FASTEST, NODES, VARIANTS
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.cost import gap_around
from simlab.traces.format.files import write_beside

DATASET, ALL = "dataset", "all"
KINDS = ("predicted", "gpu_like", "measured")
"""At the measured latency profile; the same rounds where a pass of up to 64 tokens takes as long as one of 64; and in
the runs of the real models."""

OWN = "own"
"""In place of a kind: over the baseline that drafts as many tokens as a system came to."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy of the field.

    Attributes:
        system: the row.
        size: drafted tokens as text, or `FASTEST`.
        drafter: the draft set.
        policy: as it is typed, one point.
        chosen_from: how many settings it was chosen from, on dev.
        own_nodes: drafted tokens of its rounds on dev, where these are not its size.
    """

    system: str
    size: str
    drafter: str
    policy: str
    chosen_from: int
    own_nodes: int | None = None

    @property
    def label(self) -> str:
        """How result rows call the policy."""
        return LABELS.get(self.policy, self.policy)

    @property
    def group(self) -> str:
        """With what it runs, `EQUAL` or `FASTEST`; `BESIDE`: it is predicted and does not run."""
        return FASTEST if self.size == FASTEST else EQUAL if self.size.isdigit() else BESIDE

    @property
    def parts(self) -> list[str]:
        """Whose ideas it is made of: its own policy, those of its routes, and those that a ``tree`` takes parts of."""
        parts = [word for word in re.split(r'[:=,|"]', self.policy) if word in POLICIES]
        parts += ["presto"] if re.search(r"ngram_weight=(?!0(?:\.0*)?(?:,|$))", self.policy) else []
        parts += ["self"] if "masked=" in self.policy else []
        return list(dict.fromkeys(parts))


FieldRows = Mapping[tuple[str, str, str], pl.DataFrame]
"""Result rows by draft set, kind (of `KINDS`) and what ran together (`Entry.group`); those that ran may be empty."""


def field_rows(entries: Sequence[Entry], results: FieldRows) -> list[Row]:
    """A row for each policy on all prompts and on each data set, the baseline's among them."""
    about, gains = sources(entries), _gains(entries, results)
    rows: list[Row] = []
    tables = {key: _summaries(some) for key, some in results.items()}
    on_measured = {}
    for (drafter, kind, group), rows_of_kind in results.items():
        if kind == "measured":
            of_texts = pl.col("sequence").is_in(rows_of_kind["sequence"].unique().to_list())
            on_measured[drafter, group] = _summaries(results[drafter, "predicted", group].filter(of_texts))
    for entry in entries:
        predicted, gpu_like, measured = (tables[entry.drafter, kind, entry.group] for kind in KINDS)
        for part in dict.fromkeys(part for part, _ in predicted):
            key = part, entry.label
            summary, ran, foreseen = predicted[key], measured.get(key), on_measured[entry.drafter, entry.group].get(key)
            exact = [each["exactness"] for each in about[entry.system].values()]
            rows.append(
                {
                    **asdict(entry),
                    "slice": part,
                    "reconstruction": entry.system in VARIANTS or any("reconstruction" in each for each in exact),
                    **_counts(summary),
                    **_stages(summary),
                    **_speed("predicted", summary),
                    **_ends("predicted_speedup_price", summary.speed.price_interval),
                    **_speed("gpu_like", gpu_like.get(key)),
                    **_speed("measured", ran),
                    "predicted_on_measured": None if foreseen is None else _rounded(foreseen.speed.speedup),
                    "predicted_verify_ms_on_measured": None if foreseen is None else _stages(foreseen)["verify_ms"],
                    "measured_verify_ms": None if ran is None else _stages(ran)["verify_ms"],
                    "measured_prompts": 0 if ran is None else ran.prompts,
                    **_gains_row(gains, entry, part),
                }
            )
    return rows


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
"""By kind, draft set and system, size, slice and measure."""


def _gains(entries: Sequence[Entry], results: FieldRows) -> _Gains:
    """Each policy over the baseline of its size, on the same prompts, paired.

    Speeds are over autoregressive decoding, each policy's over that of its own profile or run. Two latency profiles
    were measured one after the other, and differ by more than policies do: predicted speeds are compared within the
    baseline's draft set alone.
    """
    gains = {}
    for base in (entry for entry in entries if entry.system == BASELINE):
        pairs = [(entry, base) for entry in entries if entry.size == base.size and entry is not base]
        for kind in KINDS:
            for one, comparison in _compared(pairs, results, kind):
                is_speed = comparison.measure == "speedup"
                if is_speed and kind != "measured" and one.drafter != base.drafter:
                    continue
                gains[kind, one.system, base.size, _part(comparison), comparison.measure] = comparison
    own = {beside_size(entry.own_nodes): entry for entry in entries if entry.own_nodes is not None}
    bases = {entry.size: entry for entry in entries if entry.system == BASELINE and entry.size in own}
    pairs = [(entry, bases[size]) for entry in entries if (size := beside_size(entry.own_nodes)) in bases]
    for one, comparison in _compared(pairs, results, KINDS[0]):
        gains[OWN, one.system, one.size, _part(comparison), comparison.measure] = comparison
    return gains


def beside_size(own_nodes: int | None) -> str:
    """The size, as text, of the baseline that drafts as many tokens as another system came to."""
    return f"{own_nodes} nodes"


def _part(comparison: Comparison) -> str:
    return ALL if comparison.slice is None else str(comparison.slice)


def _compared(
    pairs: Sequence[tuple[Entry, Entry]], results: FieldRows, kind: str
) -> Iterator[tuple[Entry, Comparison]]:
    """Comparisons of the first entry of each pair with the second, one family, of those that have rows."""
    runs, entries = [], dict[str, Entry]()
    for entry in dict.fromkeys(entry for pair in pairs for entry in pair):
        rows = results[entry.drafter, kind, entry.group]
        own, plain = rows.filter(pl.col("policy") == entry.label), rows.filter(pl.col("name") == PLAIN)
        if own.height:
            entries[f"{entry.system} {entry.drafter} {entry.size}"] = entry
            runs.append(PolicyRun(list(entries)[-1], own, plain))
    places = {entry: place for place, entry in enumerate(entries.values())}
    known = [(places[one], places[base]) for one, base in pairs if one in places and base in places]
    if known:
        shared, _ = shared_runs(runs)
        for comparison in compare_runs(shared, known, DATASET):
            yield entries[comparison.first], comparison


def _gains_row(gains: _Gains, entry: Entry, part: str) -> Row:
    """The gains of a policy on a slice, as ratios less 1."""
    row: Row = {}
    for kind, measure, name in (
        ("predicted", "acceptance_length", "gain_tokens"),
        (OWN, "acceptance_length", "gain_tokens_own"),
        ("predicted", "speedup", "gain_speed"),
        ("gpu_like", "speedup", "gain_gpu_like"),
        ("measured", "speedup", "gain_measured"),
    ):
        comparison = gains.get((kind, entry.system, entry.size, part, measure))
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
        kept = {name: getattr(self, name) for name in ("rows", "bounds", "left_out", "seconds", "has_failed")}
        return {"format": "simlab-field", "format_version": 1, **self.facts, **kept}

    def text(self) -> str:
        """A table of each size, on all prompts."""
        parts = [self._of_size(size) for size in (*map(str, NODES), FASTEST)]
        if self.left_out:
            parts.append("Left out: " + "; ".join(f"{name}: {why}" for name, why in self.left_out.items()) + ".")
        parts.append(
            f"Gains are over {BASELINE} of the same size, on the same prompts, 95 %; * marks a reconstruction or a "
            f"variant, {UNTIMED} a size that nobody timed, whose seconds are a straight line between two that were. "
            "Predicted gains in speed are given within a draft set alone, since profiles were measured one after the "
            "other. Speedups are over autoregressive decoding. GPU-like: what if a pass of up to 64 tokens took as "
            "long as one of 64."
        )
        return "\n\n".join(part if "\n" in part else within_width(part) for part in parts)

    def write(self, path: Path) -> None:
        """Write all figures as JSON, a row a line."""
        blocks = []
        for key, value in self.to_json().items():
            block = json.dumps(value, allow_nan=False)
            if isinstance(value, list) and value and isinstance(value[0], dict):
                block = "[\n" + ",\n".join("  " + json.dumps(one, allow_nan=False) for one in value) + "\n ]"
            blocks.append(f" {json.dumps(key)}: {block}")
        text = "{\n" + ",\n".join(blocks) + "\n}\n"
        write_beside(path, lambda file: file.write(text.encode()))

    def _of_size(self, size: str) -> str:
        title = "Each at its fastest setting on dev" if size == FASTEST else f"At most {size} drafted tokens a round"
        what, gain = ("speed", "gain_speed") if size == FASTEST else ("tokens", "gain_tokens")
        shown = [("acceptance_length", 2, 1), (gain, 1, 100)]
        shown += [(f"{kind}_speedup", 2, 1) for kind in ("predicted", "measured", "gpu_like")]
        cells = [["system", "policy", "tokens", f"{what}, gain %", "predicted", "measured", "GPU-like"]]
        for row in self.rows:
            if row["size"] == size and row["slice"] == ALL:
                untimed = gap_of_row(row, self.facts["size"]["node_counts"]) is not None
                system = f"{row['system']}{'*' if row['reconstruction'] else ''}{UNTIMED if untimed else ''}"
                cells.append([system, str(row["policy"])[:60], *(with_ends(row, *column) for column in shown)])
        return f"{title}\n{aligned(cells, [True, True, *[False] * 5])}"


UNTIMED = "†"
"""Marks a row at whose size no round was timed."""


def gap_of_row(row: Mapping[str, Any], node_counts: Sequence[int]) -> tuple[int, int] | None:
    """The timed node counts around the size of a row, where nobody timed that size.

    Args:
        row: of a field, with its policy and its drafted tokens a round. A router has the sizes of its routes.
        node_counts: that the profile has, 0 aside.
    """
    is_router = re.match(r"(router|whiflash):", row["policy"])
    sizes = re.findall(r"(?:budget|length)=(\d+)", row["policy"]) if is_router else [row["nodes_per_round"]]
    gaps = (gap_around((0, *node_counts), float(size)) for size in sizes)
    return next((gap for gap in gaps if gap is not None), None)


def with_ends(one: Mapping[str, Any], name: str, digits: int, scale: float = 1) -> str:
    """A figure of a row and its 95 % interval, with so many decimals; empty where it is not known."""
    value, *ends = (one[key] for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return ""
    text = f"{scale * value:.{digits}f}"
    if None in ends:
        return text
    return f"{text} [{scale * ends[0]:.{digits}f}, {scale * ends[1]:.{digits}f}]"
