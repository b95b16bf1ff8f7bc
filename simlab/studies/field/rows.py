"""The table of the field: each policy's tokens, seconds and gains, predicted and measured, in all and by data set."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.summaries import BASELINE as PLAIN
from simlab.analysis.table.summaries import STAGE_COLUMNS, Summary, summarise
from simlab.policies.parsing.describe import describe_policies
from simlab.studies.field.choice import Entry
from simlab.studies.field.systems import BASELINE

DATASET, ALL = "dataset", "all"

Row = Mapping[str, object]
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class FieldRows:
    """Result rows of one draft set.

    Attributes:
        drafter: the draft set.
        predicted: at the measured latency profile.
        gpu_like: the same rounds where a pass of up to 64 tokens takes as long as one of 64.
        measured: of the runs of the real models, by what ran together: `Entry.group`; may be empty.
    """

    drafter: str
    predicted: pl.DataFrame
    gpu_like: pl.DataFrame
    measured: Mapping[str, pl.DataFrame]

    def of_kind(self, kind: str, group: str) -> pl.DataFrame:
        """The rows of one kind, of what ran together."""
        if kind == "measured":
            return self.measured[group]
        return self.gpu_like if kind == "gpu_like" else self.predicted


def field_rows(entries: Sequence[Entry], found: Mapping[str, FieldRows]) -> list[Row]:
    """A row for each policy on all prompts and on each data set, the baseline's among them.

    Args:
        entries: policies of all draft sets.
        found: by draft set.
    """
    about = sources(entries)
    tables = {drafter: _Table(one) for drafter, one in found.items()}
    gains = _Gains(entries, found)
    rows: list[Row] = []
    for entry in entries:
        table = tables[entry.drafter]
        for part in table.slices:
            key = part, entry.label
            one, ran = table.predicted[key], table.measured[entry.group].get(key)
            rows.append(
                {
                    **asdict(entry),
                    "slice": part,
                    "reconstruction": any("reconstruction" in one["exactness"] for one in about[entry.system].values()),
                    **_counts(one),
                    **_stages(one),
                    **_speed("predicted", one),
                    **_ends("predicted_speedup_price", one.speed.price_interval),
                    **_speed("gpu_like", table.gpu_like.get(key)),
                    **_speed("measured", ran),
                    "predicted_on_measured": _value(table.on_measured[entry.group].get(key)),
                    "predicted_verify_ms_on_measured": _verify_ms(table.on_measured[entry.group].get(key)),
                    "measured_verify_ms": _verify_ms(ran),
                    "measured_prompts": _prompts(ran),
                    **gains.row(entry, part),
                }
            )
    return rows


def sources(entries: Sequence[Entry]) -> dict[str, dict[str, dict[str, str]]]:
    """How exact the policies are that each system is made of, and where they come from, by system and policy."""
    names = sorted({name for entry in entries for name in entry.parts})
    about = {one.name: {"exactness": one.exactness, "source": one.source} for one in describe_policies(names)}
    found: dict[str, dict[str, dict[str, str]]] = {}
    for entry in entries:
        found.setdefault(entry.system, {}).update({name: about[name] for name in entry.parts})
    return found


def bound_rows(found: FieldRows) -> list[Row]:
    """The replay's bounds in hindsight on this draft set: of all its trees, and of routers; in all and by data set."""
    is_bound = pl.col("policy").str.starts_with("hindsight")
    summaries = _summaries(found.predicted.filter(is_bound | (pl.col("name") == PLAIN)))
    return [
        {"bound": policy, "drafter": found.drafter, "slice": part, **_counts(one), **_speed("predicted", one)}
        for (part, policy), one in summaries.items()
        if one.name != PLAIN
    ]


class _Table:
    """Summaries of one draft set by slice and policy."""

    def __init__(self, rows: FieldRows) -> None:
        self.predicted = _summaries(rows.predicted)
        self.gpu_like = _summaries(rows.gpu_like)
        self.measured = {group: _summaries(ran) for group, ran in rows.measured.items()}
        self.on_measured = {group: _summaries(_on(rows.predicted, ran)) for group, ran in rows.measured.items()}
        self.slices = list(dict.fromkeys(part for part, _ in self.predicted))


def _on(predicted: pl.DataFrame, ran: pl.DataFrame) -> pl.DataFrame:
    """What was predicted of the texts that ran."""
    return predicted.filter(pl.col("sequence").is_in(ran["sequence"].unique().to_list()))


def _summaries(rows: pl.DataFrame) -> dict[tuple[str, str], Summary]:
    if not rows.height:
        return {}
    found = {(ALL, one.policy): one for one in summarise(rows)}
    return found | {(str(one.slice), one.policy): one for one in summarise(rows, DATASET)}


class _Gains:
    """Each policy over the baseline of its size, on the same prompts, paired.

    Speeds are over plain decoding, each policy's over that of its own profile or run. Two latency profiles were
    measured one after the other, and differ by more than policies do: predicted speeds are compared within a draft set
    alone.
    """

    def __init__(self, entries: Sequence[Entry], found: Mapping[str, FieldRows]) -> None:
        self._found: dict[tuple[str, str, str, str, str], Comparison] = {}
        bases = {one.size: one for one in entries if one.system == BASELINE}
        self._baseline = next((one.drafter for one in bases.values()), None)
        for kind in ("predicted", "gpu_like", "measured"):
            for size, base in bases.items():
                for one, comparison in _compared([one for one in entries if one.size == size], base, found, kind):
                    part = ALL if comparison.slice is None else str(comparison.slice)
                    self._found[kind, one.system, size, part, comparison.measure] = comparison

    def row(self, entry: Entry, part: str) -> Row:
        """The gains of a policy on one slice, as ratios less 1."""
        row: dict[str, object] = {}
        for kind, measure, name in (
            ("predicted", "acceptance_length", "gain_tokens"),
            ("predicted", "speedup", "gain_speed"),
            ("gpu_like", "speedup", "gain_gpu_like"),
            ("measured", "speedup", "gain_measured"),
        ):
            one = self._found.get((kind, entry.system, entry.size, part, measure))
            if measure == "speedup" and kind != "measured" and entry.drafter != self._baseline:
                one = None
            row[name] = None if one is None else _rounded(one.ratio - 1)
            row |= _ends(name, None if one is None else one.ratio_interval, 1.0)
            row[f"{name}_differs"] = None if one is None else one.differs
        return row


def _compared(
    entries: Sequence[Entry], base: Entry, found: Mapping[str, FieldRows], kind: str
) -> Iterator[tuple[Entry, Comparison]]:
    others = [one for one in entries if one is not base]
    runs = [_run(one, found[one.drafter].of_kind(kind, one.group)) for one in (base, *others)]
    there = [place for place, run in enumerate(runs) if run.rows.height]
    if len(there) < 2 or there[0] != 0:
        return
    shared, _ = shared_runs([runs[place] for place in there])
    compared = [(base, *others)[place] for place in there]
    by_name = {run.name: entry for run, entry in zip(shared, compared, strict=True)}
    for comparison in compare_runs(shared, [(place, 0) for place in range(1, len(shared))], DATASET):
        yield by_name[comparison.first], comparison


def _run(entry: Entry, rows: pl.DataFrame) -> PolicyRun:
    name = f"{entry.system} {entry.drafter}"
    if not rows.height:
        return PolicyRun(name, rows, rows)
    return PolicyRun(name, rows.filter(pl.col("policy") == entry.label), rows.filter(pl.col("name") == PLAIN))


def _counts(one: Summary) -> Row:
    return {
        "prompts": one.prompts,
        "acceptance_length": _rounded(one.totals.acceptance_length),
        **_ends("acceptance_length", one.interval),
        "nodes_per_round": _rounded(one.totals.nodes_per_round),
    }


def _stages(one: Summary) -> Row:
    """Milliseconds of each stage a round."""
    seconds, rounds = one.speed.seconds, max(one.totals.rounds, 1)
    return {
        f"{name.removesuffix('_s')}_ms": None if seconds is None else _rounded(1000 * getattr(seconds, name) / rounds)
        for name in STAGE_COLUMNS
    }


def _verify_ms(one: Summary | None) -> object:
    """Milliseconds of verification a round, of what ran."""
    return None if one is None else _stages(one)["verify_ms"]


def _speed(kind: str, one: Summary | None) -> Row:
    name = f"{kind}_speedup"
    if one is None:
        return {name: None, **_ends(name, None)}
    return {name: _rounded(one.speed.speedup), **_ends(name, one.speed.interval)}


def _value(one: Summary | None) -> float | None:
    return None if one is None else _rounded(one.speed.speedup)


def _prompts(one: Summary | None) -> int:
    return 0 if one is None else one.prompts


def _ends(name: str, interval: Interval | None, less: float = 0.0) -> Row:
    low, high = (math.nan, math.nan) if interval is None else (interval.low, interval.high)
    return {f"{name}_low": _rounded(low - less), f"{name}_high": _rounded(high - less)}


def _rounded(value: float) -> float | None:
    return round(value, _DIGITS) if math.isfinite(value) else None
