"""How fast are trees on transitions and pools, beside plain Python that builds each tree and looks for the true path?

Two plain ways follow the same rule with the same ties, on the same rows as lists and dictionaries made beforehand, and
their places of the true path are compared: a heap in which each node's next sibling and first child wait, which is as
fast as plain Python gets, and the oracle of the tests, in which all children do. Times of simlab are the best of
several short runs, on one thread.
"""

import argparse
import heapq
import math
import time
from collections.abc import Callable

import lattice_oracle
import numpy as np

from simlab.arrays import Floats, Ints
from simlab.channels import ChannelRows, PoolRows, TransitionRows
from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, LatticeShape, WholeFamilies
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource
from simlab.policies.orders.node_order import NEVER
from simlab.policy import ChannelNeed
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of

VOCAB, DEPTH = 48, 7
Row = list[tuple[int, int]]
Tokens = tuple[int, ...]


def laws(generator: np.random.Generator, num: int, width: int) -> tuple[Ints, Floats]:
    """Tokens and log-probabilities of as many rows, each the first of a law over 48 tokens."""
    values = np.log(generator.dirichlet(np.full(VOCAB, 0.3), size=num).clip(1e-12))
    ids = np.argsort(-values, axis=1, kind="stable")[:, :width]
    return ids.astype(np.int32), to_grid(np.take_along_axis(values, ids, axis=1))


def made_transitions(num_roots: int, most_rows: int, width: int, seed: int = 0) -> TransitionRows:
    """Rows below the likeliest tokens of the row above it all; half of the laws are sharp."""
    generator = np.random.default_rng(seed)
    num_rows = np.full((num_roots, DEPTH), most_rows, np.int32)
    num_rows[:, 0] = 1
    ids, values = laws(generator, num_roots * (1 + (DEPTH - 1) * most_rows), width)
    previous, _ = laws(generator, num_roots * (DEPTH - 1), most_rows)
    return TransitionRows(num_rows, previous.ravel(), ids, values)


def made_pools(num_roots: int, beam: int, width: int, seed: int = 0) -> PoolRows:
    """Pass by pass, the best nodes of the last one have children."""
    generator = np.random.default_rng(seed)
    sizes: list[int] = []
    tokens: list[int] = []
    parents: list[int] = []
    edges: list[float] = []
    expanded: list[bool] = []
    for _ in range(num_roots):
        scores, is_open, level = [0.0], [False], [0]
        for _ in range(DEPTH):
            ids, values = laws(generator, len(level), width)
            born = len(scores)
            for parent, row, logs in zip(level, ids.tolist(), values.tolist(), strict=True):
                is_open[parent] = True
                tokens += row
                edges += logs
                parents += [parent] * width
                scores += [scores[parent] + one for one in logs]
            is_open += [False] * (len(scores) - born)
            level = sorted(sorted(range(born, len(scores)), key=lambda node: -scores[node])[:beam])
        sizes.append(len(scores) - 1)
        expanded += is_open[1:]
    return PoolRows(
        np.array(sizes, np.int64),
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.array(edges, np.float32),
        np.array(expanded, np.bool_),
    )


def text_of(rows: ChannelRows) -> RecordedTexts:
    """A text along which a channel was recorded."""
    text = np.random.default_rng(1).integers(VOCAB, size=len(rows) + 1).astype(np.int32)
    prompt = Prompt("bench", "bench", 0, 0, np.arange(8, dtype=np.int32))
    return texts_of([RecordedSequence(0, prompt, text, "length", None, {"bench": rows})])


def below_transitions(rows: TransitionRows) -> list[dict[tuple[int, int], Row]]:
    """At each root, the row of a depth and the token above."""
    found = []
    for one in rows.rows():
        depths = np.repeat(np.arange(len(one.num_rows)), one.num_rows).tolist()
        above = [-1, *one.previous.tolist()]
        costs = np.rint(-65536 * one.log_probs).astype(int).tolist()
        lists = (list(zip(*row, strict=True)) for row in zip(one.ids.tolist(), costs, strict=True))
        found.append(dict(zip(zip(depths, above, strict=True), lists, strict=True)))
    return found


def build(rows: dict[tuple[int, int], Row], most: int) -> list[Tokens]:
    """The paths of a best-first tree, as tuples of tokens: its next sibling and first child wait for each node."""
    first: Row = rows[0, -1]
    heap: list[tuple[int, Tokens, Tokens, int, Row]] = [(first[0][1], (0,), (first[0][0],), 0, first)]
    taken: list[Tokens] = []
    while heap and len(taken) < most:
        cost, ranks, path, above, row = heapq.heappop(heap)
        taken.append(path)
        rank = ranks[-1] + 1
        if rank < len(row):
            token, step = row[rank]
            heapq.heappush(heap, (above + step, (*ranks[:-1], rank), (*path[:-1], token), above, row))
        below = rows.get((len(path), path[-1]))
        if below:
            heapq.heappush(heap, (cost + below[0][1], (*ranks, 0), (*path, below[0][0]), cost, below))
    return taken


def places_of(taken: list[Tokens], text: list[int]) -> list[int]:
    """The places of the true path."""
    numbers = {path: number for number, path in enumerate(taken, start=1)}
    places = [numbers.get(tuple(text[:length]), NEVER) for length in range(1, DEPTH + 1) if length <= len(text)]
    return places + [NEVER] * (DEPTH - len(places))


def best_seconds(run: Callable[[], object], repeats: int = 21) -> float:
    """The least seconds of a few runs, after one that compiles."""
    run()
    best = math.inf
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def build_all(rows: dict[tuple[int, int], Row], most: int) -> list[Tokens]:
    """The same paths from the oracle of the tests."""
    nodes = lattice_oracle.best_first(lambda path: rows.get((len(path), path[-1] if path else -1), []), most)
    return [tokens for _, _, tokens in nodes]


def compare(rows: TransitionRows, most: int, num_slow: int) -> None:
    """One line: roots a second of the kernel, and what the plain ways take."""
    texts, order = text_of(rows), LatticeOrder(TransitionSource("bench"))
    layer = order.layer(texts, most, False)
    plain, text = below_transitions(rows.part(0, num_slow, rows.starts())), texts.sequences[0].text.tolist()
    slow = []
    for way in (build, build_all):
        start = time.perf_counter()
        found = [places_of(way(one, most), text[t + 1 : t + 1 + DEPTH]) for t, one in enumerate(plain)]
        slow.append((time.perf_counter() - start) / num_slow)
        assert found == layer.insertions[:num_slow].tolist()
    fast = best_seconds(lambda: order.layer(texts, most, False)) / len(rows)
    print(
        f"transitions of 16 rows and candidates, {DEPTH} depths, {most} nodes: {1 / fast:,.0f} roots/s, "
        f"{slow[0] / fast:,.0f} x a heap, {slow[1] / fast:,.0f} x the oracle "
        f"({1e6 * slow[0]:,.0f} and {1e6 * slow[1]:,.0f} us a root, simlab {1e6 * fast:.1f} us)"
    )


def speed(name: str, source: LatticeSource, shape: LatticeShape, rows: ChannelRows, most: int, scored: bool) -> None:
    """One line: roots a second of one source and shape."""
    texts, order = text_of(rows), LatticeOrder(source, shape)
    seconds = best_seconds(lambda: order.layer(texts, most, scored)) / len(rows)
    print(
        f"{name}, {most} nodes{', with scores' if scored else ''}: {1 / seconds:,.0f} roots/s, {1e6 * seconds:.1f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--roots", type=int, default=4000)
    num_roots = parser.parse_args().roots
    rows = made_transitions(num_roots, 16, 16)
    for most in (16, 64, 256):
        compare(rows, most, min(num_roots, 300))
    source = TransitionSource("bench")
    speed("transitions", source, BestPaths(), rows, 64, scored=True)
    speed("transitions, whole families of 7", source, WholeFamilies(7), rows, 64, scored=False)
    narrow = TransitionSource("bench", previous=4, top_k=8)
    speed("transitions read with 4 rows of 8", narrow, BestPaths(), rows, 64, scored=False)
    pools = made_pools(num_roots // 10, 10, 10)
    pool = PoolSource(ChannelNeed("bench", "pool"))
    speed("pools of 610 nodes", pool, BestPaths(), pools, 64, scored=False)
    priced = PoolSource(ChannelNeed("bench", "pool"), depth_price=0.002)
    speed("pools of 610 nodes, priced depths", priced, BestPaths(), pools, 64, scored=False)


if __name__ == "__main__":
    main()
