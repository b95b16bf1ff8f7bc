"""What ``simlab optimize`` tries: policies of what was typed, or of all built-in ones, within caps and prices."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simlab.analysis.export.uno import linear_sampler
from simlab.analysis.optimize.candidate_sums import ACCEPTANCE_LENGTH
from simlab.errors import CostError, PolicyError, SimlabError, UsageError
from simlab.policies import POLICIES
from simlab.policies.composition import Described
from simlab.policies.named.chain import most_drafted
from simlab.policies.parsing.objects import typed_only
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.served import check_engine, trees_of
from simlab.studies.optimize.inputs import DEFAULT_BUDGET, PromptSet, SearchInputs

# What a search tries: policies as people type them, some settings of which may be ranges.

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_RANGE = re.compile(rf'"(?:[^"\\]|\\.)*"|(?<=[:,])(?P<key>\w+)=(?P<low>{_NUMBER})~(?P<high>{_NUMBER})(?=,|$)')

DIGITS = 4
"""Significant digits of a number that is drawn from a range, so that a label can be typed again."""


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """One ``-p``: ``NAME:key=value``, where a value may be a grid ``a/b`` or ``a..b``, or a range ``a~b``.

    Attributes:
        text: as it was typed.
        ranges: the smallest and the largest number of each, both included, by the setting, in their order.
    """

    text: str
    ranges: Mapping[str, tuple[float, float]]

    def at(self, values: Mapping[str, str]) -> str:
        """The text with a value in place of each range."""

        def value_of(match: re.Match[str]) -> str:
            return match[0] if match["key"] is None else f"{match['key']}={values[match['key']]}"

        return _RANGE.sub(value_of, self.text)

    def ends(self) -> tuple[str, str]:
        """The text at the lower and at the upper ends of its ranges."""
        lows, highs = ({key: f"{ends[index]:.12g}" for key, ends in self.ranges.items()} for index in range(2))
        return self.at(lows), self.at(highs)


def number_within(low: float, high: float, value: float, whole: bool) -> str:
    """A number of a range as it is typed: rounded to `DIGITS`, or to a whole one, and within both ends."""
    rounded = round(value) if whole else float(f"{value:.{DIGITS}g}")
    return f"{min(max(rounded, low), high):.12g}"


def parse_entry(text: str) -> SearchEntry:
    """What was typed; names and settings are checked when policies are made of it.

    Raises:
        PolicyError: a range does not rise.

    >>> entry = parse_entry("presto:ngram_weight=0.0~1.0,budget=8/16")
    >>> entry.at({"ngram_weight": "0.25"})
    'presto:ngram_weight=0.25,budget=8/16'
    """
    matches = [match for match in _RANGE.finditer(text) if match["key"] is not None]
    ranges = {span["key"]: (float(span["low"]), float(span["high"])) for span in matches}
    for key, (low, high) in ranges.items():
        if not -math.inf < low < high < math.inf:
            raise PolicyError(
                f"`{text}`: {key}={low:g}~{high:g} should rise, between finite numbers; write the smaller end first"
            )
    return SearchEntry(text, ranges)


def built_in_entries(budget: int, depth: int) -> list[str]:
    """What is searched where nothing is named: every policy of the table that says what is tried of it.

    Fixed budgets are tried one by one, since they cost next to nothing together; a rule that reads prices decides
    itself, so it has few settings to try. ``ddtree`` is searched in any case, and so are plain decoding and the whole
    chain; a rule that was found to lose (``entropy-width``) is not.

    Args:
        budget: drafted tokens, at most.
        depth: of the draft set.
    """
    return [
        f"{name}:{settings}"
        for name, policy in POLICIES.items()
        if isinstance(policy, type) and issubclass(policy, Described)
        for settings in policy.searched(budget, depth)
    ]


CHAIN, PLAIN, THIRD = range(3)
"""Places of the entries that are searched, and the best of each reported, whatever is asked for: the chain of the whole
depth, autoregressive decoding, and ddtree at every budget or, for an engine, shorter chains, with an adapter of UNO's
its trees of the fewest candidates."""

_TYPED = {"autoregressive": "ar"}


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """One policy of the search.

    Attributes:
        typed: as a person types it.
        entry: the place of the entry that it is of.
        policies: the same on each machine; those that read prices read that machine's.
    """

    typed: str
    entry: int
    policies: tuple[NamedPolicy, ...]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What a search tries: its entries and their policies.

    Attributes:
        entries: as they were typed; the references first.
        points: of all entries without ranges.
        ranged: places of entries with ranges.
        left_out: sentences on built-in policies that cannot be tried here.
        capped: points that the node cap left out.
        engine: what it drafts is what is searched; None: of none in particular.
    """

    entries: tuple[SearchEntry, ...]
    points: tuple[SearchPoint, ...]
    ranged: tuple[int, ...]
    left_out: tuple[str, ...]
    capped: int
    engine: str | None = None


def search_space_of(texts: Sequence[str], engine: str | None, inputs: SearchInputs) -> SearchSpace:
    """The entries that were typed, those of what an engine drafts, or those of all built-in policies."""
    texts = typed_only(texts, "optimize chooses among policies that are typed, since its file names them for confirm")
    dev = inputs.dev
    most = min(DEFAULT_BUDGET, dev.most_drafted, inputs.evaluation.most_drafted, inputs.node_cap or DEFAULT_BUDGET)
    longest = min(dev.depth, inputs.node_cap or dev.depth)
    chain = "chain" if longest == dev.depth else f"chain:length={longest}"
    draft_set = dev.trace.manifest.draft_sets[dev.draft]
    check_engine(engine, dev.draft, draft_set, texts, takes_uno=True)
    others: Sequence[str]
    if engine is not None and not draft_set.root_seen:
        chain = linear_sampler(dev.depth)
        third, *others = trees_of(dev.trace, draft_set, range(1, most + 1), engine) or [chain]
    elif engine is None:
        third, others = f"ddtree:budget=1..{most}", texts or built_in_entries(most, dev.depth)
    else:
        third, others = (
            f"chain:length=1..{max(longest - 1, 1)}",
            trees_of(dev.trace, draft_set, range(1, most + 1), engine),
        )
    entries = [parse_entry(text) for text in (chain, "ar", third, *others)]
    points: dict[str, SearchPoint] = {}
    left_out, capped = [], 0
    for index, entry in enumerate(entries):
        try:
            ends = [points_at(end, index, inputs) for end in entry.ends()]
        except SimlabError as error:
            if texts or index <= THIRD:
                raise
            left_out.append(f"{entry.text}: {error}")
            continue
        made = [] if entry.ranges else ends[0]
        fitting = within_cap(made, inputs)
        capped += len(made) - len(fitting)
        for point in fitting:
            points.setdefault(point.policies[0].policy_id, point)
    ranged = tuple(index for index, entry in enumerate(entries) if entry.ranges)
    if texts and capped and not ranged and all(map(is_reference, points.values())):
        raise UsageError(f"all policies of -p draft more than --node-cap {inputs.node_cap}; raise it, or lower budgets")
    return SearchSpace(tuple(entries), tuple(points.values()), ranged, tuple(left_out), capped, engine)


def points_at(text: str, entry: int, inputs: SearchInputs) -> list[SearchPoint]:
    """The policies of a text without ranges, on each machine."""
    artefacts = inputs.dev.artefacts
    points = []
    for first in parse_policies([text], artefacts[0]):
        typed = _TYPED.get(first.label, first.label)
        others = [parse_policies([typed], own)[0] for own in artefacts[1:]]
        points.append(SearchPoint(typed, entry, (first, *others)))
    for point in points:
        for side in (inputs.dev, inputs.evaluation):
            _check_fits(point, side)
            if inputs.objective != ACCEPTANCE_LENGTH:
                _check_priced(point, side)
    return points


def is_reference(point: SearchPoint) -> bool:
    """Whether it is there whatever is asked for."""
    return point.entry <= THIRD


def within_cap(points: Sequence[SearchPoint], inputs: SearchInputs) -> list[SearchPoint]:
    """Those that draft no more than the node cap."""
    cap = inputs.node_cap
    return [point for point in points if cap is None or _most_drafted(point, inputs.dev) <= cap]


def _most_drafted(point: SearchPoint, side: PromptSet) -> int:
    return most_drafted(point.policies[0].policy.budget, side.depth)


def _check_fits(point: SearchPoint, side: PromptSet) -> None:
    check_needs(point.policies[0].policy, side.trace.holds(side.draft))
    most = _most_drafted(point, side)
    for prices in side.prices:
        if prices.cost is not None and most > prices.cost.most_drafted:
            raise CostError(
                f"`{point.typed}` drafts up to {most:,} tokens, and {prices.cost.label} ends at "
                f"{prices.cost.most_drafted:,}; search smaller budgets, or {prices.cost.how_to_reach()}"
            )


def _check_priced(point: SearchPoint, side: PromptSet) -> None:
    """Refuse a policy that is chosen by its seconds and reads a channel that has no price."""
    for policy, prices in zip(point.policies, side.prices, strict=True):
        why = prices.why_unpriced(policy.policy)
        if why:
            raise CostError(f"`{point.typed}` is chosen by its seconds, and {why}")
