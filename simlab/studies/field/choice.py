"""What every system of the field runs: at equal numbers of drafted tokens, as published, and at its fastest."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from simlab.errors import CostError, MissingChannelError, PolicyError
from simlab.policies.named.chain import most_drafted
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.sequence_replay import check_needs
from simlab.studies.field.rows import Entry
from simlab.studies.field.systems import CLOSE, FASTEST, NODES, PUBLISHED, SYSTEMS, System
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, prices_for_trace
from simlab.studies.replay.replay import replay
from simlab.traces.reader import Trace
from simlab.traces.results.rows import SECONDS

FOLDS = 5
"""Parts of the dev prompts: a setting is chosen on all but one of them, and judged on that one."""

_COUNTS = ("rounds", "drafted", "committed")


@dataclass(frozen=True)
class PricedDrafts:
    """A draft set of a recording, and what its rounds cost: on which policies are made and replayed.

    Attributes:
        trace: the recording.
        drafter: the draft set.
        cost: the latency profile.
    """

    trace: Trace
    drafter: str
    cost: Path

    @cached_property
    def prices(self) -> Prices:
        """The seconds of rounds by the latency profile."""
        return prices_for_trace(self.cost, self.trace, self.drafter)

    @cached_property
    def _artefacts(self) -> TraceArtefacts:
        return TraceArtefacts(self.prices, self.trace, self.drafter)

    def points(self, typed: Iterable[str], priced: bool = True) -> tuple[list[NamedPolicy], str]:
        """The policies that can be replayed, with prices if these are wanted, and why the first other one cannot."""
        points, why = list[NamedPolicy](), ""
        for text in typed:
            try:
                made = parse_policies([text], self._artefacts)
            except (PolicyError, CostError) as error:
                why = why or self._without_path(str(error))
                continue
            for point in made:
                lacks = self._lacks(point, priced)
                why = why or lacks
                points += [] if lacks else [point]
        return points, why

    def _lacks(self, point: NamedPolicy, priced: bool) -> str:
        channels = (channel.name for channel in point.policy.needs.made)
        missing = next((name for name in channels if name not in self.trace.manifest.channels), "")
        if missing:
            return f"the channel {missing} was not recorded"
        cost = self.prices.cost
        if cost is not None and (most := most_drafted(point.policy.budget, cost.block_size - 1)) > cost.most_drafted:
            return f"`{point.label}` drafts up to {most} tokens, and these prices end at {cost.most_drafted}"
        names = [need.name for need in point.policy.needs.channels if need.name in self.prices.unpriced]
        if priced and names:
            return f"these prices have none of the channel {names[0]}"
        try:
            check_needs(point.policy, replace(self.trace.holds(self.drafter), location="DIR"))
        except MissingChannelError as error:
            return str(error)
        return self._without_path(self.prices.why_unpriced(point.policy)) if priced else ""

    def _without_path(self, sentence: str) -> str:
        """What is kept beside figures names a file, and not where it lies."""
        return sentence.replace(str(self.cost), self.cost.stem)

    def sums(self, points: Iterable[NamedPolicy]) -> pl.DataFrame:
        """Rounds, drafted and committed tokens and seconds by policy and prompt.

        A policy that stands twice is replayed once, under the first of its names.
        """
        labels = {point.policy_id: point.label for point in reversed(list(points))}
        rows = replay(
            self.trace, list(labels.values()), cost=self.cost, draft_set=self.drafter, progress=False
        ).rows.with_columns(seconds=pl.sum_horizontal(*SECONDS, ignore_nulls=False))
        return rows.group_by("policy_id", "dataset", "prompt_id", maintain_order=True).agg(
            pl.col(*_COUNTS, "seconds").sum()
        )

    def is_untimed(self, policy: str, num_drafted: float) -> bool:
        """Whether nobody timed rounds of the size of a policy, see `Prices.gap_of`."""
        (point,), _ = self.points([policy], priced=False)
        return self.prices.gap_of(point.policy, num_drafted) is not None


def choose(dev: Trace, drafter: str, costs: Mapping[str, Path]) -> tuple[list[Entry], dict[str, str]]:
    """What each system of a draft set runs, by the prompts of choice.

    Args:
        dev: their recording.
        drafter: one of its draft sets.
        costs: latency profiles of target and drafter, by the name of the prices. The first are those of this machine;
            rounds of a published setting, or of a number of drafted tokens, are those that they lead to.

    Returns:
        the policies, in the order of the systems, and why systems are left out: by their names, with the prices where
        only these are lacking.
    """
    own = [system for system in SYSTEMS if system.drafter == drafter]
    entries, left_out = list[Entry](), dict[str, str]()
    for number, (name, cost) in enumerate(costs.items()):
        drafts = PricedDrafts(dev, drafter, cost)
        chosen, without = _fastest(drafts, own, name)
        if number == 0:
            chosen = [*_published(drafts, own, name), *_turned(drafts, own, name), *chosen]
        entries += _named_once(drafts, chosen)
        left_out |= {system if number == 0 else f"{system}, {name}": why for system, why in without.items()}
    order = {system.name: number for number, system in enumerate(own)}
    return sorted(entries, key=lambda entry: order[entry.system]), left_out


def _named_once(drafts: PricedDrafts, entries: Sequence[Entry]) -> list[Entry]:
    """A policy that stands twice has one name: a replay has it once."""
    names: dict[str, str] = {}
    ids = (drafts.points([entry.policy], priced=False)[0][0].policy_id for entry in entries)
    return [
        replace(entry, policy=names.setdefault(policy_id, entry.policy))
        for policy_id, entry in zip(ids, entries, strict=True)
    ]


def _published(drafts: PricedDrafts, systems: Sequence[System], prices: str) -> list[Entry]:
    """Each at its published setting, where it has one and it can run here."""
    published = ((system, drafts.points([system.published])[0]) for system in systems if system.published)
    drafter = drafts.drafter
    return [
        Entry(system.name, PUBLISHED, drafter, points[0].label, 1, prices) for system, points in published if points
    ]


@dataclass
class _Turning:
    """A search for the value at which a policy drafts so many tokens a round, by halves."""

    system: System
    typed: str
    nodes: int
    low: int = -1
    high: int = field(init=False)
    index: int | None = field(init=False)
    tokens: float | None = None
    label: str = ""

    def __post_init__(self) -> None:
        knob = self.system.knob
        self.high = len(knob)
        # A budget is most often what is drafted.
        self.index = knob.index(self.nodes) if self.nodes in knob else len(knob) // 2

    @property
    def next(self) -> str:
        """What is tried now."""
        assert self.index is not None
        return self.typed.replace("{}", f"{self.system.knob[self.index]:.4g}")

    def learn(self, drafted: float, tokens: float, label: str) -> None:
        """Go on below or above, or end where the mean is close, with the policy and the tokens a round that it has.

        What cannot run drafts more than there are prices of.
        """
        assert self.index is not None
        if abs(drafted - self.nodes) <= CLOSE * self.nodes:
            self.tokens, self.label = tokens, label
            return
        self.low, self.high = (self.index, self.high) if drafted < self.nodes else (self.low, self.index)
        self.index = (self.low + self.high) // 2 if self.high - self.low > 1 else None


def _turned(drafts: PricedDrafts, systems: Sequence[System], prices: str) -> list[Entry]:
    """Each at every number of drafted tokens that it comes to: of the ways to come there, that with the most tokens."""
    turning = [_Turning(system, typed, nodes) for system in systems for nodes in NODES for typed in system.turned]
    looked_at = turning
    while looked_at := [turn for turn in looked_at if turn.tokens is None and turn.index is not None]:
        points = [drafts.points([turn.next], priced=False)[0] for turn in looked_at]
        means = {"": (math.inf, 0.0)}  # of what cannot run
        if any(points):
            sums = drafts.sums(point for made in points for point in made)
            of_policies = sums.group_by("policy_id", maintain_order=True).agg(pl.col(*_COUNTS).sum())
            for row in of_policies.iter_rows(named=True):
                means[str(row["policy_id"])] = row["drafted"] / row["rounds"], row["committed"] / row["rounds"]
        for turn, made in zip(looked_at, points, strict=True):
            turn.learn(*means[made[0].policy_id if made else ""], made[0].label if made else "")
    best: dict[tuple[str, int], _Turning] = {}
    for turn in turning:
        key = turn.system.name, turn.nodes
        if turn.tokens is not None and (key not in best or turn.tokens > (best[key].tokens or 0.0)):
            best[key] = turn
    return [
        Entry(name, str(nodes), drafts.drafter, turn.label, len(turn.system.turned), prices)
        for (name, nodes), turn in best.items()
    ]


def _fastest(drafts: PricedDrafts, systems: Sequence[System], prices: str) -> tuple[list[Entry], dict[str, str]]:
    """Each at its fastest setting by some prices, and why others have none."""
    asked: dict[str, list[NamedPolicy]] = {}
    without: dict[str, str] = {}
    for system in systems:
        points, why = drafts.points(system.searched)
        if points:
            asked[system.name] = points
        else:
            without[system.name] = why
    if not asked:
        return [], without
    sums = drafts.sums(point for points in asked.values() for point in points)
    speeds = FoldSpeeds.of(sums)
    entries = []
    for name, points in asked.items():
        nodes = [speeds.drafted[point.policy_id] for point in points]
        timed = [drafts.prices.gap_of(point.policy, mean) is None for point, mean in zip(points, nodes, strict=True)]
        # A setting whose size nobody timed is taken where a system has no other.
        usable = [point for point, is_timed in zip(points, timed, strict=True) if is_timed] or points
        best, optimism = speeds.best_of([point.policy_id for point in usable])
        label = next(point.label for point in usable if point.policy_id == best)
        entries.append(Entry(name, FASTEST, drafts.drafter, label, len(points), prices, optimism))
    return entries, without


@dataclass(frozen=True)
class FoldSpeeds:
    """Tokens and seconds of policies on parts of the prompts.

    Attributes:
        tokens: float64 ``[F]`` of each part, by policy.
        seconds: float64 ``[F]``, the same.
        drafted: drafted tokens a round, by policy.
    """

    tokens: Mapping[str, np.ndarray]
    seconds: Mapping[str, np.ndarray]
    drafted: Mapping[str, float]

    @classmethod
    def of(cls, sums: pl.DataFrame) -> "FoldSpeeds":
        """From sums by policy and prompt; prompts are dealt out in turn, so that data sets are spread over parts."""
        prompts = sums.select("dataset", "prompt_id").unique(maintain_order=True).with_row_index("fold")
        prompts = prompts.with_columns(pl.col("fold") % FOLDS)
        dealt = sums.join(prompts, on=["dataset", "prompt_id"], maintain_order="left")
        folds = dealt.group_by("policy_id", "fold", maintain_order=True)
        by_fold = folds.agg(pl.col(*_COUNTS, "seconds").sum()).sort("fold")
        tokens, seconds, drafted = {}, {}, {}
        for (policy_id,), part in by_fold.group_by("policy_id", maintain_order=True):
            tokens[str(policy_id)] = part["committed"].to_numpy().astype(float)
            seconds[str(policy_id)] = part["seconds"].to_numpy()
            drafted[str(policy_id)] = float(part["drafted"].sum()) / float(part["rounds"].sum())
        return cls(tokens, seconds, drafted)

    def best_of(self, policies: Sequence[str]) -> tuple[str, float | None]:
        """The policy with the most tokens a second, and by how much choosing it flatters it.

        The latter is its speed over that of nested choices, less 1: of each part the tokens and seconds of what would
        have been chosen on the others. None where prompts make but one part.
        """
        tokens = np.stack([self.tokens[policy] for policy in policies])
        seconds = np.stack([self.seconds[policy] for policy in policies])
        whole = tokens.sum(1) / seconds.sum(1)
        best = int(np.argmax(whole))
        parts = tokens.shape[1]
        if parts < 2:
            return policies[best], None
        others = (tokens.sum(1, keepdims=True) - tokens) / (seconds.sum(1, keepdims=True) - seconds)
        chosen = np.argmax(others, axis=0), np.arange(parts)
        nested = tokens[chosen].sum() / seconds[chosen].sum()
        flattery = float(whole[best] / nested - 1)
        return policies[best], round(flattery, 4) if math.isfinite(flattery) else None
