"""Known faults of a drafter, its texts or an engine, told by what each leaves in the rounds of a chain.

Healthy drafters keep about the same share at every depth behind a kept token, and say about that share themselves. A
fault breaks one of the two in a way of its own; docs/how_to/crosscheck.md has how often each is told. What is told is
what the rounds look like: another cause can leave the same.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from simlab.analysis.crosscheck.rounds import ComparedText
from simlab.analysis.statistics.intervals import ratio_interval
from simlab.arrays import Bools, Doubles, Ints, Longs
from simlab.recorded import DraftRows, RecordedSequence

HEAD, VOCABULARY, MASK, TAPS = "a missing head", "a shifted vocabulary", "a wrong mask token", "shifted taps"
WINDOW, TEMPLATE = "a window that ends", "no chat template, or another one"
THINKING, REPEATED = "thinking is on", "repeated text"
FAULTS = (HEAD, VOCABULARY, MASK, TAPS, WINDOW, TEMPLATE, THINKING, REPEATED)

FEWEST_ROUNDS = 300
"""With fewer roots nothing is said of their rounds."""

_NOTHING_KEPT, _SHIFTED, _MOST_SHIFT = 0.01, 0.1, 16
_FALLING, _FLAT = 0.55, 0.75
_MASK_OVER, _TAPS_OVER = 2.5, 1.15
_SIDE, _FEWEST_BESIDE, _LEFT = 48, 150, 0.4
_REPEATED, _GRAM = 0.3, 8


@dataclass(frozen=True, slots=True)
class Finding:
    """A known fault that rounds look like.

    Attributes:
        fault: one of `FAULTS`.
        evidence: in a sentence without a full stop.
    """

    fault: str
    evidence: str


@dataclass(frozen=True, slots=True, eq=False)
class ChainRounds:
    """How a round of a chain ended, or would end, at each of R roots.

    Attributes:
        prompt: int64 ``[R]``, the same for roots of one prompt.
        context: int64 ``[R]``, tokens of prompt and text up to the root.
        kept: int64 ``[R]``, drafted tokens that were kept.
        reach: int64 ``[R]``, drafted tokens that could have been kept.
        probs: float64 ``[R, D]``, what the drafter says of its own token at each depth; None: not known.
        right: bool ``[R, D]``, whether that token is the text's, behind a kept one or not; None: not known.
        expected: int64 ``[R]``, what a trace of the same models predicts; None: there is none.
    """

    prompt: Longs
    context: Longs
    kept: Longs
    reach: Longs
    probs: Doubles | None = None
    right: Bools | None = None
    expected: Longs | None = None

    def hits(self, kept: Longs) -> tuple[Bools, Bools]:
        """Whether a token was asked for behind kept ones, and whether it was kept, at each depth, bool ``[R, D]``."""
        depths = np.arange(1, (int(self.reach.max(initial=1)) if self.probs is None else self.probs.shape[1]) + 1)
        asked = (kept[:, None] >= depths - 1) & (self.reach[:, None] >= depths)
        return asked, asked & (kept[:, None] >= depths)

    def shares(self, kept: Longs) -> tuple[Doubles, Longs]:
        """At each depth the share kept behind a kept token, and of how many, float64 and int64 ``[D]``."""
        asked, hits = (flags.sum(axis=0) for flags in self.hits(kept))
        return hits / np.maximum(asked, 1), asked


def rounds_of_rows(prompt: int, num_before: int, length: int, rows: DraftRows) -> ChainRounds:
    """How a round would end at each root of one text, under the chain of first candidates.

    Args:
        prompt: a number of the prompt.
        num_before: its tokens.
        length: of the text, T.
        rows: of the T - 1 roots.
    """
    num, depth = rows.counts.shape
    roots = np.arange(num)
    reach = np.minimum(length - 1 - roots, depth)
    right = (rows.true_ranks == 0) & (np.arange(depth) < reach[:, None])
    probs = np.exp(rows.log_probs[first_places(rows)].astype(np.float64))
    kept = np.cumprod(right, axis=1).sum(axis=1)
    return ChainRounds(np.full(num, prompt), num_before + roots, kept, reach, probs, right)


def rounds_of_engine(texts: Sequence[ComparedText]) -> ChainRounds:
    """The rounds of an engine beside those that a trace predicts at the same roots."""
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(text.recorded.prompt for text in texts))}
    parts = []
    for text in (text for text in texts if text.ended):
        root, kept, predicted, reach = np.array(text.ended, np.int64).T
        prompts = np.full(len(root), numbers[text.recorded.prompt])
        parts.append(ChainRounds(prompts, len(text.recorded.prompt_tokens) + root, kept, reach, expected=predicted))
    return joined(parts)


def first_places(rows: DraftRows) -> Longs:
    """Where the first candidate of each root and depth stands in the flat arrays, int64 ``[R, D]``."""
    before = np.cumsum(rows.counts.ravel(), dtype=np.int64) - rows.counts.ravel()
    return before.reshape(rows.counts.shape)


def joined(parts: Sequence[ChainRounds]) -> ChainRounds:
    """The rounds of several texts together; what is not known of each is not known of all."""
    none = np.zeros(0, np.int64)

    def column(name: str) -> Any:  # noqa: ANN401 - an array of the column's own kind, or None
        arrays = [getattr(part, name) for part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays or [none])

    return ChainRounds(**{entry.name: column(entry.name) for entry in fields(ChainRounds)})


def findings_of_rounds(rounds: ChainRounds) -> list[Finding]:
    """The first fault that the rounds look like; none where they are too few or look like none.

    Args:
        rounds: of a trace, with ``probs``, or of an engine, with ``expected``.
    """
    if len(rounds.kept) < FEWEST_ROUNDS or (rounds.probs is None and rounds.expected is None):
        return []
    for look in (_head, _window, _mask, _taps):
        finding = look(rounds)
        if finding is not None:
            return [finding]
    return []


def _head(rounds: ChainRounds) -> Finding | None:
    """Next to nothing is kept."""
    shares, asked = rounds.shares(rounds.kept)
    if shares[0] >= _NOTHING_KEPT or (rounds.expected is not None and rounds.expected.mean() < 10 * _NOTHING_KEPT):
        return None
    evidence = f"of {asked[0]:,} first drafted tokens {100 * shares[0]:.2f} % are kept"
    if rounds.expected is not None:
        usual = 100 * rounds.shares(rounds.expected)[0][0]
        return Finding(
            HEAD, f"{evidence}, and {usual:.1f} % are predicted: {_NO_HEAD}; a shifted vocabulary looks the same"
        )
    assert rounds.probs is not None
    return Finding(HEAD, f"{evidence}, and the drafter says {100 * rounds.probs[:, 0].mean():.1f} %: {_NO_HEAD}")


_NO_HEAD = "what a drafter does whose head was not loaded"


def _window(rounds: ChainRounds) -> Finding | None:
    """Drafts are good up to some context, and behind it they are not."""
    last = int(rounds.context.max())
    likely = np.full(len(rounds.kept), rounds.kept.mean()) if rounds.expected is None else rounds.expected
    nums, kept, due = (_summed(rounds.context, values) for values in (np.ones_like(rounds.kept), rounds.kept, likely))
    best: tuple[float, int, float, float] | None = None
    for edge in range(_SIDE, last - _SIDE // 2, 8):
        sides = np.array([[edge - _SIDE, edge], [edge, min(edge + _SIDE, last + 1)]])
        num, held, due_there = (np.diff(sums[sides]).ravel() for sums in (nums, kept, due))
        if num.min() < _FEWEST_BESIDE or due_there.min() == 0:
            continue
        before, behind = held / due_there
        if before > 0 and (best is None or behind / before < best[0]):
            best = (behind / before, edge, *(held / num))
    if best is None or best[0] > _LEFT:
        return None
    _, edge, before_mean, behind_mean = best
    return Finding(
        WINDOW,
        f"a round keeps {before_mean:.2f} drafted tokens in the {_SIDE} tokens before a context of about {edge:,}, and "
        f"{behind_mean:.2f} in those behind it: what a drafter does whose window or cache ends there",
    )


def _summed(context: Longs, values: np.ndarray) -> Doubles:
    """The sum of the values below each context, float64 ``[C + 2]`` for contexts up to C."""
    return np.append(0.0, np.bincount(context, weights=values).cumsum())


def _mask(rounds: ChainRounds) -> Finding | None:
    """The first depth is fair, and each further one is worse than the one before."""
    shares, asked = rounds.shares(rounds.kept)
    deep = asked[2:]
    if len(shares) < 3 or deep.sum() == 0 or shares[0] < _NOTHING_KEPT:
        return None
    if rounds.expected is not None:
        usual, others = rounds.shares(rounds.expected)
        weights = np.minimum(deep, others[2:])
        if weights.sum() == 0 or (usual[0] * usual[2:] == 0).all():
            return None
        first, later = shares[0] / usual[0], _pooled(shares[2:], weights) / max(_pooled(usual[2:], weights), 1e-9)
        if later >= _FALLING * first or first > 1:
            return None
        evidence = (
            f"{100 * first:.0f} % of what is predicted is kept at depth 1, and {100 * later:.0f} % from depth 3 on"
        )
    else:
        if rounds.probs is None or rounds.right is None:
            return None
        chances = rounds.reach[:, None] >= np.arange(3, rounds.probs.shape[1] + 1)
        said_share, hit_share = (
            float((values[:, 2:] * chances).sum() / chances.sum()) for values in (rounds.probs, rounds.right)
        )
        if said_share < _MASK_OVER * hit_share:
            return None
        evidence = (
            f"{100 * shares[0]:.0f} % of the first candidates are right at depth 1 and {100 * hit_share:.1f} % from "
            f"depth 3 on, where the drafter says {100 * said_share:.0f} %"
        )
    return Finding(MASK, f"{evidence}: what a drafter does that reads another token in its masked slots")


def _taps(rounds: ChainRounds) -> Finding | None:
    """All depths are worse by about the same share."""
    shares, asked = rounds.shares(rounds.kept)
    later = _pooled(shares[1:], asked[1:]) if asked[1:].sum() else shares[0]
    if rounds.expected is not None:
        per_prompt = [_by_prompt(values, rounds.prompt) for values in (rounds.kept, rounds.expected)]
        interval = ratio_interval(*per_prompt)
        if not interval.high < 1:
            return None
        value = rounds.kept.sum() / rounds.expected.sum()
        evidence = (
            f"rounds keep {100 * value:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}] of what is "
            "predicted at the same roots"
        )
    else:
        assert rounds.probs is not None
        asked_for, hits = rounds.hits(rounds.kept)
        says, keeps = (rounds.probs * asked_for).sum(axis=1), hits.sum(axis=1)
        interval = ratio_interval(*(_by_prompt(values, rounds.prompt) for values in (says, keeps)))
        if later < _FLAT * shares[0] or interval.low < _TAPS_OVER:
            return None
        evidence = (
            f"the drafter says {says.sum() / max(keeps.sum(), 1):.2f} times what is kept, at every depth about alike"
        )
    return Finding(
        TAPS, f"{evidence}: what a drafter does that reads other states of the target than its own, or is a weaker one"
    )


def _by_prompt(values: np.ndarray, prompt: Longs) -> Doubles:
    _, group = np.unique(prompt, return_inverse=True)
    return np.bincount(group, weights=values.astype(np.float64)).astype(np.float64)


def _pooled(shares: Doubles, weights: Longs) -> float:
    return float((shares * weights).sum() / max(weights.sum(), 1))


def findings_of_texts(
    texts: Sequence[tuple[Ints, Ints]], stop_ids: Iterable[int], decode: Callable[[list[int]], str] | None
) -> list[Finding]:
    """What prompts and texts themselves look like.

    Args:
        texts: prompt int32 ``[P]`` and text int32 ``[T]`` of each sequence.
        stop_ids: the tokens that end a text.
        decode: from ids to text; None: not at hand, and thinking is not looked for.
    """
    findings, stops = [], list(stop_ids)
    if not texts:
        return []
    if stops and not any(np.isin(prompt, stops).any() for prompt, _ in texts):
        evidence = (
            f"none of {len(texts):,} prompts holds a token that ends a turn ({', '.join(map(str, stops[:5]))}), as "
            "the target's own chat template writes them"
        )
        findings.append(Finding(TEMPLATE, evidence))
    thinks = 0 if decode is None else sum(_thinks(decode, prompt, text) for prompt, text in texts)
    if thinks > len(texts) / 2:
        evidence = f"{thinks:,} of {len(texts):,} texts are within <think>, opened in the prompt or the text"
        findings.append(Finding(THINKING, evidence))
    again, num = (sum(values) for values in zip(*(_repeats(text) for _, text in texts), strict=True))
    if num and again / num > _REPEATED:
        evidence = (
            f"{100 * again / num:.0f} % of all tokens end {_GRAM} tokens that stand earlier in the same text; "
            "drafts of a loop are kept more often than drafts of other text"
        )
        findings.append(Finding(REPEATED, evidence))
    return findings


def _thinks(decode: Callable[[list[int]], str], prompt: Ints, text: Ints) -> bool:
    before = decode(prompt[-16:].tolist())
    opened = before.rfind("<think>") > before.rfind("</think>")
    return opened or "<think>" in decode(text[:16].tolist())


def _repeats(text: Ints) -> tuple[int, int]:
    """Tokens that end a run that stood there before, and all tokens that end a run."""
    if len(text) < _GRAM:
        return 0, 0
    runs = np.lib.stride_tricks.sliding_window_view(text, _GRAM)
    return len(runs) - len(np.unique(runs, axis=0)), len(runs)


class SeenDrafts:
    """What is gathered of a draft set, text by text, to look for faults in it.

    Args:
        is_chain: its rows go on from its own tokens; then they tell nothing behind a wrong one, and have no masks.
    """

    def __init__(self, is_chain: bool) -> None:
        self._is_chain = is_chain
        self._rounds: list[ChainRounds] = []
        self._prompts: dict[tuple[str, str], int] = {}
        self._shifted = np.zeros(2 * _MOST_SHIFT + 1, np.int64)
        self._num = 0

    def add(self, sequence: RecordedSequence) -> None:
        """Take in the rows of one text."""
        text, rows = sequence.text, sequence.rows
        assert rows is not None
        prompt = self._prompts.setdefault((sequence.prompt.dataset, sequence.prompt.prompt_id), len(self._prompts))
        rounds = rounds_of_rows(prompt, len(sequence.prompt.token_ids), len(text), rows)
        self._rounds.append(replace(rounds, right=None) if self._is_chain else rounds)
        ahead = np.arange(len(rows.counts))[:, None] + 1 + np.arange(rows.counts.shape[1])
        within = ahead < len(text)
        moved = text[np.minimum(ahead, len(text) - 1)].astype(np.int64) - rows.ids[first_places(rows)]
        near = within & (np.abs(moved) <= _MOST_SHIFT)
        self._shifted += np.bincount(moved[near] + _MOST_SHIFT, minlength=2 * _MOST_SHIFT + 1)
        self._num += int(within.sum())

    def findings(self, is_sampled: bool, of_texts: Sequence[Finding]) -> list[Finding]:
        """The fault that the drafts look like; none where they look like none.

        Args:
            is_sampled: the texts are; what a drafter says of its token is then no forecast of how often it is right.
            of_texts: what the texts look like; under another template a drafter says more than it keeps, too.
        """
        shifted = self._shift()
        if shifted is not None:
            return [shifted]
        explained = is_sampled or any(finding.fault in (TEMPLATE, THINKING) for finding in of_texts)
        findings = findings_of_rounds(joined(self._rounds))
        return [finding for finding in findings if not (explained and finding.fault == TAPS)]

    def _shift(self) -> Finding | None:
        """A shift of all ids under which drafts are right, where they are not without it."""
        best = int(self._shifted.argmax())
        moved, own = best - _MOST_SHIFT, self._shifted[_MOST_SHIFT]
        if self._num < FEWEST_ROUNDS or not moved or self._shifted[best] < max(_SHIFTED * self._num, 4 * own):
            return None
        shares = [100 * float(hits) / self._num for hits in (own, self._shifted[best])]
        return Finding(
            VOCABULARY,
            f"{shares[0]:.1f} % of the first candidates are the text's tokens, and {shares[1]:.1f} % if {moved:+d} is "
            "added to every id: what a wrong map of the vocabulary does",
        )
