"""Paths within a limit of cost, against listing every path there is."""

import itertools

import numpy as np
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children
from simlab.policies.kernels.gather import gather_paths

compiled = kernel(gather_paths.py_func)  # type: ignore[attr-defined]


def drawn(generator: np.random.Generator, num_depths: int, with_spine: bool) -> Children:
    """Lists of few distinct costs, some of them empty; below the spine they are others, and ranks are in disorder."""
    children = empty_children(num_depths, 6)
    place = 0
    for kind in (SPINE, ELSEWHERE):
        for depth in range(num_depths):
            num = int(generator.integers(0, 6))
            if kind == ELSEWHERE and not with_spine:
                children.starts[kind, depth], children.ends[kind, depth] = (
                    children.starts[SPINE, depth],
                    children.ends[SPINE, depth],
                )
                continue
            children.starts[kind, depth], children.ends[kind, depth] = place, place + num
            children.costs[place : place + num] = np.sort(generator.integers(0, 5, num))
            children.ranks[place : place + num] = generator.permutation(num)
            place += num
    return children


def listed(children: Children, kind: int, first: int, last: int, limit: int) -> list[tuple[tuple[int, ...], int, bool]]:
    """Every path within the limit: its places, its cost, and whether it is on the spine."""
    found = []
    for depth in range(first + 1, last + 1):
        for places in itertools.product(range(6), repeat=depth - first):
            now, cost, exists = kind, 0, True
            for level, place in enumerate(places, first):
                start, end = int(children.starts[now, level]), int(children.ends[now, level])
                exists = exists and start + place < end
                if exists:
                    cost += int(children.costs[start + place])
                    now = now if children.ranks[start + place] == 0 else ELSEWHERE
            if exists and cost <= limit:
                found.append((places, cost, now == SPINE))
    return found


@settings(max_examples=examples(200))
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans(), st.data())
def test_all_paths_within_the_limit_are_there(
    seed: int, num_depths: int, with_spine: bool, data: st.DataObject
) -> None:
    children = drawn(np.random.default_rng(seed), num_depths, with_spine)
    first = data.draw(st.integers(0, num_depths - 1))
    last = data.draw(st.integers(first + 1, num_depths))
    kind, limit = data.draw(st.sampled_from([SPINE, ELSEWHERE])), data.draw(st.integers(-1, 12))
    expected = listed(children, kind, first, last, limit)
    found = np.empty(data.draw(st.integers(0, 60)), np.int32)
    number, begin, spine = compiled(children, kind, first, last, limit, found)
    if len(expected) > len(found):
        assert number == len(found) + 1
        assert np.all(found <= limit)
        return
    assert number == len(expected)
    assert sorted(found[:number].tolist()) == sorted(cost for _, cost, _ in expected)
    deepest = [(cost, on_spine) for places, cost, on_spine in expected if len(places) == last - first]
    assert sorted(found[begin:number].tolist() if deepest else []) == sorted(cost for cost, _ in deepest)
    on_spine = [cost for cost, is_there in deepest if is_there]
    assert [int(found[spine])] == on_spine if spine >= 0 else not on_spine
