"""``simlab train calibration``, ``ranks`` and ``price``: what policies are fitted with, from a dense trace."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from simlab.arrays import Doubles
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import UsageError, at_the_door
from simlab.policies.composition import composition_of
from simlab.policies.fits.calibration import (
    CalibrationQuality,
    add_edges,
    fit_map,
    held_out_quality,
    no_edge_counts,
    total_edge_counts,
)
from simlab.policies.fits.price import FixedPoint, fixed_point
from simlab.policies.fits.ranks import RankCounts, add_ranks, no_rank_counts, rank_frequencies
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.online_price import OnlinePrice
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import prices_of
from simlab.traces.artefacts.table import TableFile, write_table_file
from simlab.traces.format.manifest import DraftSet
from simlab.traces.reader import Trace, open_trace

NUM_PARTS = 4
_SHOWN_RANKS = 4

_CALIBRATION = """A logistic map of a drafter's probabilities, by depth and class of rank, for policies like calibrated.
Fit it on other prompts than those it is judged on. The figures it prints are held out: prompts are dealt
into four parts, and each part is judged under maps fitted to the other three. The file is fitted to all.

  simlab train calibration --trace runs/dev --out runs/calibration.json
  simlab replay -p 'calibrated:budget=64,table="runs/calibration.json"'"""

_RANKS = """How often the drafter's candidate of each rank is the true token, by depth, for policies such as sequoia.

  simlab train ranks --trace runs/dev --out runs/ranks.json"""

_PRICE = """The price of a second at which the policy's own rounds bring as many expected tokens.

  simlab train price --trace runs/dev -p price:budget=256"""


def add_parsers(kinds: "argparse._SubParsersAction[Parser]") -> None:
    """Add the three kinds to the list."""
    calibration = _add(kinds, "calibration", "Fit the probabilities of a drafter to what came true.", _CALIBRATION)
    calibration.set_defaults(run=_run_calibration)
    ranks = _add(kinds, "ranks", "Count which of a drafter's candidates came true.", _RANKS)
    ranks.set_defaults(run=_run_ranks)
    for one in (calibration, ranks):
        one.add_argument("--out", type=Path, required=True, metavar="FILE", help="the table to write")
        one.add_argument(
            "--top-k", type=positive, default=64, metavar="N", help="ranks that are read at each depth (default 64)"
        )
    price = _add(kinds, "price", "Find the rate that a policy should price its seconds at.", _PRICE)
    price.add_argument("-p", "--policy", default="price", metavar="POLICY", help="without its rate (default price)")
    price.add_argument(
        "--cost", type=Path, metavar="FILE", help="prices: a file of `simlab profile`, or the name of a shipped one"
    )
    price.set_defaults(run=_run_price)


def _add(kinds: "argparse._SubParsersAction[Parser]", name: str, summary: str, details: str) -> Parser:
    parser = add_command(kinds, name, summary, details)
    parser.add_argument("--trace", required=True, metavar="DIR", help="a recorded trace of prompts to fit on")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where the trace holds more than one")
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N prompts only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The draft set of a trace that a table is fitted on.

    Attributes:
        prompts: for each sequence that is read, in order, which prompt it is of.
    """

    trace: "Trace"
    draft: str
    prompts: dict[int, int]

    @property
    def kept(self) -> "DraftSet":
        return self.trace.manifest.draft_sets[self.draft]

    @property
    def num_prompts(self) -> int:
        return len(set(self.prompts.values()))

    @property
    def num_positions(self) -> int:
        return sum(len(one.text) - 1 for one in self.trace.sequences() if one.index in self.prompts)

    def recorded(self) -> "Iterator[RecordedSequence]":
        """The texts and their rows, with a bar on a terminal after two seconds."""
        found = self.trace.recorded(self.draft, list(self.prompts))
        hidden = not sys.stderr.isatty()
        yield from tqdm(found, total=len(self.prompts), desc="train", unit="sequence", delay=2, disable=hidden)

    def ids(self) -> dict[str, object]:
        """Where a result comes from."""
        return {
            "text_id": self.trace.text_id,
            "draft_id": self.trace.draft_ids[self.draft],
            "num_prompts": self.num_prompts,
            "num_positions": self.num_positions,
        }

    def text(self) -> str:
        """The same for people."""
        return (
            f"{self.draft} on {self.trace.place} (text {self.trace.text_id}): "
            f"{self.num_prompts:,} prompts, {self.num_positions:,} positions"
        )


def _source(options: argparse.Namespace) -> _Source:

    trace = open_trace(options.trace)
    names = list(trace.manifest.draft_sets)
    if options.draft is None and len(names) > 1:
        raise UsageError(f"{trace.place} holds the draft sets {', '.join(names)}; choose one with --draft NAME")
    numbers: dict[tuple[str, str], int] = {}
    prompts: dict[int, int] = {}
    for one in trace.sequences():
        number = numbers.setdefault((one.prompt.dataset, one.prompt.prompt_id), len(numbers))
        if options.limit is None or number < options.limit:
            prompts[one.index] = number
    return _Source(trace, trace.draft_name(options.draft), prompts)


def _check_width(source: _Source, top_k: int) -> None:
    if top_k > source.kept.min_width:
        raise UsageError(
            f"--top-k {top_k} reads more ranks than {source.trace.place} keeps at every depth, which is "
            f"{source.kept.min_width}; read fewer, or record with --min-width {top_k}"
        )


def _run_calibration(options: argparse.Namespace) -> int:

    source = _source(options)
    _check_width(source, options.top_k)
    if source.num_prompts < 2:
        raise UsageError(f"{source.trace.place} has fewer than 2 prompts, so none can be held out; record more")
    parts = [no_edge_counts(source.kept.depth) for _ in range(min(NUM_PARTS, source.num_prompts))]
    for one in source.recorded():
        if one.rows is not None:
            add_edges(parts[source.prompts[one.index] % len(parts)], one.rows, options.top_k)
    table_id = _write(options.out, "calibration", source, fit_map(total_edge_counts(parts)))
    found = held_out_quality(parts)
    if options.json:
        depths = [*range(1, len(found)), None]
        held_out = [_quality_json(depth, *pair) for depth, pair in zip(depths, found, strict=True)]
        rest = {"num_parts": len(parts), "held_out": held_out}
        _print_json({"kind": "calibration", "path": str(options.out), "table_id": table_id, **source.ids(), **rest})
    else:
        print(_calibration_text(source, len(parts), found))
        print(f"Table: {options.out} ({table_id})")
    return 0


def _quality_json(depth: int | None, before: CalibrationQuality, after: CalibrationQuality) -> dict[str, object]:
    """One depth; None: all together."""
    values: dict[str, object] = {"depth": depth, "num_edges": before.num_edges, "num_true": before.num_true}
    for name in ("nll", "ece", "first_ece"):
        values |= {f"{name}_before": getattr(before, name), f"{name}_after": getattr(after, name)}
    return values


def _calibration_text(
    source: _Source, num_parts: int, found: Sequence[tuple[CalibrationQuality, CalibrationQuality]]
) -> str:
    lines = [
        source.text(),
        f"Held out, {num_parts} parts of the prompts in turn; a mean over candidates, before and after:",
        "",
        f"depth  {'candidates':>11}  {'true':>9}  {'nll (nats)':>16}  {'ece':>16}  {'ece of first':>16}",
    ]
    for place, (before, after) in enumerate(found, 1):
        name = "all" if place == len(found) else str(place)
        pairs = zip(before[2:], after[2:], strict=True)
        figures = "  ".join(f"{one:.5f}  {other:.5f}" for one, other in pairs)
        lines.append(f"{name:>5}  {before.num_edges:>11,}  {before.num_true:>9,}  {figures}")
    return "\n".join([*lines, ""])


def _run_ranks(options: argparse.Namespace) -> int:

    source = _source(options)
    _check_width(source, options.top_k)
    counts = no_rank_counts(source.kept.depth, options.top_k)
    for one in source.recorded():
        if one.rows is not None:
            add_ranks(counts, one.rows)
    frequencies = rank_frequencies(counts)
    table_id = _write(options.out, "ranks", source, frequencies)
    if options.json:
        rest = {"numbers": counts.numbers.tolist(), "first_share": frequencies[:, 0].tolist()}
        _print_json({"kind": "ranks", "path": str(options.out), "table_id": table_id, **source.ids(), **rest})
    else:
        print(_ranks_text(source, counts, frequencies))
        print(f"Table: {options.out} ({table_id})")
    return 0


def _ranks_text(source: _Source, counts: "RankCounts", frequencies: "Doubles") -> str:
    shown = min(_SHOWN_RANKS, frequencies.shape[1])
    names = "".join(f"{f'rank {rank}':>9}" for rank in range(shown))
    lines = [
        source.text(),
        "Share of true tokens by rank, where the path was right so far:",
        "",
        f"depth  {'tokens':>9}{names}{'others':>9}{'none':>9}",
    ]
    for depth, row in enumerate(frequencies):
        shares = [*row[:shown].tolist(), float(row[shown:].sum()), 1.0 - float(row.sum())]
        lines.append(f"{depth + 1:>5}  {counts.numbers[depth]:>9,}{''.join(f'{share:>9.4f}' for share in shares)}")
    return "\n".join([*lines, ""])


def _run_price(options: argparse.Namespace) -> int:

    source = _source(options)
    texts = [one for one in source.trace.sequences() if one.index in source.prompts and len(one.text) > 1]
    longest = max((len(one.prompt.token_ids) + len(one.text) - 2 for one in texts), default=0)
    prices = prices_of(options.cost, source.trace, source.draft, longest, source.kept.depth)
    named = parse_policies([options.policy], TraceArtefacts(prices, source.trace, source.draft))
    policy = composition_of(named[0].policy)
    if len(named) != 1 or policy is None or not isinstance(policy.rule, OnlinePrice):
        raise UsageError(f"expected one policy that learns a rate, such as price:budget=64; got `{options.policy}`")
    check_needs(policy, source.kept.exact_budget, source.kept.min_width)
    with at_the_door():
        found = fixed_point(policy, source.recorded)
    chosen = f"{named[0].label}{',' if ':' in named[0].label else ':'}rate={found.rate:.6g}"
    if options.json:
        _print_json({"kind": "price", "policy": chosen, "cost": prices.cost_id, **source.ids(), **_price_json(found)})
    else:
        print(f"{source.text()}\nprices: {prices.heading}\n\n{_price_text(found)}\nPolicy: {chosen}")
    return 0


def _price_json(found: "FixedPoint") -> dict[str, object]:
    rounds = found.rounds
    return {
        "rate": found.rate,
        "settled": found.settled,
        "rates": list(found.rates),
        "rounds": rounds.num_rounds,
        "expected_per_s": rounds.expected_per_s,
        "committed_per_s": rounds.committed_per_s,
    }


def _price_text(found: "FixedPoint") -> str:
    rounds = found.rounds
    tried = f"{len(found.rates)} prices were tried"
    ended = "the last one settled it" if found.settled else "they take turns; this is the best of them"
    return (
        f"{found.rate:.6g} tokens/s; {tried}, {ended}.\n"
        f"Its {rounds.num_rounds:,} rounds promise {rounds.expected_per_s:.2f} tokens/s by their path probabilities "
        f"and bring {rounds.committed_per_s:.2f}."
    )


def _write(out: Path, kind: str, source: _Source, values: "Doubles") -> str:

    kept, manifest = source.kept, source.trace.manifest
    ids = (source.trace.text_id, source.trace.draft_ids[source.draft], source.num_positions)
    file = TableFile(kind, manifest.target, kept.model, kept.block_size, *ids, values)
    write_table_file(out, file)
    return file.table_id


def _print_json(value: dict[str, object]) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))
