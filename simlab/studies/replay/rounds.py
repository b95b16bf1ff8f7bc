"""``--rounds``: why each round ended where it did."""

from collections.abc import Mapping, Sequence

import numpy as np

from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.policies.engine.replay import Replay
from simlab.policies.orders.lattice_sources import source_of, true_reaches
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, Needs, routes_of
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.studies.replay.rows import channel_ids_read
from simlab.traces.reader import Trace
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
    if needs.scored:
        return _endings_on_channels(needs, found, recorded)
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


def _endings_on_channels(needs: Needs, found: RoundColumns, recorded: RecordedSequence) -> Longs:
    """`endings` of trees on the lists of channels: a token is kept where a list on its true path holds it."""
    texts = texts_of([recorded])
    sources = [source_of(need) for need in needs.scored]
    reaches = np.max([true_reaches(source, texts) for source in sources], axis=0)[found.positions]
    deepest = max(source.at_roots(texts).num_depths() for source in sources)
    why = np.where(found.num_accepted < reaches, NOT_IN_TREE, NOT_KEPT)
    why = np.where(found.num_accepted >= deepest, BLOCK_END, why)
    return np.where(found.clipped, TEXT_END, why).astype(np.int64)


def _endings_of(policy: AnyPolicy, found: RoundColumns, recorded: RecordedSequence) -> Longs:
    """The `endings` of a policy's rounds; those of a router are those of the route that served each."""
    if found.routes is None:
        return endings(policy.needs, found, recorded)
    why = np.empty(found.num_rounds, np.int64)
    for place, route in enumerate(routes_of(policy)):
        why[found.routes == place] = endings(route.needs, found.of_route(place), recorded)
    return why


def rows_of_rounds(
    policies: Sequence[NamedPolicy],
    found: Sequence[RoundColumns],
    recorded: RecordedSequence,
    trace: Mapping[str, str],
    channel_ids: Sequence[str],
) -> RoundRows:
    """The rounds of some policies on one text.

    Args:
        policies: which had them.
        found: the rounds of each.
        recorded: the text.
        trace: the columns ``text_id`` and ``draft_id``.
        channel_ids: the column of that name, of each policy.
    """
    numbers = {
        name: np.concatenate([getattr(one, name) for one in found])
        for name in ("num_drafted", "num_accepted", "num_committed", "clipped")
    }
    positions = np.concatenate([one.positions for one in found])
    numbers |= {"position": positions, "context": positions + len(recorded.prompt.token_ids)}
    numbers["miss_depth"] = numbers["num_accepted"] + 1
    return round_rows(
        [
            {"policy": one.label, "policy_id": one.policy_id, "channel_ids": ids}
            for one, ids in zip(policies, channel_ids, strict=True)
        ],
        np.array([one.num_rounds for one in found], np.int64),
        numbers,
        np.concatenate([_endings_of(one.policy, each, recorded) for one, each in zip(policies, found, strict=True)]),
        {"sequence": recorded.index, **trace},
    )


def rows_of_texts(policies: Sequence[NamedPolicy], texts: RecordedTexts, trace: Trace, draft: str) -> RoundRows:
    """The rows of some policies on some texts of a trace, text after text."""
    which = {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft]}
    channel_ids = [channel_ids_read([one.policy], trace) for one in policies]
    found = [one.columns(texts) for one in Replay([(one.policy, None) for one in policies]).rounds(texts)]
    return joined_rounds(
        [
            rows_of_rounds(policies, [each[place] for each in found], recorded, which, channel_ids)
            for place, recorded in enumerate(texts.sequences)
        ]
    )
