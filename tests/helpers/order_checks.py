"""What every order of nodes must do: the same in a layer as root by root, in the engine as round by round."""

from dataclasses import replace

import numpy as np
import oracle
from marginals import grid_values, marginals_of, paths_of, rows_strategy

from simlab import Draft, rounds
from simlab.columns import RoundColumns, columns_of
from simlab.grid import to_grid
from simlab.policies.engine.replay import replay_policies
from simlab.policies.orders.node_order import NEVER, NodeOrder, OrderedNodes, layer_by_roots
from simlab.policy import AnyPolicy
from simlab.recorded import DraftRows, RecordedSequence, texts_of
from simlab.testing.random_texts import random_sequence

__all__ = ["as_rows", "draft_of", "grid_values", "marginals_of", "paths_of", "rows_strategy"]


def draft_of(rows: list[oracle.Row], entropies: list[float] | None = None) -> Draft:
    marginals = marginals_of(rows)
    if entropies is not None:
        marginals = replace(marginals, entropies=np.array(entropies, np.float32))
    return Draft(marginals, 5, np.array([3, 5], np.int32), 1)


def as_rows(draft: Draft) -> list[oracle.Row]:
    """A draft as the oracles read it."""
    marginals = draft.drafted()
    pairs = (marginals.at(depth) for depth in range(1, marginals.depth + 1))
    return [list(zip(ids.tolist(), values.tolist(), strict=True)) for ids, values in pairs]


def check_nodes(nodes: OrderedNodes, rows: list[oracle.Row], expected: list[oracle.Path]) -> None:
    """The nodes are these paths, with their tokens, depths and exact scores."""
    assert paths_of(nodes) == expected
    assert nodes.depths.tolist() == [0, *map(len, expected)]
    assert nodes.tokens.tolist() == [5, *(rows[len(path) - 1][path[-1]][0] for path in expected)]
    assert nodes.scores.tolist() == [0.0, *(float(oracle.score(rows, path)) for path in expected)]


def texts(seed: int, number: int, most_kept: int = 9) -> list[RecordedSequence]:
    """Made-up texts, many of them with ties, some with depths at which nothing was kept."""
    generator = np.random.default_rng(seed)
    found = [random_sequence(generator, most_kept) for _ in range(number)]
    return [with_gaps(sequence, generator) if index % 3 == 2 else sequence for index, sequence in enumerate(found)]


def with_gaps(recorded: RecordedSequence, generator: np.random.Generator) -> RecordedSequence:
    """The same after some lists of candidates were lost."""
    rows = recorded.rows
    assert rows is not None
    lost = generator.random(rows.counts.shape) < 0.2
    kept = np.repeat(~lost.ravel(), rows.counts.ravel())
    counts = np.where(lost, 0, rows.counts).astype(np.int32)
    cut = DraftRows(rows.ids[kept], rows.log_probs[kept], counts, rows.true_ranks, rows.entropies)
    return RecordedSequence(0, recorded.prompt, recorded.text, recorded.stop_reason, cut)


def check_layer(order: NodeOrder, recorded: RecordedSequence, most: int) -> None:
    """The layer is that of the plain way, narrower ones padded, and it is nested."""
    fast, plain = order.layer(texts_of([recorded]), most, True), layer_by_roots(order, texts_of([recorded]), most, True)
    assert fast.insertions.dtype == plain.insertions.dtype
    # Pools that end before the drafter's depth make a narrower layer.
    unseen = ((0, 0), (0, plain.insertions.shape[1] - fast.insertions.shape[1]))
    np.testing.assert_array_equal(np.pad(fast.insertions, unseen, constant_values=NEVER), plain.insertions)
    np.testing.assert_array_equal(fast.num_available, plain.num_available)
    assert fast.scores is not None
    assert plain.scores is not None
    padding = ((0, 0), (0, plain.scores.shape[1] - fast.scores.shape[1]))
    np.testing.assert_array_equal(np.pad(fast.scores, padding, constant_values=-np.inf), plain.scores)
    bare = order.layer(texts_of([recorded]), most, False)
    assert bare.scores is None
    np.testing.assert_array_equal(bare.insertions, fast.insertions)


def check_columns(policies: list[AnyPolicy], recorded: RecordedSequence) -> None:
    """The engine's rounds of each policy are those of playing it round by round."""
    for policy, found in zip(policies, replay_policies(policies, recorded), strict=True):
        expected = columns_of(rounds(policy, recorded))
        for column, other in zip(found.columns(), expected.columns(), strict=True):
            np.testing.assert_array_equal(column, other, err_msg=repr(policy))


def check_nested(order: NodeOrder, draft: Draft, small: int, large: int) -> None:
    """A smaller tree is the beginning of a larger one, and parents come before children."""
    nodes, other = order.nodes(draft, small), order.nodes(draft, large)
    for name in OrderedNodes._fields:
        values = getattr(nodes, name)
        np.testing.assert_array_equal(values, getattr(other, name)[: len(values)])
    assert np.all(other.parents < np.arange(len(other.parents)))


def real_rows(seed: int, num_depths: int, num_ranks: int) -> list[oracle.Row]:
    """Rows of a made-up drafter that is sure in one place and not in another."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(num_depths, num_ranks)) * generator.uniform(0.1, 5, size=(num_depths, 1))
    values = -np.sort(-values, axis=1)
    grid = to_grid(values - np.log(np.exp(values).sum(axis=1, keepdims=True)) - 0.05)
    return [list(zip(range(num_ranks), row, strict=True)) for row in grid.tolist()]


def same(columns: RoundColumns, other: RoundColumns) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(columns.columns(), other.columns(), strict=True))
