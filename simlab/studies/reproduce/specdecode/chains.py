"""Chains of SpecDecode-Bench/simulator, recorded at every position of a text: how many drafted tokens are accepted.

Such a record replays any chain up to its longest, on texts that are as they are. It holds no candidates and no
probabilities, so it replays no tree and no rule that asks how sure the drafter is.

Speedups by their formulas too: `simulator.py` has the formulas, `predictor.py` the costs of passes; code is ours. A
batch is one request as often as its size. Each text's walk begins at entry 0, although the prefill has brought the
first token, and its seconds hold the prefill. The speedup is the ratio of mean tokens per second, over a sample of
requests that their seed fixes.

In the shapes E is entries of a dataset and drafter, R their requests, B batch sizes.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import polars as pl

from simlab.arrays import Doubles, Longs
from simlab.studies.reproduce.released import Quoted, ReleasedFiles

EAGLE, NGRAM = "eagle", "ngram"
DRAFTERS = (EAGLE, NGRAM)
BATCHES = (1, 8, 16, 32, 64, 128)
THEIR_BATCHES = (1, 8, 64)
"""At which theirs stand beside ours."""

_SMALLEST_NGRAM, _LARGEST_NGRAM = 3, 7
"""With these, and the first place of those that match, prompt lookup gives the n-gram lengths that were released."""

FIRST_LENGTH = 5
"""Length of adaptive chains before anything is known."""

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

    def number(file: str, pattern: str) -> Quoted:
        return files.quoted_pattern(file, rf"{pattern}\s*{_NUMBER}")

    costs = {key: number(_COSTS_FILE, rf"^\s*{name}\s*=").value for key, name in _COSTS.items()}
    seed, sampled = (int(number(_SIMULATOR_FILE, pattern).value) for pattern in (r"^SEED\s*=", r"sample\(.*k\s*="))
    probs = {dataset: number(_SIMULATOR_FILE, rf'"{dataset}"\s*:') for dataset in datasets}
    return TheirSettings(costs, seed, sampled, probs)


def read_chains(files: ReleasedFiles, paths: Mapping[str, str]) -> pl.DataFrame:
    """The entries of each dataset and drafter, text by text; entry p is of the root after the text's first p tokens.

    Columns: dataset, drafter, by_eagle, request (by index), prompt_tokens, num_tokens (of the text), is_longest (it is
    of the longest hundredth, at least one, or as long), is_same (it has as many tokens with both drafters; else it is
    certainly different), position (p), left (tokens of the text after the root), longest (chain of the drafter that was
    recorded), recorded (accepted tokens and one, as they were released; they may reach past the end), accepted (those
    of the text, if a long chain is drafted), available (tokens that the drafter proposes at most; 0: it finds no
    match), looked_up (what `accepted` is by prompt lookup on the released tokens; null for EAGLE) and context (tokens
    of prompt and text before the root).
    """
    every = [(dataset, *row) for dataset, path in paths.items() for row in enumerate(files.objects(path))]
    longest = {drafter: max(max(row[f"acc_{drafter}"]["acc_len"]) for *_, row in every) - 1 for drafter in DRAFTERS}
    texts = []
    for dataset, request, row in every:
        prompt = row["prompt_token_ids"]
        of_lookup = lookups(prompt + row["generated_token_ids"], len(prompt), longest[NGRAM])
        for drafter, most in longest.items():
            text = {"dataset": dataset, "drafter": drafter, "request": request, "prompt_tokens": len(prompt)}
            recorded = row[f"acc_{drafter}"]["acc_len"]
            available, agreed = of_lookup if drafter == NGRAM else ([most] * len(recorded), [None] * len(recorded))
            text |= {"longest": most, "recorded": recorded, "available": available, "looked_up": agreed}
            texts.append(text)
    tokens, position = pl.col("num_tokens"), pl.col("position")
    is_longest = tokens.rank("min", descending=True) <= pl.max_horizontal(pl.len() // 100, 1)
    by_text = pl.DataFrame(texts).with_columns(num_tokens=pl.col("recorded").list.len().cast(pl.Int64))
    by_text = by_text.with_columns(
        by_eagle=pl.col("drafter") == EAGLE,
        is_longest=is_longest.over("dataset", "drafter"),
        is_same=tokens.n_unique().over("dataset", "request") == 1,
        position=pl.int_ranges(tokens),
    )
    entries = by_text.explode("recorded", "available", "looked_up", "position")
    accepted = pl.min_horizontal(pl.col("recorded") - 1, tokens - position)
    return entries.with_columns(
        left=tokens - position,
        accepted=accepted,
        available=pl.max_horizontal("available", accepted),
        context=pl.col("prompt_tokens") + position,
    )


def lookups(tokens: Sequence[int], first: int, longest: int) -> tuple[list[int], list[int]]:
    """What prompt lookup proposes after each context: what stood behind the first of the longest n-grams that match.

    Args:
        tokens: of prompt and text.
        first: length of the first context.
        longest: so many tokens are proposed at most.

    Returns:
        how many tokens are proposed for contexts of ``first`` to ``len(tokens) - 1`` tokens, and how many of them are
        the text's.

    >>> lookups([1, 2, 3, 9, 1, 2, 3, 9], 6, 5)
    ([0, 4], [0, 1])
    """
    seen: dict[tuple[int, ...], int] = {}
    proposed, agreed = [], []
    for end in range(len(tokens)):
        sizes = range(_SMALLEST_NGRAM, min(_LARGEST_NGRAM, end) + 1)
        places = [seen.setdefault(tuple(tokens[end - size : end]), end) for size in sizes]
        # A new n-gram has its first place here, and so have all that are longer.
        start = [end, *(place for place in places if place < end)][-1]
        proposed.append(min(longest, end - start))
        pairs = zip(tokens[start : start + proposed[-1]], tokens[end : end + longest], strict=False)
        agreed.append(sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return proposed[first:], agreed[first:]


# Roots are the entries at which a round may begin: with us all but the first of each text, with them all but the last.

OUR_ROOTS = pl.col("position") > 0
"""Entries at which our rounds may begin: the first token comes with the prefill."""


def their_roots(entries: pl.DataFrame, settings: TheirSettings) -> tuple[pl.DataFrame, random.Random]:
    """Entries at which their rounds may begin, of their sample, in its order; and the coins that come after it.

    Tokens past the end are accepted, a token more is in the context, and n-grams propose as many as are asked for.
    """
    coins, num_requests = random.Random(settings.seed), entries["request"].n_unique()
    sample = pl.DataFrame({"request": coins.sample(range(num_requests), min(settings.sampled, num_requests))})
    roots = entries.filter(pl.col("left") > 1).with_columns(
        pl.col("context") + 1, accepted=pl.col("recorded") - 1, available="longest"
    )
    return sample.join(roots, on="request", maintain_order="left_right"), coins


def combined(eagle: pl.DataFrame, ngram: pl.DataFrame) -> pl.DataFrame:
    """Roots of both drafters, texts cut to the shorter; that with more accepted tokens drafts, else n-grams do."""
    others = ngram.select("request", "position", others="accepted", reach="longest")
    roots = eagle.join(others, on=["request", "position"], maintain_order="left")
    more, longest = pl.max_horizontal("accepted", "others"), pl.max_horizontal("longest", "reach")
    by_eagle = pl.col("accepted") > pl.col("others")
    return roots.with_columns(by_eagle=by_eagle, accepted=more, available=more, longest=longest)


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


Rule = Callable[[int, int, int], int]
"""From length, drafted and accepted tokens to the next length."""

ADAPTIVE: Mapping[str, Rule] = {
    "two-up-one-down": two_up_one_down,
    "longer-after-success": longer_after_success,
}
"""Adaptive chains that need no probabilities."""


def chain(roots: pl.DataFrame, length: int, rule: Rule | None = None) -> Longs:
    """Tokens in the verification pass at each root, int64 ``[E]``; 0: no round begins there.

    Each round drafts as many tokens as its length says, or what there is; each request begins anew.

    Args:
        roots: of a dataset and drafter.
        length: of each chain, 0 to decode without a drafter; or of the first.
        rule: makes the next length of the rounds before, up to the longest chain that was recorded.
    """
    longest = int(roots["longest"][0])
    if not 0 <= length <= longest:
        raise ValueError(f"these chains have 1 to {longest} tokens; got {length}")
    available = np.minimum(roots["available"].to_numpy(), longest if rule else length)
    accepted = np.minimum(roots["accepted"].to_numpy(), available).tolist()
    available, begins, verified = available.tolist(), begins_of(roots).tolist(), [0] * roots.height
    for begin, end in zip(begins, [*begins[1:], roots.height], strict=True):
        root, own = begin, length
        while root < end:
            drafted, agreed = available[root], accepted[root]
            if rule is not None:
                drafted, agreed = min(own, drafted), min(own, agreed)
                own = min(rule(own, drafted, agreed), longest)
            verified[root] = drafted + 1
            root += agreed + 1
    return np.array(verified, np.int64)


def oracle(roots: pl.DataFrame) -> Longs:
    """Tokens in the pass at each root, as `chain` has them, where what will be accepted is drafted and nothing else."""
    return chain(roots.with_columns(available="accepted"), int(roots["longest"][0]))


def begins_of(roots: pl.DataFrame) -> Longs:
    """The first root of each request, int64 ``[R]``."""
    return np.flatnonzero(np.diff(roots["request"].to_numpy(), prepend=-1))


def seconds(
    roots: pl.DataFrame, verified: Longs | Doubles, costs: Mapping[str, float], drafting: Doubles | None = None
) -> Doubles:
    """Seconds that each request waits after its first token, float64 ``[R, B]``, in batches of `BATCHES` like it.

    Args:
        roots: of a dataset and drafter, or of combined drafters.
        verified: tokens in the pass, ``[E]``; 0: no round begins there.
        costs: theirs.
        drafting: the share of the batch that is charged a draft, ``[E]``; None: all where something is drafted.
    """
    begun, drafts = verified > 0, verified > 1 if drafting is None else drafting
    eagle = drafts * roots["by_eagle"].to_numpy()
    columns = np.stack([begun, begun * roots["context"].to_numpy(), verified], axis=1)
    shares = [begun, eagle, drafts - eagle.astype(np.float64)]
    weighed = np.concatenate([columns * share[:, None] for share in shares], axis=1)
    sums = np.add.reduceat(weighed.astype(np.float64), begins_of(roots), axis=0)
    weights = []
    for batch in BATCHES:
        own = [costs["pass_s"], batch * costs["kv_s"], batch * costs["token_s"]]
        of_eagle = [costs["draft_s"], batch * costs["draft_kv_s"], costs["draft_token_s"]]
        of_ngrams = [costs["ngram_share"] * price for price in own]
        weights.append([own[0] + costs["round_s"], *own[1:], *of_eagle, *of_ngrams])
    return np.asarray(sums @ np.array(weights).T, np.float64)


def their_speedup(
    roots: pl.DataFrame, verified: Longs, drafting: Doubles, batch: int, settings: TheirSettings
) -> tuple[float, float, float]:
    """A speedup as their program writes it, unrounded, and two by other means of the same seconds.

    Args:
        roots: theirs.
        verified: tokens in the pass where all drafts are charged, int64 ``[E]``; 0: no round begins there.
        drafting: the share of the batch that drafts, float64 ``[E]``.
        batch: its size.
        settings: theirs.

    Returns:
        theirs; seconds of autoregressive decoding over those of the chain, both summed over requests; and the same
        without the prefill.
    """
    costs, begins = settings.costs, begins_of(roots)
    prompts = roots["prompt_tokens"].to_numpy()[begins]
    tokens = np.diff(begins, append=roots.height) + 1
    shared = np.where(verified > 0, 1 + (verified - 1) * drafting, 0.0)
    decode_s = seconds(roots, shared, costs, drafting * (verified > 0))[:, BATCHES.index(batch)]
    plain_s = seconds(roots, np.ones(roots.height), costs)[:, BATCHES.index(batch)]
    prefill_s = costs["pass_s"] + costs["round_s"] + batch * costs["token_s"] * prompts
    chain_s, base_s = prefill_s + decode_s, prefill_s + plain_s
    return (
        float((tokens / chain_s).mean() / (tokens / base_s).mean()),
        float(base_s.sum() / chain_s.sum()),
        float(plain_s.sum() / decode_s.sum()),
    )


def heads(coins: random.Random, num_rounds: int, batch: int, prob: float) -> Doubles:
    """The share of the copies whose coin shows a match, in each round; float64 ``[rounds]``."""
    # Python's generator and numpy's are the same Mersenne twister; numpy's is fast.
    *key, position = coins.getstate()[1]
    bits = np.random.MT19937()
    bits.state = {"bit_generator": "MT19937", "state": {"key": np.array(key, np.uint32), "pos": position}}
    return np.asarray((np.random.Generator(bits).random((num_rounds, batch)) < prob).mean(axis=1), np.float64)
