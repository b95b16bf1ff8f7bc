"""The drafter's laws, and their first candidates in the shared order, on a CPU or where they lie.

A law is as long as the vocabulary. On a GPU it stays there: what travels is the first candidates and a few
numbers a row.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.draft import Marginals
from simlab.errors import ModelError
from simlab.grid import LOWEST, ROUNDING_NOISE, STEPS_PER_NAT, to_grid
from simlab.sampling.candidates import ranks_of, top_candidates

NO_LAWS = "the drafter's logits are not numbers; give another --dtype, such as float32"

_MASKED = -1e30
"""In place of -inf, the log-probability of a masked token, whose share of an entropy is 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Laws:
    """Some rows of the drafter's laws, on its device: float32 ``[R, D, V]``, and entropies ``[R, D]``."""

    log_probs: Tensor
    probs: Tensor
    entropy: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class RankedCandidates:
    """The first ``K`` candidates of each law, and where the true tokens stand.

    Attributes:
        ids: int32 ``[R, D, K]``, in the order of `simlab.sampling.candidates`.
        log_probs: float32 ``[R, D, K]``, on the grid.
        probs: float32 ``[R, D, K]``, as the law has them.
        mass: float64 ``[R, D]``, the sum of the whole law, 1 but for rounding.
        true_ranks: int32 ``[R, D]``.
        true_log_probs: float32 ``[R, D]``, on the grid.
    """

    ids: Ints
    log_probs: Floats
    probs: Floats
    mass: Doubles
    true_ranks: Ints
    true_log_probs: Floats


@dataclass(frozen=True, slots=True)
class CandidatesRead:
    """What a policy reads at each depth of a draft.

    Attributes:
        width: so many candidates, where the vocabulary has as many.
        entropies: whether the entropy of the whole law is read too.
    """

    width: int
    entropies: bool = False


class LawBuffers:
    """Room for the laws of a pass, taken once: fresh memory of this size costs more than the arithmetic."""

    def __init__(self) -> None:
        self._log_probs = torch.empty(0)
        self._probs = torch.empty(0)

    def laws(self, logits: Tensor) -> Laws:
        """Log-softmax over the vocabulary, in float32; valid until the next call."""
        if self._log_probs.numel() < logits.numel() or self._log_probs.device != logits.device:
            self._log_probs, self._probs = torch.empty_like(logits).flatten(), torch.empty_like(logits).flatten()
        log_probs = self._log_probs[: logits.numel()].view(logits.shape)
        probs = self._probs[: logits.numel()].view(logits.shape)
        torch.log_softmax(logits, -1, out=log_probs)
        torch.exp(log_probs, out=probs)
        entropy = _entropies(log_probs.clamp_(min=_MASKED), probs)
        if bool(entropy.isnan().any()):
            raise ModelError(NO_LAWS)
        return Laws(log_probs, probs, entropy)


def _entropies(log_probs: Tensor, probs: Tensor) -> Tensor:
    """The entropies of laws ``[..., V]`` without -inf, in nats."""
    return -torch.einsum("...v,...v->...", probs, log_probs).clamp(max=0)


def ranked(laws: Laws, truth: Ints, width: int) -> RankedCandidates:
    """The first ``width`` candidates, and the ranks of the true tokens, int32 ``[R, D]``.

    A true token of -1, outside the drafter's vocabulary, has the rank -1 and a log-prob that means nothing.
    """
    on_its_device = ranked_by_kernels if laws.log_probs.device.type == "cpu" else ranked_by_torch
    return on_its_device(laws, truth, width)


def ranked_by_kernels(laws: Laws, truth: Ints, width: int) -> RankedCandidates:
    """On a CPU, without sorting the vocabulary."""
    log_probs, probs = laws.log_probs.numpy(), laws.probs.numpy()

    def row(r: int) -> tuple[Ints, Floats, Floats, Doubles, Ints]:
        ids, on_grid = top_candidates(log_probs[r], width)
        mass = probs[r].sum(axis=-1, dtype=np.float64)
        return ids, on_grid, np.take_along_axis(probs[r], ids, -1), mass, ranks_of(log_probs[r], truth[r])

    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        rows = list(pool.map(row, range(len(truth))))
    ids, on_grid, first_probs, mass, ranks = (np.stack(column) for column in zip(*rows, strict=True))
    true_log_probs = np.take_along_axis(log_probs, truth[..., None].astype(np.int64), -1)[..., 0]
    return RankedCandidates(
        ids=ids,
        log_probs=on_grid,
        probs=first_probs,
        mass=mass,
        true_ranks=ranks,
        true_log_probs=to_grid(true_log_probs),
    )


def ranked_by_torch(laws: Laws, truth: Ints, width: int) -> RankedCandidates:
    """On any device: a token's place in the order is one integer, grid steps below 0 and then its id."""
    if not bool((laws.log_probs <= ROUNDING_NOISE).all()):
        raise ValueError("log_probs must be numbers that are at most 0; apply log-softmax first")
    places = _places(laws.log_probs)
    first = _first(places, width)
    ids = first & 0x7FFFFFFF
    true_ids = torch.from_numpy(np.maximum(truth, 0).astype(np.int64)).to(places.device)[..., None]
    ranks = (places < places.gather(-1, true_ids)).sum(-1)
    ranks = ranks.masked_fill(torch.from_numpy(truth < 0).to(places.device), -1)
    return RankedCandidates(
        ids=ids.to(torch.int32).cpu().numpy(),
        log_probs=_on_grid(first.cpu().numpy()),
        probs=laws.probs.gather(-1, ids).cpu().numpy(),
        mass=laws.probs.sum(-1, dtype=torch.float64).cpu().numpy(),
        true_ranks=ranks.to(torch.int32).cpu().numpy(),
        true_log_probs=to_grid(laws.log_probs.gather(-1, true_ids)[..., 0].cpu().numpy()),
    )


def _places(log_probs: Tensor) -> Tensor:
    """int64, like ``log_probs``: each token's place in the order of its row."""
    steps = log_probs.clamp(LOWEST, 0.0).mul_(-STEPS_PER_NAT).round_()
    places = steps.to(torch.int64).bitwise_left_shift_(31)
    places |= torch.arange(places.shape[-1], device=places.device)
    return places


def _first(places: Tensor, width: int) -> Tensor:
    return places.topk(min(width, places.shape[-1]), largest=False, sorted=True).values


def _on_grid(first: Longs) -> Floats:
    on_grid: Floats = ((first >> 31) / -STEPS_PER_NAT + 0.0).astype(np.float32)
    return on_grid


def first_marginals(logits: Tensor, read: CandidatesRead) -> Marginals:
    """The first candidates at each depth below one root, and entropies if they are read: what a live round sees.

    Args:
        logits: float32 ``[D, V]``, raw, on any device.
        read: a width above ``V`` gives all.
    """
    if logits.device.type != "cpu":
        first, entropies, are_laws = first_places(logits, read)
        return marginals_at(first.cpu().numpy(), entropies.cpu().numpy(), bool(are_laws))
    log_probs = logits.log_softmax(-1)
    return _marginals(*first_candidates(log_probs, read.width), _entropies_read(log_probs, read).numpy())


def first_candidates(log_probs: Tensor, width: int) -> tuple[Ints, Floats]:
    """The first candidates of some laws, on any device.

    Args:
        log_probs: float32 ``[N, V]``, after a log-softmax.
        width: a width above ``V`` gives all.

    Returns:
        Ids, int32 ``[N, K]``, and log-probs on the grid, float32 ``[N, K]``, in the order of
        `simlab.sampling.candidates`.
    """
    if log_probs.device.type != "cpu":
        if not bool((log_probs <= ROUNDING_NOISE).all()):
            raise ModelError(NO_LAWS)
        first = _first(_places(log_probs), width).cpu().numpy()
        return (first & 0x7FFFFFFF).astype(np.int32), _on_grid(first)
    try:
        return top_candidates(log_probs.numpy(), width)
    except ValueError as error:
        raise ModelError(NO_LAWS) from error


def first_places(logits: Tensor, read: CandidatesRead) -> tuple[Tensor, Tensor, Tensor]:
    """The first candidates as `first_marginals` has them, each as one integer, without a wait for the device.

    Returns:
        For `marginals_at`: int64 ``[D, K]``; entropies, float32 ``[D]``, or ``[0]`` if they are not read; and whether
        every row is a law, bool ``[]``.
    """
    log_probs = logits.log_softmax(-1)
    are_laws = (log_probs <= ROUNDING_NOISE).all()
    return _first(_places(log_probs), read.width), _entropies_read(log_probs, read), are_laws


def marginals_at(first: Longs, entropies: Floats, are_laws: bool) -> Marginals:
    """What `first_places` found, on the host."""
    if not are_laws:
        raise ModelError(NO_LAWS)
    return _marginals((first & 0x7FFFFFFF).astype(np.int32), _on_grid(first), entropies)


def _entropies_read(log_probs: Tensor, read: CandidatesRead) -> Tensor:
    """float32 ``[D]``, or ``[0]`` if they are not read."""
    return _entropies(log_probs.clamp(min=_MASKED), log_probs.exp()) if read.entropies else log_probs.new_zeros(0)


def _marginals(ids: Ints, on_grid: Floats, entropies: Floats) -> Marginals:
    offsets = np.arange(0, ids.size + 1, ids.shape[1], dtype=np.int32)
    return Marginals(ids.ravel(), on_grid.ravel(), offsets, entropies if entropies.size else None)
