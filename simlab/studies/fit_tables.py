"""What policies are fitted with, from a dense trace: maps of probabilities, frequencies of ranks, prices of seconds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import polars as pl

from simlab.analysis.table.text import within_width
from simlab.arrays import Doubles
from simlab.channels.needs import channels_read
from simlab.errors import UsageError, as_usage_error
from simlab.options import cost_option, draft_set_option, limit_option, option, path_or_none, study
from simlab.policies.composition import composition_of
from simlab.policies.fits.calibration import (
    CalibrationQuality,
    RankCounts,
    add_edges,
    add_ranks,
    fit_map,
    held_out_quality,
    no_edge_counts,
    no_rank_counts,
    rank_frequencies,
    total_edge_counts,
)
from simlab.policies.fits.price import PricedRounds, fixed_point
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.online_price import OnlinePrice
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, prices_for_trace
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceSource, draft_set_named, opened
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.table import TableFile, write_table_file
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.reader import Trace
from simlab.tracking.tracker import check_trackers, track_option, tracking

NUM_PARTS = 4
"""Parts into which prompts are dealt; each is judged under a map that was fitted to the others."""

_SHOWN_RANKS = 4


@dataclass(frozen=True, slots=True, eq=False)
class FitSource:
    """The draft set of a trace that something is fitted on.

    Attributes:
        trace: the recording.
        draft: the draft set.
        prompts: for each sequence that is read, in order, the number of its prompt.
    """

    trace: Trace
    draft: str
    prompts: dict[int, int]

    @property
    def kept(self) -> DraftSet:
        """What the manifest says of the draft set."""
        return self.trace.manifest.draft_sets[self.draft]

    @property
    def num_prompts(self) -> int:
        """How many prompts are read."""
        return len(set(self.prompts.values()))

    @property
    def num_positions(self) -> int:
        """How many roots are read, in all texts."""
        return sum(len(sequence.text) - 1 for sequence in self.trace.sequences() if sequence.index in self.prompts)

    def recorded(self, channels: Sequence[str] = ()) -> Iterator[RecordedSequence]:
        """Read the texts, their rows and the named channels, with a bar on a terminal after two seconds."""
        with progress_bar(None, "train", "sequence", len(self.prompts)) as bar:
            for sequence in self.trace.recorded(self.draft, list(self.prompts), channels):
                yield sequence
                bar.update()

    def to_json(self) -> dict[str, object]:
        """Where a result comes from, as flat values."""
        return {
            "text_id": self.trace.text_id,
            "draft_id": self.trace.draft_ids[self.draft],
            "num_prompts": self.num_prompts,
            "num_positions": self.num_positions,
        }

    def text(self) -> str:
        """Where a result comes from, in a line."""
        return (
            f"{self.draft} on {self.trace.label} (text {self.trace.text_id}): "
            f"{self.num_prompts:,} prompts, {self.num_positions:,} positions"
        )


def _source(trace: TraceSource, draft: str | None, limit: int | None) -> FitSource:
    """The draft set of that name, and the first so many prompts."""
    recording = opened(trace)
    name = draft_set_named(recording, draft)
    numbers: dict[tuple[str, str], int] = {}
    prompts: dict[int, int] = {}
    for sequence in recording.sequences():
        number = numbers.setdefault((sequence.prompt.dataset, sequence.prompt.prompt_id), len(numbers))
        if limit is None or number < limit:
            prompts[sequence.index] = number
    return FitSource(recording, name, prompts)


def _check_width(source: FitSource, top_k: int) -> None:
    """Refuse more ranks than the trace keeps at every depth."""
    if top_k > source.kept.min_width:
        raise UsageError(
            f"--top-k {top_k} reads more ranks than {source.trace.location} keeps at every depth, which is "
            f"{source.kept.min_width}; give --top-k {source.kept.min_width} or less, or record with --min-width {top_k}"
        )


def _write_table(out: Path, kind: str, source: FitSource, values: Doubles) -> TableFile:
    """Write a fitted table, with what it was fitted on."""
    draft_set, manifest = source.kept, source.trace.manifest
    file = TableFile(
        kind=kind,
        target=manifest.target,
        drafter=draft_set.model,
        block_size=draft_set.block_size,
        text_id=source.trace.text_id,
        draft_id=source.trace.draft_ids[source.draft],
        num_positions=source.num_positions,
        values=values,
    )
    write_table_file(out, file)
    return file


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationFit(StudyResult):
    """A logistic map of a drafter's probabilities, and how well such maps do on prompts they were not fitted to.

    Attributes:
        source: what the map was fitted on.
        path: of the table.
        file: what is in it.
        num_parts: into which the prompts were dealt, for the held-out figures.
        held_out: for each depth, then for all together: the quality before and after such a map.
    """

    source: FitSource
    path: Path
    file: TableFile
    num_parts: int
    held_out: tuple[tuple[CalibrationQuality, CalibrationQuality], ...]

    ROWS: ClassVar[str] = "held_out"

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab train calibration --json`` prints."""
        return {
            "kind": "calibration",
            "path": str(self.path),
            "table_id": self.file.table_id,
            **self.source.to_json(),
            "num_parts": self.num_parts,
            "held_out": self._held_out_rows(),
        }

    def text(self) -> str:
        """The table that ``simlab train calibration`` prints."""
        lines = [
            self.source.text(),
            f"Held out, {self.num_parts} parts of the prompts in turn; a mean over candidates, before and after:",
            "",
            f"depth  {'candidates':>11}  {'true':>9}  {'nll (nats)':>16}  {'ece':>16}  {'ece of first':>16}",
        ]
        for index, (before, after) in enumerate(self.held_out, 1):
            name = "all" if index == len(self.held_out) else str(index)
            pairs = zip(before[2:], after[2:], strict=True)
            figures = "  ".join(f"{value:.5f}  {other:.5f}" for value, other in pairs)
            lines.append(f"{name:>5}  {before.num_edges:>11,}  {before.num_true:>9,}  {figures}")
        return "\n".join([*lines, "", f"Table: {self.path} ({self.file.table_id})"])

    def _held_out_rows(self) -> list[dict[str, object]]:
        """Flat values of each depth; the depth of all together is None."""
        depths = [*range(1, len(self.held_out)), None]
        return [_quality_json(depth, *pair) for depth, pair in zip(depths, self.held_out, strict=True)]


def _quality_json(depth: int | None, before: CalibrationQuality, after: CalibrationQuality) -> dict[str, object]:
    """Flat values of one depth; None: of all together."""
    values: dict[str, object] = {"depth": depth, "num_edges": before.num_edges, "num_true": before.num_true}
    for name in ("nll", "ece", "first_ece"):
        values |= {f"{name}_before": getattr(before, name), f"{name}_after": getattr(after, name)}
    return values


@dataclass(frozen=True)
class TableOptions:
    """What a table is fitted on, and where it is written."""

    trace: TraceSource = option(..., "a recorded trace of prompts to fit on", "DIR")
    _: KW_ONLY
    draft_set: str | None = draft_set_option()
    limit: int | None = limit_option()
    track: Sequence[str] = track_option()
    out: str | Path = option(..., "the table to write", "FILE", read=Path)
    top_k: int = option(64, "ranks that are read at each depth", "N")


@dataclass(frozen=True)
class CalibrationOptions(TableOptions):
    """What a calibration is fitted to."""

    DETAILS: ClassVar = """\
A logistic map of a drafter's probabilities, by depth and class of rank, for policies like calibrated.
Fit it on other prompts than those it is judged on. The figures it prints are held out: prompts are dealt
into four parts, and each part is judged under maps fitted to the other three. The file is fitted to all.

  simlab train calibration --trace runs/dev --out runs/calibration.json
  simlab replay -p 'calibrated:budget=64,table="runs/calibration.json"'"""


@study(CalibrationOptions)
def fit_calibration(options: CalibrationOptions) -> CalibrationFit:
    """Fit the probabilities of a drafter to what came true, by depth and class of rank, and write the table.

    Raises:
        SimlabError: the trace cannot be read, keeps fewer ranks, or has a single prompt; nothing is written.
    """
    check_trackers(options.track)
    source = _source(options.trace, options.draft_set, options.limit)
    _check_width(source, options.top_k)
    if source.num_prompts < 2:
        raise UsageError(f"{source.trace.location} has fewer than 2 prompts, so none can be held out; record more")
    with tracking(options.track, "train calibration", lambda: source.to_json() | {"top_k": options.top_k}) as tracker:
        parts = [no_edge_counts(source.kept.depth) for _ in range(min(NUM_PARTS, source.num_prompts))]
        for sequence in source.recorded():
            if sequence.rows is not None:
                add_edges(parts[source.prompts[sequence.index] % len(parts)], sequence.rows, options.top_k)
        file = _write_table(Path(options.out), "calibration", source, fit_map(total_edge_counts(parts)))
        fit = CalibrationFit(source, Path(options.out), file, len(parts), tuple(held_out_quality(parts)))
        tracker.results(fit.to_json())
        tracker.files(fit.path)
    return fit


@dataclass(frozen=True, eq=False, repr=False)
class RankFit(StudyResult):
    """How often the drafter's candidate of each rank was the true token, by depth.

    Attributes:
        source: what was counted.
        path: of the table.
        file: what is in it: frequencies, float64 ``[D, R]`` by depth and rank.
        counts: from which these are.
    """

    source: FitSource
    path: Path
    file: TableFile
    counts: RankCounts

    @cached_property
    def frame(self) -> pl.DataFrame:
        """A row per depth: true tokens that were counted, and the share of them that was the first candidate."""
        numbers, shares = self.counts.numbers.tolist(), self.file.values[:, 0].tolist()
        return pl.DataFrame({"depth": range(1, len(numbers) + 1), "numbers": numbers, "first_share": shares})

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab train ranks --json`` prints."""
        return {
            "kind": "ranks",
            "path": str(self.path),
            "table_id": self.file.table_id,
            **self.source.to_json(),
            "numbers": self.counts.numbers.tolist(),
            "first_share": self.file.values[:, 0].tolist(),
        }

    def text(self) -> str:
        """The table that ``simlab train ranks`` prints."""
        frequencies = self.file.values
        shown = min(_SHOWN_RANKS, frequencies.shape[1])
        names = "".join(f"{f'rank {rank}':>9}" for rank in range(shown))
        lines = [
            self.source.text(),
            "Share of true tokens by rank, where the path was right so far:",
            "",
            f"depth  {'tokens':>9}{names}{'others':>9}{'none':>9}",
        ]
        for depth, row in enumerate(frequencies):
            shares = [*row[:shown].tolist(), float(row[shown:].sum()), 1.0 - float(row.sum())]
            cells = "".join(f"{share:>9.4f}" for share in shares)
            lines.append(f"{depth + 1:>5}  {self.counts.numbers[depth]:>9,}{cells}")
        return "\n".join([*lines, "", f"Table: {self.path} ({self.file.table_id})"])


@dataclass(frozen=True)
class RankOptions(TableOptions):
    """What ranks are counted in."""

    DETAILS: ClassVar = """\
How often the drafter's candidate of each rank is the true token, by depth, for policies such as sequoia.

  simlab train ranks --trace runs/dev --out runs/ranks.json"""


@study(RankOptions)
def fit_ranks(options: RankOptions) -> RankFit:
    """Count which of a drafter's candidates came true, by depth and rank, and write the table.

    Raises:
        SimlabError: the trace cannot be read, or keeps fewer ranks; nothing is written.
    """
    check_trackers(options.track)
    source = _source(options.trace, options.draft_set, options.limit)
    _check_width(source, options.top_k)
    with tracking(options.track, "train ranks", lambda: source.to_json() | {"top_k": options.top_k}) as tracker:
        counts = no_rank_counts(source.kept.depth, options.top_k)
        for sequence in source.recorded():
            if sequence.rows is not None:
                add_ranks(counts, sequence.rows)
        file = _write_table(Path(options.out), "ranks", source, rank_frequencies(counts))
        fit = RankFit(source, Path(options.out), file, counts)
        tracker.results(fit.to_json())
        tracker.files(fit.path)
    return fit


@dataclass(frozen=True, eq=False, repr=False)
class PriceFit(StudyResult):
    """The rate at which a policy's seconds are to be priced, so that its rounds bring as many expected tokens.

    Attributes:
        source: the rounds' recording.
        prices: what rounds cost.
        policy: as it is typed, with its rate.
        rate: tokens per second.
        tried: the rounds at every rate that was tried, in order.
        settled: see `simlab.policies.fits.price.fixed_point`.
    """

    source: FitSource
    prices: Prices
    policy: str
    rate: float
    tried: Mapping[float, PricedRounds]
    settled: bool

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row, with the keys of ``--json`` as columns."""
        return pl.from_dicts([self.to_json()])

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab train price --json`` prints."""
        rounds = self.tried[self.rate]
        return {
            "kind": "price",
            "policy": self.policy,
            "cost": self.prices.cost_id,
            **self.source.to_json(),
            "rate": self.rate,
            "settled": self.settled,
            "rates": list(self.tried),
            "rounds": rounds.num_rounds,
            "expected_per_s": rounds.expected_per_s,
            "committed_per_s": rounds.committed_per_s,
        }

    def text(self) -> str:
        """The lines that ``simlab train price`` prints."""
        rounds = self.tried[self.rate]
        tried = f"{len(self.tried)} rates were tried"
        ended = "the last one settled it" if self.settled else "they take turns; this is the best of them"
        return (
            f"{self.source.text()}\n{within_width(f'latency: {self.prices.heading}')}\n\n"
            f"{self.rate:.6g} tokens/s; {tried}, {ended}.\n"
            f"Its {rounds.num_rounds:,} rounds predict {rounds.expected_per_s:.2f} tokens/s by their path "
            f"probabilities and bring {rounds.committed_per_s:.2f}.\nPolicy: {self.policy}"
        )


@dataclass(frozen=True)
class PriceOptions:
    """The policy whose rate is wanted, and the recording."""

    DETAILS: ClassVar = """\
The rate, in tokens per second, at which the policy's own rounds bring as many expected tokens.

  simlab train price --trace runs/dev -p price:budget=256"""

    trace: TraceSource = option(..., "a recorded trace of prompts to fit on", "DIR")
    policy: str = option("price", "without its rate", "POLICY", names="-p --policy")
    _: KW_ONLY
    draft_set: str | None = draft_set_option()
    limit: int | None = limit_option()
    track: Sequence[str] = track_option()
    cost: str | Path | None = cost_option()


@study(PriceOptions)
def fit_price(options: PriceOptions) -> PriceFit:
    """Find the rate at which a policy should price its seconds.

    Raises:
        SimlabError: the trace or the prices cannot be read, or this is not one policy that learns a rate.
    """
    check_trackers(options.track)
    source = _source(options.trace, options.draft_set, options.limit)
    prices = prices_for_trace(path_or_none(options.cost), source.trace, source.draft, options.limit)
    named = parse_policies([options.policy], TraceArtefacts(prices, source.trace, source.draft))
    built = composition_of(named[0].policy)
    if len(named) != 1 or built is None or not isinstance(built.rule, OnlinePrice):
        raise UsageError(f"expected one policy that learns a rate, such as price:budget=64; got `{options.policy}`")
    check_needs(built, source.trace.holds(source.draft))
    label = named[0].label
    settings = {"policy": label, "cost": prices.cost_id}
    with tracking(options.track, "train price", lambda: source.to_json() | settings) as tracker:
        with as_usage_error():
            rate, tried, settled = fixed_point(built, lambda: source.recorded(channels_read([built])))
        policy = f"{label}{',' if ':' in label else ':'}rate={rate:.6g}"
        fit = PriceFit(source, prices, policy, rate, tried, settled)
        tracker.results(fit.to_json())
    return fit
