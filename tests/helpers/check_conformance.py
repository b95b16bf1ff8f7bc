"""Checks conformance files without simlab: python check_conformance.py FILE.jsonl ..."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
import json
import math
import sys
from itertools import accumulate, pairwise
from pathlib import Path


def tree(name, settings, one):
    """The tree of a round by the policy's rule: each node as the ranks of the tokens on its path, the root first."""
    rows = one["log_probs"] if name != "chain" else [row[:1] for row in one["log_probs"][: settings["length"]]]
    budget = settings.get("budget", len(rows))
    level = taken = [(0, tuple[int, ...]())]  # costs and nodes: smaller costs first, then smaller ranks, prefixes first
    for row in rows:
        level = sorted((cost - row[rank], (*node, rank)) for cost, node in level for rank in range(len(row)))[:budget]
        taken = sorted(taken + level)[: budget + 1]
    if name == "caddtree":  # the first size that is not exceeded by any of the next ones in expected tokens per second
        expected = list(accumulate(round(math.exp(-cost / 65536) * 2**40) / 2**40 for cost, _ in taken))
        sizes = [n for n in range(len(taken)) if (n + 1) % settings["tile"] == 0 or n in (0, len(taken) - 1)]
        ratios, ahead = [expected[n] / one["seconds"][n] for n in sizes], settings["look_ahead"] or len(sizes)
        best = next(place for place in range(len(sizes)) if ratios[place] == max(ratios[place : place + ahead + 1]))
        taken = taken[: sizes[best] + 1]
    return [node for _, node in taken]


def check(header, one):
    """Everything in a round that follows from what stands before it; the tree itself where its rule is known here."""
    start, follows, edges = one["context_length"], one["follows"], list(zip(one["parents"], one["tokens"], strict=True))
    at = f"{one['text']}, root at {start}"
    if header["name"] in ("chain", "ddtree", "caddtree"):
        nodes = tree(header["name"], header["settings"], one)
        assert edges[1:] == [(nodes.index(node[:-1]), one["ids"][len(node) - 1][node[-1]]) for node in nodes[1:]], at
    assert edges[0] == (-1, one["root_token"]), at
    assert len(set(edges)) == len(edges), at  # siblings are distinct
    lines = [[0]]  # of each node: its ancestors, and itself
    for node, (parent, token) in enumerate(edges[1:], 1):
        assert 0 <= parent < node, at
        lines.append([*lines[parent], node])
        assert token in one["ids"][len(lines[node]) - 2], at
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
