"""One tree over several drafters: against all paths of each, and where one drafter alone decides."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import check_layer, check_nested
from random_channels import VOCAB, as_nodes, drafted_text, random_values

from simlab.channels import BranchRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.policies.edges.models import Marginal
from simlab.policies.named.mfd import MFD
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.best_of_drafts import BestOfDrafts
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import draft_source

Path = tuple[int, ...]
NAMES = ("one", "other")


def drafted(seed: int, names: tuple[str, ...] = NAMES) -> RecordedSequence:
    """A text with a drafter's rows and, under each name, those of a further one, behind no token and behind one."""
    generator = np.random.default_rng(seed)
    recorded = drafted_text(generator, 1, 6)
    channels = {}
    for name in names:
        depth, width = int(generator.integers(2, 5)), int(generator.integers(1, 6))
        num_roots, tied = len(recorded.text) - 1, bool(generator.random() < 0.5)
        num = num_roots * (2 * depth - 1)
        ids = np.array([generator.permutation(VOCAB)[:width] for _ in range(num)], np.int32).reshape(num, width)
        values = [random_values(generator, VOCAB, tied)[:width] - np.float32(0.5) for _ in range(num)]
        lengths = np.tile(np.arange(2, dtype=np.int32), (num_roots, 1))
        channels[name] = BranchRows(lengths, depth, ids, np.array(values, np.float32).reshape(num, width))
    return replace(recorded, channels=channels)


def rows_of(draft: Draft, top_k: int) -> list[list[list[tuple[int, float]]]]:
    """Of each drafter the candidates of each depth."""
    marginals = draft.drafted()
    found = [[marginals.at(depth + 1) for depth in range(marginals.depth)]]
    for name in NAMES:
        if name in draft.channels:
            first = draft.channels[name].only((0,))  # type: ignore[union-attr]
            found.append(list(zip(first.ids, first.log_probs, strict=True)))
    return [
        [list(zip(ids[:top_k].tolist(), values[:top_k].tolist(), strict=True)) for ids, values in rows]
        for rows in found
    ]


def plain_scores(drafts: list[list[list[tuple[int, float]]]]) -> dict[Path, float]:
    """The largest score of every path that any drafter has."""
    scores: dict[Path, float] = {}
    for rows in drafts:
        for depth in range(1, len(rows) + 1):
            for path in product(*rows[:depth]):
                tokens, score = tuple(token for token, _ in path), sum(value for _, value in path)
                scores[tokens] = max(score, scores.get(tokens, -np.inf))
    return scores


def paths_of(tokens: list[int], parents: list[int]) -> list[Path]:
    paths: list[Path] = [()]
    for token, parent in zip(tokens[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


@settings(max_examples=examples(150, quick=40))
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 40))
def test_the_nodes_are_the_paths_of_the_largest_scores(seed: int, top_k: int, most: int) -> None:
    recorded, order = drafted(seed), BestOfDrafts(NAMES, top_k)
    source = draft_source(order.needs, recorded)
    for t in range(len(recorded.text) - 1):
        draft = source(t)
        expected, nodes = plain_scores(rows_of(draft, top_k)), order.nodes(draft, most)
        paths, scores = paths_of(nodes.tokens.tolist(), nodes.parents.tolist()), nodes.scores.tolist()[1:]
        assert len(set(paths)) == len(paths) == min(most, len(expected))
        assert scores == [expected[path] for path in paths] == sorted(expected.values(), reverse=True)[: len(paths)]
        check_nested(order, draft, most // 2, most)
    check_layer(order, recorded, most)


@settings(max_examples=examples(100, quick=30))
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 40))
def test_equal_drafters_and_one_that_is_always_surer_are_its_own_tree(seed: int, top_k: int, most: int) -> None:
    recorded, alone = drafted(seed), BestFirst(Marginal(top_k))
    rows = recorded.rows
    assert rows is not None
    source, order = draft_source(BestOfDrafts((), top_k).needs, recorded), BestOfDrafts(("same",), top_k)
    for t in range(len(recorded.text) - 1):
        draft = source(t)
        marginals = draft.drafted()
        counts = np.diff(marginals.offsets)
        if (counts != counts[0]).any() or counts[0] == 0:
            continue
        shape = (marginals.depth, int(counts[0]))
        own, unsure = marginals.log_probs.reshape(shape), marginals.log_probs.reshape(shape) - np.float32(3)
        expected = as_nodes(alone.nodes(draft, most))
        for log_probs in (own, unsure):
            same = BranchRows(np.zeros((1, 1), np.int32), shape[0], marginals.ids.reshape(shape), log_probs).row(0, 0)
            assert as_nodes(order.nodes(replace(draft, channels={"same": same}), most)) == expected


def test_a_root_of_which_a_further_drafter_said_nothing_is_refused_where_a_round_begins() -> None:
    recorded, order = drafted(3), BestOfDrafts(("one",), 2)
    rows = recorded.channels["one"]
    assert isinstance(rows, BranchRows)
    behind = BranchRows(np.full((len(rows), 1), 1, np.int32), 2, rows.ids[: len(rows)], rows.log_probs[: len(rows)])
    with pytest.raises(ValueError, match="no branch behind 0 tokens"):
        order.nodes(draft_source(order.needs, replace(recorded, channels={"one": behind}))(0), 4)
    with pytest.raises(MissingChannelError, match="none here"):
        order.layer(texts_of([replace(recorded, channels={})]), 4, False)


@pytest.mark.parametrize("channels", ["", "d2sd|", "d2sd|d2sd"])
def test_channels_are_different_names(channels: str) -> None:
    with pytest.raises(ValueError, match="different names"):
        MFD(channels=channels)
