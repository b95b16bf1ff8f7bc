"""SGLang's own builder of EAGLE-3's dynamic trees, out of its wheel, makes the trees of the policy ``eagle3``."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_wheels import SGLANG, wheel_files

from simlab.arrays import Floats, Ints, Longs
from simlab.channels import Pool, PoolRows
from simlab.draft import Draft
from simlab.grid import to_grid
from simlab.policies.named.eagle3 import Eagle3
from simlab.real_runner.networks.pools import beam_pools
from simlab.studies.inputs.trace import opened

Path_ = tuple[int, ...]
Head = Callable[[Path_], tuple[Ints, Floats]]
"""From a path to the tokens that follow and their log-probabilities, the most probable first."""


def builder(folder: Path) -> dict[str, Any]:
    """The functions of SGLang that choose nodes, compiled from its source; nothing of it is imported."""
    wanted = {
        "spec_utils.py": ("_select_top_k_tokens_first", "_select_top_k_tokens_later", "select_top_k_tokens"),
        "eagle_utils.py": ("organize_draft_results",),
    }
    files = wheel_files(folder, (SGLANG,), ("sglang/srt/speculative/",)) / "sglang" / "srt" / "speculative"
    # `fast_topk` is torch's but for one candidate; the check of bounds is switched on by an environment variable.
    around: dict[str, Any] = {"torch": torch, "fast_topk": torch.topk, "maybe_detect_oob": lambda *_: None}
    for name, functions in wanted.items():
        tree = ast.parse((files / name).read_text())
        found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in functions]
        for node in found:
            node.decorator_list, node.returns = [], None
            for argument in node.args.args:
                argument.annotation = None
        exec(compile(ast.Module([*found], []), name, "exec"), around)
    return around


def theirs(released: dict[str, Any], head: Head, top_k: int, steps: int, budget: int) -> set[Path_]:
    """The paths that SGLang verifies; ``steps`` counts the root's own."""
    scores, lists, frontiers = None, [], list[list[Path_]]()
    paths: list[Path_] = [()]
    for step in range(steps):
        rows = [head(path) for path in paths]
        probs = torch.from_numpy(np.exp(np.stack([row[1] for row in rows]).astype(np.float32)))
        tokens = torch.from_numpy(np.stack([row[0] for row in rows]).astype(np.int64))
        _, _, scores, info = released["select_top_k_tokens"](step, probs, tokens, None, scores, top_k)
        lists.append(info)
        frontiers.append(paths)
        if step == 0:
            paths = [(token,) for token in tokens[0].tolist()]
        else:
            chosen = (info[2][0] - (top_k * top_k * (step - 1) + top_k)).tolist()
            paths = [(*paths[place // top_k], int(tokens[place // top_k, place % top_k])) for place in chosen]
    score_list, token_list, parents = (list(column) for column in zip(*lists, strict=True))
    _, indices, drafted = released["organize_draft_results"](score_list, token_list, parents, budget + 1)
    found = set[Path_]()
    for index, token in zip(indices[0].tolist(), drafted[0].tolist(), strict=True):
        layer, place = (0, 0) if index < top_k else (1 + (index - top_k) // top_k**2, (index - top_k) % top_k**2)
        found.add((*frontiers[layer][place // top_k], token))
    return found


def ours(pool: Pool, top_k: int, steps: int, budget: int) -> set[Path_]:
    draft = Draft(None, 5, np.array([3, 5], np.int32), 1, {"eagle3": pool})
    policy = Eagle3(budget=budget, beam=top_k, top_k=top_k, steps=steps - 1)
    nodes, paths = policy.own.order.nodes(draft, budget), list[Path_]()
    for token, parent in zip(nodes.tokens.tolist(), nodes.parents.tolist(), strict=True):
        paths.append(() if parent < 0 else (*paths[parent], token))
    return set(paths[1:])


def random_head(seed: int, top_k: int) -> Head:
    """Other tokens behind each path, and no two equal probabilities."""

    def head(path: Path_) -> tuple[Ints, Floats]:
        chance = np.random.default_rng([seed, *path])
        laws = np.sort(chance.exponential(1.2, top_k) + 0.05)
        return chance.permutation(1000)[:top_k].astype(np.int32), to_grid(-laws)

    return head


def pool_of(head: Head, top_k: int, steps: int) -> Pool:
    """The pool that a beam over this head makes, for one root."""
    paths: list[Path_] = [()]

    def behind(tokens: Ints, above: Longs) -> tuple[Ints, Floats]:
        nonlocal paths
        paths = [(*paths[place], token) for token, place in zip(tokens[0].tolist(), above[0].tolist(), strict=True)]
        rows = [head(path) for path in paths]
        return np.stack([row[0] for row in rows])[None], np.stack([row[1] for row in rows])[None]

    ids, log_probs = head(())
    return beam_pools((ids[None, None], log_probs[None, None]), behind, top_k, steps - 1).row(0, 0)


def recorded_head(pool: Pool, top_k: int) -> Head:
    """What a recorded head said behind the paths that it looked behind."""
    children: dict[Path_, list[tuple[int, float]]] = {}
    paths: list[Path_] = [()]
    for token, parent, log_prob in zip(pool.tokens.tolist(), pool.parents.tolist(), pool.log_probs, strict=True):
        children.setdefault(paths[parent], []).append((token, log_prob))
        paths.append((*paths[parent], token))

    def head(path: Path_) -> tuple[Ints, Floats]:
        tokens, log_probs = zip(*children[path], strict=True)
        assert len(tokens) == top_k
        return np.array(tokens, np.int32), np.array(log_probs, np.float32)

    return head


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_sglangs_own_builder_makes_the_same_trees(tmp_path: Path) -> None:
    """500 made-up rounds and 200 recorded ones; products of probabilities there, sums of logarithms here."""
    released = builder(tmp_path)
    for seed in range(500):
        top_k, steps = [(4, 5), (8, 3), (3, 7), (10, 8)][seed % 4]
        budget = [7, 20, 15, 59][seed % 4]
        head = random_head(seed, top_k)
        assert ours(pool_of(head, top_k, steps), top_k, steps, budget) == theirs(released, head, top_k, steps, budget)
    trace = opened("smollm2-135m-every-channel")
    texts = trace.recorded_texts("dflash", range(8), 1 << 16, ("eagle3",))
    rows = [some.channels["eagle3"] for some in texts]
    pools = [pool for some in rows if isinstance(some, PoolRows) for pool in some.rows()]
    made = trace.manifest.channels["eagle3"]
    top_k, steps = made.setting("top_k"), made.setting("steps")
    assert top_k
    assert steps
    assert made.setting("beam") == top_k
    assert len(pools) >= 200
    equal = [
        ours(pool, top_k, steps + 1, budget) == theirs(released, recorded_head(pool, top_k), top_k, steps + 1, budget)
        for pool in pools[:200]
        for budget in (7, 31)
    ]
    assert sum(equal) == len(equal)
