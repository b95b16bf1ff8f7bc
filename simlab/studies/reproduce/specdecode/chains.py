"""Chains of SpecDecode-Bench/simulator, recorded at every position of a text: how many drafted tokens are accepted.

Such a record replays any chain up to its longest, on texts that are as they are. It holds no candidates and no
probabilities, so it replays no tree and no rule that asks how sure the drafter is.

Speedups by their formulas too: `simulator.py` has the formulas, `predictor.py` the costs of passes; code is ours. A
batch is one request as often as its size. Each text's walk begins at entry 0, although the prefill has brought the
first token, and its seconds hold the prefill. The speedup is the ratio of mean tokens per second, over a sample of
requests that their seed fixes.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.studies.reproduce.released import Quoted, ReleasedFiles, Row

EAGLE, NGRAM = "eagle", "ngram"
DRAFTERS = (EAGLE, NGRAM)
BATCHES = (1, 8, 16, 32, 64, 128)

_SMALLEST_NGRAM, _LARGEST_NGRAM = 3, 7
"""With these, and the first place of those that match, prompt lookup gives the n-gram lengths that were released."""

_FIRST_LENGTH = 5
"""Of adaptive chains, before anything is known."""

_COSTS_FILE, _SIMULATOR_FILE = "predictor.py", "simulator.py"
_NUMBER = r"([0-9.]+(?:[eE][+-]?[0-9]+)?)"
_COSTS = {
    "kv_s": "target_c_kv",
    "token_s": "target_c_compute",
    "pass_s": "target_c_fixed",
    "round_s": "overhead_constant_per_step",
    "draft_kv_s": "draft_c_kv",
    "draft_token_s": "draft_c_num_spec_tokens",
    "draft_s": "draft_c_fixed",
    "ngram_share": "ngram_draft_percentage",
}
"""Seconds of a pass for each token of context in the batch and each token in the pass, of each pass and each round
outside of passes; the same of EAGLE's drafting; and the share of a pass that a round with n-grams takes. Theirs."""


@dataclass(frozen=True, slots=True)
class TheirSettings:
    """What their files fix.

    Attributes:
        costs: of passes, by the names of `_COSTS`.
        seed: of the sample and of the coins.
        sampled: requests in the sample.
        match_probs: by dataset, how probable a match of n-grams is where nothing was accepted.
    """

    costs: Mapping[str, float]
    seed: int
    sampled: int
    match_probs: Mapping[str, Quoted]


def read_settings(files: ReleasedFiles, datasets: Sequence[str]) -> TheirSettings:
    """Read what they fix from their files."""
    costs = {
        key: files.quoted_pattern(_COSTS_FILE, rf"^\s*{name}\s*=\s*{_NUMBER}").value for key, name in _COSTS.items()
    }
    seed, sampled = (
        int(files.quoted_pattern(_SIMULATOR_FILE, rf"{pattern}\s*=\s*{_NUMBER}").value)
        for pattern in (r"^SEED", r"sample\(.*k")
    )
    probs = {dataset: files.quoted_pattern(_SIMULATOR_FILE, rf'"{dataset}"\s*:\s*{_NUMBER}') for dataset in datasets}
    return TheirSettings(costs, seed, sampled, probs)


@dataclass(frozen=True, slots=True, eq=False)
class ChainRecords:
    """A drafter's chains on the texts of a dataset, R requests with T tokens each, laid end to end.

    Entry p of a text is of the root after its first p tokens, so entry 0 follows the prompt.

    Attributes:
        prompt_tokens: int64 ``[R]``, tokens of each prompt.
        num_tokens: int64 ``[R]``, tokens of each text.
        recorded: int32 ``[sum T]``, accepted tokens and one, as they were released; they may reach past the end.
        available: int32 ``[sum T]``, tokens that the drafter proposes at most at each root; 0: it finds no match.
        longest: the longest chain that was recorded.
    """

    dataset: str
    drafter: str
    prompt_tokens: Longs
    num_tokens: Longs
    recorded: Ints
    available: Ints
    longest: int

    @property
    def begins(self) -> Longs:
        """The entry at which each text begins, int64 ``[R]``."""
        return np.cumsum(self.num_tokens) - self.num_tokens

    @property
    def owners(self) -> Longs:
        """The request of each entry, int64 ``[sum T]``."""
        return np.repeat(np.arange(len(self.num_tokens)), self.num_tokens)

    @property
    def positions(self) -> Longs:
        """Tokens of the text before each root, int64 ``[sum T]``."""
        return np.arange(len(self.recorded)) - self.begins[self.owners]

    @property
    def left(self) -> Longs:
        """Tokens of the text after each root, int64 ``[sum T]``."""
        return self.num_tokens[self.owners] - self.positions

    @property
    def accepted(self) -> Ints:
        """Drafted tokens of the text that the target agrees with if a long chain is drafted, int32 ``[sum T]``."""
        return np.minimum(self.recorded - 1, self.left).astype(np.int32)

    @property
    def longest_hundredth(self) -> Longs:
        """Indices of the longest hundredth of the texts, at least one of them, and of those as long; int64."""
        least = np.sort(self.num_tokens)[-(len(self.num_tokens) // 100 or 1)]
        return np.flatnonzero(self.num_tokens >= least)

    def take(self, requests: Longs) -> "ChainRecords":
        """Some of the requests by index, in this order."""
        lengths, begins = self.num_tokens[requests], self.begins[requests]
        ends = np.cumsum(lengths)
        entries = np.arange(lengths.sum()) + np.repeat(begins - (ends - lengths), lengths)
        return replace(
            self,
            prompt_tokens=self.prompt_tokens[requests],
            num_tokens=lengths,
            recorded=self.recorded[entries],
            available=self.available[entries],
        )

    def cut(self, lengths: Longs) -> "ChainRecords":
        """The first tokens of each text, int64 ``[R]`` of them; roots near the end keep what was recorded."""
        before_end = self.positions < lengths[self.owners]
        return replace(
            self, num_tokens=lengths, recorded=self.recorded[before_end], available=self.available[before_end]
        )


Chains = Mapping[str, ChainRecords]
"""Those of a dataset, by drafter."""


def same_length(chains: Chains) -> Longs:
    """Requests, by index, for which both drafters' texts have as many tokens.

    Texts of other lengths are certainly different. Those of equal length may be the same or not: EAGLE's tokens were
    not released.
    """
    return np.flatnonzero(chains[EAGLE].num_tokens == chains[NGRAM].num_tokens)


def read_chains(files: ReleasedFiles, paths: Mapping[str, str]) -> dict[str, tuple[Chains, int]]:
    """Dense accepted lengths of EAGLE and n-gram drafts, by dataset.

    Beside them how many n-gram entries prompt lookup on the released tokens does not give.
    """
    raw = {dataset: [_request(request) for request in files.objects(path)] for dataset, path in paths.items()}
    every = [request for requests in raw.values() for request in requests]
    longest = {drafter: max(max(request[drafter]) for request in every) - 1 for drafter in DRAFTERS}
    by_dataset: dict[str, tuple[Chains, int]] = {}
    for dataset, requests in raw.items():
        chains = {drafter: _records(dataset, drafter, requests, longest[drafter]) for drafter in DRAFTERS}
        looked_up = np.concatenate([_lookup(request, longest[NGRAM]) for request in requests])
        accepted = chains[NGRAM].accepted
        available = np.maximum(looked_up[:, 0], accepted).astype(np.int32)
        unexplained = int((looked_up[:, 1] != accepted).sum())
        by_dataset[dataset] = chains | {NGRAM: replace(chains[NGRAM], available=available)}, unexplained
    return by_dataset


def _request(row: Row) -> dict[str, list[int]]:
    """Tokens of prompt and text, and accepted lengths of each drafter."""
    lengths = {drafter: row[f"acc_{drafter}"]["acc_len"] for drafter in DRAFTERS}
    return lengths | {part: row[f"{part}_token_ids"] for part in ("prompt", "generated")}


def _records(dataset: str, drafter: str, requests: Sequence[Mapping[str, list[int]]], longest: int) -> ChainRecords:
    prompts, texts = (np.array([len(request[name]) for request in requests], np.int64) for name in ("prompt", drafter))
    recorded = np.concatenate([np.array(request[drafter], np.int32) for request in requests])
    return ChainRecords(dataset, drafter, prompts, texts, recorded, np.full(len(recorded), longest, np.int32), longest)


def lookup_starts(tokens: Sequence[int], first: int) -> list[int]:
    """Where prompt lookup begins to copy from, after each context: the first place of the longest n-gram that matches.

    Args:
        tokens: of prompt and text.
        first: length of the first context.

    Returns:
        for contexts of ``first`` to ``len(tokens) - 1`` tokens; -1: nothing matches.

    >>> lookup_starts([1, 2, 3, 9, 1, 2, 3, 9], 6)
    [-1, 3]
    """
    seen: dict[tuple[int, ...], int] = {}
    starts = [-1] * max(0, min(_SMALLEST_NGRAM, len(tokens)) - first)
    for end in range(_SMALLEST_NGRAM, len(tokens)):
        start = -1
        suffixes = [tuple(tokens[end - size : end]) for size in range(_SMALLEST_NGRAM, min(_LARGEST_NGRAM, end) + 1)]
        for suffix in suffixes if end >= first else ():
            if suffix not in seen:
                break
            start = seen[suffix]
        for suffix in suffixes:
            seen.setdefault(suffix, end)
        if end >= first:
            starts.append(start)
    return starts


def _lookup(request: Mapping[str, list[int]], longest: int) -> Ints:
    """Tokens that prompt lookup proposes at each position, and those of them that are the text's, int32 ``[T, 2]``."""
    tokens, begin = request["prompt"] + request["generated"], len(request["prompt"])
    lookups = []
    for end, start in enumerate(lookup_starts(tokens, begin), begin):
        most = 0 if start < 0 else min(longest, end - start)
        agreed = 0
        while agreed < most and end + agreed < len(tokens) and tokens[start + agreed] == tokens[end + agreed]:
            agreed += 1
        lookups.append((most, agreed))
    return np.array(lookups, np.int32)


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


ADAPTIVE: Mapping[str, Callable[[int, int, int], int]] = {
    "two-up-one-down": two_up_one_down,
    "longer-after-success": longer_after_success,
}
"""Adaptive chains that need no probabilities: from length, drafted and accepted tokens to the next length."""


# Rounds of a policy as sums of each request, float64 [R, 9]: rounds, tokens of context, tokens verified; of all rounds,
# of those in which EAGLE drafts, and of those in which n-grams do. All rounds commit the text but for its first token.


def autoregressive(records: ChainRecords) -> Doubles:
    """The sums of decoding without a drafter."""
    steps, sums = records.num_tokens - 1, np.zeros((len(records.num_tokens), 9))
    sums[:, 0], sums[:, 2] = steps, steps
    sums[:, 1] = steps * records.prompt_tokens + steps * (steps + 1) // 2
    return sums


def fixed_chain(records: ChainRecords, length: int) -> Doubles:
    """The sums of rounds that draft as many tokens each, or what there is; at most what was recorded."""
    if not 1 <= length <= records.longest:
        what = f"chains of {records.dataset}, {records.drafter}, have 1 to {records.longest} tokens"
        raise ValueError(f"{what}; got {length}")
    roots = visited(records, np.minimum(records.accepted, length) + 1)
    return _sums(records, roots, np.minimum(records.available, length)[roots], records.drafter == EAGLE)


def oracle_chain(records: ChainRecords, always: bool = False) -> Doubles:
    """The sums of rounds that draft what will be accepted, and nothing where that is nothing.

    Args:
        records: whose texts.
        always: whether a round is charged EAGLE's draft also where nothing will be accepted: their definition.
    """
    roots = visited(records, records.accepted + 1)
    return _sums(records, roots, records.accepted[roots], records.drafter == EAGLE, always)


def combined_oracle(eagle: ChainRecords, ngram: ChainRecords) -> Doubles:
    """The oracle's sums where the drafter with more of it drafts, n-grams where both have as much; of equal texts."""
    more = np.maximum(eagle.accepted, ngram.accepted)
    roots = visited(eagle, more + 1)
    return _sums(eagle, roots, more[roots], (eagle.accepted > ngram.accepted)[roots])


def adaptive_chain(records: ChainRecords, rule: Callable[[int, int, int], int]) -> Doubles:
    """The sums of rounds that draft as many tokens as a rule makes of the rounds before, in each request anew."""
    roots, lengths = [], []
    accepted, available = records.accepted.tolist(), records.available.tolist()
    for begin, tokens in zip(records.begins.tolist(), records.num_tokens.tolist(), strict=True):
        root, length = begin + 1, _FIRST_LENGTH
        while root < begin + tokens:
            drafted = min(length, available[root])
            agreed = min(drafted, accepted[root])
            roots.append(root)
            lengths.append(drafted)
            length = min(rule(length, drafted, agreed), records.longest)
            root += agreed + 1
    return _sums(records, np.array(roots, np.int64), np.array(lengths, np.int64), records.drafter == EAGLE)


def visited(records: ChainRecords, advances: Ints, first: int = 1, last: int = 0) -> Longs:
    """Roots of the rounds, when each commits so many tokens; indices of entries, int64 ``[rounds]``.

    Args:
        records: whose texts.
        advances: int32 ``[sum T]``, at least 1.
        first: the entry at which each text begins; the first token comes with the prefill.
        last: so many entries at the end of each text are not reached.
    """
    roots, steps = [], advances.tolist()
    for begin, tokens in zip(records.begins.tolist(), records.num_tokens.tolist(), strict=True):
        root = begin + first
        while root < begin + tokens - last:
            roots.append(root)
            root += steps[root]
    return np.array(roots, np.int64)


def _sums(
    records: ChainRecords, roots: Longs, drafted: Ints | Longs, by_eagle: bool | np.ndarray, always: bool = False
) -> Doubles:
    is_drafted = np.ones(len(roots)) if always else (drafted > 0).astype(np.float64)
    contexts = records.prompt_tokens[records.owners[roots]] + records.positions[roots]
    eagle = is_drafted * by_eagle
    return _round_sums(records, roots, contexts, drafted.astype(np.float64) + 1, eagle, is_drafted - eagle)


def _round_sums(
    records: ChainRecords, roots: Longs, contexts: Longs, verified: Doubles, eagle: Doubles, ngram: Doubles
) -> Doubles:
    """Sum rounds by request; eagle and ngram are the share of the batch for which each drafts, float64 ``[rounds]``."""
    owners, num_requests = records.owners[roots], len(records.num_tokens)
    columns = [np.ones(len(roots)), contexts.astype(np.float64), verified]
    weighed = [column * share for share in (1.0, eagle, ngram) for column in columns]
    return np.stack([np.bincount(owners, array, num_requests).astype(np.float64) for array in weighed], axis=1)


def seconds(sums: Doubles, costs: Mapping[str, float], batch: int) -> Doubles:
    """Seconds that each request waits after its first token, in a batch of as many like it; float64 ``[R]``."""
    own = np.array([costs["pass_s"], batch * costs["kv_s"], batch * costs["token_s"]])
    eagle = [costs["draft_s"], batch * costs["draft_kv_s"], costs["draft_token_s"]]
    weights = np.concatenate([own + np.array([costs["round_s"], 0.0, 0.0]), eagle, costs["ngram_share"] * own])
    return np.asarray(sums @ weights, np.float64)


Theirs = tuple[float, float, float]
"""A speedup as their program writes it, unrounded; seconds of autoregressive decoding over those of the chain, both
summed over requests; and the same without the prefill."""


def their_fixed(records: ChainRecords, length: int, batch: int, settings: TheirSettings) -> Theirs:
    """A chain of fixed length by their formulas; n-grams match by coins where nothing was accepted."""
    coins = random.Random(settings.seed)
    own = _sampled(records, coins, settings)
    roots = visited(own, np.minimum(own.recorded, length + 1), first=0, last=1)
    shares = np.ones(len(roots))
    if own.drafter == NGRAM:
        failed = own.recorded[roots] == 1
        shares[failed] = _heads(coins, int(failed.sum()), batch, settings.match_probs[own.dataset].value)
    by_eagle = float(own.drafter == EAGLE)
    return _speedup(own, roots, 1.0 + length * shares, shares * by_eagle, shares * (1 - by_eagle), batch, settings)


def their_oracle(records: ChainRecords, batch: int, settings: TheirSettings) -> Theirs:
    """Their oracle: it drafts what will be accepted; EAGLE is charged where that is nothing, n-grams are not."""
    own = _sampled(records, random.Random(settings.seed), settings)
    roots = visited(own, own.recorded, first=0, last=1)
    lengths, eagle = own.recorded[roots].astype(np.float64), np.full(len(roots), float(own.drafter == EAGLE))
    return _speedup(own, roots, lengths, eagle, (1 - eagle) * (lengths > 1), batch, settings)


def their_combined(chains: Chains, batch: int, settings: TheirSettings, charged: bool) -> Theirs:
    """Their combination: the longer of both at each entry, texts cut to the shorter.

    Args:
        chains: of both drafters.
        batch: its size.
        settings: theirs.
        charged: whether EAGLE's drafts have EAGLE's cost; theirs charges all rounds as n-grams.
    """
    eagle, ngram = (_sampled(chains[name], random.Random(settings.seed), settings) for name in DRAFTERS)
    lengths = np.minimum(eagle.num_tokens, ngram.num_tokens)
    eagle, ngram = eagle.cut(lengths), ngram.cut(lengths)
    longer = np.maximum(eagle.recorded, ngram.recorded)
    roots = visited(eagle, longer, first=0, last=1)
    by_eagle = charged * (eagle.recorded > ngram.recorded)[roots].astype(np.float64)
    return _speedup(eagle, roots, longer[roots].astype(np.float64), by_eagle, 1 - by_eagle, batch, settings)


def _sampled(records: ChainRecords, coins: random.Random, settings: TheirSettings) -> ChainRecords:
    num_requests = len(records.num_tokens)
    return records.take(np.array(coins.sample(range(num_requests), min(settings.sampled, num_requests)), np.int64))


def _heads(coins: random.Random, num_rounds: int, batch: int, prob: float) -> Doubles:
    """The share of the copies whose coin shows a match, in each round; float64 ``[rounds]``."""
    # Python's generator and numpy's are the same Mersenne twister; numpy's is fast.
    *key, position = coins.getstate()[1]
    bits = np.random.MT19937()
    bits.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
    of_copies = np.random.Generator(bits)
    sizes = np.diff(np.append(np.arange(0, num_rounds, 4096), num_rounds)).tolist()
    shares = [(of_copies.random((size, batch)) < prob).mean(axis=1) for size in sizes]
    return np.concatenate([np.zeros(0), *shares])


def _speedup(
    records: ChainRecords,
    roots: Longs,
    verified: Doubles,
    eagle: Doubles,
    ngram: Doubles,
    batch: int,
    settings: TheirSettings,
) -> Theirs:
    costs, tokens = settings.costs, records.num_tokens
    contexts = records.prompt_tokens[records.owners[roots]] + records.positions[roots] + 1
    decode_s = seconds(_round_sums(records, roots, contexts, verified, eagle, ngram), costs, batch)
    plain_s = seconds(autoregressive(records), costs, batch)
    prefill_s = costs["pass_s"] + costs["round_s"] + batch * costs["token_s"] * records.prompt_tokens.astype(np.float64)
    chain_s, base_s = prefill_s + decode_s, prefill_s + plain_s
    return (
        float((tokens / chain_s).mean() / (tokens / base_s).mean()),
        float(base_s.sum() / chain_s.sum()),
        float(plain_s.sum() / decode_s.sum()),
    )
