"""What ``simlab scoring`` scores: a trace, policies, prices, and how far it looks."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simlab.errors import MissingChannelError, PolicyError, TraceError, UsageError
from simlab.replay import check_needs
from simlab.studies.inputs.asked import first_prompts, replay_prices
from simlab.studies.inputs.prices import Prices
from simlab.studies.inputs.shelf import CommandShelf
from simlab.studies.replay.run import ROOTS_AT_ONCE

if TYPE_CHECKING:
    from simlab.analysis.scoring.score import Prompt, ScoringLimits
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.recorded import RecordedTexts
    from simlab.traces.reader import Trace

WITHOUT_CHOICE = (
    "ddtree:budget=16/64",
    "calibrated:budget=16/64",
    "presto:budget=16/64",
    "presto:renormalised=true,budget=16/64",
    "sequoia:budget=16/64",
)

MOST_NODES, CAPS, WIDTH = 512, (16, 64, 512), 64
"""Nodes of an order and node counts that are told; candidates of which an edge model is asked."""


@dataclass(frozen=True)
class Inputs:
    """What was asked for, read and checked.

    Attributes:
        trace: where the texts are.
        draft: the draft set.
        wanted: the sequences.
        prompts: of these, each once.
        num_roots: of these.
        policies: to be scored.
        prices: of one machine; there may be none.
        limits: how far one looks.
        in_sample: labels of policies that were fitted on the very texts.
        without: sentences that say why a policy of the default set is left out.
    """

    trace: "Trace"
    draft: str
    wanted: Sequence[int]
    prompts: "Sequence[Prompt]"
    num_roots: int
    policies: "Sequence[NamedPolicy]"
    prices: Prices
    limits: "ScoringLimits"
    in_sample: tuple[str, ...]
    without: tuple[str, ...]

    def texts(self) -> "Iterator[RecordedTexts]":
        """Some at a time."""
        return self.trace.recorded_texts(self.draft, self.wanted, ROOTS_AT_ONCE)


def inputs_of(options: argparse.Namespace) -> Inputs:
    """What the options name.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    from simlab.analysis.scoring.score import ScoringLimits
    from simlab.traces.reader import open_trace, packaged_trace

    trace = open_trace(options.trace if options.trace is not None else packaged_trace())
    draft = trace.draft_name(options.draft)
    kept = trace.manifest.draft_sets[draft]
    first_prices = replay_prices(options.cost, trace, draft, [], options.limit)
    shelf = CommandShelf(first_prices, trace, draft)
    policies, without = _policies(options.policy, shelf)
    most = _most(options.nodes, kept.exact_budget)
    for one in policies:
        if not one.policy.needs.draft:
            raise UsageError(f"{one.label} drafts nothing, so there is nothing to score; leave it out")
        check_needs(one.policy, kept.exact_budget, kept.min_width)
    wanted = first_prompts(trace, options.limit)
    records = [record for record in trace.sequences() if record.index in set(wanted)]
    num_roots = sum(len(record.text) - 1 for record in records)
    if num_roots == 0:
        raise TraceError(f"{trace.place} holds no rounds, so there is nothing to score")
    prompts = list(dict.fromkeys((record.prompt.dataset, record.prompt.prompt_id) for record in records))
    prices = replay_prices(options.cost, trace, draft, policies, options.limit)
    caps = tuple(sorted({most, *(cap for cap in CAPS if cap < most)}))
    limits = ScoringLimits(most, caps, min(WIDTH, kept.min_width))
    in_sample = shelf.in_sample(policies)
    return Inputs(trace, draft, wanted, prompts, num_roots, policies, prices, limits, in_sample, without)


def _policies(typed: Sequence[str], shelf: CommandShelf) -> "tuple[list[NamedPolicy], tuple[str, ...]]":
    """Those that were asked for; or those of the default set that can be made, and why others cannot."""
    from simlab.policies.parsing.parse import parse_policies

    if typed:
        return parse_policies(typed, shelf), ()
    found, without = [], []
    for one in WITHOUT_CHOICE:
        try:
            found += parse_policies([one], shelf)
        except PolicyError as error:
            without.append(f"Left out: {error}")
    return found, tuple(without)


def _most(nodes: int | None, exact_budget: int) -> int:
    if nodes is not None and nodes > exact_budget:
        raise MissingChannelError(
            f"--nodes {nodes} is beyond the {exact_budget} nodes for which the trace is exact; choose fewer, or record "
            "again with `simlab record --exact-budget`"
        )
    return min(MOST_NODES, exact_budget) if nodes is None else nodes
