"""What a wrong price costs: a policy is chosen at wrong prices, and evaluated at the right ones.

Two settings, both on a trace of ours: one text with trees, at the prices of an H100 that come with simlab; and 64 texts
with chains, at the prices that the released serving engine timed. What is right in them is that a pass costs by its
context; vLLM profiles at one, and somebody may use the prices of another machine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.released.adixg.records import SERVED, PassCell
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import speed_of
from simlab.analysis.table.text import aligned, within_width
from simlab.cost import CostTable
from simlab.errors import CostError, UsageError
from simlab.ids import content_id
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import PricedPolicies, TraceArtefacts
from simlab.studies.inputs.prices import Prices, cost_table_of, prices_for_trace, prices_of_file
from simlab.studies.inputs.trace import longest_context, sample_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.traces.artefacts.cost import UNKNOWN
from simlab.traces.artefacts.cost_import import ROOT_INCLUDED, ImportedFor, PassTiming, PassTimings, imported_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results

H100 = "h100-vllm-graphs"
"""The packaged cost file whose prices are the right ones of one text."""

RIGHT, ONE_CONTEXT, PACKAGED = "right", "of one context", "of a CPU"
"""Which prices a policy is chosen by."""

_PROMPT = pl.format("{}/{}", "dataset", "prompt_id")
_BUDGETS = (4, 8, 12, 16, 24, 32, 48, 63)
_READS_PRICES = "caddtree:look_ahead=0,budget="
"""Best-first trees that weigh tokens against the prices that they are given, up to a budget."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Names of prompts, no prompt in both: a choice that is judged on its own prompts looks too good.

    Attributes:
        to_choose: a policy is chosen on these.
        to_evaluate: it is compared on these.
    """

    to_choose: tuple[str, ...]
    to_evaluate: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrongPrice:
    """What was chosen at some prices, and how fast that is at the right ones.

    Attributes:
        setting: of texts and machine.
        by: whose prices the choice was made by.
        policy: what was the fastest by them, on the prompts to choose on.
        against_right: the choice against that of the right prices, in tokens per second, on the other prompts; None:
            the choice is the same.
    """

    setting: str
    by: str
    policy: str
    against_right: Comparison | None

    @property
    def direction(self) -> int:
        """-1: slower than the choice of the right prices, 1: faster, 0: no difference shown."""
        if self.against_right is None:
            return 0
        ends = self.against_right.ratio_interval
        return int(ends.low > 1) - int(ends.high < 1)

    @property
    def percent(self) -> tuple[float, float, float]:
        """What the choice is faster by, in per cent, and the ends of its interval."""
        if self.against_right is None:
            return 0.0, 0.0, 0.0
        ends = self.against_right.ratio_interval
        low, value, high = (100 * (one - 1) for one in (ends.low, self.against_right.ratio, ends.high))
        return value, low, high

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them."""
        value, low, high = (None if math.isnan(one) else one for one in self.percent)
        found = {
            "setting": self.setting,
            "chosen_by": self.by,
            "policy": self.policy,
            "same": self.against_right is None,
        }
        return {**found, "faster_percent": value, "ci_low": low, "ci_high": high}


@dataclass(frozen=True, slots=True)
class WrongPrices:
    """What both settings come to.

    Attributes:
        found: of each, what each price chooses.
        speeds: tokens per second at the right prices, by setting and policy, on all prompts.
        headings: whose the right prices are, by setting.
        halves: the prompts that the choice is made on, and those that it is evaluated on.
    """

    found: tuple[WrongPrice, ...]
    speeds: Mapping[str, Mapping[str, float]]
    headings: Mapping[str, str]
    halves: Halves

    def text(self) -> str:
        """The choices and what they cost, for people."""
        cells = [["chosen by the prices", "fastest by them", "% faster than the right choice", "[95 %]"]]
        parts = [
            within_width(
                f"What a wrong price costs, by our replay of the packaged trace: the fastest policy by some prices on "
                f"{len(self.halves.to_choose)} prompts, compared on the {len(self.halves.to_evaluate)} others with the "
                f"fastest by the right prices, both at the right prices:"
            )
        ]
        for setting, heading in self.headings.items():
            own = [one for one in self.found if one.setting == setting]
            table = aligned([cells[0], *map(_cells, own)], [True, True, False, True])
            parts += [within_width(f"{setting}. Right prices: {heading}"), table]
        return "\n\n".join(parts)

    def follows(self) -> str:
        """What it comes to, in a sentence."""
        shown = {direction: [one for one in self.found if one.direction == direction] for direction in (-1, 1)}
        slower, faster = (" and ".join(map(_in_words, shown[direction])) for direction in (-1, 1))
        if not slower and not faster:
            return "In our replay no wrong price costs anything that these prompts show."
        parts = [f"is {slower} slower"] if slower else []
        parts += [f"is {faster} faster"] if faster else []
        rest = "; other wrong prices cost nothing shown" if slower else "; no wrong price costs anything shown"
        return f"In our replay a choice by wrong prices {' and '.join(parts)}{rest}."

    def values(self) -> dict[str, object]:
        """What ``--json`` prints of it."""
        return {
            "wrong_prices": [one.row() for one in self.found],
            "tokens_per_s_at_right_prices": {key: dict(value) for key, value in self.speeds.items()},
        }


def wrong_prices(served: Sequence[PassCell], options: ReproduceOptions) -> WrongPrices:
    """Replay the packaged trace at right and wrong prices: trees and chains at some prices, chains at the engine's.

    Args:
        served: what the released engine timed with all its requests.
        options: a cost file of right prices in place of the packaged one's of an H100; how many prompts.

    Raises:
        SimlabError: the cost file does not price the packaged trace, or there are fewer than two prompts to a half.
    """
    trace = sample_trace()
    draft = trace.draft_name(None)
    packaged = prices_for_trace(None, trace, draft, options.limit)
    asked = prices_for_trace(Path(H100) if options.cost is None else options.cost, trace, draft, options.limit)
    many = _served_prices(served, trace, draft, options.limit)
    depth = trace.manifest.draft_sets[draft].depth
    settings = {
        f"{_texts(asked.batch)}, trees and chains": (asked, _trees(asked, depth)),
        f"{_texts(many.batch)}, chains": (many, [f"chain:length={length}" for length in range(1, depth + 1)]),
    }
    found: list[WrongPrice] = []
    speeds, halves = {}, Halves((), ())
    for setting, (right, grid) in settings.items():
        rows, policies = _replayed(trace, draft, right, packaged, grid, options)
        halves = halves_of(rows[RIGHT])
        found += compared_choices(setting, rows, policies, halves)
        speeds[setting] = {label: _speed(rows[RIGHT], label) for label in policies[RIGHT]}
    return WrongPrices(tuple(found), speeds, {key: one.heading for key, (one, _) in settings.items()}, halves)


def halves_of(rows: Results) -> Halves:
    """Every other prompt, by name, to choose on, and the others to evaluate on.

    Raises:
        UsageError: there are fewer than two to a half.
    """
    names = rows.select(_PROMPT.alias("name"))["name"].unique().sort().to_list()
    if len(names) < 4:
        raise UsageError(
            f"a choice is made on half of the prompts and evaluated on the others; got {len(names)}, take 4 or more"
        )
    return Halves(tuple(names[::2]), tuple(names[1::2]))


def compared_choices(
    setting: str, rows: Mapping[str, Results], policies: Mapping[str, Sequence[str]], halves: Halves
) -> list[WrongPrice]:
    """What each price chooses, and how fast that is at the right prices beside their own choice.

    Args:
        setting: of texts and machine.
        rows: at each of the prices; at the right ones those of every policy.
        policies: labels of those that are chosen among by each of the prices, `RIGHT` among them.
        halves: the prompts to choose on, and those to evaluate on.
    """
    chosen = {by: _fastest(rows[by], labels, halves.to_choose) for by, labels in policies.items()}
    best, found = chosen[RIGHT], []
    for by, policy in chosen.items():
        compared = None if policy == best else _compared(rows[RIGHT], policy, best, halves.to_evaluate)
        found.append(WrongPrice(setting, by, policy, compared))
    return found


def at_one_context(prices: Prices) -> Prices:
    """Prices as a profile at one context says them: those of the longest one, whatever the context of a round.

    Raises:
        CostError: there are no prices.
    """
    cost = prices.cost
    if cost is None:
        raise CostError(f"a profile at one context needs a latency profile. {prices.why_none}")
    seconds = {stage: np.repeat(rows[-1:], len(rows), axis=0) for stage, rows in cost.seconds.items()}
    name = content_id({"cost": cost.cost_id, "at_context": cost.longest_context})
    wrong = CostTable(name, cost.contexts, seconds, block_size=cost.block_size, is_example=cost.is_example)
    return replace(prices, cost=wrong)


def _trees(prices: Prices, depth: int) -> list[str]:
    reach = 0 if prices.cost is None else prices.cost.most_drafted
    chains = [f"chain:length={length}" for length in (1, 3, 5, depth) if length <= reach]
    return [*chains, *(f"ddtree:budget={budget}" for budget in _BUDGETS if budget <= reach)]


def _served_prices(served: Sequence[PassCell], trace: Trace, draft: str, limit: int | None) -> Prices:
    """The engine's own passes as a latency profile of so many texts at a time; its longest contexts stand for 4,096."""
    requests = served[0].requests
    longest = max(cell.context for cell in served)
    rows = tuple(
        PassTiming(cell.tokens // requests, _context(cell, longest), requests, cell.median_ms / 1000) for cell in served
    )
    target, drafter = (ModelInfo(name, "", UNKNOWN) for name in ("MiniCPM5-2B", "none timed"))
    about = ImportedFor(target, drafter, 1, 0.0, 0, 1.0, "NVIDIA H100, vLLM", "bfloat16")
    file = imported_cost_file(PassTimings(SERVED, (), rows), ROOT_INCLUDED, about, {})
    reach = longest_context(trace, limit)
    return prices_of_file(file, cost_table_of(file), trace, draft, reach)


def _context(cell: PassCell, longest: int) -> int:
    """The context that was asked for: at the longest the engine leaves room for the tokens of the pass."""
    room = cell.tokens // cell.requests
    return longest + 1 if cell.context > longest - room else max(cell.context, 1)


def _replayed(
    trace: Trace, draft: str, right: Prices, packaged: Prices, grid: Sequence[str], options: ReproduceOptions
) -> tuple[dict[str, Results], dict[str, list[str]]]:
    """Rows at each of the prices, and the labels of the policies that are chosen among by each.

    Rows name their prices by an id alone, so where the packaged prices are the right ones they stand there once.
    """
    every = {RIGHT: right, ONE_CONTEXT: at_one_context(right)}
    if packaged.cost_id != right.cost_id:
        every[PACKAGED] = packaged
    fixed = parse_policies(grid, None)
    # A rule that reads prices weighs those of one text.
    reach = 0 if right.batch != 1 or right.cost is None else right.cost.most_drafted
    rules = {by: [_rule(trace, draft, prices, reach, by)] if reach else [] for by, prices in every.items()}
    chosen_by_any = tuple(rule for some in rules.values() for rule in some)
    asked = [PricedPolicies(right, (*fixed, *chosen_by_any))]
    asked += [PricedPolicies(one, (*fixed, *rules[by])) for by, one in every.items() if by != RIGHT]
    replay = ReplayRun(progress=options.progress, best_budgets=False)
    found = replay_trace(trace, draft, asked, options.limit, replay)
    rows = {by: found.filter(pl.col("cost_id") == one.cost_id) for by, one in every.items()}
    return rows, {by: [one.label for one in (*fixed, *rules[by])] for by in every}


def _rule(trace: Trace, draft: str, prices: Prices, budget: int, by: str) -> NamedPolicy:
    """The policy that reads prices, given these; its label says which."""
    (one,) = parse_policies([f"{_READS_PRICES}{budget}"], TraceArtefacts(prices, trace, draft))
    return replace(one, label=f"caddtree with prices {by}")


def _of(rows: Results, label: str, prompts: Sequence[str] | None = None) -> Results:
    own = rows.filter(pl.col("policy") == label)
    return own if prompts is None else own.filter(_PROMPT.is_in(prompts))


def _speed(rows: Results, label: str, prompts: Sequence[str] | None = None) -> float:
    own = _of(rows, label, prompts)
    return speed_of(own, own.clear()).tokens_per_s


def _fastest(rows: Results, labels: Sequence[str], prompts: Sequence[str]) -> str:
    return max(labels, key=lambda label: _speed(rows, label, prompts))


def _compared(rows: Results, policy: str, best: str, prompts: Sequence[str]) -> Comparison:
    own = [_of(rows, label, prompts) for label in (policy, best)]
    runs = [PolicyRun(label, one, one.clear()) for label, one in zip((policy, best), own, strict=True)]
    return next(one for one in compare_runs(runs, [(0, 1)]) if one.measure == "tokens_per_s")


def _cells(one: WrongPrice) -> list[str]:
    value, low, high = one.percent
    if one.by == RIGHT:
        return [one.by, one.policy, "", ""]
    if one.against_right is None:
        return [one.by, one.policy, "same choice", ""]
    return [one.by, one.policy, f"{value:+.2f}", "-" if math.isnan(low) else f"[{low:.2f}, {high:.2f}]"]


def _in_words(one: WrongPrice) -> str:
    """By how much the choice is slower or faster, whose prices it was made by, and in which setting."""
    return f"{abs(one.percent[0]):.1f} % (prices {one.by}; {one.setting[:1].lower()}{one.setting[1:]})"


def _texts(batch: int) -> str:
    return "One text" if batch == 1 else f"{batch:,} texts at a time"
