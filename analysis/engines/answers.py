"""What an engine told of one request, of the whole server, and of itself, in words that all engines share.

A round is one pass that verified drafted tokens. The prefill's pass, which gives a text's first token, is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

from simlab.errors import SimlabError
from simlab.untrusted.json_text import parse_json


class EngineError(SimlabError):
    """A server that cannot be reached, does not answer as its kind does, or serves something else."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The answer to one request; what the engine does not tell is None.

    Attributes:
        num_tokens: that were written, the prefill's among them.
        token_ids: of these.
        num_prompt_tokens: that the engine read.
        num_rounds: verifying passes.
        num_drafted: tokens over all of them.
        accepted: of each round, in order.
        drafted: of each round, in order.
    """

    num_tokens: int
    token_ids: tuple[int, ...] | None = None
    num_prompt_tokens: int | None = None
    num_rounds: int | None = None
    num_drafted: int | None = None
    accepted: tuple[int, ...] | None = None
    drafted: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """Counts since a server's start, between two readings, or as a trace predicts them; None: not told.

    Attributes:
        num_rounds: verifying passes of single texts.
        num_drafted: tokens.
        num_accepted: drafted tokens that were kept, those behind the end of a text counted.
        accepted_at: by the position of a drafted token, how often it was kept.
        num_tokens: written, the prefills' among them.
        num_requests: that ended well.
        num_preempted: texts that were taken out of a batch and read again.
        num_open: of a prediction, rounds of which the recorded text ends too soon to say how many more were kept; 0:
            every count is predicted to the unit.
    """

    num_rounds: int | None = None
    num_drafted: int | None = None
    num_accepted: int | None = None
    accepted_at: tuple[int, ...] | None = None
    num_tokens: int | None = None
    num_requests: int | None = None
    num_preempted: int | None = None
    num_open: int | None = None

    def since(self, before: "ServerCounters") -> "ServerCounters":
        """What came since an earlier reading of the same server."""
        grown: dict[str, Any] = {}
        for name, (_, label) in COUNTS.items():
            earlier, later = getattr(before, name), getattr(self, name)
            grown[name] = _grown(label, earlier, later) if label else _grown_at(earlier, later)
        return ServerCounters(**grown)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a round in simlab's sense, without the prefills' tokens; None where a count is missing.

        Where tokens or requests are not counted it is 1 + accepted / rounds, which is too long by the accepted tokens
        behind the ends of texts.
        """
        if not self.num_rounds:
            return None
        if self.num_tokens is not None and self.num_requests is not None:
            return (self.num_tokens - self.num_requests) / self.num_rounds
        return None if self.num_accepted is None else 1 + self.num_accepted / self.num_rounds

    def to_json(self) -> dict[str, object]:
        """The counts, those that are not known as null."""
        own = {key: getattr(self, name) for name, (key, _) in COUNTS.items()}
        if self.num_open is None:
            return own
        del own["preempted"]
        return own | {"rounds_cut_by_the_recorded_end": self.num_open}


COUNTS: Mapping[str, tuple[str, str]] = {
    "num_rounds": ("rounds", "rounds"),
    "num_drafted": ("drafted", "drafted tokens"),
    "num_accepted": ("accepted", "accepted tokens"),
    "accepted_at": ("accepted_at_position", ""),
    "num_tokens": ("tokens", "tokens"),
    "num_requests": ("requests", "requests"),
    "num_preempted": ("preempted", "preemptions"),
}
"""The counts of a server: each one's key in JSON, and what it is called in sentences."""


def total(parts: Sequence[ServerCounters]) -> ServerCounters:
    """The counts of several files or requests together; what one of them does not tell is not known of all."""
    sums: dict[str, Any] = {}
    for name in COUNTS:
        values = [getattr(part, name) for part in parts]
        if None not in values:
            at = name == "accepted_at"
            sums[name] = tuple(map(sum, zip_longest(*values, fillvalue=0))) if at else sum(values)
    return ServerCounters(**sums)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server tells of itself; what it does not is None.

    Attributes:
        version: of the engine.
        model: the name under which it serves its target.
        root: the path or id that the target was loaded from.
        longest: tokens of prompt and text together.
        num_speculative: tokens that it drafts in a round.
        dtype: of the target, as simlab names it.
    """

    version: str | None = None
    model: str | None = None
    root: str | None = None
    longest: int | None = None
    num_speculative: int | None = None
    dtype: str | None = None


def _grown(name: str, before: int | None, after: int | None) -> int | None:
    if before is None or after is None:
        return after
    if after < before:
        raise EngineError(
            f"the server's count of {name} fell from {before:,} to {after:,}: it was started anew between the two "
            "readings; take both from one run of the server"
        )
    return after - before


def _grown_at(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if before is None or after is None:
        return after
    padded = before + (0,) * (len(after) - len(before))
    if len(padded) != len(after):
        raise EngineError(
            f"the server counted {len(before)} positions of a draft and now counts {len(after)}: it was started anew "
            "between the two readings; take both from one run of the server"
        )
    pairs = enumerate(zip(padded, after, strict=True))
    return tuple(_grown(f"tokens kept at position {at}", *both) or 0 for at, both in pairs)


# Values out of an engine's JSON, which may lack any of them.


Json = Mapping[str, object]

_MOST_TOKENS = 1 << 24
_MOST_COUNT = 1 << 53
"""Whole numbers from here on are not exact in JSON."""


def parsed_object(text: str | bytes, where: str) -> Json:
    """A JSON object that an engine wrote.

    Raises:
        EngineError: it is none.
    """
    try:
        value = parse_json(text)
    except ValueError as error:
        raise EngineError(f"{where} is no JSON ({error})") from error
    if not isinstance(value, dict):
        raise EngineError(f"{where} is no JSON object; it is a {type(value).__name__}")
    return value


def inner(values: Json, *keys: str) -> Json:
    """An object inside, step by step; an empty one where a step is missing or no object."""
    value: object = values
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return cast(Json, value) if isinstance(value, Mapping) else {}


def first_of(values: Json, key: str) -> Json:
    """The first object of a list; an empty one where there is none."""
    entries = values.get(key)
    return cast(Json, entries[0]) if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}


def count(values: Json, key: str, where: str) -> int | None:
    """A whole number from 0; None where it is missing or null."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_COUNT:
        raise EngineError(f"expected {key} of {where} to be a whole number from 0; got {str(value)[:60]!r}")
    return value


def counts(values: Json, key: str, where: str) -> tuple[int, ...] | None:
    """A list of whole numbers from 0; None where it is missing or null."""
    entries = values.get(key)
    if entries is None:
        return None
    if not isinstance(entries, list) or not all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _MOST_TOKENS for number in entries
    ):
        raise EngineError(f"expected {key} of {where} to be a list of whole numbers from 0; got {str(entries)[:60]!r}")
    return tuple(cast(Sequence[int], entries))


def counters_of(values: Json, where: str) -> ServerCounters:
    """A server's counts, as `ServerCounters.to_json` wrote them."""
    counters: dict[str, Any] = {name: count(values, key, where) for name, (key, label) in COUNTS.items() if label}
    return ServerCounters(**counters, accepted_at=counts(values, COUNTS["accepted_at"][0], where))


def check_counts(counters: ServerCounters, where: str) -> None:
    """Refuse counts that no server can have.

    Raises:
        EngineError: more tokens were accepted than drafted, or fewer written than there were requests or rounds.
    """
    tokens, requests = counters.num_tokens, counters.num_requests
    accepted, drafted = counters.num_accepted, counters.num_drafted
    if tokens is not None and requests is not None and tokens < requests:
        raise EngineError(f"{where} counts {tokens:,} tokens in {requests:,} requests; each has one at least")
    if tokens is not None and counters.num_rounds is not None and tokens < counters.num_rounds:
        raise EngineError(
            f"{where} counts {tokens:,} tokens in {counters.num_rounds:,} rounds; each writes one at least"
        )
    if accepted is not None and drafted is not None and accepted > drafted:
        raise EngineError(f"{where} counts {accepted:,} accepted tokens of {drafted:,} drafted ones")


def number(values: Json, key: str, where: str) -> float | None:
    """A number; None where it is missing or null."""
    value = values.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise EngineError(f"expected {key} of {where} to be a number; got {str(value)[:60]!r}")
    return float(value)


def text(values: Json, *keys: str) -> str | None:
    """The first of these keys that is a string with something in it; None: none is."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value:
            return value
    return None


# Requests of text in OpenAI's words, which several engines answer.


def completions_request(
    prompt: Sequence[int], max_tokens: int, stop_token_ids: Sequence[int], model: str
) -> dict[str, object]:
    """The body of a request for one text, decoded greedily; `simlab.analysis.engines.known.Engine` explains it."""
    return {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 0,
        "stop_token_ids": list(stop_token_ids),
    }


def completions_answer(response: Json, where: str, title: str) -> EngineAnswer:
    """What all engines tell of a text in the same words.

    Raises:
        EngineError: it is no such answer of the engine with this title.
    """
    choice, usage = first_of(response, "choices"), inner(response, "usage")
    num_tokens = count(usage, "completion_tokens", where)
    if not choice or num_tokens is None:
        raise EngineError(f"{where} is no answer of {title}: it has no choices or no usage")
    ids, num_prompt_tokens = counts(choice, "token_ids", where), count(usage, "prompt_tokens", where)
    return EngineAnswer(num_tokens, ids, num_prompt_tokens)
