"""Made-up texts, and a plain-Python server of them: what a batch of texts does round after round."""

from collections.abc import Callable
from itertools import count

import numpy as np

from simlab.arrays import Ints
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.draft import Prompt
from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts, texts_of

DEPTH, WIDTH, VOCAB = 3, 4, 9


def random_texts(seed: int, num: int, coarse: bool) -> RecordedTexts:
    """Texts of 1 to 14 tokens; coarse log-probabilities have many ties."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(num):
        text = generator.integers(VOCAB, size=int(generator.integers(1, 15))).astype(np.int32)
        prompt = generator.integers(VOCAB, size=int(generator.integers(1, 20))).astype(np.int32)
        found.append(
            RecordedSequence(
                number,
                Prompt(f"p{number}", "made-up", 0, 0, prompt),
                text,
                "length",
                _rows(generator, text, coarse),
            )
        )
    return texts_of(found)


def _rows(generator: np.random.Generator, text: Ints, coarse: bool) -> DraftRows:
    shape = (len(text) - 1, DEPTH)
    ids, log_probs, ranks = [], [], np.full(shape, -1, np.int32)
    for t in range(shape[0]):
        for d in range(DEPTH):
            row = generator.permutation(VOCAB)[:WIDTH]
            if t + 1 + d < len(text) and generator.random() < 0.6:
                row[int(generator.integers(WIDTH))] = text[t + 1 + d]
                row = np.array(list(dict.fromkeys(row.tolist() + list(range(VOCAB))))[:WIDTH])
            steps = generator.integers(1, 4, WIDTH) / 2 if coarse else generator.random(WIDTH) * 3
            scores = -np.sort(steps)
            order = np.lexsort((row, -scores))
            ids += row[order].tolist()
            log_probs += (np.round(scores[order] * 2**16) / 2**16).tolist()
            if t + 1 + d < len(text) and text[t + 1 + d] in row:
                ranks[t, d] = row[order].tolist().index(int(text[t + 1 + d]))
    counts = np.full(shape, WIDTH, np.int32)
    return DraftRows(np.array(ids, np.int32), np.array(log_probs, np.float32), counts, ranks)


def cost_table(most: int = 200) -> CostTable:
    """Prices that are no straight lines in anything but the context."""
    contexts, number = np.array([4, 16, 60]), np.arange(most + 1)
    seconds = {
        stage: np.sqrt(1 + number)[None] * (1 + contexts[:, None] / 50) * (index + 1)
        for index, stage in enumerate(GRID_STAGES)
    }
    return CostTable("made-up", contexts, {**seconds, PLAIN: (1 + contexts / 40.0)[:, None]})


# The oracle: nodes as tuples of ranks, sorted; a server in plain Python


def best_paths(sequence: RecordedSequence, t: int, most: int) -> list[tuple[float, tuple[int, ...]]]:
    """All nodes below root ``t``, best first: score, then the smaller tuple of ranks."""
    assert sequence.rows is not None
    row = sequence.rows.row(t, int(sequence.rows.starts()[t]))
    nodes: list[tuple[float, tuple[int, ...]]] = []
    level: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for depth in range(row.depth):
        log_probs = row.log_probs[row.offsets[depth] : row.offsets[depth + 1]].tolist()
        level = [(score + add, (*ranks, rank)) for score, ranks in level for rank, add in enumerate(log_probs)]
        nodes += level
    return sorted(nodes, key=lambda node: (-node[0], node[1]))[:most]


Listed = list[tuple[int, int, int]]
"""Root, drafted and accepted tokens of the rounds of a text."""


def num_true(true: list[int], mine: set[tuple[int, ...]]) -> int:
    """How many nodes of the true path are in a tree."""
    found = 0
    while found < DEPTH and true[found] >= 0 and tuple(true[: found + 1]) in mine:
        found += 1
    return found


HowMany = Callable[[list[float], list[int]], int]
"""From path scores of all texts, best first, and the contexts of the texts, how many nodes enter in a round."""


def served_by_hand(
    texts: RecordedTexts, batch: int, most: int, how_many: HowMany
) -> tuple[list[Listed], list[tuple[list[int], list[int]]]]:
    """Of each text its rounds (root, drafted, accepted); and of each batch round tree sizes and contexts."""
    waiting, numbers = list(range(len(texts.sequences))), count()
    running: list[tuple[int, int, int]] = []
    rounds: list[list[tuple[int, int, int]]] = [[] for _ in waiting]
    batches: list[tuple[list[int], list[int]]] = []
    left = {n for n, sequence in enumerate(texts.sequences) if len(sequence.text) > 1}
    first_pass = len(waiting)
    while left:
        while len(running) < batch:
            number = next(numbers)
            text = number % first_pass
            if len(texts.sequences[text].text) > 1:
                running.append((number, text, 0))
        offers = []
        for place, (_, text, t) in enumerate(running):
            for index, (score, ranks) in enumerate(best_paths(texts.sequences[text], t, most)):
                offers.append((-score, place, index, ranks))
        places = [len(texts.sequences[text].prompt.token_ids) + t for _, text, t in running]
        offers.sort()
        taken = offers[: how_many([-offer[0] for offer in offers[:most]], places)]
        going, sizes = [], []
        for place, (number, text, t) in enumerate(running):
            mine = {ranks for _, owner, _, ranks in taken if owner == place}
            one = texts.sequences[text]
            assert one.rows is not None
            accepted = num_true(one.rows.true_ranks[t].tolist(), mine)
            sizes.append(len(mine))
            if number < first_pass:
                rounds[text].append((t, len(mine), accepted))
            if t + accepted + 1 < len(one.text) - 1:
                going.append((number, text, t + accepted + 1))
            elif number < first_pass:
                left.remove(text)
        batches.append((sizes, places))
        running = going
    return rounds, batches
