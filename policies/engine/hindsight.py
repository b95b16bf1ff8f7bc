"""The fewest rounds that any policy can have, told the answer: what `simlab.sequence_replay.hindsight_rounds` gives, at once."""

import numpy as np

from simlab.arrays import Ints, Longs
from simlab.columns import TextRounds
from simlab.jit import kernel
from simlab.recorded import RecordedTexts


def fewest_rounds(texts: RecordedTexts, budget: int) -> TextRounds:
    """The rounds of chains of true tokens, as far as they are among the candidates and at most ``budget`` of them.

    Raises:
        ValueError: there are no draft rows.
    """
    roots = texts.drafted()
    visited, ends = _fewest(roots.counts, roots.true_ranks, budget, roots.firsts)
    return TextRounds(visited[0], visited[1], visited[1].copy(), ends)


@kernel
def _fewest(counts: Ints, true_ranks: Ints, budget: int, firsts: Longs) -> tuple[Longs, Longs]:
    """Roots and accepted tokens of all rounds, and where the rounds of each text end."""
    num_roots, num_depths = counts.shape
    reach, visited, ends = np.empty(num_roots, np.int64), np.empty((2, num_roots), np.int64), np.empty_like(firsts[1:])
    number = 0
    for text in range(firsts.size - 1):
        first, last = firsts[text], firsts[text + 1]
        for root in range(first, last):
            run = 0
            while run < min(num_depths, budget) and 0 <= true_ranks[root, run] < counts[root, run]:
                run += 1
            reach[root] = min(root + run + 1, last)
        root = first
        while root < last:
            # The next root whose own reach is furthest, the later one of two; the end of the text reaches itself.
            best, furthest = root + 1, -1
            for behind in range(root + 1, reach[root] + 1):
                reached = reach[behind] if behind < last else last
                if reached >= furthest:
                    best, furthest = behind, reached
            visited[0, number], visited[1, number] = root, best - root - 1
            number += 1
            root = best
        ends[text] = number
    return visited[:, :number].copy(), ends
