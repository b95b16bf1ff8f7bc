"""What each system runs at each size: of its settings those that are predicted to be fastest on the dev prompts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlab.analysis.table.summaries import Summary, summarise
from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.parsing.parse import LABELS, NamedPolicy, parse_policies
from simlab.studies.field.systems import EQUAL, FASTEST, NODES, SYSTEMS, System
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.replay.replay import replay
from simlab.traces.reader import Trace


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy of the field.

    Attributes:
        system: the row.
        size: drafted tokens as text, or `FASTEST`.
        drafter: the draft set.
        policy: as it is typed, one point.
        chosen_from: how many settings it was chosen from, on dev.
    """

    system: str
    size: str
    drafter: str
    policy: str
    chosen_from: int

    @property
    def label(self) -> str:
        """How result rows call the policy."""
        return LABELS.get(self.policy, self.policy)

    @property
    def group(self) -> str:
        """With what it runs: `EQUAL` or `FASTEST`."""
        return FASTEST if self.size == FASTEST else EQUAL

    @property
    def parts(self) -> list[str]:
        """Whose ideas it is made of: its own policy, those of its routes, and those that a ``tree`` takes parts of."""
        words = re.split(r'[:=,|"]', self.policy)
        found = [word for word in words if word in POLICIES]
        found += ["presto"] if re.search(r"ngram_weight=(?!0(?:\.0*)?(?:,|$))", self.policy) else []
        found += ["self"] if "masked=" in self.policy else []
        return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Asked:
    system: System
    size: str
    points: tuple[NamedPolicy, ...]


def choose(dev: Trace, drafter: str, cost: Path) -> tuple[list[Entry], dict[str, str]]:
    """The policies of all systems of a draft set, and why those are left out that cannot run on this recording.

    Args:
        dev: the recording of the dev prompts.
        drafter: one of its draft sets.
        cost: the latency profile of target and drafter.

    Raises:
        SimlabError: recording and profile do not fit each other.
    """
    artefacts = TraceArtefacts(prices_for_trace(cost, dev, drafter), dev, drafter)
    asked: list[_Asked] = []
    left_out: dict[str, str] = {}
    for system in (one for one in SYSTEMS if one.drafter == drafter):
        try:
            sizes = list(_sizes(system, dev.manifest.draft_sets[drafter].depth, artefacts))
        except PolicyError as error:
            left_out[system.name] = str(error)
            continue
        missing = _missing_channels(dev, [point for one in sizes for point in one.points])
        if missing:
            left_out[system.name] = f"the channel {missing[0]} was not recorded"
            continue
        asked += sizes
    if not asked:
        return [], left_out
    # A policy that two systems have is replayed once, under the first of its names.
    labels = {point.policy_id: point.label for one in reversed(asked) for point in reversed(one.points)}
    table = replay(dev, list(labels.values()), cost=cost, draft=drafter, progress=False)
    found = {one.policy_id: one for one in summarise(table.rows)}
    return [_fastest(one, found) for one in asked], left_out


def _sizes(system: System, depth: int, artefacts: TraceArtefacts) -> Iterator[_Asked]:
    for nodes in NODES:
        typed = system.typed(nodes, depth)
        if typed:
            yield _Asked(system, str(nodes), tuple(parse_policies([typed], artefacts)))
    yield _Asked(system, FASTEST, tuple(parse_policies(system.searched, artefacts)))


def _missing_channels(trace: Trace, points: Sequence[NamedPolicy]) -> list[str]:
    names = dict.fromkeys(channel.name for point in points for channel in point.policy.needs.made)
    return [name for name in names if name not in trace.manifest.channels]


def _fastest(asked: _Asked, found: Mapping[str, Summary]) -> Entry:
    """The fastest point; of equals the first."""
    best = max(
        (found[point.policy_id] for point in asked.points), key=lambda one: np.nan_to_num(one.speed.tokens_per_s)
    )
    return Entry(asked.system.name, asked.size, asked.system.drafter, best.policy, len(asked.points))
