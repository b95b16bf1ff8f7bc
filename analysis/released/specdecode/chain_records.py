"""Chains that were recorded at every position of a text: how many drafted tokens the target agrees with, and no more.

Such a record replays any chain up to its longest one, on texts that are as they are. It holds no candidates and no
probabilities, so it replays no tree and no rule that asks how sure the drafter is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.released.files import ReleasedFiles
from simlab.arrays import Bools, Ints, Longs
from simlab.errors import SimlabError

EAGLE, NGRAM = "eagle", "ngram"
DRAFTERS = (EAGLE, NGRAM)
SMALLEST_NGRAM, LARGEST_NGRAM = 3, 7
"""With these, and the first place of those that match, prompt lookup gives the n-gram lengths that were released."""

CANNOT_REPLAY = (
    "trees (it has no second candidates)",
    "rules that read confidences (it has no probabilities)",
    "chains longer than the longest that was recorded",
    "other texts",
)
"""What a chain-only record does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class ChainRecords:
    """One drafter's chains on the texts of one dataset, R requests with T tokens each, laid end to end.

    Entry p of a text is of the root after its first p tokens, so entry 0 follows the prompt.

    Attributes:
        dataset: its name.
        drafter: which.
        request_ids: of each request, R.
        prompt_tokens: int64 ``[R]``, tokens of each prompt.
        offsets: int64 ``[R + 1]``, where each text begins.
        recorded: int32 ``[sum T]``, accepted tokens and one, as they were released; they may reach past the end.
        available: int32 ``[sum T]``, tokens that the drafter proposes at most at each root; 0: it finds no match.
        longest: the longest chain that was recorded.
    """

    dataset: str
    drafter: str
    request_ids: tuple[str, ...]
    prompt_tokens: Longs
    offsets: Longs
    recorded: Ints
    available: Ints
    longest: int

    def __post_init__(self) -> None:
        if len(self.recorded) != self.offsets[-1] or len(self.available) != len(self.recorded):
            raise ValueError(f"{self.dataset}, {self.drafter}: arrays and offsets are of different lengths")

    @property
    def num_tokens(self) -> Longs:
        """Tokens of each text, int64 ``[R]``."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Longs:
        """The request of each entry, int64 ``[sum T]``."""
        return np.repeat(np.arange(len(self.num_tokens)), self.num_tokens)

    @property
    def positions(self) -> Longs:
        """Tokens of the text before each root, int64 ``[sum T]``."""
        found: Longs = np.arange(len(self.recorded)) - self.offsets[self.owners]
        return found

    @property
    def left(self) -> Longs:
        """Tokens of the text after each root, int64 ``[sum T]``."""
        found: Longs = self.num_tokens[self.owners] - self.positions
        return found

    @property
    def accepted(self) -> Ints:
        """Drafted tokens of the text that the target agrees with if a long chain is drafted, int32 ``[sum T]``."""
        return np.minimum(self.recorded - 1, self.left).astype(np.int32)

    @property
    def longest_hundredth(self) -> Longs:
        """Places of the longest hundredth of the texts, at least one of them, and of those as long; int64."""
        lengths = self.num_tokens
        return np.flatnonzero(lengths >= np.sort(lengths)[-(len(lengths) // 100 or 1)])

    def check_length(self, length: int) -> None:
        """Refuse a chain that was not recorded.

        Raises:
            ValueError: it is longer than the longest, or has no token.
        """
        if not 1 <= length <= self.longest:
            raise ValueError(f"chains of {self.dataset}, {self.drafter}, have 1 to {self.longest} tokens; got {length}")

    def take(self, places: Longs) -> "ChainRecords":
        """Some of the requests, in this order.

        Args:
            places: int64, their places among the R.
        """
        lengths = self.num_tokens[places]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.arange(offsets[-1]) + np.repeat(self.offsets[places] - offsets[:-1], lengths)
        return replace(
            self,
            request_ids=tuple(self.request_ids[place] for place in places.tolist()),
            prompt_tokens=self.prompt_tokens[places],
            offsets=offsets,
            recorded=self.recorded[entries],
            available=self.available[entries],
        )

    def cut(self, lengths: Longs) -> "ChainRecords":
        """The first tokens of each text; roots near the end keep what was recorded.

        Args:
            lengths: int64 ``[R]``, of each text, at most what it has.
        """
        kept = self.positions < lengths[self.owners]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return replace(self, offsets=offsets, recorded=self.recorded[kept], available=self.available[kept])


@dataclass(frozen=True, slots=True, eq=False)
class DatasetChains:
    """The chains of all drafters on one dataset.

    Attributes:
        chains: by drafter.
        num_unexplained: n-gram entries that prompt lookup on the released tokens does not give.
    """

    chains: Mapping[str, ChainRecords]
    num_unexplained: int

    @property
    def same_length(self) -> Bools:
        """Requests for which both drafters' texts have as many tokens, bool ``[R]``.

        Texts of other lengths are certainly different. Those of equal length may be the same or not: EAGLE's tokens
        were not released.
        """
        found: Bools = self.chains[EAGLE].num_tokens == self.chains[NGRAM].num_tokens
        return found


def read_chains(files: ReleasedFiles, paths: Mapping[str, str]) -> dict[str, DatasetChains]:
    """Read dense accepted lengths of EAGLE and n-gram drafts.

    Args:
        files: of the release.
        paths: of each dataset.

    Raises:
        SimlabError: a file is not as expected.
    """
    raw = {dataset: [_request(one, path) for one in files.objects(path)] for dataset, path in paths.items()}
    longest = {
        drafter: max(max(one.lengths[drafter]) for some in raw.values() for one in some) - 1 for drafter in DRAFTERS
    }
    return {dataset: _of_dataset(dataset, some, longest) for dataset, some in raw.items()}


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
    sizes = range(SMALLEST_NGRAM, LARGEST_NGRAM + 1)
    places: dict[tuple[int, ...], int] = {}
    found = []
    for end in range(SMALLEST_NGRAM, len(tokens)):
        start = -1
        suffixes = [tuple(tokens[end - size : end]) for size in sizes if size <= end]
        for suffix in suffixes if end >= first else ():
            if suffix not in places:
                break
            start = places[suffix]
        for suffix in suffixes:
            places.setdefault(suffix, end)
        if end >= first:
            found.append(start)
    return [-1] * max(0, min(SMALLEST_NGRAM, len(tokens)) - first) + found


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    name: str
    prompt: list[int]
    text: list[int]
    lengths: dict[str, list[int]]


def _request(found: dict[str, object], path: str) -> _Request:
    name = found.get("id")
    if not isinstance(name, str):
        raise SimlabError(f"{path}: expected a request with an id that is a text; got {name!r}")
    where = f"{path}, request {name}"
    lengths = {}
    for drafter in DRAFTERS:
        of_drafter = found.get(f"acc_{drafter}")
        listed = of_drafter.get("acc_len") if isinstance(of_drafter, dict) else None
        lengths[drafter] = _whole_numbers(listed, f"accepted lengths of {drafter}", where, 1)
    tokens = [_whole_numbers(found.get(f"{part}_token_ids"), f"{part} tokens", where, 0) for part in _PARTS]
    if len(tokens[1]) != len(lengths[NGRAM]):
        raise SimlabError(f"{where}: expected an n-gram length for each of {len(tokens[1])} tokens")
    return _Request(name, tokens[0], tokens[1], lengths)


_PARTS = ("prompt", "generated")


def _whole_numbers(listed: object, what: str, where: str, least: int) -> list[int]:
    is_right = isinstance(listed, list) and len(listed) > 1
    if not is_right or not all(type(one) is int and one >= least for one in listed):  # type: ignore[attr-defined]
        raise SimlabError(f"{where}: expected {what}, two or more whole numbers of at least {least}")
    return listed  # type: ignore[return-value]


def _of_dataset(dataset: str, some: Sequence[_Request], longest: Mapping[str, int]) -> DatasetChains:
    matched = [_lookup(one, longest[NGRAM]) for one in some]
    chains = {drafter: _records(dataset, drafter, some, longest[drafter]) for drafter in DRAFTERS}
    ngram = chains[NGRAM]
    available = np.maximum(np.concatenate([there for there, _ in matched]), ngram.accepted)
    differs = np.concatenate([np.array(one) for _, one in matched]) != ngram.accepted
    return DatasetChains(chains | {NGRAM: replace(ngram, available=available)}, int(differs.sum()))


def _records(dataset: str, drafter: str, some: Sequence[_Request], longest: int) -> ChainRecords:
    lengths = [one.lengths[drafter] for one in some]
    recorded = np.concatenate([np.array(one, np.int32) for one in lengths])
    return ChainRecords(
        dataset,
        drafter,
        tuple(one.name for one in some),
        np.array([len(one.prompt) for one in some], np.int64),
        np.concatenate([[0], np.cumsum([len(one) for one in lengths])]).astype(np.int64),
        recorded,
        np.full(len(recorded), longest, np.int32),
        longest,
    )


def _lookup(one: _Request, longest: int) -> tuple[Ints, list[int]]:
    """Tokens that prompt lookup proposes at each position, and those of them that are the text's."""
    tokens, begin = one.prompt + one.text, len(one.prompt)
    available, accepted = [], []
    for end, start in enumerate(lookup_starts(tokens, begin), begin):
        most = 0 if start < 0 else min(longest, end - start)
        agreed = 0
        while agreed < most and end + agreed < len(tokens) and tokens[start + agreed] == tokens[end + agreed]:
            agreed += 1
        available.append(most)
        accepted.append(agreed)
    return np.array(available, np.int32), accepted
