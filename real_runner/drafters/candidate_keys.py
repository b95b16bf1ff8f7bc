"""The order of candidates, and the rows that a trace keeps of it, where a drafter's laws lie.

A token's place in the order of `simlab.sampling.candidates` is one integer, grid steps below 0 and then its id. So
any device finds the candidates that a CPU's kernels find. The host only launches; it waits once for the texts of a
pass, and what reaches it then is the candidates that are kept and a few numbers a row.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools
from simlab.errors import ModelError
from simlab.grid import LOWEST, ROUNDING_NOISE, STEPS_PER_NAT
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.traces.format.frames import DraftColumns

NO_LAWS = "the drafter's logits are not numbers; give another --dtype, such as float32"

MASKED = -1e30
"""In place of -inf, the log-probability of a masked token, whose share of an entropy is 0."""

_ID_BITS = 31
_RANK_BITS = 16
_NO_PLACE = 2**62
"""Behind all keys."""

_ROOTS_COUNTED = 2048
"""At once: each takes some 30 kB of memory per copy of its paths."""


def are_laws(log_probs: Tensor) -> Tensor:
    """bool ``[]``, whether all are log-probabilities."""
    return (log_probs <= ROUNDING_NOISE).all()


def entropies(log_probs: Tensor, probs: Tensor) -> Tensor:
    """The entropies of laws ``[..., V]`` without -inf, in nats."""
    return -torch.einsum("...v,...v->...", probs, log_probs).clamp(max=0)


def steps_of(log_probs: Tensor) -> Tensor:
    """Grid steps below 0 of log-probabilities, float32 as these: whole numbers, exact below 2**24."""
    return log_probs.clamp(LOWEST, 0.0).mul_(-STEPS_PER_NAT).round_()


def keys_of(log_probs: Tensor, ids: Tensor | None = None) -> Tensor:
    """int64, like ``log_probs``: each token's place in the order of its row; ``ids``, int64, if not counted from 0."""
    keys = steps_of(log_probs).to(torch.int64).bitwise_left_shift_(_ID_BITS)
    keys |= torch.arange(keys.shape[-1], device=keys.device) if ids is None else ids
    return keys


def first_of(keys: Tensor, width: int) -> Tensor:
    """The first keys of each row, in order."""
    return keys.topk(min(width, keys.shape[-1]), largest=False, sorted=True).values


def first_at(steps: Tensor, width: int) -> Tensor:
    """The first keys of each row of steps ``[..., V]`` in order, as `first_of` gives them.

    A number of 32 bits for each token of the vocabulary is half of what its place takes, and is searched in half the
    passes. Steps alone leave open which of the tokens are taken whose step is the last one: those of the smallest ids.
    """
    num = steps.shape[-1]
    least, at = steps.topk(min(width, num), largest=False, sorted=False)
    last = least.amax(-1, keepdim=True)
    ids = torch.arange(num, device=steps.device, dtype=steps.dtype)
    tied = ids.where(steps == last, num).topk(least.shape[-1], largest=False, sorted=False).values
    below = (least.long() << _ID_BITS | at).where(least < last, _NO_PLACE)
    level = (last.long() << _ID_BITS | tied.long()).where(tied < num, _NO_PLACE)
    return torch.cat([below, level], dim=-1).sort(-1).values[..., : least.shape[-1]]


def ids_at(keys: Tensor) -> Tensor:
    """int64, the token of each place."""
    return keys & ((1 << _ID_BITS) - 1)


def grid_at(keys: Tensor) -> Tensor:
    """float32, the log-probability of each place: exact, as steps are whole numbers below 2**24."""
    # 0 is added, since a step of 0 would become -0.
    return (keys >> _ID_BITS).float() / -STEPS_PER_NAT + 0.0


class OnTheWay:
    """Tensors of one device whose copies to the host are launched, and for which it waits when it asks."""

    def __init__(self, *tensors: Tensor) -> None:
        device = tensors[0].device
        self._copies = [tensor.to("cpu", non_blocking=device.type == "cuda") for tensor in tensors]
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(device))

    def arrays(self) -> list[np.ndarray]:
        """All of them, as arrays in memory that the device copies to, with one wait."""
        if self._event is not None:
            self._event.synchronize()
        return [copy.numpy() for copy in self._copies]


def on_host(*tensors: Tensor) -> list[np.ndarray]:
    """Some tensors of one device as arrays, with one wait for all of them."""
    return OnTheWay(*tensors).arrays()


@lru_cache(maxsize=16)
def stream_beside(device: torch.device, _number: int = 0) -> torch.cuda.Stream:
    """A stream of a GPU beside the one that work goes to otherwise; the same one for the same number."""
    return torch.cuda.Stream(device)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without a wait for what the device is doing."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


# How many candidates a trace keeps.


def counts_kept(first: Tensor, kept: KeptCandidates) -> Tensor:
    """What `simlab.real_runner.drafters.ranked.kept_counts` gives of many roots.

    Args:
        first: int64 ``[R, D, K]``, the first keys of each law.
        kept: how many candidates.

    Returns:
        int64 ``[R, D]``.
    """
    costs = (first >> _ID_BITS).split(_ROOTS_COUNTED)
    read = torch.cat([exact_ranks(part, kept.exact_budget) for part in costs])
    return read.clamp(min=kept.min_width).clamp(max=first.shape[-1])


def exact_ranks(costs: Tensor, budget: int) -> Tensor:
    """How many ranks the best-first tree of ``budget`` drafted tokens reads, int64 ``[R, D]``.

    A path is a candidate with what follows it: nothing, or a path through the depths below, both in order. Before the
    path of the i-th candidate and the j-th follower, counted from 0, come those of all smaller i and j; so the first n
    paths are among those with (i + 1)(j + 1) at most n. Equal costs stand in the order of i and then of j, which is
    the order of their ranks, a prefix first.

    Args:
        costs: int64 ``[R, D, K]``, grid steps below 0, rising with the rank.
        budget: at least 1.
    """
    behind, paths = costs.new_zeros(len(costs), 1), list[Tensor]()
    for depth in reversed(range(costs.shape[1])):
        ranks, followers = _pairs(costs.shape[2], behind.shape[1], budget, costs.device)
        keys = (costs[:, depth, ranks] + behind[:, followers]) << 2 * _RANK_BITS
        keys |= (ranks << _RANK_BITS) | followers
        paths.insert(0, first_of(keys, budget))
        behind = torch.nn.functional.pad(paths[0] >> 2 * _RANK_BITS, (1, 0))
    return _ranks_read(paths)


def _ranks_read(paths: list[Tensor]) -> Tensor:
    """The most ranks at each depth, out of the first paths ``[R, n]`` that begin there.

    Of those of a depth as many are in the tree as follow the first candidates above.
    """
    num_in, read = torch.full_like(paths[0][:, :1], paths[0].shape[1]), list[Tensor]()
    for part in paths:
        ranks = (part >> _RANK_BITS) & ((1 << _RANK_BITS) - 1)
        is_in = torch.arange(part.shape[1], device=part.device) < num_in
        read.append(((ranks + 1) * is_in).amax(-1))
        # The first of them is followed by nothing.
        num_in = ((ranks == 0) & is_in).sum(-1, keepdim=True) - 1
    return torch.stack(read, dim=1)


@lru_cache(maxsize=16)
def _pairs(num_candidates: int, num_followers: int, budget: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """All i and j of `exact_ranks`, int64 ``[P]``."""
    most = [min(num_followers, budget // (rank + 1)) for rank in range(min(num_candidates, budget))]
    ranks = np.repeat(np.arange(len(most)), most)
    followers = np.concatenate([np.arange(num) for num in most])
    return torch.from_numpy(ranks).to(device), torch.from_numpy(followers).to(device)


# The rows of a text.


class PassRows(NamedTuple):
    """What a trace keeps of the R roots of a pass, on the device.

    Attributes:
        roots: int64 ``[R]``, absolute positions.
        first: int64 ``[R, D, K]``, the first keys of each law.
        probs: float32 ``[R, D, K]``, what the law gives these.
        mass: float64 ``[R, D]``, the sum of the whole law, 1 but for rounding.
        entropy: float32 ``[R, D]``.
        true_ranks: int64 ``[R, D]``; -1 outside the drafter's vocabulary.
        true_places: int64 ``[R, D]``.
        are_laws: bool ``[1]``.
    """

    roots: Tensor
    first: Tensor
    probs: Tensor
    mass: Tensor
    entropy: Tensor
    true_ranks: Tensor
    true_places: Tensor
    are_laws: Tensor


def columns_on_device(
    passes: Iterable[tuple[Tensor, Tensor]],
    own: DraftVocabulary | None,
    depth: int,
    tokens: Tensor,
    kept: KeptCandidates,
) -> DraftColumns:
    """What `simlab.real_runner.drafters.ranked.columns_of` gives, on any device; arguments as there."""
    text = tokens if own is None else in_draft(tokens, own)
    parts = [pass_rows(logits, text, roots, kept.most) for roots, logits in passes]
    num_roots = sum(len(part.roots) for part in parts)
    return ColumnsOnTheWay(parts, own, depth, kept).columns([(num_roots, len(tokens))])[0]


class ColumnsOnTheWay:
    """The rows of some passes, chosen and packed on the device, and for which the host waits when it asks.

    How many candidates are kept is known on the device first. So these are packed at the front of a tensor as large as
    if all were kept, and what is copied of it is launched beside other work, once the host has the number.
    """

    def __init__(
        self, parts: Sequence[PassRows], own: DraftVocabulary | None, depth: int, kept: KeptCandidates
    ) -> None:
        """Launch all of it; arguments as of `columns_on_device`, of passes over the roots of one text or of several."""
        self._own, self._depth, self._small = own, depth, cast(OnTheWay | None, None)
        if not parts:
            return
        rows = PassRows(*(torch.cat(column) for column in zip(*parts, strict=True)))
        counts = counts_kept(rows.first, kept)
        inside = torch.arange(rows.first.shape[-1], device=counts.device) < counts[..., None]
        rest = rows.mass - (rows.probs.double() * inside).sum(-1)
        outside = rest.clamp(min=0.0).log().clamp(-255.0, 0.0).float()
        num, is_kept = inside.numel(), inside.flatten()
        # What is not kept goes, one over the other, behind all that can be.
        at = (is_kept.cumsum(0) - 1).where(is_kept, num)
        self._packed = rows.first.new_empty(num + 1).scatter_(0, at, rows.first.flatten())
        small = (rows.roots.int(), counts.int(), outside, rows.entropy, rows.true_ranks.int())
        self._small = OnTheWay(*small, grid_at(rows.true_places), rows.are_laws)

    def columns(self, texts: Sequence[tuple[int, int]]) -> list[DraftColumns]:
        """The columns of each text in the order of their rows: how many roots it has, and tokens with its prompt."""
        if self._small is None:
            return [DraftColumns.empty(self._depth) for _ in texts]
        *of_roots, laws = self._small.arrays()
        if not laws.all():
            raise ModelError(NO_LAWS)
        ends = np.concatenate([[0], of_roots[1].sum(-1, dtype=np.int64).cumsum()])
        device = self._packed.device
        with torch.cuda.stream(stream_beside(device)) if device.type == "cuda" else nullcontext():
            first = self._packed[: ends[-1]]
            of_candidates = on_host(ids_at(first).int(), grid_at(first))
        columns, start = list[DraftColumns](), 0
        for num_roots, num_tokens in texts:
            stop = start + num_roots
            # Copies, since the arrays lie in memory that a GPU copies to, which is scarce.
            roots, counts, outside_log_mass, entropy, ranks, true_log_probs = (of[start:stop].copy() for of in of_roots)
            ids, log_probs = (of[ends[start] : ends[stop]].copy() for of in of_candidates)
            valid: Bools = roots[:, None] + np.arange(1, self._depth + 1) < num_tokens
            columns.append(
                DraftColumns(
                    context_length=roots,
                    counts=counts,
                    ids=ids if self._own is None else self._own.to_target(ids),
                    log_probs=log_probs,
                    outside_log_mass=outside_log_mass,
                    entropy=entropy,
                    true_rank=ranks,
                    true_log_prob=true_log_probs,
                    valid=valid,
                )
            )
            start = stop
        return columns


def in_draft(tokens: Tensor, own: DraftVocabulary) -> Tensor:
    """int64, the drafter's ids of tokens of the target; -1 where it has no such token."""
    draft_ids = own.to_draft(np.arange(own.target_vocab_size, dtype=np.int32)).astype(np.int64)
    return sent(torch.from_numpy(draft_ids), tokens.device)[tokens]


def pass_rows(logits: Tensor, text: Tensor, roots: Tensor, width: int) -> PassRows:
    """The rows of a pass, without a wait for the device.

    Args:
        logits: float32 ``[R, D, V]``.
        text: int64 ``[P + T]``, prompt and text by the drafter's ids; -1 for tokens that it has not.
        roots: int64 ``[R]``, absolute positions.
        width: K, of a smaller vocabulary all.
    """
    log_probs = logits.log_softmax(-1)
    steps, probs = steps_of(log_probs), log_probs.exp()
    first = first_at(steps, width)
    ahead = roots[:, None] + torch.arange(1, logits.shape[1] + 1, device=roots.device)
    true_ids = text[ahead.clamp(max=len(text) - 1)][..., None]
    true_steps = steps.gather(-1, true_ids.clamp(min=0))
    is_before = torch.arange(steps.shape[-1], device=roots.device) < true_ids
    ranks = (steps < true_steps).logical_or_(is_before.logical_and_(steps == true_steps)).sum(-1)
    true_places = (true_steps.long() << _ID_BITS | true_ids.clamp(min=0))[..., 0]
    is_law = are_laws(log_probs)[None]
    entropy = entropies(log_probs.clamp_(min=MASKED), probs)
    first_probs, mass = probs.gather(-1, ids_at(first)), probs.sum(-1, dtype=torch.float64)
    ranks = ranks.masked_fill(true_ids[..., 0] < 0, -1)
    return PassRows(roots, first, first_probs, mass, entropy, ranks, true_places, is_law)
