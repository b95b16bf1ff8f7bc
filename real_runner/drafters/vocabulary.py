"""A drafter's own, smaller vocabulary, and where its tokens stand in the target's."""

from dataclasses import dataclass, field, replace

import numpy as np

from simlab.arrays import Bools, Ints, Longs, read_only
from simlab.draft import Marginals
from simlab.errors import ModelError


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocabulary:
    """The tokens that a drafter can propose.

    Attributes:
        target_ids: int32 ``[V_d]``, rising: the target's id of each of the drafter's own ids. As they rise,
            the order of candidates (log-probability, then id) is the same in either numbering.
        target_vocab_size: V.
    """

    target_ids: Ints
    target_vocab_size: int
    _draft_ids: Ints = field(init=False)

    def __post_init__(self) -> None:
        ids = self.target_ids
        if len(ids) == 0 or ids[0] < 0 or ids[-1] >= self.target_vocab_size or (np.diff(ids) <= 0).any():
            raise ModelError(
                f"the drafter's {len(ids)} tokens must rise within the target's vocabulary of {self.target_vocab_size}"
            )
        draft_ids = np.full(self.target_vocab_size, -1, np.int32)
        draft_ids[ids] = np.arange(len(ids), dtype=np.int32)
        object.__setattr__(self, "_draft_ids", read_only(draft_ids))

    def to_target(self, draft_ids: Ints) -> Ints:
        """The target's ids of drafter's ids, int32, of any shape."""
        return self.target_ids[draft_ids]

    def to_draft(self, target_ids: Ints) -> Ints:
        """The drafter's ids of target's ids, int32; -1 where the drafter has no such token."""
        return self._draft_ids[target_ids]

    def in_target(self, marginals: Marginals) -> Marginals:
        """Candidates of the drafter's own numbering, in the target's."""
        return replace(marginals, ids=self.to_target(marginals.ids))


def vocabulary_of(offsets: Longs | None, mask: Bools | None, draft_size: int, target_size: int) -> tuple[Longs, bool]:
    """The target's id of each token of a drafter, int64 ``[V_d]``, and whether these rise.

    Args:
        offsets: int64 ``[V_d]``, the checkpoint's ``d2t``: target id minus drafter's id.
        mask: bool ``[V]``, its ``t2d``: which tokens of the target the drafter has.
        draft_size: V_d, as the configuration says.
        target_size: V.
    """
    if offsets is None and mask is None:
        raise ModelError(
            f"the drafter has a vocabulary of {draft_size:,} tokens and the checkpoint no d2t that says which; fetch "
            "it again, or ask its publisher"
        )
    if offsets is not None and mask is None and draft_size < target_size and not offsets.any():
        raise ModelError(
            f"the drafter's d2t is all zeros, as before it is filled in: its {draft_size:,} tokens would be the "
            f"target's first {draft_size:,}, and no t2d says so; ask its publisher for the map that it was trained with"
        )
    if offsets is not None:
        ids = offsets + np.arange(len(offsets))
    else:
        assert mask is not None
        ids = np.flatnonzero(mask)
    num_named = len(np.unique(ids))
    if len(ids) != draft_size or num_named != draft_size:
        raise ModelError(f"the drafter's d2t or t2d names {num_named} tokens; config.json says {draft_size}")
    if int(ids.min()) < 0 or int(ids.max()) >= target_size:
        raise ModelError(f"the drafter's d2t leaves the target's vocabulary of {target_size}; d2t holds offsets")
    _check_mask(ids, mask, target_size)
    return ids, bool((np.diff(ids) > 0).all())


def _check_mask(ids: Longs, mask: Bools | None, target_size: int) -> None:
    if mask is None:
        return
    named = np.zeros(target_size, np.bool_)
    named[ids] = True
    if not np.array_equal(mask, named):
        raise ModelError("the drafter's t2d and d2t name different tokens; the checkpoint is damaged, fetch it again")
