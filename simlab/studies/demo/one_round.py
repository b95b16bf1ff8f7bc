"""One round of a recording as text: the root, the tree, the true path, what was accepted."""

import json
import math
from collections.abc import Callable, Iterable

import numpy as np

from simlab.analysis.trees import tree_text
from simlab.draft import Marginals
from simlab.policies.named.ddtree import DDTree
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import Round, rounds

BUDGET = 16
_CONTEXT_TOKENS = 40

Decode = Callable[[list[int]], str]


def most_telling_round(
    sequences: Iterable[RecordedSequence], budget: int = BUDGET
) -> tuple[RecordedSequence, Round] | None:
    """The round in which the tree accepted most beyond what the chain would have; the first of several.

    Rounds at which the text ended do not count. None where the tree was never better.
    """
    best: tuple[int, RecordedSequence, Round] | None = None
    for recorded in sequences:
        for one in _tree_rounds(recorded, budget):
            gained = one.num_accepted - chain_accepted(recorded, one.position)
            if not one.clipped and gained > (best[0] if best else 0):
                best = (gained, recorded, one)
    return None if best is None else best[1:]


def _tree_rounds(recorded: RecordedSequence, budget: int) -> Iterable[Round]:
    """The rounds of the tree of that budget on a text."""
    return rounds(DDTree(budget), recorded)


def chain_accepted(recorded: RecordedSequence, position: int) -> int:
    """Tokens that the whole chain would have had accepted at this root."""
    marginals = _marginals(recorded, position)
    chain = marginals.top_tokens(marginals.depth)
    text = recorded.text[position + 1 : position + 1 + len(chain)]
    agree = chain[: len(text)] == text
    return int(np.cumprod(agree).sum())


def round_text(recorded: RecordedSequence, one: Round, decode: Decode) -> str:
    """Show a round to a person: the text before it, the tree, what was accepted.

    Args:
        recorded: the sequence.
        one: a round on it.
        decode: from token ids to text.
    """
    shown = [_quoted(decode([token])) for token in one.tree.tokens.tolist()]
    begin = max(0, one.position - _CONTEXT_TOKENS)
    context = decode(recorded.text[begin : one.position + 1].tolist())
    accepted = [shown[node] for node in one.path]
    bonus = _quoted(decode([int(recorded.text[one.position + one.num_committed])]))
    chain = chain_accepted(recorded, one.position)
    lines = [
        f"The text so far ({recorded.prompt.dataset}, {recorded.prompt.prompt_id}), its last token the root:",
        "",
        *(f"  | {line}" for line in context.split("\n")),
        "",
        f"The tree of {one.num_drafted} drafted tokens, with the drafter's probability of each token at its depth;",
        "what the target says is marked with *:",
        "",
        tree_text(one.tree, shown, _notes(recorded, one), (0, *one.path)),
        "",
        f"Accepted: {one.num_accepted} of {one.num_drafted} drafted tokens: {' '.join(accepted)}",
        f"Bonus token, the target's own next one: {bonus}",
        (
            f"The round commits {one.num_committed} tokens; the chain would have had {chain} accepted "
            f"and committed {chain + 1}."
        ),
    ]
    return "\n".join(lines)


def _notes(recorded: RecordedSequence, one: Round) -> list[str]:
    """The probability of each node's token at its depth; nothing at the root."""
    marginals = _marginals(recorded, one.position)
    notes = ["root"]
    depths = one.tree.depths().tolist()
    for token, depth in zip(one.tree.tokens.tolist()[1:], depths[1:], strict=True):
        ids, log_probs = marginals.at(depth)
        notes.append(f"{math.exp(float(log_probs[int(np.flatnonzero(ids == token)[0])])):.2f}")
    return notes


def _marginals(recorded: RecordedSequence, position: int) -> Marginals:
    """What the drafter proposed at a root."""
    if recorded.rows is None:
        raise ValueError("a round can be shown only where the drafter's rows were read")
    return recorded.rows.row(position, int(recorded.rows.starts()[position]))


def _quoted(text: str) -> str:
    """A token's text in double quotes, its line ends escaped."""
    return json.dumps(text, ensure_ascii=False)
