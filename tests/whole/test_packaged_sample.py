"""Trees on rows of the packaged trace are those of the oracle."""

from oracle import best_paths_by_heap

from simlab.policies.orders.best_first import best_first
from simlab.traces.reader import open_trace, packaged_trace


def test_trees_on_real_rows_equal_the_oracles() -> None:
    trace = open_trace(packaged_trace())
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
