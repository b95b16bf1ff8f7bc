"""What a trace predicts of an engine that drafts a chain with the same drafter: how each round would end.

A trace has a row at every root, so it predicts a round wherever an engine begins one, on the recorded text.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.engines.answers import ServerCounters
from simlab.arrays import Floats, Ints, Longs
from simlab.recorded import DraftRows


@dataclass(frozen=True, slots=True, eq=False)
class PredictedText:
    """One recorded text and what a chain of k drafted tokens would have kept at each root of it.

    Attributes:
        index: of the sequence in the trace.
        prompt: dataset and name, which the turns and samples of a prompt share.
        prompt_tokens: int32 ``[P]``.
        text: int32 ``[T]``.
        ended_by_stop: whether its last token is a stop token.
        accepted: int64 ``[T - 1]``, drafted tokens that are the text's, at most k; no more than the text goes on.
        gaps: float32 ``[T]``, how close the target's choice of each token was, in logits.
        rows: the drafter's candidates, for the margins of its own choices.
        k: drafted tokens of a round.
    """

    index: int
    prompt: tuple[str, str]
    prompt_tokens: Ints
    text: Ints
    ended_by_stop: bool
    accepted: Longs
    gaps: Floats
    rows: DraftRows
    k: int

    def __len__(self) -> int:
        return len(self.text)

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        return f"{self.prompt[1]} ({self.prompt[0]}, sequence {self.index})"

    def asked(self, longest: int, most: int | None = None) -> int:
        """How many new tokens a request for this text asks for: where it was cut, its length.

        Args:
            longest: new tokens that the recording allowed.
            most: the request asks for no more.
        """
        wanted = longest if self.ended_by_stop else len(self.text)
        return wanted if most is None else min(wanted, most)

    def rounds(self, num_tokens: int | None = None) -> tuple[tuple[int, int], ...]:
        """Root and accepted tokens of each round, those that lie behind the end counted as far as they are recorded.

        Args:
            num_tokens: where the text ends; None: where the recorded one does.
        """
        last = min(len(self.text), num_tokens or len(self.text)) - 1
        rounds, root = list[tuple[int, int]](), 0
        while root < last:
            accepted = int(self.accepted[root])
            rounds.append((root, accepted))
            root += accepted + 1
        return tuple(rounds)

    def margin(self, root: int, depth: int, token: int | None = None) -> float:
        """By how much the drafter preferred its token at a depth, in nats.

        Args:
            root: the place in the text.
            depth: from 1.
            token: over this one; None: over its second.

        Returns:
            infinity where the other is not among the recorded candidates.
        """
        starts = self.rows.counts[:root].sum(dtype=np.int64)
        marginals = self.rows.row(root, int(starts))
        ids, log_probs = marginals.at(depth)
        if token is None:
            return float(log_probs[0] - log_probs[1]) if len(ids) > 1 else np.inf
        indices = np.flatnonzero(ids == token)
        return float(log_probs[0] - log_probs[indices[0]]) if len(indices) else np.inf


def accepted_everywhere(rows: DraftRows, k: int) -> Longs:
    """How many of the first k drafted tokens are the text's, at each root, int64 ``[T - 1]``.

    Args:
        rows: of one text.
        k: at most the drafter's depth.
    """
    right = rows.true_ranks[:, :k] == 0
    return np.asarray(np.cumprod(right, axis=1, dtype=np.int64).sum(axis=1), np.int64)


def predicted_counts(texts: Sequence[PredictedText], num_tokens: Sequence[int]) -> ServerCounters:
    """The counts of an engine that writes these texts.

    Args:
        texts: that are written.
        num_tokens: how many tokens of each, at most its length.
    """
    k = texts[0].k if texts else 0
    accepted, num_open = list[int](), 0
    for text, num in zip(texts, num_tokens, strict=True):
        for root, kept in text.rounds(num):
            accepted.append(kept)
            num_open += kept == len(text) - 1 - root and kept < k
    at = tuple(sum(kept > index for kept in accepted) for index in range(k))
    return ServerCounters(
        num_rounds=len(accepted),
        num_drafted=len(accepted) * k,
        num_accepted=sum(accepted),
        accepted_at=at,
        num_tokens=sum(num_tokens),
        num_requests=len(texts),
        num_open=num_open,
    )
