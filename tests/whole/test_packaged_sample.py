"""The packaged trace: golden numbers, the oracle on real rows, and what must hold between policies."""

import pytest
from oracle import best_paths_by_heap

from simlab.policies.orders.best_first import best_first
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import hindsight_sequence, replay_sequence
from simlab.totals import Totals
from simlab.traces.reader import Trace, open_trace, packaged_trace

# As the README's table has them. A new sample prints the new ones in this form.
GOLDEN = {
    "autoregressive": (5856, 0, 0, 5856, 0),
    "chain": (2674, 18718, 3211, 5856, 29),
    "ddtree:budget=16": (2088, 33408, 3806, 5856, 38),
    "ddtree:budget=64": (1841, 117824, 4052, 5856, 37),
    "ddtree:budget=512": (1586, 812032, 4305, 5856, 35),
    "hindsight:budget=64": (1066, 4790, 4790, 5856, 0),
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(packaged_trace())


def test_golden_totals(trace: Trace) -> None:
    policies = parse_policies(["ar", "chain", "ddtree:budget=16/64/512"])
    found = {policy.label: Totals() for policy in policies} | {"hindsight:budget=64": Totals()}
    for recorded in trace.recorded(trace.draft_name()):
        for policy in policies:
            found[policy.label] += replay_sequence(policy.policy, recorded)
        found["hindsight:budget=64"] += hindsight_sequence(recorded, 64)
    seen = {label: (t.rounds, t.drafted, t.accepted, t.committed, t.clipped) for label, t in found.items()}
    assert seen == GOLDEN, f"GOLDEN = {seen}"


def test_trees_on_real_rows_equal_the_oracles(trace: Trace) -> None:
    recorded = next(trace.recorded(trace.draft_name(), [0]))
    assert recorded.rows is not None
    for t, row in enumerate(recorded.rows.rows()):
        if t % 20:
            continue
        tables = [
            [(int(token), float(log_prob)) for token, log_prob in zip(*row.at(depth), strict=True)]
            for depth in range(1, row.depth + 1)
        ]
        tree = best_first(0, row, 96)
        paths: list[tuple[int, ...]] = [()]
        for parent, rank in zip(tree.parents[1:].tolist(), tree.ranks[1:].tolist(), strict=True):
            paths.append((*paths[parent], rank))
        assert paths[1:] == best_paths_by_heap(tables, 96)
