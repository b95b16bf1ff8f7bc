"""Trees for the explorer of a report: what policies chose at the same places of real texts, and how to draw it."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from simlab.analysis.trees import drawing_rows
from simlab.draft import Draft
from simlab.policies.composition import Composition
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, Stateless
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import draft_source, rounds, staged
from simlab.tree import DraftTree

Decode = Callable[[list[int]], str]

_TAIL = 24
"""Tokens of the prompt's end that are shown."""

MOST_DRAWN = 128
"""Of larger trees only as many nodes are drawn, the first that entered, and the true path's."""


def explorer_trees(
    policies: Sequence[NamedPolicy], decode: Decode | None, texts: Iterable[RecordedSequence]
) -> dict[str, object]:
    """Texts and trees in the form that the page reads.

    A JSON object: ``policies``, labels; ``tokens``, the text of every token that occurs; ``texts``,
    each with ``name``, ``start`` (the last tokens of the prompt), ``tokens`` (places in ``tokens``) and ``rounds``, of
    each policy an object by the position of the root: ``[parents, tokens, probabilities in 1/1000, rows in the drawing
    in 1/100, accepted, starts, left out]``, where ``starts`` is 1 where a round of the policy starts there, and
    ``left out`` is how many nodes are not drawn. Probabilities are the drafter's own for each token at its depth.

    Args:
        policies: at least one.
        decode: from token ids to text; None: ids are shown.
        texts: which are shown.
    """
    numbers: dict[int, int] = {}

    def index_of(token: int) -> int:
        return numbers.setdefault(token, len(numbers))

    shown = [_text_and_trees(policies, recorded, index_of) for recorded in texts]
    return {
        "policies": [policy.label for policy in policies],
        "tokens": [str(token) if decode is None else decode([token]) for token in numbers],
        "texts": shown,
        "words": decode is not None,
    }


def _text_and_trees(
    policies: Sequence[NamedPolicy], recorded: RecordedSequence, index_of: Callable[[int], int]
) -> dict[str, object]:
    """The trees of every policy on one text, wherever a round of any of them starts.

    A policy that remembers earlier rounds has trees only where its own rounds start.
    """
    own = [{round_.position: round_ for round_ in rounds(shown.policy, recorded)} for shown in policies]
    roots = sorted({position for by_root in own for position in by_root})
    per_policy: list[dict[str, object]] = []
    for shown, starts in zip(policies, own, strict=True):
        trees = {at: start.tree for at, start in starts.items()}
        draft = draft_source(shown.policy.needs, recorded)
        if _forgets(shown.policy, recorded):
            further = [at for at in roots if at not in trees]
            trees |= {at: shown.policy.select(staged(shown.policy, draft(at), None), None) for at in further}
        per_policy.append(
            {str(at): _tree(trees[at], draft(at), recorded, at, at in starts, index_of) for at in sorted(trees)}
        )
    prompt = recorded.prompt
    return {
        "name": f"{prompt.dataset} {prompt.prompt_id}" + (f", turn {prompt.turn + 1}" if prompt.turn else ""),
        "sequence": recorded.index,
        "start": [index_of(token) for token in prompt.token_ids[-_TAIL:].tolist()],
        "tokens": [index_of(token) for token in recorded.text.tolist()],
        "rounds": per_policy,
    }


def _tree(
    tree: DraftTree,
    draft: Draft,
    recorded: RecordedSequence,
    position: int,
    starts: bool,
    index_of: Callable[[int], int],
) -> list[object]:
    path = tree.accepted_path(recorded.text[position + 1 :])
    kept = drawn_nodes(tree, path)
    renumbered = {node: index for index, node in enumerate(kept)}
    parents = [renumbered[int(tree.parents[node])] if node else -1 for node in kept]
    tokens = [index_of(int(tree.tokens[node])) for node in kept]
    return [
        parents,
        tokens,
        _probabilities(tree, draft, kept),
        [round(100 * row) for row in drawing_rows(parents)],
        [renumbered[node] for node in path],
        int(starts),
        tree.num_nodes - len(kept),
    ]


def _forgets(policy: AnyPolicy, recorded: RecordedSequence) -> bool:
    """Whether its tree depends on the root alone."""
    return isinstance(policy, Stateless | Composition) and policy.start(recorded.prompt) is None


def drawn_nodes(tree: DraftTree, path: Sequence[int]) -> list[int]:
    """The nodes to be drawn, parents first: all, or the first ones and the accepted ones."""
    if tree.num_nodes <= MOST_DRAWN:
        return list(range(tree.num_nodes))
    return sorted({*range(MOST_DRAWN), *path})


def _probabilities(tree: DraftTree, draft: Draft, kept: Sequence[int]) -> list[int]:
    """Probability of each node's token at its depth, in thousandths; 1000 at the root, -1 where it was not read."""
    depths = tree.depths()
    values = []
    for node in kept:
        depth = int(depths[node])
        if depth == 0 or draft.marginals is None:
            values.append(1000)
            continue
        ids, log_probs = draft.marginals.at(depth)
        where = np.flatnonzero(ids == tree.tokens[node])
        values.append(round(1000 * float(np.exp(log_probs[where[0]]))) if len(where) else -1)
    return values
