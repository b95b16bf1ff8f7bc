"""Checks conformance files without simlab: python check_conformance.py FILE.jsonl ..."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
import json
import math
import sys
from itertools import accumulate, pairwise
from pathlib import Path


def marginals(one):
    """What may follow a path of tokens by the drafter's candidates: tokens and log-probabilities, the best first."""
    rows = [list(zip(*row, strict=True)) for row in zip(one["ids"], one["log_probs"], strict=True)]
    return lambda path: rows[len(path)] if len(path) < len(rows) else []


def transitions(channel, root):
    """The same by the rows of a depth, of which each stands below one token of the depth above."""
    rows = {}
    for depth, row in enumerate(zip(channel["previous"], channel["ids"], channel["log_probs"], strict=True)):
        rows |= {(depth, above): list(zip(*pairs, strict=True)) for above, *pairs in zip(*row, strict=True)}
    return lambda path: rows.get((len(path), (root, *path)[-1]), [])


def pool(channel, price):
    """The same by the nodes of a pool; a path of d tokens scores log(1 + price d) less, in whole steps."""
    paths, rows = [tuple[int, ...]()], {}
    for token, parent, log_prob in zip(channel["tokens"], channel["parents"], channel["log_probs"], strict=True):
        above, length = paths[parent], len(paths[parent]) + 1
        before, after = (round(math.log(1 + price * depth) * 65536) for depth in (length - 1, length))
        rows.setdefault(above, []).append((token, log_prob + before - after))
        paths.append((*above, token))
    return lambda path: rows.get(path, [])


def branches(channel, one):
    """The same by the branches whose beginnings the path goes through: first candidates of the first depths."""
    chain = [row[0] for row in one["ids"] if row]
    parts = list(zip(channel["lengths"], channel["ids"], channel["log_probs"], strict=True))

    def offered(path):
        behind = [(len(path) - length, *rows) for length, *rows in parts if list(path[:length]) == chain[:length]]
        rows = [zip(ids[at], scores[at], strict=True) for at, ids, scores in behind if 0 <= at < len(ids)]
        return [pair for row in rows for pair in row]

    return offered


def offers(one, price=0.0):
    """By the drafter, and then by each channel, what may follow a path."""
    made = {
        "transitions": lambda each: transitions(each, one["root_token"]),
        "pool": lambda each: pool(each, price),
        "branches": lambda each: branches(each, one),
    }
    return [marginals(one), *(made[each["kind"]](each) for each in one.get("channels", {}).values())]


def tree(name, settings, one):
    """The tree of a round by the policy's rule: each node as the tokens of its path, the root first."""
    below, width = offers(one, settings.get("depth_price", 0.0))[-1], 1 if name == "chain" else None
    budget = settings.get("budget", settings.get("length")) or len(one["ids"])
    # Costs, ranks, tokens: smaller costs first, then smaller ranks, prefixes first.
    level = taken = [(0, tuple[int, ...](), tuple[int, ...]())]
    while level:
        level = sorted(
            (cost - log_prob, (*ranks, rank), (*path, token))
            for cost, ranks, path in level
            for rank, (token, log_prob) in enumerate(below(path)[:width])
        )[:budget]
        taken = sorted(taken + level)[: budget + 1]
    if name == "caddtree":  # the first size that is not exceeded by any of the next ones in expected tokens per second
        expected = list(accumulate(round(math.exp(-cost / 65536) * 2**40) / 2**40 for cost, _, _ in taken))
        sizes = [n for n in range(len(taken)) if (n + 1) % settings["tile"] == 0 or n in (0, len(taken) - 1)]
        ratios, ahead = [expected[n] / one["seconds"][n] for n in sizes], settings["look_ahead"] or len(sizes)
        best = next(place for place in range(len(sizes)) if ratios[place] == max(ratios[place : place + ahead + 1]))
        taken = taken[: sizes[best] + 1]
    return [path for _, _, path in taken]


def check(header, one):
    """Everything in a round that follows from what stands before it; the tree itself where its rule is known here."""
    start, follows, edges = one["context_length"], one["follows"], list(zip(one["parents"], one["tokens"], strict=True))
    at = f"{one['text']}, root at {start}"
    if header["name"] in ("chain", "ddtree", "caddtree", "treeflash", "taps"):
        nodes = tree(header["name"], header["settings"], one)
        assert edges[1:] == [(nodes.index(node[:-1]), node[-1]) for node in nodes[1:]], at
    assert edges[0] == (-1, one["root_token"]), at
    assert len(set(edges)) == len(edges), at  # siblings are distinct
    # Of each node: its ancestors and itself; the tokens of its path.
    lines, paths, offered = [[0]], [tuple[int, ...]()], offers(one)
    for node, (parent, token) in enumerate(edges[1:], 1):
        assert 0 <= parent < node, at
        assert any(token in dict(below(paths[parent])) for below in offered), at
        lines.append([*lines[parent], node])
        paths.append((*paths[parent], token))
    assert one["positions"] == [start + len(line) - 1 for line in lines], at
    assert one["mask"] == ["".join("01"[node in line] for node in range(len(edges))) for line in lines], at
    path = [0]
    while (edge := (path[-1], *follows[len(path) - 1 : len(path)])) in edges:
        path.append(edges.index(edge))
    assert one["path"] == path[1:], at
    assert one["committed"] == follows[: len(path)], at
    assert one["kept_rows"] == [start + node for node in path], at
    assert one["next_root"] == (None if one["text_ends"] and len(path) >= len(follows) else one["committed"][-1]), at


if __name__ == "__main__":
    for name in sys.argv[1:]:
        header, *rounds = map(json.loads, Path(name).read_text().splitlines())
        assert len(rounds) == header["num_rounds"], f"{name} is cut short"
        for one, after in pairwise([*rounds, {}]):
            check(header, one)
            assert after.get("text") != one["text"] or after["root_token"] == one["next_root"], one["text"]
