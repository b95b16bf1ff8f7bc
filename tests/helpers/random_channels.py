"""Made-up channels, and texts along which they were recorded: small, with equal scores, dead ends and leaves."""

from dataclasses import replace

import lattice_oracle
import numpy as np

from simlab.arrays import Floats, Ints
from simlab.channels import ChannelRows, Pool, PoolRows, TransitionRows, Transitions
from simlab.draft import Draft, Prompt
from simlab.grid import to_grid
from simlab.policies.edges.lattice import LEAF, Lattice
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource
from simlab.policies.orders.node_order import OrderedNodes
from simlab.recorded import DraftRows, RecordedSequence

VOCAB = 9


def random_values(generator: np.random.Generator, num: int, tied: bool) -> Floats:
    """Log-probabilities, the largest first; tied ones have few distinct values."""
    values = generator.integers(0, 4, size=num) * -0.5 if tied else -np.abs(generator.normal(size=num) * 2)
    return to_grid(-np.sort(-values))


def random_lattice(generator: np.random.Generator) -> Lattice:
    """Lists of up to four candidates, some empty, each followed by any later list or by none.

    Costs are anything, or few and far apart, or a step apart.
    """
    num_lists, kind = int(generator.integers(1, 7)), int(generator.integers(3))
    sizes = generator.integers(0, 5, size=num_lists)
    ends = np.cumsum(sizes).astype(np.int32)
    costs, ranks, tokens, below = ([np.empty(0, np.int32)] for _ in range(4))
    for number, size in enumerate(sizes.tolist()):
        near = np.sort(generator.integers(0, 5, size))
        own = near if kind == 2 else random_values(generator, size, kind == 1) * -65536
        costs.append(own.astype(np.int32))
        ranks.append(np.arange(size, dtype=np.int32))
        tokens.append(generator.permutation(VOCAB)[:size].astype(np.int32))
        later = generator.integers(number + 1, num_lists + 1, size=size)
        below.append(np.where(later == num_lists, LEAF, later).astype(np.int32))
    candidates = tuple(np.concatenate(one) for one in (costs, ranks, tokens, below))
    return Lattice._make((*candidates, (ends - sizes).astype(np.int32), ends))


def below_lattice(lattice: Lattice) -> lattice_oracle.Below:
    """From a path of tokens to its candidates, list by list, as the oracle has it."""
    costs, tokens, after, starts, ends = (
        array.tolist() for array in (lattice.costs, lattice.tokens, lattice.below, lattice.starts, lattice.ends)
    )

    def below(path: lattice_oracle.Tokens) -> lattice_oracle.Offered:
        number = 0
        for token in path:
            number = after[tokens.index(token, starts[number], ends[number])]
        return [] if number == LEAF else [(tokens[e], costs[e]) for e in range(starts[number], ends[number])]

    return below


def random_transitions(generator: np.random.Generator, num_depths: int, width: int) -> Transitions:
    """Up to five rows a depth, below different tokens."""
    tied = bool(generator.random() < 0.5)
    num_rows = generator.integers(0, 6, size=num_depths).astype(np.int32)
    num_rows[0] = 1
    previous = [generator.permutation(VOCAB)[:num] for num in num_rows[1:].tolist()]
    num = int(num_rows.sum())
    ids = np.array([generator.permutation(VOCAB)[:width] for _ in range(num)], np.int32).reshape(num, width)
    values = np.array([random_values(generator, width, tied) for _ in range(num)], np.float32).reshape(num, width)
    return Transitions(num_rows, np.concatenate([np.empty(0), *previous]).astype(np.int32), ids, values)


def random_pool(generator: np.random.Generator, most: int) -> Pool:
    """Nodes that were expanded one after the other, in any order; some have no children."""
    tied = bool(generator.random() < 0.5)
    tokens: list[int] = []
    parents: list[int] = []
    values, expanded, waiting = [np.empty(0, np.float32)], [False], [0]
    while waiting and len(tokens) < most and generator.random() < 0.9:
        parent = waiting.pop(int(generator.integers(len(waiting)))) if tokens else waiting.pop()
        size = int(generator.integers(0, 5))
        if not tokens and size == 0:
            break
        expanded[parent] = True
        waiting += range(len(expanded), len(expanded) + size)
        tokens += generator.permutation(VOCAB)[:size].tolist()
        parents += [parent] * size
        expanded += [False] * size
        values.append(random_values(generator, size, tied))
    return Pool(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.concatenate(values),
        np.array(expanded[1:], np.bool_),
    )


def transition_rows(parts: list[Transitions]) -> TransitionRows:
    """The transitions of some roots together, of one depth and width."""
    num_rows, previous, ids, values = zip(*((p.num_rows, p.previous, p.ids, p.log_probs) for p in parts), strict=True)
    return TransitionRows(np.array(num_rows), np.concatenate(previous), np.concatenate(ids), np.concatenate(values))


def pool_rows(parts: list[Pool]) -> PoolRows:
    """The pools of some roots together."""
    columns = zip(*((p.tokens, p.parents, p.log_probs, p.expanded) for p in parts), strict=True)
    return PoolRows(np.array([len(p.tokens) for p in parts], np.int64), *(np.concatenate(column) for column in columns))


def with_channel(generator: np.random.Generator, kind: str) -> RecordedSequence:
    """A short text without draft rows along which a channel ``made-up`` was recorded."""
    text = generator.integers(VOCAB, size=int(generator.integers(2, 9))).astype(np.int32)
    num_roots, num_depths = len(text) - 1, int(generator.integers(1, 5))
    width = int(generator.integers(0, 6))
    rows: ChannelRows
    if kind == "transitions":
        rows = transition_rows([random_transitions(generator, num_depths, width) for _ in range(num_roots)])
    else:
        rows = pool_rows([random_pool(generator, 30) for _ in range(num_roots)])
    prompt = Prompt("made-up", "made-up", 0, 0, generator.integers(VOCAB, size=3).astype(np.int32))
    return RecordedSequence(0, prompt, text, "length", None, {"made-up": rows})


def draft_at(recorded: RecordedSequence, t: int) -> Draft:
    """All that was recorded at a root, nothing cut."""
    committed = np.concatenate([recorded.prompt.token_ids, recorded.text[: t + 1]]).astype(np.int32)
    channels = {name: rows.row(t, int(rows.starts()[t])) for name, rows in recorded.channels.items()}
    return Draft(None, int(recorded.text[t]), committed, len(committed) - 1, channels)


def below_at(source: LatticeSource, draft: Draft) -> lattice_oracle.Below:
    """What a source offers of a draft's only channel, as the oracle reads it."""
    (one,) = draft.channels.values()
    if isinstance(source, TransitionSource):
        assert isinstance(one, Transitions)
        rows = one.num_rows.tolist(), one.previous.tolist(), one.ids.tolist(), one.log_probs.tolist()
        return lattice_oracle.below_transitions(*rows, source.previous, source.top_k)
    assert isinstance(one, Pool)
    assert isinstance(source, PoolSource)
    nodes, deepest = (one.tokens.tolist(), one.parents.tolist(), one.log_probs.tolist()), dict(source.need.least)
    return lattice_oracle.below_pool(*nodes, source.depth_price, deepest.get("depth", 1 << 30))


def zero_head(ids: Ints, log_probs: Floats, counts: Ints, most_rows: int, width: int) -> Transitions:
    """Transitions that say after every token what the marginals of one root say at its depth.

    Args:
        ids: int32, of all depths, one after the other.
        log_probs: float32, theirs.
        counts: int32 ``[D]``; none below ``most_rows`` and ``width``.
        most_rows: rows of each depth, below the first candidates of the depth above.
        width: candidates of each row.
    """
    starts = np.cumsum([0, *counts.tolist()])
    num_rows = np.full(len(counts), most_rows, np.int32)
    num_rows[0] = 1
    depths = np.repeat(np.arange(len(counts)), num_rows)
    places = starts[depths][:, None] + np.arange(width)
    above = [ids[start : start + most_rows] for start in starts[: len(counts) - 1]]
    previous = np.concatenate([np.empty(0, np.int32), *above])
    return Transitions(num_rows, previous, ids[places].astype(np.int32), log_probs[places])


def whole_pool(ids: Ints, log_probs: Floats, counts: Ints, width: int) -> Pool:
    """Every path of the first candidates of each depth, as far as there are as many, depth by depth."""
    starts = np.cumsum([0, *counts.tolist()])
    tokens, parents, values, expanded = [], [], [], []
    level = [0]
    for depth in range(len(counts)):
        below = []
        for parent in level:
            for rank in range(min(width, int(counts[depth]))):
                tokens.append(ids[starts[depth] + rank])
                parents.append(parent)
                values.append(log_probs[starts[depth] + rank])
                expanded.append(depth + 1 < len(counts))
                below.append(len(tokens))
        level = below
    return Pool(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.array(values, np.float32),
        np.array(expanded, np.bool_),
    )


def with_marginals_as(kind: str, recorded: RecordedSequence) -> RecordedSequence:
    """A text with a channel ``made-up`` that says below every path what the marginals say at its depth, all of it.

    Args:
        kind: of the channel; transitions want as many candidates at every depth.
        recorded: a text with a drafter's rows.
    """
    assert recorded.rows is not None
    roots = [(row.ids, row.log_probs, np.diff(row.offsets)) for row in recorded.rows.rows()]
    width = int(recorded.rows.counts.max())
    rows: ChannelRows
    if kind == "transitions":
        rows = transition_rows([zero_head(*root, width, width) for root in roots])
    else:
        rows = pool_rows([whole_pool(*root, width) for root in roots])
    return replace(recorded, channels={"made-up": rows})


def drafted_text(generator: np.random.Generator, fewest: int, most: int) -> RecordedSequence:
    """A short text with a drafter's candidates, so many at each depth, often with the true token among them.

    Half of the texts have log-probabilities of few distinct values, so that paths tie.
    """
    text = generator.integers(VOCAB, size=int(generator.integers(2, 9))).astype(np.int32)
    shape, tied = (len(text) - 1, int(generator.integers(1, 5))), bool(generator.random() < 0.5)
    counts = generator.integers(fewest, most + 1, size=shape).astype(np.int32)
    true_ranks = np.full(shape, -1, np.int32)
    ids, log_probs = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for t, d in np.ndindex(shape):
        tokens, values = generator.permutation(VOCAB), random_values(generator, VOCAB, tied)
        is_true = tokens == text[t + d + 1] if t + d + 1 < len(text) else np.zeros(VOCAB, np.bool_)
        if generator.random() < 0.7:
            tokens = np.concatenate([tokens[is_true], tokens[~is_true]])
        tokens = tokens[np.lexsort((tokens, -values))]
        if is_true.any():
            true_ranks[t, d] = np.flatnonzero(tokens == text[t + d + 1])[0]
        ids.append(tokens[: counts[t, d]].astype(np.int32))
        log_probs.append(values[: counts[t, d]])
    rows = DraftRows(np.concatenate(ids), np.concatenate(log_probs), counts, true_ranks)
    prompt = Prompt("made-up", "made-up", 0, 0, generator.integers(VOCAB, size=3).astype(np.int32))
    return RecordedSequence(0, prompt, text, "length", rows)


def as_nodes(nodes: OrderedNodes) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Nodes as the oracle has them, the root left out; parents and depths have to fit."""
    found: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(0, (), ())]
    for node in range(1, len(nodes.tokens)):
        _, ranks, tokens = found[nodes.parents[node]]
        assert nodes.parents[node] < node
        cost = round(-65536 * nodes.scores[node])
        found.append((cost, (*ranks, int(nodes.ranks[node])), (*tokens, int(nodes.tokens[node]))))
        assert nodes.depths[node] == len(ranks) + 1
    return found[1:]
