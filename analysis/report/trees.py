"""Trees for the explorer of a report: what policies chose at the same places of real texts, and how to draw it."""

from collections.abc import Callable, Mapping, Sequence

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

MOST_DRAWN = 128
"""Of larger trees only as many nodes are drawn, the first that entered, and the true path's."""


class TreeCollector:
    """Collects texts and trees in the form that the page reads.

    ``values()`` is a JSON object: ``policies``, labels; ``tokens``, the text of every token that occurs; ``texts``,
    each with ``name``, ``start`` (the last tokens of the prompt), ``tokens`` (places in ``tokens``) and ``rounds``, of
    each policy an object by the position of the root: ``[parents, tokens, probabilities in 1/1000, rows in the drawing
    in 1/100, accepted, starts, left out]``, where ``starts`` is 1 where a round of the policy starts there, and
    ``left out`` is how many nodes are not drawn. Probabilities are the drafter's own for each token at its depth.

    Args:
        policies: at least one.
        decode: from token ids to text; None: ids are shown.
    """

    def __init__(self, policies: Sequence[NamedPolicy], decode: Decode | None) -> None:
        self._policies, self._decode = policies, decode
        self._places: dict[int, int] = {}
        self._texts: list[dict[str, object]] = []

    def add(self, recorded: RecordedSequence, tail: int = 24) -> None:
        """The trees of every policy on one text, wherever a round of any of them starts.

        A policy that remembers earlier rounds has trees only where its own rounds start.
        """
        own = [{one.position: one for one in rounds(shown.policy, recorded)} for shown in self._policies]
        places = sorted({position for found in own for position in found})
        found: list[dict[str, object]] = []
        for shown, starts in zip(self._policies, own, strict=True):
            trees = {at: start.tree for at, start in starts.items()}
            draft = draft_source(shown.policy.needs, recorded)
            if _forgets(shown.policy, recorded):
                further = [at for at in places if at not in trees]
                trees |= {at: shown.policy.select(staged(shown.policy, draft(at), None), None) for at in further}
            found.append(
                {str(at): self._tree(trees[at], draft(at), recorded, at, at in starts) for at in sorted(trees)}
            )
        prompt = recorded.prompt
        name = f"{prompt.dataset} {prompt.prompt_id}" + (f", turn {prompt.turn + 1}" if prompt.turn else "")
        self._texts.append(
            {
                "name": name,
                "sequence": recorded.index,
                "start": [self._place(token) for token in prompt.token_ids[-tail:].tolist()],
                "tokens": [self._place(token) for token in recorded.text.tolist()],
                "rounds": found,
            }
        )

    def values(self) -> Mapping[str, object]:
        """Everything that was collected."""
        return {
            "policies": [policy.label for policy in self._policies],
            "tokens": [self._text(token) for token in self._places],
            "texts": self._texts,
            "words": self._decode is not None,
        }

    def _place(self, token: int) -> int:
        return self._places.setdefault(token, len(self._places))

    def _text(self, token: int) -> str:
        return str(token) if self._decode is None else self._decode([token])

    def _tree(
        self, tree: DraftTree, draft: Draft, recorded: RecordedSequence, position: int, starts: bool
    ) -> list[object]:
        path = tree.accepted_path(recorded.text[position + 1 :])
        kept = drawn_nodes(tree, path)
        renumbered = {node: index for index, node in enumerate(kept)}
        parents = [renumbered[int(tree.parents[node])] if node else -1 for node in kept]
        tokens = [self._place(int(tree.tokens[node])) for node in kept]
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
    found = []
    for node in kept:
        depth = int(depths[node])
        if depth == 0 or draft.marginals is None:
            found.append(1000)
            continue
        ids, log_probs = draft.marginals.at(depth)
        where = np.flatnonzero(ids == tree.tokens[node])
        found.append(round(1000 * float(np.exp(log_probs[where[0]]))) if len(where) else -1)
    return found
