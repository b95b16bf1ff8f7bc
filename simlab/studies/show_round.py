"""One round of a recording, shown: the root, the tree with the target's path lit, what was accepted."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlab.analysis.trees import tree_svg, tree_text
from simlab.channels.needs import channels_read
from simlab.draft import Marginals
from simlab.errors import UsageError
from simlab.policies.named.ddtree import DDTree
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import Round, check_needs, rounds
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.trace import Decode, TraceSource, decoder_of, opened
from simlab.untrusted.visible import visible_html

BUDGET = 16
_CONTEXT_TOKENS = 40


@dataclass(frozen=True, eq=False, repr=False)
class RoundView:
    """One round of a policy on a recorded text.

    Attributes:
        recorded: the text and the drafter's candidates.
        round: the tree, the accepted path and what was committed.
        decode: from token ids to text.
    """

    recorded: RecordedSequence
    round: Round
    decode: Decode

    def text(self) -> str:
        """The text before the root, the tree as lines, and what was accepted."""
        return round_text(self.recorded, self.round, self.decode)

    def svg(self) -> str:
        """A picture of the tree with the target's path lit, as an ``<svg>`` element that needs nothing else."""
        round_ = self.round
        return tree_svg(round_.tree, self._labels(), _notes(self.recorded, round_), (0, *round_.path))

    def _labels(self) -> list[str]:
        return [_quoted(self.decode([token])) for token in self.round.tree.tokens.tolist()]

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        round_, prompt = self.round, self.recorded.prompt
        begin = max(0, round_.position - _CONTEXT_TOKENS)
        context = self.decode(self.recorded.text[begin : round_.position + 1].tolist())
        caption = (
            f"{prompt.dataset}, {prompt.prompt_id}: {round_.num_accepted} of {round_.num_drafted} drafted tokens "
            f"accepted, {round_.num_committed} committed"
        )
        return f"<p>… {visible_html(context[-120:])}</p>\n{self.svg()}\n<p>{visible_html(caption)}</p>"


def show_round(
    trace: TraceSource | None = None,
    policy: str = "ddtree:budget=16",
    *,
    sequence: int | None = None,
    number: int | None = None,
    draft: str | None = None,
    cost: str | Path | None = None,
) -> RoundView:
    """Show one round of a policy on a recorded text.

    Args:
        trace: a trace, or where one is; None: the sample that comes with simlab.
        policy: as it is typed behind ``-p``; one.
        sequence: the index of the text; None: the first in which a round gains on the chain.
        number: which of its rounds, from 0; None: the one that accepted most beyond what the chain would have.
        draft: the draft set; None: the only one.
        cost: a cost file, or the name of a packaged one, for policies that read a latency profile.
    """
    recording = opened(trace, [] if cost is None else [Path(cost)])
    name = recording.draft_name(draft)
    prices = prices_for_trace(None if cost is None else Path(cost), recording, name)
    policies = parse_policies([policy], TraceArtefacts(prices, recording, name))
    if len(policies) != 1:
        raise UsageError(f"`{policy}` names {len(policies)} policies; a round is of one, so name one")
    num_texts = len(recording.sequences())
    if sequence is not None and sequence not in range(num_texts):
        raise UsageError(f"{recording.location} holds {num_texts} texts; there is no text {sequence!r}")
    decode = decoder_of(recording) or (lambda ids: " ".join(map(str, ids)))
    check_needs(policies[0].policy, recording.holds(name))
    channels = channels_read([policies[0].policy])
    texts = recording.recorded(name, None if sequence is None else [sequence], channels)
    if number is None:
        telling = most_telling_round(texts, policies[0].policy)
        if telling is None:
            raise UsageError(f"no round of {policy} accepted more than the chain; name one: sequence=0, number=0")
        return RoundView(*telling, decode)
    recorded = next(iter(texts))
    all_rounds = list(rounds(policies[0].policy, recorded))
    if number not in range(len(all_rounds)):
        raise UsageError(f"the text has {len(all_rounds)} rounds under {policy}; there is no round {number!r}")
    return RoundView(recorded, all_rounds[number], decode)


def most_telling_round(
    sequences: Iterable[RecordedSequence], policy: AnyPolicy | None = None
) -> tuple[RecordedSequence, Round] | None:
    """The round in which the tree accepted most beyond what the chain would have; the first of several.

    Rounds at which the text ended do not count. None where the tree was never better.

    Args:
        sequences: in their order.
        policy: whose rounds; None: best-first trees of `BUDGET` tokens.
    """
    chosen = DDTree(BUDGET) if policy is None else policy
    best: tuple[int, RecordedSequence, Round] | None = None
    for recorded in sequences:
        for round_ in rounds(chosen, recorded):
            gained = round_.num_accepted - chain_accepted(recorded, round_.position)
            if not round_.clipped and gained > (best[0] if best else 0):
                best = (gained, recorded, round_)
    return None if best is None else best[1:]


def chain_accepted(recorded: RecordedSequence, position: int) -> int:
    """Tokens that the whole chain would have had accepted at this root."""
    marginals = _marginals(recorded, position)
    chain = marginals.top_tokens(marginals.depth)
    text = recorded.text[position + 1 : position + 1 + len(chain)]
    agree = chain[: len(text)] == text
    return int(np.cumprod(agree).sum())


def round_text(recorded: RecordedSequence, round_: Round, decode: Decode) -> str:
    """Show a round to a person: the text before it, the tree, what was accepted.

    Args:
        recorded: the sequence.
        round_: a round on it.
        decode: from token ids to text.
    """
    shown = [_quoted(decode([token])) for token in round_.tree.tokens.tolist()]
    begin = max(0, round_.position - _CONTEXT_TOKENS)
    context = decode(recorded.text[begin : round_.position + 1].tolist())
    accepted = [shown[node] for node in round_.path]
    bonus = _quoted(decode([int(recorded.text[round_.position + round_.num_committed])]))
    chain = chain_accepted(recorded, round_.position)
    lines = [
        f"The text so far ({recorded.prompt.dataset}, {recorded.prompt.prompt_id}), its last token the root:",
        "",
        *(f"  | {line}" for line in context.split("\n")),
        "",
        f"The tree of {round_.num_drafted} drafted tokens, with the drafter's probability of each token at its depth;",
        "what the target says is marked with *:",
        "",
        tree_text(round_.tree, shown, _notes(recorded, round_), (0, *round_.path)),
        "",
        f"Accepted: {round_.num_accepted} of {round_.num_drafted} drafted tokens: {' '.join(accepted)}",
        f"Bonus token, the target's own next one: {bonus}",
        (
            f"The round commits {round_.num_committed} tokens; the chain would have had {chain} accepted "
            f"and committed {chain + 1}."
        ),
    ]
    return "\n".join(lines)


def _notes(recorded: RecordedSequence, round_: Round) -> list[str]:
    """The probability of each node's token at its depth; nothing at the root."""
    marginals = _marginals(recorded, round_.position)
    notes = ["root"]
    depths = round_.tree.depths().tolist()
    for token, depth in zip(round_.tree.tokens.tolist()[1:], depths[1:], strict=True):
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
