"""How far logits are off in a dtype, by the shape of the pass that computed them, and what the audit takes for a bound.

Texts of the packaged trace are read through a cache in passes of n tokens, and in trees of n nodes of which one path
is the text and the others are not. An error is that of the gap between a candidate and the most probable token, over
the 16 most probable tokens and the one that follows: against one float32 pass over everything, and against the same
dtype one token at a time.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Ints, Longs
from simlab.draft import Prompt
from simlab.real_runner.confirm.audit.float32_audit import measured_bound
from simlab.real_runner.decoding.tree_pass import TreeMask, pass_of
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.models import dtype_of
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.traces.reader import open_trace, packaged_trace
from simlab.tree import DraftTree

PIECES = (1, 2, 4, 9, 17, 33, 65, 129, 257)
TREES = (4, 9, 17, 33, 65, 129, 257)
NUM_COMPARED, DEPTH, ROWS = 16, 7, 128

Read = Callable[[Target, Prompt, Ints], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Logits of some candidates at each token of a text.

    gaps: float64 ``[T, 17]``, each less that of the first.
    first: int64 ``[T]``, the most probable token.
    """

    gaps: Doubles
    first: Longs


@dataclass(frozen=True, slots=True)
class Row:
    """Errors of one shape of pass, in units of a logit, over all texts."""

    dtype: str
    shape: str
    largest: float
    p999: float
    largest_to_single: float
    p999_to_single: float
    other_choice: int
    other_than_single: int
    positions: int
    bound: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default=builtin.NAME)
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--texts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    records = [one for one in open_trace(packaged_trace()).sequences() if len(one.text) >= arguments.tokens]
    texts = [(one.prompt, one.text[: arguments.tokens]) for one in records[: arguments.texts]]
    for dtype in arguments.dtypes.split(","):
        for row in rows(arguments.target, dtype, texts, arguments.device):
            print(json.dumps(asdict(row)) if arguments.json else line(row), flush=True)


def rows(name: str, dtype: str, texts: list[tuple[Prompt, Ints]], device: str) -> Iterator[Row]:
    """A row for each shape of pass in a dtype."""
    target32, target = (load_target(name, dtype_of(kind), device) for kind in ("float32", dtype))
    bound = max(measured_bound(target, target32, prompt, text) for prompt, text in texts)
    whole = [_whole(target32, prompt, text) for prompt, text in texts]
    ids = [candidates(target32, states, text) for states, (_, text) in zip(whole, texts, strict=True)]
    reference = [seen(target32, states, chosen) for states, chosen in zip(whole, ids, strict=True)]
    single: list[Seen] = []
    for shape, read in shapes().items():
        found = [seen(target, read(target, *text), chosen) for text, chosen in zip(texts, ids, strict=True)]
        single = single or found
        errors, to_single = (np.concatenate([abs(a.gaps - b.gaps) for a, b in zip(found, to, strict=True)])
                             for to in (reference, single))  # fmt: skip
        others, other_than_single = (
            sum(int((a.first != b.first).sum()) for a, b in zip(found, to, strict=True)) for to in (reference, single)
        )
        yield Row(
            dtype,
            shape,
            float(errors.max()),
            float(np.quantile(errors, 0.999)),
            float(to_single.max()),
            float(np.quantile(to_single, 0.999)),
            others,
            other_than_single,
            len(errors),
            bound,
        )


def shapes() -> dict[str, Read]:
    """What each shape of pass is called, and how a text is read by it; single tokens first."""
    found = {f"{n} token{'s' if n > 1 else ''}": _in_pieces(n) for n in PIECES}
    found |= {f"tree of {n}": _in_trees(n) for n in TREES}
    return {**found, "everything": _whole}


@torch.inference_mode()
def _whole(target: Target, prompt: Prompt, text: Ints) -> Tensor:
    ids = torch.from_numpy(np.concatenate([prompt.token_ids, text[:-1]]).astype(np.int64))[None]
    return target.states(ids)[0, len(prompt.token_ids) - 1 :]


def _in_pieces(num: int) -> Read:
    @torch.inference_mode()
    def read(target: Target, prompt: Prompt, text: Ints) -> Tensor:
        cache, parts = _begun(target, prompt, len(text) + num)
        for first in range(0, len(text) - 1, num):
            # What stands behind the text makes the pass as long as it is to be, and is seen by none of it.
            ids = np.resize(text[first : min(first + num, len(text) - 1)], num)
            parts.append(target.states(torch.from_numpy(ids.astype(np.int64))[None], cache)[0])
        return torch.cat(parts)[: len(text)]

    return read


def _in_trees(num_nodes: int) -> Read:
    """Each tree has the next tokens of the text on one path, somewhere among others."""

    @torch.inference_mode()
    def read(target: Target, prompt: Prompt, text: Ints) -> Tensor:
        random = np.random.default_rng(num_nodes)
        cache, parts = _begun(target, prompt, len(text) + num_nodes)
        start, first, mask = len(prompt.token_ids), 0, TreeMask(target)
        while first < len(text) - 1:
            tree, path = tree_around(text[first : min(first + DEPTH + 1, len(text) - 1)], num_nodes, random, target)
            ids, visible, positions = pass_of(tree, start + first, mask)
            states = target.states(ids, cache, visible, positions)[0]
            parts.append(states[path])
            cache.compact(start + first, torch.from_numpy(path))
            first += len(path)
        return torch.cat(parts)

    return read


def tree_around(text: Ints, num_nodes: int, random: np.random.Generator, target: Target) -> tuple[DraftTree, Longs]:
    """A tree of so many nodes, no deeper than a draft, and the nodes of the path that is the text."""
    text = text[:num_nodes]
    path = np.concatenate([[0], 1 + np.sort(random.permutation(num_nodes - 1)[: len(text) - 1])]).astype(np.int64)
    parents, tokens, depths = (np.zeros(num_nodes, np.int32) for _ in range(3))
    parents[0], tokens[0] = -1, text[0]
    for node in range(1, num_nodes):
        place = int(np.searchsorted(path, node))
        is_text = place < len(path) and path[place] == node
        shallow = np.flatnonzero(depths[:node] < DEPTH)
        parents[node] = path[place - 1] if is_text else random.choice(shallow)
        tokens[node] = text[place] if is_text else random.integers(target.vocab_size)
        depths[node] = depths[parents[node]] + 1
    return DraftTree(tokens, parents), path


def _begun(target: Target, prompt: Prompt, room: int) -> tuple[BufferCache, list[Tensor]]:
    cache = BufferCache(target, len(prompt.token_ids) + room)
    ids = torch.from_numpy(prompt.token_ids.astype(np.int64))[None]
    return cache, [target.states(ids, cache)[0, -1:]]


@torch.inference_mode()
def candidates(target32: Target, states: Tensor, text: Ints) -> Longs:
    """int64 ``[T, 17]``: the most probable tokens in order, and the one that follows."""
    parts = [
        target32.logits(states[first : first + ROWS]).topk(NUM_COMPARED).indices
        for first in range(0, len(states), ROWS)
    ]
    return np.concatenate([torch.cat(parts).cpu().numpy(), text[:, None].astype(np.int64)], axis=1)


@torch.inference_mode()
def seen(target: Target, states: Tensor, ids: Longs) -> Seen:
    """What a target says of the candidates ``[T, 17]`` after states ``[T, H]``."""
    gaps, first = [], []
    for start in range(0, len(states), ROWS):
        logits = target.logits(states[start : start + ROWS])
        found = logits.gather(1, torch.from_numpy(ids[start : start + ROWS]).to(logits.device)).double()
        gaps.append((found - found[:, :1]).cpu().numpy())
        first.append(logits.argmax(-1).cpu().numpy())
    return Seen(np.concatenate(gaps), np.concatenate(first))


def line(row: Row) -> str:
    """A row of a table in Markdown."""
    others = f"{row.other_choice} | {row.other_than_single}"
    errors = (row.largest, row.p999, row.largest_to_single, row.p999_to_single)
    shown = " | ".join(f"{error:.2g}" for error in errors)
    return f"| {row.dtype} | {row.shape} | {shown} | {others} | {row.positions} | {row.bound:.2g} |"


if __name__ == "__main__":
    main()
