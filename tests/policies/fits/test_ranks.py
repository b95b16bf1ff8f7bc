"""Frequencies of ranks against counts by hand."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simlab.policies.fits.calibration import add_ranks, no_rank_counts, rank_frequencies
from simlab.recorded import DraftRows
from simlab.testing.random_texts import random_sequence


def frequencies_by_hand(texts: list[DraftRows], num_ranks: int) -> list[list[Fraction]]:
    """Each root and depth is looked at alone: was everything before it right, and which rank came next?"""
    num_depths = texts[0].counts.shape[1]
    found = []
    for depth in range(num_depths):
        seen = [
            truth[depth]
            for rows in texts
            for root, truth in enumerate(rows.true_ranks.tolist())
            if root + depth < len(rows.counts) and all(0 <= rank < num_ranks for rank in truth[:depth])
        ]
        found.append([Fraction(seen.count(rank), max(len(seen), 1)) for rank in range(num_ranks)])
    return found


@given(st.integers(0, 1 << 30), st.integers(1, 12))
def test_frequencies_are_those_counted_by_hand(seed: int, num_ranks: int) -> None:
    generator = np.random.default_rng(seed)
    drawn = [random_sequence(generator, most_kept=10).rows for _ in range(4)]
    depth = max(rows.counts.shape[1] for rows in drawn if rows is not None)
    texts = [rows for rows in drawn if rows is not None and rows.counts.shape[1] == depth]
    counts = no_rank_counts(depth, num_ranks)
    for rows in texts:
        add_ranks(counts, rows)
    found = rank_frequencies(counts)
    assert found.shape == (depth, num_ranks)
    assert found.tolist() == [[float(share) for share in row] for row in frequencies_by_hand(texts, num_ranks)]
    assert np.all(found.sum(axis=1) <= 1 + 1e-12)


def test_a_small_case() -> None:
    true_ranks = np.array([[0, 2, 1], [1, -1, -1], [0, -1, -1]], np.int32)
    kept = np.full((3, 3), 4, np.int32)
    counts = no_rank_counts(3, 2)
    add_ranks(counts, DraftRows(np.zeros(36, np.int32), np.zeros(36, np.float32), kept, true_ranks))
    # Root 0 knows three tokens, but rank 2 is none of two; root 1 knows two, root 2 one.
    assert counts.numbers.tolist() == [3, 2, 0]
    assert counts.hits.tolist() == [[2, 1], [0, 0], [0, 0]]
    assert rank_frequencies(counts)[0].tolist() == [2 / 3, 1 / 3]
