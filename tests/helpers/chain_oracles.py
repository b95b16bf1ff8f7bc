"""Chains replayed the slow way, one round and one copy after the other; shares no code with what it checks."""

import random
from collections.abc import Callable
from typing import Any

Costs = dict[str, float]
Request = dict[str, Any]


def lengths_of(request: Request, drafter: str) -> list[int]:
    """As they stand in a file."""
    found: list[int] = request[f"acc_{drafter}"]["acc_len"]
    return found


def copied(request: Request, at: int, longest: int) -> tuple[int, int]:
    """Tokens that prompt lookup proposes after ``at`` tokens of the text, and how many of them are the text's."""
    context = request["prompt_token_ids"] + request["generated_token_ids"][:at]
    coming = request["generated_token_ids"][at:]
    for size in range(7, 2, -1):
        for start in range(len(context) - size):
            if len(context) > size and context[start : start + size] == context[-size:]:
                proposed = context[start + size :][:longest]
                agreed = 0
                while agreed < min(len(proposed), len(coming)) and proposed[agreed] == coming[agreed]:
                    agreed += 1
                return len(proposed), agreed
    return 0, 0


def pass_s(costs: Costs, in_cache: int, in_pass: int) -> float:
    """Seconds of a pass of the target."""
    return costs["kv"] * in_cache + costs["token"] * in_pass + costs["pass"]


def plain_s(costs: Costs, prompt: int, num_tokens: int, batch: int) -> float:
    """Seconds of decoding after the first token, without a drafter."""
    steps = [pass_s(costs, batch * (prompt + at), batch) + costs["round"] for at in range(1, num_tokens)]
    return sum(steps)


def draft_s(costs: Costs, drafter: str, verify: float, in_cache: int, in_part: int) -> float:
    """Seconds of a draft."""
    if drafter == "ngram":
        return verify * costs["ngram"]
    return costs["draft_kv"] * in_cache + costs["draft_token"] * in_part + costs["draft"]


def rounds_s(
    costs: Costs,
    request: Request,
    drafter: str,
    batch: int,
    length: Callable[[int, int], int],
    longest: int,
    always: bool = False,
) -> tuple[float, int]:
    """Seconds and rounds after the first token, every copy alike.

    Args:
        costs: by short names.
        request: of the file.
        drafter: which.
        batch: copies.
        length: of the next chain, from what was drafted and accepted last; -1 and -1 before the first round.
        longest: the longest chain.
        always: whether a draft is charged where none is made, too.
    """
    lengths, prompt = lengths_of(request, drafter), len(request["prompt_token_ids"])
    at, seconds, rounds, last = 1, 0.0, 0, (-1, -1)
    while at < len(lengths):
        left = len(lengths) - at
        there = copied(request, at, longest)[0] if drafter == "ngram" else longest
        right = min(lengths[at] - 1, left)
        wanted = length(*last)
        drafted = right if wanted < 0 else min(wanted, there)
        accepted = min(drafted, right)
        verify = pass_s(costs, batch * (prompt + at), batch * (drafted + 1))
        seconds += verify + costs["round"]
        if drafted or always:
            seconds += draft_s(costs, drafter, verify, batch * (prompt + at), drafted + 1)
        at += min(accepted + 1, left)
        rounds, last = rounds + 1, (drafted, accepted)
    return seconds, rounds


def combined_s(costs: Costs, request: Request, batch: int) -> float:
    """Seconds after the first token, if the drafter with more accepted tokens is known in each round."""
    eagle, ngram, prompt = lengths_of(request, "eagle"), lengths_of(request, "ngram"), len(request["prompt_token_ids"])
    at, seconds = 1, 0.0
    while at < len(ngram):
        left = len(ngram) - at
        right = [min(one[at] - 1, left) for one in (eagle, ngram)]
        verify = pass_s(costs, batch * (prompt + at), batch * (max(right) + 1))
        seconds += verify + costs["round"]
        if max(right):
            name = "eagle" if right[0] > right[1] else "ngram"
            seconds += draft_s(costs, name, verify, batch * (prompt + at), max(right) + 1)
        at += max(right) + 1
    return seconds


def their_speedup(
    costs: Costs,
    requests: list[Request],
    drafter: str,
    length: int | None,
    batch: int,
    seed: int,
    match: float,
    as_eagle: bool = False,
) -> float:
    """Speedup by their formulas, copy by copy and coin by coin; no length: their oracle; both drafters: combined.

    Args:
        costs: by short names.
        requests: of the file.
        drafter: one, or ``combined``.
        length: of the chain.
        batch: copies.
        seed: of sample and coins.
        match: how probable a match is where nothing was accepted.
        as_eagle: whether the combination is charged EAGLE's cost where EAGLE drafts more.
    """
    coins = random.Random(seed)
    sampled = coins.sample(requests, min(300, len(requests)))
    plain, chained = [], []
    for request in sampled:
        names = ["eagle", "ngram"] if drafter == "combined" else [drafter]
        lists = [lengths_of(request, name) for name in names]
        num_tokens, prompt = min(map(len, lists)), len(request["prompt_token_ids"])
        first = pass_s(costs, 0, batch * prompt) + costs["round"]
        waits = [first] * batch
        made = 1
        while made < num_tokens:
            best = max(one[made - 1] for one in lists)
            parts = []
            for _ in range(batch):
                failed = length is not None and drafter == "ngram" and best == 1 and not coins.random() < match
                parts.append(1 if failed else best if length is None else length + 1)
            in_cache = batch * (prompt + made)
            verify = pass_s(costs, in_cache, sum(parts))
            for copy, part in enumerate(parts):
                is_eagle = drafter == "eagle" or (as_eagle and lists[0][made - 1] > lists[1][made - 1])
                as_drafter = "eagle" if is_eagle else "ngram"
                drafts = 0.0 if drafter == "ngram" and part == 1 else draft_s(costs, as_drafter, verify, in_cache, part)
                waits[copy] += verify + costs["round"] + drafts
            made += min(best, max(parts)) if length is None else min(best, length + 1)
        plain.append(num_tokens / (first + plain_s(costs, prompt, num_tokens, batch)))
        chained.append(num_tokens / (sum(waits) / batch))
    return sum(chained) / sum(plain)
