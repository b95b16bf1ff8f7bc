"""``--rounds``: why each round ended where it did."""

from collections.abc import Sequence

import numpy as np

from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import Needs
from simlab.recorded import RecordedSequence, RecordedTexts
from simlab.traces.results.rounds import RoundRows, joined_rounds, round_rows

NOT_KEPT, NOT_IN_TREE, BLOCK_END, TEXT_END = range(4)
"""Places in `simlab.traces.results.rounds.ENDINGS`."""


def endings(needs: Needs, found: RoundColumns, recorded: RecordedSequence) -> Longs:
    """Why each round of a policy accepted no more, int64 ``[R]``.

    Args:
        needs: what the policy reads; a candidate that it does not read counts as not kept.
        found: its rounds.
        recorded: the text.
    """
    rows = recorded.rows if needs.draft else None
    if rows is None or rows.counts.shape[1] == 0:
        return np.where(found.clipped, TEXT_END, BLOCK_END).astype(np.int64)
    depth = rows.counts.shape[1]
    missed = np.minimum(found.num_accepted, depth - 1)
    kept = rows.counts[found.positions, missed]
    read = kept if needs.top_k is None else np.minimum(kept, needs.top_k)
    ranks = rows.true_ranks[found.positions, missed]
    why = np.where((ranks >= 0) & (ranks < read), NOT_IN_TREE, NOT_KEPT)
    why = np.where(found.num_accepted >= depth, BLOCK_END, why)
    return np.where(found.clipped, TEXT_END, why).astype(np.int64)


def rows_of_rounds(
    policies: Sequence[NamedPolicy],
    found: Sequence[RoundColumns],
    recorded: RecordedSequence,
    text_id: str,
    draft_id: str,
) -> RoundRows:
    """The rounds of some policies on one text."""
    numbers = {
        name: np.concatenate([getattr(one, name) for one in found])
        for name in ("num_drafted", "num_accepted", "num_committed", "clipped")
    }
    positions = np.concatenate([one.positions for one in found])
    numbers |= {"position": positions, "context": positions + len(recorded.prompt.token_ids)}
    numbers["miss_depth"] = numbers["num_accepted"] + 1
    return round_rows(
        [{"policy": one.label, "policy_id": one.policy_id} for one in policies],
        np.array([one.num_rounds for one in found], np.int64),
        numbers,
        np.concatenate([endings(one.policy.needs, each, recorded) for one, each in zip(policies, found, strict=True)]),
        {"sequence": recorded.index, "text_id": text_id, "draft_id": draft_id},
    )


def rows_of_texts(policies: Sequence[NamedPolicy], texts: RecordedTexts, text_id: str, draft_id: str) -> RoundRows:
    """The rows of some policies on some texts, text after text."""
    found = [one.columns(texts) for one in Replay([(one.policy, None) for one in policies]).rounds(texts)]
    return joined_rounds(
        [
            rows_of_rounds(policies, [each[place] for each in found], recorded, text_id, draft_id)
            for place, recorded in enumerate(texts.sequences)
        ]
    )
