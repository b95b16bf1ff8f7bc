"""Replays of chain-only records, exact for any chain that was recorded, and what their rounds cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from simlab.analysis.released.specdecode.chain_records import EAGLE, ChainRecords
from simlab.arrays import Bools, Doubles, Ints, Longs

FIRST_LENGTH = 5
"""Of adaptive chains, before anything is known."""

NextLength = Callable[[int, int, int], int]
"""From the present length, the tokens that were drafted and those that were accepted, to the next length."""


def two_up_one_down(length: int, drafted: int, accepted: int) -> int:
    """Two longer once all is accepted, else one shorter: transformers' ``heuristic_transient`` schedule.

    A round without a draft leaves the length as it is.

    >>> two_up_one_down(5, 5, 5), two_up_one_down(5, 5, 4), two_up_one_down(1, 1, 0), two_up_one_down(5, 0, 0)
    (7, 4, 1, 5)
    """
    if not drafted:
        return length
    return length + 2 if accepted == drafted else max(1, length - 1)


def longer_after_success(length: int, drafted: int, accepted: int) -> int:
    """One longer than what was last accepted.

    >>> longer_after_success(5, 5, 5), longer_after_success(5, 5, 0), longer_after_success(5, 0, 0)
    (6, 1, 5)
    """
    return accepted + 1 if drafted else length


ADAPTIVE: Mapping[str, NextLength] = {
    "two-up-one-down": two_up_one_down,
    "longer-after-success": longer_after_success,
}
"""Adaptive chains that need no probabilities, by name."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """A cost model of passes, linear in tokens; see predictor.py of SpecDecode-Bench/simulator.

    Attributes:
        kv_s: seconds of a pass for each token of context in the batch; likewise the others.
        token_s: for each token in the pass.
        pass_s: for each pass.
        round_s: for each round, outside of passes.
        draft_kv_s: of EAGLE's drafting, for each token of context in the batch.
        draft_token_s: for each token in one request's part of the pass.
        draft_s: for each round that drafts.
        ngram_share: of the pass, for a round that drafts by n-grams.
    """

    kv_s: float
    token_s: float
    pass_s: float
    round_s: float
    draft_kv_s: float
    draft_token_s: float
    draft_s: float
    ngram_share: float

    def weights(self, batch: int) -> Doubles:
        """Seconds for each column of `Replay.sums`, float64 ``[9]``."""
        own = np.array([self.pass_s, batch * self.kv_s, batch * self.token_s])
        eagle = [self.draft_s, batch * self.draft_kv_s, self.draft_token_s]
        return np.concatenate([own + np.array([self.round_s, 0.0, 0.0]), eagle, self.ngram_share * own])

    def prefill_s(self, prompt_tokens: Longs, batch: int) -> Doubles:
        """Seconds until the first token of each request, float64 ``[R]``."""
        found: Doubles = self.pass_s + self.round_s + batch * self.token_s * prompt_tokens.astype(np.float64)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The rounds of one policy, in sums of each request.

    Attributes:
        sums: float64 ``[R, 9]``: rounds, tokens of context, tokens verified; of all rounds, of those in which EAGLE
            drafts, and of those in which n-grams do.
        committed: int64 ``[R]``, tokens of the text that the rounds commit; the first one comes with the prefill.
    """

    sums: Doubles
    committed: Longs

    @property
    def rounds(self) -> Longs:
        """Rounds of each request, int64 ``[R]``."""
        return self.sums[:, 0].astype(np.int64)

    def seconds(self, costs: PassCosts, batch: int) -> Doubles:
        """Seconds that each request waits after its first token, in a batch of as many like it; float64 ``[R]``."""
        found: Doubles = self.sums @ costs.weights(batch)
        return found


def autoregressive(records: ChainRecords) -> Replay:
    """Decode without a drafter."""
    steps = records.num_tokens - 1
    contexts = steps * records.prompt_tokens + steps * (steps + 1) // 2
    sums = np.zeros((len(steps), 9))
    sums[:, 0], sums[:, 1], sums[:, 2] = steps, contexts, steps
    return Replay(sums, steps)


def fixed_chain(records: ChainRecords, length: int) -> Replay:
    """Draft as many tokens in every round, or what there is.

    Raises:
        ValueError: so many were not recorded.
    """
    records.check_length(length)
    drafted = np.minimum(records.available, length)
    roots = visited(records, np.minimum(records.accepted, length) + 1)
    return _replay(records, roots, drafted[roots], records.drafter == EAGLE)


def oracle_chain(records: ChainRecords) -> Replay:
    """Draft what will be accepted, and nothing where that is nothing."""
    roots = visited(records, records.accepted + 1)
    return _replay(records, roots, records.accepted[roots], records.drafter == EAGLE)


def oracle_that_always_drafts(records: ChainRecords) -> Replay:
    """The oracle's rounds, each charged EAGLE's draft, also where nothing will be accepted: their definition."""
    roots = visited(records, records.accepted + 1)
    lengths, owners, contexts = _rounds(records, roots, records.accepted[roots])
    always, never = np.ones(len(roots)), np.zeros(len(roots))
    return Replay(
        round_sums(len(records.num_tokens), owners, contexts, lengths + 1, always, never), records.num_tokens - 1
    )


def combined_oracle(eagle: ChainRecords, ngram: ChainRecords) -> Replay:
    """Draft what will be accepted, each time by the drafter with more of it; n-grams where both have as much.

    Args:
        eagle: of the same requests and lengths of texts.
        ngram: likewise.
    """
    roots = visited(eagle, np.maximum(eagle.accepted, ngram.accepted) + 1)
    drafted = np.maximum(eagle.accepted, ngram.accepted)[roots]
    return _replay(eagle, roots, drafted, (eagle.accepted > ngram.accepted)[roots])


def adaptive_chain(records: ChainRecords, rule: NextLength) -> Replay:
    """Draft as many tokens as a rule makes of the rounds before, in each request anew."""
    roots: list[int] = []
    lengths: list[int] = []
    accepted, available = records.accepted.tolist(), records.available.tolist()
    for begin, end in zip(records.offsets[:-1].tolist(), records.offsets[1:].tolist(), strict=True):
        place, length = begin + 1, FIRST_LENGTH
        while place < end:
            drafted = min(length, available[place])
            agreed = min(drafted, accepted[place])
            roots.append(place)
            lengths.append(drafted)
            length = min(rule(length, drafted, agreed), records.longest)
            place += agreed + 1
    places = np.array(roots, np.int64)
    return _replay(records, places, np.array(lengths, np.int64), records.drafter == EAGLE)


def visited(records: ChainRecords, advances: Ints, first: int = 1, last: int = 0) -> Longs:
    """Roots of the rounds, when each commits so many tokens; places of entries, int64 ``[rounds]``.

    Args:
        records: whose texts.
        advances: int32 ``[sum T]``, at least 1.
        first: the entry at which each text begins; the first token comes with the prefill.
        last: so many entries at the end of each text are not reached.
    """
    roots: list[int] = []
    steps = advances.tolist()
    for begin, end in zip(records.offsets[:-1].tolist(), records.offsets[1:].tolist(), strict=True):
        place = begin + first
        while place < end - last:
            roots.append(place)
            place += steps[place]
    return np.array(roots, np.int64)


def round_sums(
    num_requests: int, owners: Longs, contexts: Longs, verified: Doubles | Longs, eagle: Doubles, ngram: Doubles
) -> Doubles:
    """Sum rounds by request, as `Replay.sums` holds them.

    Args:
        num_requests: R.
        owners: int64 ``[rounds]``, the request of each.
        contexts: int64 ``[rounds]``, tokens before the pass, those of one request.
        verified: ``[rounds]``, tokens in the pass, those of one request.
        eagle: float64 ``[rounds]``, the share of the batch for which EAGLE drafts; likewise ``ngram``.
        ngram: see ``eagle``.
    """
    columns = [np.ones(len(owners)), contexts.astype(np.float64), np.asarray(verified, np.float64)]
    weighed = [column * share for share in (1.0, eagle, ngram) for column in columns]
    sums = [np.bincount(owners, one, num_requests).astype(np.float64) for one in weighed]
    return np.stack(sums, axis=1)


def _replay(records: ChainRecords, roots: Longs, drafted: Ints | Longs, by_eagle: bool | Bools) -> Replay:
    lengths, owners, contexts = _rounds(records, roots, drafted)
    is_drafted = (lengths > 0).astype(np.float64)
    eagle = is_drafted * by_eagle
    sums = round_sums(len(records.num_tokens), owners, contexts, lengths + 1, eagle, is_drafted - eagle)
    return Replay(sums, records.num_tokens - 1)


def _rounds(records: ChainRecords, roots: Longs, drafted: Ints | Longs) -> tuple[Longs, Longs, Longs]:
    """Drafted tokens, the request and the tokens of context of each round, int64 ``[rounds]``."""
    owners = records.owners[roots]
    return np.asarray(drafted, np.int64), owners, records.prompt_tokens[owners] + records.positions[roots]
