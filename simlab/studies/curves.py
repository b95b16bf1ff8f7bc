"""What the curves of ``simlab curves`` are of: a trace, prices, probabilities, and the roots that count."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simlab.arrays import Longs
from simlab.errors import CostError, PolicyError, TraceError, UsageError
from simlab.replay import check_needs
from simlab.studies.inputs.asked import first_prompts, replay_prices
from simlab.studies.inputs.prices import Prices
from simlab.studies.inputs.shelf import CommandShelf
from simlab.studies.replay.run import ROOTS_AT_ONCE

if TYPE_CHECKING:
    from simlab.analysis.curves.rows import CurveMachine, CurveRoots
    from simlab.policies.orders.best_first import BestFirst
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.recorded import RecordedTexts
    from simlab.traces.reader import Trace

RAW, CALIBRATED = "raw", "calibrated"


@dataclass(frozen=True)
class Inputs:
    """What was asked for, read and checked.

    Attributes:
        trace: where the texts are.
        draft: the draft set.
        wanted: the sequences.
        prices: of each machine.
        most: drafted tokens, at most.
        named: for each edge model a policy whose order of nodes is wanted.
        visits: the policy whose rounds count; None: every root.
        in_sample: labels of policies that were fitted on the very texts.
        without: why an edge model is left out; empty where none is.
    """

    trace: "Trace"
    draft: str
    wanted: Sequence[int]
    prices: Sequence[Prices]
    most: int
    named: "Mapping[str, NamedPolicy]"
    visits: "NamedPolicy | None"
    in_sample: tuple[str, ...]
    without: str

    @cached_property
    def orders(self) -> "dict[str, BestFirst]":
        """By the names of their edge models."""
        from simlab.policies.composition import Composition
        from simlab.policies.orders.best_first import BestFirst

        found = {}
        for name, one in self.named.items():
            assert isinstance(one.policy, Composition)
            assert isinstance(one.policy.order, BestFirst)
            found[name] = one.policy.order
        return found

    @cached_property
    def machines(self) -> "list[CurveMachine]":
        """What whole rounds cost, as measured, and by the convex view."""
        from simlab.analysis.curves.rows import FIRST, CurveMachine
        from simlab.policies.costs.round_costs import ALL_STAGES, round_costs
        from simlab.policies.costs.views import convex_view

        found = []
        for cost in (one.cost for one in self.prices if one.cost is not None):
            convex = round_costs(convex_view(cost), ALL_STAGES, self.most)
            measured = round_costs(cost, ALL_STAGES, self.most)
            found.append(CurveMachine(cost.cost_id, measured, {f"{FIRST}, convex": convex}))
        return found

    def roots(self, advance: Callable[[int, int], None]) -> "CurveRoots":
        """Those that count; ``advance`` is told how many more were looked at, and how many there are."""
        from simlab.analysis.curves.rows import CurveRoots
        from simlab.policies.engine.replay import Replay

        lengths = {record.index: len(record.text) - 1 for record in self.trace.sequences()}
        total = sum(lengths[index] for index in self.wanted)
        if total == 0:
            raise TraceError(f"{self.trace.place} holds no rounds, so there are no curves")
        replay = None if self.visits is None else Replay([(self.visits.policy, None)])

        def chosen(texts: "RecordedTexts") -> Longs:
            assert replay is not None
            return replay.rounds(texts)[0].roots

        return CurveRoots(
            lambda: self.trace.recorded_texts(self.draft, self.wanted, ROOTS_AT_ONCE),
            None if replay is None else chosen,
            lambda number: advance(number, total),
        )


def inputs_of(options: argparse.Namespace) -> Inputs:
    """What the options name.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    from simlab.traces.reader import open_trace, packaged_trace

    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = trace.draft_name(options.draft)
    prices = _prices(options.cost, options.limit, trace, draft)
    most = _most(options.budget, trace, draft, prices)
    shelf = CommandShelf(prices[0], trace, draft)
    named, without = _named_edges(options.edges, options.calibration, shelf, most)
    visits = None if options.policy is None else _one_policy(options.policy, shelf)
    policies = [*named.values(), *(() if visits is None else (visits,))]
    kept = trace.manifest.draft_sets[draft]
    for one in policies:
        check_needs(one.policy, kept.exact_budget, kept.min_width)
    wanted = first_prompts(trace, options.limit)
    return Inputs(trace, draft, wanted, prices, most, named, visits, shelf.in_sample(policies), without)


def _prices(costs: Sequence[Path] | None, limit: int | None, trace: "Trace", draft: str) -> list[Prices]:
    found: dict[str, Prices] = {}
    for path in costs or (None,):
        one = replay_prices(path, trace, draft, [], limit)
        if one.cost is None:
            raise CostError(f"curves need prices. {one.why_none}")
        found.setdefault(one.cost.cost_id, one)
    return list(found.values())


def _most(budget: int | None, trace: "Trace", draft: str, prices: Sequence[Prices]) -> int:
    priced = min(one.cost.most_drafted for one in prices if one.cost is not None)
    if budget is None:
        return max(1, min(trace.manifest.draft_sets[draft].exact_budget, priced))
    if budget > priced:
        raise UsageError(
            f"--budget {budget} is beyond the prices, which end at {priced} drafted tokens; choose a smaller one, or "
            "measure more with `simlab profile --node-counts`"
        )
    return budget


def _named_edges(
    edges: Sequence[str] | None, calibration: Path | None, shelf: CommandShelf, most: int
) -> "tuple[dict[str, NamedPolicy], str]":
    """A policy for each edge model, and why there is none for calibrated probabilities, unless they were asked for."""
    found, without = {}, ""
    table = "" if calibration is None else f",table={json.dumps(str(calibration))}"
    for name in edges or (RAW, CALIBRATED):
        typed = f"ddtree:budget={most}" if name == RAW else f"calibrated:budget={most}{table}"
        try:
            found[name] = _one_policy(typed, shelf)
        except PolicyError as error:
            if edges is not None or calibration is not None:
                raise
            without = f"No calibrated probabilities: {error}"
    return found, without


def _one_policy(typed: str, shelf: CommandShelf) -> "NamedPolicy":
    from simlab.policies.parsing.parse import parse_policies

    found = parse_policies([typed], shelf)
    if len(found) != 1:
        raise UsageError(f"expected one policy, whose rounds to look at; {typed} makes {len(found)}")
    return found[0]
